//! Plans of Fourier transforms for the crate `cotangent`, of `f32` and `f64`.
//!
//! Complex transforms of lengths without other prime factors than 2, 3 and 5 have kernels here, [`Rows`] and [`Columns`], which
//! several threads can share. All others, and those of real numbers, are `rustfft`'s, which is generic, and would be compiled
//! with the crate that uses it, each time that changes. Here it is compiled once.
//!
//! The kernels work on registers through pointers, since their lanes are neighbours in memory that belong to different
//! transforms; that is what `unsafe` is for here.

mod butterfly;
mod lanes;
mod panel;
mod pass;
mod plan;
mod split;

use realfft::RealFftPlanner;
use rustfft::{FftDirection, FftPlanner};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

pub use plan::{Columns, Halves, Rows};
pub use realfft::{ComplexToReal, RealToComplex, num_complex::Complex};
pub use rustfft::{Fft, FftNum};

/// What the parts of complex numbers can be.
pub trait Part: FftNum + pass::Kernel {
    /// The transform of rows of `n` complex numbers by this crate's kernels, if they have that length.
    fn rows(n: usize) -> Option<Arc<Rows<Self>>>;

    /// The same of columns.
    fn columns(n: usize) -> Option<Arc<Columns<Self>>>;

    /// The transform of `n` complex numbers, or the inverse one; neither is scaled.
    fn complex(n: usize, forward: bool) -> Arc<dyn Fft<Self>>;

    /// The first half of the transform of `n` real numbers.
    fn forward(n: usize) -> Arc<dyn RealToComplex<Self>>;

    /// The inverse of that, not scaled.
    fn inverse(n: usize) -> Arc<dyn ComplexToReal<Self>>;
}

/// Plans of lengths, or that there are none, up to a number: some have tables as long as what they transform.
struct Kept<P>(Mutex<Option<HashMap<usize, Option<Arc<P>>>>>);

impl<P> Kept<P> {
    const MOST: usize = 64;

    fn get(&self, n: usize, make: fn(usize) -> Option<P>) -> Option<Arc<P>> {
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let plans = plans.get_or_insert_default();
        if plans.len() >= Self::MOST && !plans.contains_key(&n) {
            plans.clear();
        }
        plans.entry(n).or_insert_with(|| make(n).map(Arc::new)).clone()
    }
}

macro_rules! parts {
    ($($part:ident $planners:ident;)+) => {$(
        static $planners: Mutex<Option<(FftPlanner<$part>, RealFftPlanner<$part>)>> = Mutex::new(None);

        impl Part for $part {
            fn rows(n: usize) -> Option<Arc<Rows<$part>>> {
                static KEPT: Kept<Rows<$part>> = Kept(Mutex::new(None));
                KEPT.get(n, Rows::new)
            }

            fn columns(n: usize) -> Option<Arc<Columns<$part>>> {
                static KEPT: Kept<Columns<$part>> = Kept(Mutex::new(None));
                KEPT.get(n, Columns::new)
            }

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
mod tests;
