//! Fourier transforms for the crate `cotangent`, of `f32` and `f64`.
//!
//! The kernels are compiled for each instruction set, which takes long. In a separate crate they are not recompiled when
//! `cotangent` changes.
//!
//! # Algorithms
//! Lengths without prime factors beyond 7 have kernels. These work on a *panel*, which holds one transform per lane of a
//! register (`pass.rs`), in passes of radix 2 to 16. There are several ways to fill a panel:
//!
//! - Neighbouring columns of a matrix already are neighbouring lanes (`columns.rs`). So a dimension that is not the last needs
//!   no transposed copy, and several dimensions are transformed in place, one after another.
//! - Many short rows are transposed into a panel, one per lane.
//! - One or two rows of up to a few thousand numbers are matrices that fill a panel (`woven.rs`). If the widest registers
//!   cannot be filled in this way, the kernels of narrower ones are used if they can.
//! - All other rows are transformed in two halves, each of many short transforms (`split.rs`), with more passes over memory.
//!
//! Other lengths use Bluestein's algorithm (`bluestein.rs`), with the longer length whose transforms are fastest. An even number
//! of real numbers is transformed as half as many complex ones, with one more step; an odd number is transformed as complex
//! numbers. An inverse transform is a transform whose last pass writes element `e` to the position of `-e`.
//!
//! A [`Plan`] is a list of stages. The blocks of a stage are independent. The caller splits the rows among its threads, or the
//! blocks of each stage if a few long rows are not enough for all threads. The arithmetic is the same in both cases.
//!
//! # Unsafe code
//! `unsafe` is needed for SIMD instructions and pointers: the lanes of a register are neighbours in memory that belong to
//! different transforms.

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

/// The types of the parts of complex numbers.
pub trait Part: kernels::Kernel {
    /// The transform of rows of `n` complex numbers. `rows` is the number of rows, which may affect the plan.
    fn complex(n: usize, rows: usize) -> Arc<Plan<Self>>;

    /// The transform of rows of `n` real numbers.
    fn real(n: usize, rows: usize) -> Arc<Plan<Self>>;

    /// The transform of columns of `n` complex numbers, if there are kernels for this length.
    fn columns(n: usize) -> Option<Arc<Columns<Self>>>;
}

/// A cache of plans by length, for few or many rows. Its size is bounded, as some plans have tables as long as their rows.
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

/// Whether `rows` rows would leave most lanes of a register empty.
fn few<T: kernels::Kernel>(rows: usize) -> bool {
    4 * rows < T::kernels().lanes
}

#[cfg(test)]
mod tests;
