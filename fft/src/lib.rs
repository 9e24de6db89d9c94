//! Plans of Fourier transforms for the crate `cotangent`, of `f32` and `f64`.
//!
//! `rustfft` is generic, and would be compiled with the crate that uses it, each time that changes. Here it is compiled once.
#![forbid(unsafe_code)]

use realfft::RealFftPlanner;
use rustfft::{FftDirection, FftPlanner};
use std::sync::{Arc, Mutex, PoisonError};

pub use realfft::{ComplexToReal, RealToComplex, num_complex::Complex};
pub use rustfft::{Fft, FftNum};

/// What the parts of complex numbers can be.
pub trait Part: FftNum {
    /// The transform of `n` complex numbers, or the inverse one; neither is scaled.
    fn complex(n: usize, forward: bool) -> Arc<dyn Fft<Self>>;

    /// The first half of the transform of `n` real numbers.
    fn forward(n: usize) -> Arc<dyn RealToComplex<Self>>;

    /// The inverse of that, not scaled.
    fn inverse(n: usize) -> Arc<dyn ComplexToReal<Self>>;
}

macro_rules! parts {
    ($($part:ident $planners:ident;)+) => {$(
        static $planners: Mutex<Option<(FftPlanner<$part>, RealFftPlanner<$part>)>> = Mutex::new(None);

        impl Part for $part {
            fn complex(n: usize, forward: bool) -> Arc<dyn Fft<$part>> {
                let direction = if forward { FftDirection::Forward } else { FftDirection::Inverse };
                let mut planners = $planners.lock().unwrap_or_else(PoisonError::into_inner);
                planners.get_or_insert_with(|| (FftPlanner::new(), RealFftPlanner::new())).0.plan_fft(n, direction)
            }

            fn forward(n: usize) -> Arc<dyn RealToComplex<$part>> {
                let mut planners = $planners.lock().unwrap_or_else(PoisonError::into_inner);
                planners.get_or_insert_with(|| (FftPlanner::new(), RealFftPlanner::new())).1.plan_fft_forward(n)
            }

            fn inverse(n: usize) -> Arc<dyn ComplexToReal<$part>> {
                let mut planners = $planners.lock().unwrap_or_else(PoisonError::into_inner);
                planners.get_or_insert_with(|| (FftPlanner::new(), RealFftPlanner::new())).1.plan_fft_inverse(n)
            }
        }
    )+};
}
parts! {
    f32 SINGLE;
    f64 DOUBLE;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let mut x: Vec<Complex<f64>> = (0..30).map(|i| Complex::new(f64::from(i % 7), f64::from(i % 4))).collect();
        let before = x.clone();
        f64::complex(30, true).process(&mut x);
        f64::complex(30, false).process(&mut x);
        assert!(x.iter().zip(&before).all(|(x, y)| (x / 30.0 - y).norm() < 1e-12));
    }
}
