//! A transform of one row or column per lane of a register, in panels that stay in a cache.

use crate::kernels::{Kernel, Kernels, RADICES};
use crate::moves::Move;
use crate::pass::{FIRST, LAST, MIDDLE, Pass};

/// `exp(-2πi k / n)`, to the last bit but one: the angle is reduced to an eighth of a circle without rounding.
pub(crate) fn twiddle(k: usize, n: usize) -> (f64, f64) {
    let (k, n) = ((k % n) as u64, n as u64);
    // Eighths of the circle, and the rest in units of 1 / (8 n). Nothing overflows: memory has less than 2^60 numbers.
    let (eighth, rest) = (8 * k / n, 8 * k % n);
    let rest = if eighth % 2 == 0 { rest } else { n - rest };
    let (sin, cos) = (rest as f64 / n as f64 * std::f64::consts::FRAC_PI_4).sin_cos();
    let (cos, sin) = match eighth {
        0 => (cos, sin),
        1 => (sin, cos),
        2 => (-sin, cos),
        3 => (-cos, sin),
        4 => (-cos, -sin),
        5 => (-sin, -cos),
        6 => (sin, -cos),
        _ => (cos, -sin),
    };
    (cos, -sin)
}

/// The number of elements of long columns that are prefetched ahead. More would be evicted before they are needed: elements a
/// power of two apart share a few cache sets.
pub(crate) const AHEAD: usize = 2;

/// The source of a transform. Steps are strides, in numbers, between elements of a column, or between rows.
#[derive(Clone, Copy)]
pub(crate) enum Source<T> {
    Panel(*const T),
    Columns(*const T, usize, usize),
    Rows(*const T, usize, usize),
}

/// The target of a transform: columns, rows, or one of its panels, which is not reversed.
#[derive(Clone, Copy)]
pub(crate) enum Target<T> {
    Panel,
    Columns(*mut T, usize, usize),
    Rows(*mut T, usize, usize),
    /// Columns of one matrix, one per lane, or of two matrices, `apart` numbers from each other.
    Woven {
        to: *mut T,
        step: usize,
        apart: usize,
    },
}

struct Step {
    /// The index in [`RADICES`].
    radix: usize,
    /// As in [`Pass`].
    s: usize,
    count: usize,
    /// The index of its twiddles.
    twiddles: usize,
}

/// The passes of a transform of `n` elements.
pub(crate) struct Panel<T> {
    pub n: usize,
    steps: Vec<Step>,
    twiddles: Vec<T>,
}

/// The radices of `n` in the order of passes, as indices in [`RADICES`]; `None` if `n` has prime factors beyond 7. There
/// are at least `least` of them, if possible.
fn radices(n: usize, least: usize) -> Option<Vec<usize>> {
    if n == 0 {
        return None;
    }
    let (mut rest, mut odd) = (n, Vec::new());
    for (at, factor) in [(1, 3), (3, 5), (4, 7)] {
        while rest % factor == 0 {
            odd.push(at);
            rest /= factor;
        }
    }
    if !rest.is_power_of_two() {
        return None;
    }
    // The factors of two in as few passes as possible, with similar radices.
    let mut bits = rest.trailing_zeros() as usize;
    let mut passes = bits.div_ceil(4).max(least.saturating_sub(odd.len())).min(bits);
    let mut found = Vec::new();
    while passes > 0 {
        let take = bits.div_ceil(passes);
        found.push([0, 2, 5, 6][take - 1]);
        (bits, passes) = (bits - take, passes - 1);
    }
    found.extend(odd);
    Some(found)
}

/// The approximate time of a transform of a panel. Passes over panels that do not fit into the L1 cache take longer.
pub(crate) fn cost(n: usize, least: usize) -> Option<usize> {
    let weight = match n {
        0..=128 => 4,
        129..=256 => 5,
        257..=1024 => 7,
        1025..=2048 => 9,
        2049..=8192 => 14,
        _ => 24,
    };
    // A pass of radix 16 needs more numbers than there are registers.
    let pass = |radix: usize| if RADICES[radix] == 16 { 6 } else { 4 };
    radices(n, least).map(|steps| n * weight * steps.into_iter().map(pass).sum::<usize>() / 4)
}

