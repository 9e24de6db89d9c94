//! The kernels, compiled for the registers of each instruction set.

use crate::butterfly::Constant;
use crate::lanes::Lanes;
use crate::moves::{Move, Transpose, Turns};
use crate::pass::{FIRST, LAST, MIDDLE, Pass};
use crate::pointwise::{Product, Untangle};
use crate::weave::Weave;
use crate::{moves, pass, pointwise, weave};

/// The radices of passes, in the order of [`Kernels::passes`].
pub(crate) const RADICES: [usize; 7] = [2, 3, 4, 5, 7, 8, 16];

/// The kernels of an instruction set for a type of number.
pub struct Kernels<T: 'static> {
    pub lanes: usize,
    /// By radix and kind.
    pub passes: [[unsafe fn(&Pass<T>); 3]; 7],
    /// For one row and for two, forward and inverse.
    pub weave: [[unsafe fn(&Weave<T>); 2]; 2],
    pub columns_in: unsafe fn(&Move<T>),
    pub columns_out: unsafe fn(&Move<T>),
    pub rows_in: unsafe fn(&Move<T>),
    pub rows_out: unsafe fn(&Move<T>),
    pub transpose: unsafe fn(&Transpose<T>),
    pub turns: unsafe fn(&Turns<T>),
    pub product: unsafe fn(&Product<T>),
    pub untangle: unsafe fn(&Untangle<T>),
}

