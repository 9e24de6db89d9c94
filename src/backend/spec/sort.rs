//! The order that sorts go by.

#[cfg(feature = "cuda")]
use crate::DType;
use crate::Element;
use half::{bf16, f16};

/// A dtype whose elements have an order: as unsigned numbers in that order. NaN comes after everything else, and -0 is 0.
pub(crate) trait SortKey: Element {
    fn key(self) -> u64;
}

macro_rules! float_keys {
    ($($t:ty as $bits:ty),+) => {$(
        impl SortKey for $t {
            #[inline(always)]
            fn key(self) -> u64 {
                const SIGN: $bits = 1 << (<$bits>::BITS - 1);
                if self.is_nan() {
                    return u64::from(<$bits>::MAX);
                }
                // Negative numbers in the reverse order of their bits, before the others.
                let bits = self.to_bits();
                let bits = if bits == SIGN { 0 } else { bits };
                u64::from(if bits & SIGN != 0 { !bits } else { bits | SIGN })
            }
        }
    )+};
}
float_keys!(f64 as u64, f32 as u32, f16 as u16, bf16 as u16);

macro_rules! int_keys {
    ($($t:ty as $bits:ty),+) => {$(
        impl SortKey for $t {
            #[inline(always)]
            fn key(self) -> u64 {
                u64::from(self as $bits ^ (1 << (<$bits>::BITS - 1)))
            }
        }
    )+};
}
int_keys!(i64 as u64, i32 as u32, i16 as u16, i8 as u8);

macro_rules! unsigned_keys {
    ($($t:ty),+) => {$(
        impl SortKey for $t {
            #[inline(always)]
            fn key(self) -> u64 {
                u64::from(self)
            }
        }
    )+};
}
unsigned_keys!(u64, u32, u16, u8, bool);

/// What a kernel on a GPU calls the kind of a dtype's order.
#[cfg(feature = "cuda")]
pub(crate) fn order_kind(dtype: DType) -> u32 {
    match dtype {
        dtype if dtype.is_float() => 2,
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => 1,
        _ => 0,
    }
}