impl<T: Kernel> Panel<T> {
    /// `None` if `n` is 1 or has prime factors beyond 7. There are at least `least` passes, if possible: two are needed to read
    /// from and to write to memory.
    pub fn new(n: usize, least: usize) -> Option<Panel<T>> {
        let (mut steps, mut twiddles, mut s) = (Vec::new(), Vec::new(), 1);
        for radix in radices(n, least).filter(|_| n > 1)? {
            let r = RADICES[radix];
            let count = n / s / r;
            steps.push(Step { radix, s, count, twiddles: twiddles.len() });
            for p in 0..count {
                for k in 1..r {
                    let (re, im) = twiddle(p * k, count * r);
                    twiddles.extend([T::of(re), T::of(im)]);
                }
            }
            s *= r;
        }
        Some(Panel { n, steps, twiddles })
    }

    /// The size of one of its panels, in numbers.
    pub fn room(&self, kernels: &Kernels<T>) -> usize {
        self.n * 2 * kernels.lanes
    }

    /// Runs the transform, and returns the address of the result if the target is a panel.
    ///
    /// # Safety
    /// The CPU has the kernels' instructions. Source and target have all elements of their columns or rows, at most one per
    /// lane, and `room` has two panels; none of them overlap.
    pub unsafe fn run(
        &self,
        kernels: &Kernels<T>,
        from: Source<T>,
        to: Target<T>,
        reverse: bool,
        ahead: usize,
        room: *mut T,
    ) -> *const T {
        let wide = 2 * kernels.lanes;
        // SAFETY: the caller's promise: there are two panels.
        let other = unsafe { room.add(self.room(kernels)) };
        let (mut next, mut free) = (room, other);
        let (mut at, mut step) = (room.cast_const(), wide);
        let moved = |memory: *mut T, step, lanes, panel| Move { memory, step, lanes, panel, n: self.n, reverse };
        let mut first = MIDDLE;
        match from {
            Source::Panel(panel) => at = panel,
            Source::Columns(columns, stride, lanes) if lanes == kernels.lanes && self.steps.len() > 1 => {
                (at, step, first) = (columns, stride, FIRST);
            }
            Source::Columns(memory, stride, lanes) => {
                // SAFETY: the caller's promise.
                unsafe { (kernels.columns_in)(&moved(memory.cast_mut(), stride, lanes, next)) };
                (next, free) = (free, next);
            }
            Source::Rows(memory, stride, lanes) => {
                // SAFETY: the caller's promise.
                unsafe { (kernels.rows_in)(&moved(memory.cast_mut(), stride, lanes, next)) };
                (next, free) = (free, next);
            }
        }
        for (number, pass) in self.steps.iter().enumerate() {
            let mut of = Pass {
                from: at,
                from_step: step,
                to: next,
                to_step: wide,
                apart: kernels.lanes,
                ahead,
                s: pass.s,
                count: pass.count,
                // SAFETY: the index is that of this pass's twiddles.
                twiddles: unsafe { self.twiddles.as_ptr().add(pass.twiddles) },
                reverse: false,
            };
            let mut kind = if number == 0 { first } else { MIDDLE };
            if number + 1 == self.steps.len() {
                match to {
                    Target::Columns(columns, stride, lanes) if lanes == kernels.lanes => {
                        (kind, of.to, of.to_step, of.reverse) = (LAST, columns, stride, reverse);
                    }
                    Target::Woven { to, step, apart } => {
                        (kind, of.to, of.to_step, of.apart, of.reverse) = (LAST, to, step, apart, reverse);
                    }
                    // Passes without twiddles are MIDDLE ones; the step after them reverses.
                    _ => {}
                }
            }
            // SAFETY: the caller's promise. A panel of the two is free: the one that is not read.
            unsafe { (kernels.passes[pass.radix][kind])(&of) };
            (at, step) = (of.to, wide);
            (next, free) = (free, next);
        }
        match to {
            // SAFETY: the caller's promise; the result is in the panel.
            Target::Columns(memory, stride, lanes) if lanes != kernels.lanes => unsafe {
                (kernels.columns_out)(&moved(memory, stride, lanes, at.cast_mut()));
            },
            // SAFETY: as above.
            Target::Rows(memory, stride, lanes) => unsafe {
                (kernels.rows_out)(&moved(memory, stride, lanes, at.cast_mut()));
            },
            _ => {}
        }
        at
    }
}
