//! Transforms of rows of a length without prime factors beyond 7. All others consist of these.

use crate::kernels::{Kernel, Kernels};
use crate::panel::{self, Panel};
use crate::split::{self, Split};
use crate::woven::{self, Woven};

pub(crate) enum Smooth<T: 'static> {
    /// One number, which is its own transform.
    One,
    /// Short rows: one per lane.
    Together(Panel<T>),
    /// Longer ones: one or two that fill a panel.
    Woven(Woven<T>),
    /// Long ones, each in two halves.
    Split(Split<T>),
}

/// The length from which on rows are split: halves should fill the lanes, and panels of whole rows should fit into the L1 cache,
/// which is the only criterion with one lane. Few rows are split sooner, as they would not fill the lanes of a panel.
fn least_split(lanes: usize, few: bool) -> usize {
    match lanes {
        1 => 1024,
        _ if few => 2 * lanes,
        _ => lanes * lanes * 3 / 4,
    }
}

/// The approximate time for a row.
fn cost(n: usize, few: bool, lanes: usize) -> Option<usize> {
    if let Some(cost) = woven::cost(n, few, lanes) {
        return Some(cost);
    }
    let split = if n < least_split(lanes, few) { None } else { split::best(n, lanes) };
    match split {
        Some((cost, _)) => Some(cost),
        // Copying into and out of the panel takes about two passes.
        None => panel::cost(n, 1).map(|cost| (cost + 8 * n) / if few { 1 } else { lanes }),
    }
}

/// The fastest length of at least `least`.
pub(crate) fn cheapest(least: usize, few: bool, lanes: usize) -> usize {
    let most = least.next_power_of_two();
    let multiples = |of: usize, by: usize| {
        std::iter::successors(Some(of), move |n| n.checked_mul(by)).take_while(move |&n| n <= most)
    };
    let lengths = multiples(1, 7).flat_map(|n| multiples(n, 5)).flat_map(|n| multiples(n, 3)).map(|odd| {
        // The power of two that makes it long enough.
        odd * least.div_ceil(odd).next_power_of_two()
    });
    let costs = lengths.filter_map(|n| Some((cost(n, few, lanes)?, n)));
    costs.min().map_or(most, |(_, n)| n)
}

impl<T: Kernel> Smooth<T> {
    /// `None` if `n` is 0 or has prime factors beyond 7.
    pub fn new(n: usize, few: bool, kernels: &Kernels<T>) -> Option<Smooth<T>> {
        if n == 1 {
            return Some(Smooth::One);
        }
        if let Some(woven) = Woven::new(n, few, kernels) {
            return Some(Smooth::Woven(woven));
        }
        let split = if n < least_split(kernels.lanes, few) { None } else { Split::new(n, kernels) };
        match split {
            Some(split) => Some(Smooth::Split(split)),
            None => Panel::new(n, 1).map(Smooth::Together),
        }
    }

    /// The number of rows that are transformed together.
    pub fn group(&self, kernels: &Kernels<T>) -> usize {
        match self {
            Smooth::One | Smooth::Together(_) => kernels.lanes,
            Smooth::Woven(woven) => woven.rows,
            Smooth::Split(_) => 1,
        }
    }

    /// The workspace of a thread, in numbers.
    pub fn room(&self, kernels: &Kernels<T>) -> usize {
        match self {
            Smooth::One => 0,
            Smooth::Together(panel) => 2 * panel.room(kernels),
            Smooth::Woven(woven) => woven.room(kernels),
            Smooth::Split(split) => split.room(kernels),
        }
    }

    /// The size of the memory between the halves, in numbers.
    pub fn middle(&self, kernels: &Kernels<T>) -> usize {
        if let Smooth::Split(split) = self { split.middle(kernels) } else { 0 }
    }
}
