//! Compute dtypes, and conversion from every dtype to one and back.
//!
//! Elementwise kernels exist only for f32, f64, i64 and u64. Elements of other dtypes are converted to one of them tile by tile:
//! half precision to f32, smaller integers and bools to i64.

use crate::backend::cpu::runtime::simd::{Job, dispatch};
use crate::dtype::{float_to_u64, with_dtype};
use crate::{DType, Element};
use half::{bf16, f16};

/// A type that kernels compute in.
pub(crate) trait Compute: Element + Loads + PartialOrd {}

impl Compute for f32 {}
impl Compute for f64 {}
impl Compute for i64 {}
impl Compute for u64 {}

/// Conversion of one element, with the meaning of Rust's `as`.
pub(crate) trait Convert<To> {
    fn convert(self) -> To;
}

macro_rules! convert_as {
    ($($from:ty => [$($to:ty),+]),+ $(,)?) => {$($(
        impl Convert<$to> for $from {
            #[inline(always)]
            fn convert(self) -> $to { self as $to }
        }
    )+)+};
}
convert_as!(
    f32 => [f32, f64, i64],
    f64 => [f32, f64, i64],
    i64 => [f32, f64, i64, u64, i32, i16, i8, u32, u16, u8],
    u64 => [f32, f64, i64, u64, i32, i16, i8, u32, u16, u8],
    i32 => [f32, f64, i64, u64],
    i16 => [f32, f64, i64, u64],
    i8 => [f32, f64, i64, u64],
    u32 => [f32, f64, i64, u64],
    u16 => [f32, f64, i64, u64],
    u8 => [f32, f64, i64, u64],
);

macro_rules! convert_by {
    ($($from:ty => $to:ty, |$x:ident| $by:expr;)+) => {$(
        impl Convert<$to> for $from {
            #[inline(always)]
            fn convert(self) -> $to { let $x = self; $by }
        }
    )+};
}
// A float is converted to a small integer through i64, so that all integer dtypes wrap around in the same way.
convert_by! {
    f32 => u64, |x| float_to_u64(x.into()); f64 => u64, |x| float_to_u64(x);
    f32 => i32, |x| x as i64 as i32; f32 => i16, |x| x as i64 as i16; f32 => i8, |x| x as i64 as i8;
    f32 => u32, |x| x as i64 as u32; f32 => u16, |x| x as i64 as u16; f32 => u8, |x| x as i64 as u8;
    f64 => i32, |x| x as i64 as i32; f64 => i16, |x| x as i64 as i16; f64 => i8, |x| x as i64 as i8;
    f64 => u32, |x| x as i64 as u32; f64 => u16, |x| x as i64 as u16; f64 => u8, |x| x as i64 as u8;
    f32 => f16, |x| f16::from_f32(x); f64 => f16, |x| f16::from_f64(x);
    i64 => f16, |x| f16::from_f64(x as f64); u64 => f16, |x| f16::from_f64(x as f64);
    f32 => bf16, |x| bf16::from_f32(x); f64 => bf16, |x| bf16::from_f64(x);
    i64 => bf16, |x| bf16::from_f64(x as f64); u64 => bf16, |x| bf16::from_f64(x as f64);
    f32 => bool, |x| x != 0.0; f64 => bool, |x| x != 0.0; i64 => bool, |x| x != 0; u64 => bool, |x| x != 0;
    f16 => f32, |x| x.to_f32(); f16 => f64, |x| x.to_f64(); f16 => i64, |x| x.to_f32() as i64; f16 => u64, |x| float_to_u64(x.to_f64());
    bf16 => f32, |x| x.to_f32(); bf16 => f64, |x| x.to_f64(); bf16 => i64, |x| x.to_f32() as i64; bf16 => u64, |x| float_to_u64(x.to_f64());
    bool => f32, |x| f32::from(u8::from(x)); bool => f64, |x| f64::from(u8::from(x));
    bool => i64, |x| i64::from(x); bool => u64, |x| u64::from(x);
}

