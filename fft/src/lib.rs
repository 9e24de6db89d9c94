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

    /// The factors of [`Long`] for `n` complex numbers, or those of the inverse transform.
    fn long(n: usize, forward: bool) -> Arc<Long<Self>>;

    /// The first half of the transform of `n` real numbers.
    fn forward(n: usize) -> Arc<dyn RealToComplex<Self>>;

    /// The inverse of that, not scaled.
    fn inverse(n: usize) -> Arc<dyn ComplexToReal<Self>>;
}

/// A transform of `columns · rows` numbers as transforms of the columns and the rows of a matrix, with factors in between (the
/// "four-step" method): several threads can share it, and each transform is small enough for their caches.
///
/// Column `j` of the matrix has numbers `j`, `j + columns`, .. of the input. Its transform is multiplied by the factors of
/// that column; then element `k` of the transform of row `i` is number `i + rows · k` of the output.
pub struct Long<T: FftNum> {
    /// The length of a row, and its transform.
    pub columns: Arc<dyn Fft<T>>,
    /// The length of a column, and its transform.
    pub rows: Arc<dyn Fft<T>>,
    /// Those of each column one after the other.
    pub factors: Vec<Complex<T>>,
}

/// Lengths from which on transforms are long ones, if they are powers of 2.
pub const LONG: usize = 1 << 17;

/// The long transforms that were used last, with their lengths and directions.
type Recent<T> = Mutex<Vec<(usize, bool, Arc<Long<T>>)>>;

/// Long transforms that are kept: each takes as much memory as its input.
const KEPT: usize = 4;

macro_rules! parts {
    ($($part:ident $planners:ident $recent:ident;)+) => {$(
        static $recent: Recent<$part> = Mutex::new(Vec::new());
        static $planners: Mutex<Option<(FftPlanner<$part>, RealFftPlanner<$part>)>> = Mutex::new(None);

        impl Part for $part {
            fn complex(n: usize, forward: bool) -> Arc<dyn Fft<$part>> {
                let direction = if forward { FftDirection::Forward } else { FftDirection::Inverse };
                let mut planners = $planners.lock().unwrap_or_else(PoisonError::into_inner);
                planners.get_or_insert_with(|| (FftPlanner::new(), RealFftPlanner::new())).0.plan_fft(n, direction)
            }

            fn long(n: usize, forward: bool) -> Arc<Long<$part>> {
                let mut recent = $recent.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(at) = recent.iter().position(|&(size, direction, _)| (size, direction) == (n, forward)) {
                    recent[..=at].rotate_right(1);
                    return recent[0].2.clone();
                }
                let rows = 1 << (n.ilog2() / 2);
                let columns = n / rows;
                let turn = if forward { -2.0 } else { 2.0 } * std::f64::consts::PI / n as f64;
                let factor = |at: usize| {
                    let (sin, cos) = ((at / rows * (at % rows)) as f64 * turn).sin_cos();
                    Complex::new(cos as $part, sin as $part)
                };
                let factors = (0..n).map(factor).collect();
                let (columns, rows) = (Self::complex(columns, forward), Self::complex(rows, forward));
                let long = Arc::new(Long { columns, rows, factors });
                recent.truncate(KEPT - 1);
                recent.insert(0, (n, forward, long.clone()));
                long
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
    f32 SINGLE RECENT_SINGLE;
    f64 DOUBLE RECENT_DOUBLE;
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
