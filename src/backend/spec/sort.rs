//! The order that sorts go by.

#[cfg(feature = "cuda")]
use crate::DType;
use crate::Element;
use half::{bf16, f16};

/// A dtype whose elements have an order: as unsigned numbers in that order. NaN comes after everything else, and -0 is 0.
pub(crate) trait SortKey: Element {
    /// An unsigned number as wide as the element.
    type Key: Copy + Ord + Send + Sync + std::ops::BitXor<Output = Self::Key> + Into<u64>;
    /// The largest key.
    const LAST: Self::Key;
    /// The smallest key.
    const FIRST: Self::Key;
    fn key(self) -> Self::Key;
    /// Whether it is NaN, whose key an integer may have, too.
    #[inline(always)]
    fn is_nan(self) -> bool {
        false
    }
}

/// Which place in the order of the elements is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// The one with so many before it.
    At(usize),
    /// The middle, the lower of two; the first NaN, if there is one.
    Median,
    /// The middle of those that are not NaN.
    NanMedian,
}

impl Rank {
    /// How many come before it of `len` elements, of which so many are NaN.
    pub fn before(self, len: usize, nans: usize) -> usize {
        match self {
            Rank::At(k) => k,
            Rank::Median if nans > 0 => len - nans,
            Rank::Median => (len - 1) / 2,
            Rank::NanMedian => (len - nans).saturating_sub(1) / 2,
        }
    }
}

macro_rules! float_keys {
    ($($t:ty as $bits:ty),+) => {$(
        impl SortKey for $t {
            type Key = $bits;
            const LAST: $bits = <$bits>::MAX;
            const FIRST: $bits = 0;
            #[inline(always)]
            fn key(self) -> $bits {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                // Negative numbers in the reverse order of their bits, before the others.
                let bits = self.to_bits();
                let bits = if bits == SIGN { 0 } else { bits };
                let key = if bits & SIGN != 0 { !bits } else { bits | SIGN };
                if <$t>::is_nan(self) { <$bits>::MAX } else { key }
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                <$t>::is_nan(self)
            }
        }
    )+};
}
float_keys!(f64 as u64, f32 as u32, f16 as u16, bf16 as u16);

macro_rules! int_keys {
    ($($t:ty as $bits:ty),+) => {$(
        impl SortKey for $t {
            type Key = $bits;
            const LAST: $bits = <$bits>::MAX;
            const FIRST: $bits = 0;
            #[inline(always)]
            fn key(self) -> $bits {
                self as $bits ^ (1 << (<$bits>::BITS - 1))
            }
        }
    )+};
}
int_keys!(i64 as u64, i32 as u32, i16 as u16, i8 as u8);

macro_rules! unsigned_keys {
    ($($t:ty as $bits:ty),+) => {$(
        impl SortKey for $t {
            type Key = $bits;
            const LAST: $bits = <$bits>::MAX;
            const FIRST: $bits = 0;
            #[inline(always)]
            fn key(self) -> $bits {
                <$bits>::from(self)
            }
        }
    )+};
}
unsigned_keys!(u64 as u64, u32 as u32, u16 as u16, u8 as u8, bool as u8);

/// What a kernel on a GPU calls the kind of a dtype's order.
#[cfg(feature = "cuda")]
pub(crate) fn order_kind(dtype: DType) -> u32 {
    match dtype {
        dtype if dtype.is_float() => 2,
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => 1,
        _ => 0,
    }
}