/// Conversion of a compute dtype from and to every element type.
pub(crate) trait Loads {
    /// # Safety
    /// `from` points at `n` elements of `dtype`, `stride` elements apart; `to` is valid for `n` writes.
    unsafe fn load(dtype: DType, from: *const u8, stride: isize, to: *mut Self, n: usize);
    /// # Safety
    /// `from` is valid for `n` reads; `to` points at `n` elements of `dtype`, `stride` elements apart.
    unsafe fn store(dtype: DType, from: *const Self, to: *mut u8, stride: isize, n: usize);
}

macro_rules! loads {
    ($($c:ty),+) => {$(
        impl Loads for $c {
            unsafe fn load(dtype: DType, from: *const u8, stride: isize, to: *mut $c, n: usize) {
                // SAFETY: the caller's promise.
                with_dtype!(dtype, T => unsafe { convert(from.cast::<T>(), stride, to, 1, n) });
            }
            unsafe fn store(dtype: DType, from: *const $c, to: *mut u8, stride: isize, n: usize) {
                // SAFETY: the caller's promise.
                with_dtype!(dtype, T => unsafe { convert(from, 1, to.cast::<T>(), stride, n) });
            }
        }
    )+};
}
loads!(f32, f64, i64, u64);

/// Converts `n` elements of `dtype` to a compute dtype.
///
/// # Safety
/// `from` points at `n` elements of `dtype`, `stride` elements apart; `to` is valid for `n` writes of `compute`.
pub(crate) unsafe fn load(compute: DType, dtype: DType, from: *const u8, stride: isize, to: *mut u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match compute {
            DType::F32 => f32::load(dtype, from, stride, to.cast(), n),
            DType::F64 => f64::load(dtype, from, stride, to.cast(), n),
            DType::U64 => u64::load(dtype, from, stride, to.cast(), n),
            _ => i64::load(dtype, from, stride, to.cast(), n),
        }
    }
}

/// The inverse of [`load`].
///
/// # Safety
/// `from` is valid for `n` reads of `compute`; `to` points at `n` elements of `dtype`, `stride` elements apart.
pub(crate) unsafe fn store(compute: DType, dtype: DType, from: *const u8, to: *mut u8, stride: isize, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match compute {
            DType::F32 => f32::store(dtype, from.cast(), to, stride, n),
            DType::F64 => f64::store(dtype, from.cast(), to, stride, n),
            DType::U64 => u64::store(dtype, from.cast(), to, stride, n),
            _ => i64::store(dtype, from.cast(), to, stride, n),
        }
    }
}

/// Converts `n` elements from one type to another.
///
/// # Safety
/// `from` and `to` point at `n` elements, `from_stride` and `to_stride` apart.
unsafe fn convert<A: Convert<B> + Copy, B: Copy>(
    from: *const A,
    from_stride: isize,
    to: *mut B,
    to_stride: isize,
    n: usize,
) {
    if from_stride == 1 && to_stride == 1 {
        return dispatch(Run { from, to, n });
    }
    // Only contiguous elements are vectorised; one version of this loop is enough.
    // SAFETY: the caller's promise.
    unsafe {
        if from_stride == 0 && n > 0 {
            let value = from.read().convert();
            for i in 0..n as isize {
                to.offset(i * to_stride).write(value);
            }
        } else {
            for i in 0..n as isize {
                to.offset(i * to_stride).write(from.offset(i * from_stride).read().convert());
            }
        }
    }
}

/// The conversion of contiguous elements; created only by [`convert`], whose contract makes its accesses valid.
struct Run<A, B> {
    from: *const A,
    to: *mut B,
    n: usize,
}

impl<A: Convert<B> + Copy, B> Job for Run<A, B> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for i in 0..self.n {
            // SAFETY: the contract of `convert`.
            unsafe { self.to.add(i).write(self.from.add(i).read().convert()) };
        }
    }
}
