//! Sort keys.

#[cfg(feature = "cuda")]
use crate::DType;
use crate::Element;
use half::{bf16, f16};

/// A dtype with an order: its elements map to unsigned keys in that order. NaN is last, and -0 equals 0.
pub(crate) trait SortKey: Element {
    /// An unsigned integer of the width of the element.
    type Key: Copy + Ord + Send + Sync + std::ops::BitXor<Output = Self::Key> + Into<u64>;
    /// The largest key.
    const LAST: Self::Key;
    /// The smallest key.
    const FIRST: Self::Key;
    fn key(self) -> Self::Key;
    /// The element with a key, if it is unique.
    #[inline(always)]
    fn from_key(key: u64) -> Option<Self> {
        let _ = key;
        None
    }
    /// Whether it is NaN. The key alone does not tell, since an integer may have the same key.
    #[inline(always)]
    fn is_nan(self) -> bool {
        false
    }
}

/// The rank of the element to select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// The element at this position in sorted order.
    At(usize),
    /// The median, the lower of two; the first NaN, if there is one.
    Median,
    /// The median of the elements that are not NaN.
    NanMedian,
}

impl Rank {
    /// The position in sorted order among `len` elements, `nans` of which are NaN.
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
                // Negative numbers come first, in the reverse order of their bits.
                let bits = self.to_bits();
                let bits = if bits == SIGN { 0 } else { bits };
                let key = if bits & SIGN != 0 { !bits } else { bits | SIGN };
                if <$t>::is_nan(self) { <$bits>::MAX } else { key }
            }
            #[inline(always)]
            fn from_key(key: u64) -> Option<$t> {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                let key = key as $bits;
                let bits = if key & SIGN != 0 { key ^ SIGN } else { !key };
                // Both zeros share a key, and so do all NaN.
                (key != SIGN && key != <$bits>::MAX).then(|| <$t>::from_bits(bits))
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
            #[inline(always)]
            fn from_key(key: u64) -> Option<$t> {
                Some((key as $bits ^ (1 << (<$bits>::BITS - 1))) as $t)
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

/// The number of a dtype's kind of order in GPU kernels.
#[cfg(feature = "cuda")]
pub(crate) fn order_kind(dtype: DType) -> u32 {
    match dtype {
        dtype if dtype.is_float() => 2,
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => 1,
        _ => 0,
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn keys_lead_back_to_their_elements() {
        for x in [1.5_f32, -1.5, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE, -f32::MAX, f32::MAX, 1e-45] {
            assert_eq!(f32::from_key(x.key().into()), Some(x));
            assert_eq!(f64::from_key(f64::from(x).key()), Some(f64::from(x)));
        }
        for x in [0.0, -0.0, f32::NAN, -f32::NAN] {
            assert_eq!(f32::from_key(x.key().into()), None);
        }
        for x in [i64::MIN, -1, 0, 1, i64::MAX] {
            assert_eq!(i64::from_key(x.key()), Some(x));
        }
    }
}
