//! Updates of parameters: one pass over all of them, their gradients and the state that belongs to each.
//!
//! The driver here knows slices, vectors and threads; a [`Rule`] knows one element.
#![forbid(unsafe_code)]

use crate::Element;
use crate::backend::cpu::runtime::simd::{Job, dispatch};
use crate::backend::cpu::runtime::threads::{GRAIN, parallel_map};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// The types that updates are computed in.
pub(crate) trait Real:
    Element
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    fn of(value: f64) -> Self;
    fn wide(self) -> f64;
    fn sqrt(self) -> Self;
}

macro_rules! reals {
    ($($t:ident),+) => {$(
        impl Real for $t {
            #[inline(always)]
            fn of(value: f64) -> $t { value as $t }
            #[inline(always)]
            fn wide(self) -> f64 { self as f64 }
            #[inline(always)]
            fn sqrt(self) -> $t { $t::sqrt(self) }
        }
    )+};
}
reals!(f32, f64);

/// How one element of a parameter, and of the `N` tensors of its state, follows from its gradient. `at` must be
/// `#[inline(always)]`, so that its loop can be compiled for every vector width.
pub(crate) trait Rule<T, const N: usize>: Copy + Send + Sync {
    /// The new element and the new state.
    fn at(&self, parameter: T, gradient: T, state: [T; N]) -> (T, [T; N]);

    /// The same as statements in CUDA C, which change the parameter `p` and the state `s0`, `s1`; `g` is the gradient, and
    /// `c(0)`, `c(1)`, … are the [`numbers`](Self::numbers).
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    const CODE: &'static str;

    /// The numbers that [`CODE`](Self::CODE) takes.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code))]
    fn numbers(&self) -> Vec<f64>;
}

/// One parameter with all that its update needs. The slices have one length.
pub(crate) struct Update<'a, T, R, const N: usize> {
    pub rule: R,
    pub parameter: &'a mut [T],
    pub gradient: &'a [T],
    pub state: [&'a mut [T]; N],
}

/// Elements that one thread takes at a time: few enough for parameters of any size to be dealt out evenly.
const PIECE: usize = GRAIN / 4;

/// Applies the rules to all elements, in place: one fork for all parameters together, since most models have many that
/// are too small for a fork of their own.
pub(crate) fn update<T: Real, R: Rule<T, N>, const N: usize>(all: Vec<Update<'_, T, R, N>>) {
    let total: usize = all.iter().map(|one| one.parameter.len()).sum();
    if total <= GRAIN {
        return all.into_iter().for_each(dispatch);
    }
    let mut pieces = Vec::with_capacity(total / PIECE + all.len());
    all.into_iter().for_each(|one| one.cut(&mut pieces));
    parallel_map(pieces, dispatch);
}

impl<'a, T, R: Copy, const N: usize> Update<'a, T, R, N> {
    fn cut(self, pieces: &mut Vec<Update<'a, T, R, N>>) {
        let Update { rule, parameter, gradient, state } = self;
        let mut state = state.map(|slice| slice.chunks_mut(PIECE));
        for (parameter, gradient) in parameter.chunks_mut(PIECE).zip(gradient.chunks(PIECE)) {
            let state = std::array::from_fn(|k| state[k].next().unwrap_or_default());
            pieces.push(Update { rule, parameter, gradient, state });
        }
    }
}

impl<T: Real, R: Rule<T, N>, const N: usize> Job for Update<'_, T, R, N> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Update { rule, parameter, gradient, state } = self;
        let n = parameter.len();
        // Cut to one length, so that no index needs a check.
        let gradient = &gradient[..n];
        let state = state.map(|slice| &mut slice[..n]);
        for i in 0..n {
            let before = std::array::from_fn(|k| state[k][i]);
            let (new, after) = rule.at(parameter[i], gradient[i], before);
            parameter[i] = new;
            for k in 0..N {
                state[k][i] = after[k];
            }
        }
    }
}

/// The sum of |x|^p, or the largest |x| for an infinite `p`; computed in f64, in pieces of fixed bounds.
pub(crate) fn power_sum<T: Real>(x: &[T], p: f64) -> f64 {
    let piece = |x: &[T]| {
        if p == 2.0 {
            dispatch(Sum(x, |x: f64| x * x))
        } else if p == 1.0 {
            dispatch(Sum(x, f64::abs))
        } else if p == f64::INFINITY {
            // NaN is passed on, which `max` would not do.
            x.iter().fold(0.0, |most: f64, x| if x.wide().abs() <= most { most } else { x.wide().abs() })
        } else {
            x.iter().map(|x| x.wide().abs().powf(p)).sum()
        }
    };
    let parts: Vec<f64> = parallel_map(x.chunks(GRAIN).collect(), piece);
    if p == f64::INFINITY { largest(&parts) } else { parts.iter().sum() }
}

/// The largest of numbers that are not negative; NaN if one of them is.
pub(crate) fn largest(x: &[f64]) -> f64 {
    x.iter().fold(0.0, |most: f64, &x| if x <= most { most } else { x })
}

struct Sum<'a, T, F>(&'a [T], F);

impl<T: Real, F: Fn(f64) -> f64> Job for Sum<'_, T, F> {
    type Output = f64;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> f64 {
        const LANES: usize = 16;
        let Sum(x, f) = self;
        let (whole, rest) = x.as_chunks::<LANES>();
        let mut sums = [0.0; LANES];
        for chunk in whole {
            for (sum, x) in sums.iter_mut().zip(chunk) {
                *sum += f(x.wide());
            }
        }
        sums.iter().sum::<f64>() + rest.iter().map(|x| f(x.wide())).sum::<f64>()
    }
}
