//! Fourier transforms for the crate `cotangent`, of `f32` and `f64`.
//!
//! The kernels are compiled for each instruction set, which takes long. Here that is done once, and not each time that the crate
//! that uses them changes.
//!
//! They work on registers through pointers, since their lanes are neighbours in memory that belong to different transforms;
//! that is what `unsafe` is for here.

mod bluestein;
mod butterfly;
mod columns;
mod kernels;
mod lanes;
mod moves;
mod panel;
mod pass;
mod plan;
mod pointwise;
mod smooth;
mod split;
mod weave;
mod woven;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

pub use columns::Columns;
pub use plan::Plan;

/// What the parts of complex numbers can be.
pub trait Part: kernels::Kernel {
    /// The transform of rows of `n` complex numbers. There are so many rows, if that matters.
    fn complex(n: usize, rows: usize) -> Arc<Plan<Self>>;

    /// The same of real numbers.
    fn real(n: usize, rows: usize) -> Arc<Plan<Self>>;

    /// The transform of columns of `n` complex numbers, if there are kernels for that.
    fn columns(n: usize) -> Option<Arc<Columns<Self>>>;
}

/// Plans of lengths, for few rows or many, up to a number: some have tables as long as what they transform.
struct Kept<P>(Mutex<Option<HashMap<(usize, bool), P>>>);

impl<P: Clone> Kept<P> {
    const MOST: usize = 64;

    fn get(&self, n: usize, few: bool, make: impl FnOnce(usize, bool) -> P) -> P {
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let plans = plans.get_or_insert_default();
        if plans.len() >= Self::MOST && !plans.contains_key(&(n, few)) {
            plans.clear();
        }
        plans.entry((n, few)).or_insert_with(|| make(n, few)).clone()
    }
}

macro_rules! parts {
    ($($part:ident)+) => {$(
        impl Part for $part {
            fn complex(n: usize, rows: usize) -> Arc<Plan<$part>> {
                static KEPT: Kept<Arc<Plan<$part>>> = Kept(Mutex::new(None));
                KEPT.get(n, few::<$part>(rows), |n, few| Arc::new(Plan::complex(n, few)))
            }

            fn real(n: usize, rows: usize) -> Arc<Plan<$part>> {
                static KEPT: Kept<Arc<Plan<$part>>> = Kept(Mutex::new(None));
                KEPT.get(n, few::<$part>(rows), |n, few| Arc::new(Plan::real(n, few)))
            }

            fn columns(n: usize) -> Option<Arc<Columns<$part>>> {
                static KEPT: Kept<Option<Arc<Columns<$part>>>> = Kept(Mutex::new(None));
                KEPT.get(n, false, |n, _| Columns::new(n).map(Arc::new))
            }
        }
    )+};
}
parts!(f32 f64);

/// Whether so many rows would leave most lanes of a register empty.
fn few<T: kernels::Kernel>(rows: usize) -> bool {
    4 * rows < T::kernels().lanes
}

#[cfg(test)]
mod tests;