macro_rules! kernels {
    ($name:ident, $t:ty, $vector:ty, $(#[$feature:meta])?) => {
        mod $name {
            #[allow(clippy::wildcard_imports)]
            use super::*;

            const LANES: usize = <$vector as Lanes>::LANES;
            const HALF: usize = LANES.div_ceil(2);

            /// # Safety
            /// As the function of this name in the module [`pass`], or in the modules named below.
            $(#[$feature])?
            unsafe fn one_pass<const R: usize, const KIND: usize>(of: &Pass<$t>) {
                // SAFETY: the caller's promise, here and below.
                unsafe { pass::pass::<$vector, R, KIND>(of) }
            }

            const fn passes<const R: usize>() -> [unsafe fn(&Pass<$t>); 3] {
                // A panel of one lane has the layout of complex numbers in memory.
                let middle = if LANES == 1 { one_pass::<R, FIRST> } else { one_pass::<R, MIDDLE> };
                [one_pass::<R, FIRST>, middle, one_pass::<R, LAST>]
            }

            /// # Safety
            /// As above.
            $(#[$feature])?
            unsafe fn weave_rows<const R: usize, const REVERSE: bool>(of: &Weave<$t>) {
                // SAFETY: as above.
                unsafe { weave::weave::<$vector, R, REVERSE>(of) }
            }

            kernels!(@each $vector, [$(#[$feature])?], moves::columns_in(Move<$t>) moves::columns_out(Move<$t>)
                moves::rows_in(Move<$t>) moves::rows_out(Move<$t>) moves::transpose(Transpose<$t>) moves::turns(Turns<$t>)
                pointwise::product(Product<$t>) pointwise::untangle(Untangle<$t>));

            pub(super) static KERNELS: Kernels<$t> = Kernels {
                lanes: LANES,
                passes: [
                    passes::<2>(), passes::<3>(), passes::<4>(), passes::<5>(), passes::<7>(), passes::<8>(), passes::<16>(),
                ],
                weave: [
                    [weave_rows::<LANES, false>, weave_rows::<LANES, true>],
                    [weave_rows::<HALF, false>, weave_rows::<HALF, true>],
                ],
                columns_in,
                columns_out,
                rows_in,
                rows_out,
                transpose,
                turns,
                product,
                untangle,
            };
        }
    };
    (@each $vector:ty, $feature:tt, $($module:ident::$f:ident($of:ty))+) => {
        $(kernels!(@one $vector, $feature, $module, $f, $of);)+
    };
    (@one $vector:ty, [$(#[$feature:meta])?], $module:ident, $f:ident, $of:ty) => {
        /// # Safety
        /// As above.
        $(#[$feature])?
        unsafe fn $f(of: &$of) {
            // SAFETY: as above.
            unsafe { $module::$f::<$vector>(of) }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #[allow(clippy::wildcard_imports)]
    use super::*;
    use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

    kernels!(avx512_f32, f32, __m512, #[target_feature(enable = "avx512f")]);
    kernels!(avx512_f64, f64, __m512d, #[target_feature(enable = "avx512f")]);
    kernels!(avx2_f32, f32, __m256, #[target_feature(enable = "avx2,fma")]);
    kernels!(avx2_f64, f64, __m256d, #[target_feature(enable = "avx2,fma")]);

    pub(super) static SINGLE: [&Kernels<f32>; 2] = [&avx512_f32::KERNELS, &avx2_f32::KERNELS];
    pub(super) static DOUBLE: [&Kernels<f64>; 2] = [&avx512_f64::KERNELS, &avx2_f64::KERNELS];

    /// Which of the instruction sets the CPU has.
    pub(super) fn usable() -> [bool; 2] {
        use std::arch::is_x86_feature_detected as has;
        [has!("avx512f"), has!("avx2") && has!("fma")]
    }
}

// Arrays of several lanes take longer to compile than all others. So an old x86-64 CPU without AVX2 computes one number
// at a time.
#[cfg(any(test, target_arch = "x86_64"))]
kernels!(scalar_f32, f32, [f32; 1],);
#[cfg(any(test, target_arch = "x86_64"))]
kernels!(scalar_f64, f64, [f64; 1],);
#[cfg(any(test, not(target_arch = "x86_64")))]
kernels!(array_f32, f32, [f32; 4],);
#[cfg(any(test, not(target_arch = "x86_64")))]
kernels!(array_f64, f64, [f64; 2],);

/// The kernels for a type of number.
pub trait Kernel: Constant {
    /// The best kernels that this CPU can run.
    fn kernels() -> &'static Kernels<Self>;

    /// The best kernels whose number of lanes `lanes_do` accepts, or the best of all if there are none.
    fn kernels_where(lanes_do: impl Fn(usize) -> bool) -> &'static Kernels<Self>;

    /// All kernels that this CPU can run.
    #[cfg(test)]
    fn all_kernels() -> Vec<&'static Kernels<Self>>;
}

macro_rules! kernel {
    ($t:ident $list:ident $scalar:ident $array:ident) => {
        impl Kernel for $t {
            #[cfg(target_arch = "x86_64")]
            fn kernels() -> &'static Kernels<$t> {
                x86::$list
                    .iter()
                    .zip(x86::usable())
                    .find(|&(_, usable)| usable)
                    .map_or(&$scalar::KERNELS, |found| found.0)
            }

            #[cfg(target_arch = "x86_64")]
            fn kernels_where(lanes_do: impl Fn(usize) -> bool) -> &'static Kernels<$t> {
                let found =
                    x86::$list.iter().zip(x86::usable()).find(|&(kernels, usable)| usable && lanes_do(kernels.lanes));
                found.map_or_else(Self::kernels, |found| found.0)
            }

            #[cfg(not(target_arch = "x86_64"))]
            fn kernels_where(_: impl Fn(usize) -> bool) -> &'static Kernels<$t> {
                Self::kernels()
            }

            #[cfg(not(target_arch = "x86_64"))]
            fn kernels() -> &'static Kernels<$t> {
                &$array::KERNELS
            }

            #[cfg(test)]
            // Only on x86 are there more.
            #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
            fn all_kernels() -> Vec<&'static Kernels<$t>> {
                let mut found: Vec<&'static Kernels<$t>> = vec![&$scalar::KERNELS, &$array::KERNELS];
                #[cfg(target_arch = "x86_64")]
                found.extend(x86::$list.iter().zip(x86::usable()).filter(|found| found.1).map(|found| found.0));
                found
            }
        }
    };
}
kernel!(f32 SINGLE scalar_f32 array_f32);
kernel!(f64 DOUBLE scalar_f64 array_f64);
