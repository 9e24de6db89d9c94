//! Parameter updates: one pass over all parameters, their gradients and their optimizer state.
//!
//! This driver handles slices, vectors and threads; a [`Rule`] updates one element.
#![forbid(unsafe_code)]

use crate::Element;
use crate::backend::cpu::runtime::simd::{Job, dispatch, each};
use crate::backend::cpu::runtime::threads::{GRAIN, parallel_map};
use crate::backend::spec::{N, Rule};
use crate::zip::zip;
use smallvec::SmallVec;
use std::marker::PhantomData;

/// The types that updates are computed in.
pub(crate) trait UpdateDType: Element + PartialOrd {
    fn of(value: f64) -> Self;
    fn wide(self) -> f64;

    /// A rule for one element.
    fn apply<R: Rule<S, M>, const S: usize, const M: usize>(
        numbers: [Self; M],
        parameter: Self,
        gradient: Self,
        state: [Self; S],
    ) -> (Self, [Self; S]);
}

macro_rules! update_dtypes {
    ($($t:ident),+) => {$(
        impl UpdateDType for $t {
            #[inline(always)]
            fn of(value: f64) -> $t { value as $t }
            #[inline(always)]
            fn wide(self) -> f64 { self as f64 }
            #[inline(always)]
            fn apply<R: Rule<S, M>, const S: usize, const M: usize>(
                numbers: [$t; M],
                parameter: $t,
                gradient: $t,
                state: [$t; S],
            ) -> ($t, [$t; S]) {
                let (N(parameter), state) = R::at(each(|k| N(numbers[k])), N(parameter), N(gradient), each(|k| N(state[k])));
                (parameter, each(|k| state[k].0))
            }
        }
    )+};
}
update_dtypes!(f32, f64);

/// One parameter with the operands of its update. All slices have the same length.
pub(crate) struct Update<'a, T> {
    /// The constants of the rule.
    pub numbers: SmallVec<[T; 10]>,
    pub parameter: &'a mut [T],
    pub gradient: &'a [T],
    pub state: SmallVec<[&'a mut [T]; 3]>,
}

/// A rule's loop over the elements of a parameter, or of a piece of one: [`update_elements`].
pub(crate) type Loop<T> = fn(Update<'_, T>);

/// Elements that a thread takes at a time: few enough to balance the load for parameters of any size.
const PIECE: usize = GRAIN / 4;

/// Applies a rule to all elements, in place. All parameters share one parallel region, since most models have many that
/// are too small for their own.
pub(crate) fn update<T: UpdateDType>(all: Vec<Update<'_, T>>, elements: Loop<T>) {
    let total: usize = all.iter().map(|one| one.parameter.len()).sum();
    if total <= GRAIN {
        return all.into_iter().for_each(elements);
    }
    let mut pieces = Vec::with_capacity(total / PIECE + all.len());
    all.into_iter().for_each(|one| one.cut(&mut pieces));
    parallel_map(pieces, elements);
}

impl<'a, T: Copy> Update<'a, T> {
    fn cut(self, pieces: &mut Vec<Update<'a, T>>) {
        let Update { numbers, parameter, gradient, state } = self;
        let mut state: SmallVec<[_; 3]> = state.into_iter().map(|slice| slice.chunks_mut(PIECE)).collect();
        for (parameter, gradient) in parameter.chunks_mut(PIECE).zip(gradient.chunks(PIECE)) {
            let state = state.iter_mut().map(|slices| slices.next().unwrap_or_default()).collect();
            pieces.push(Update { numbers: numbers.clone(), parameter, gradient, state });
        }
    }
}

/// Applies a rule to all elements, in place. The numbers and states must match those of the rule.
pub(crate) fn update_elements<T: UpdateDType, R: Rule<S, M>, const S: usize, const M: usize>(update: Update<'_, T>) {
    let Update { numbers, parameter, gradient, mut state } = update;
    let numbers = each(|k| numbers[k]);
    let state = std::array::from_fn(|k| std::mem::take(&mut state[k]));
    dispatch(Elements::<'_, T, R, S, M> { numbers, parameter, gradient, state, rule: PhantomData });
}

/// An [`Update`] with its rule.
struct Elements<'a, T, R, const S: usize, const M: usize> {
    numbers: [T; M],
    parameter: &'a mut [T],
    gradient: &'a [T],
    state: [&'a mut [T]; S],
    rule: PhantomData<fn(R)>,
}

impl<T: UpdateDType, R: Rule<S, M>, const S: usize, const M: usize> Job for Elements<'_, T, R, S, M> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Elements { numbers, parameter, gradient, state, .. } = self;
        // Equal lengths remove the bounds checks from the loop below.
        let n = parameter.len();
        let (parameter, gradient) = (&mut parameter[..n], &gradient[..n]);
        let state = state.map(|slice| &mut slice[..n]);
        for i in 0..n {
            let before = each(|k| state[k][i]);
            let (new, after) = T::apply::<R, S, M>(numbers, parameter[i], gradient[i], before);
            parameter[i] = new;
            for k in 0..S {
                state[k][i] = after[k];
            }
        }
    }
}

/// The sum of |x|^p, or the largest |x| for an infinite `p`; computed in f64, in pieces of fixed bounds.
pub(crate) fn power_sum<T: UpdateDType>(x: &[T], p: f64) -> f64 {
    let piece = |x: &[T]| {
        if p == 2.0 {
            dispatch(Sum(x, |x: f64| x * x))
        } else if p == 1.0 {
            dispatch(Sum(x, f64::abs))
        } else if p == f64::INFINITY {
            // Propagates NaN, which `max` would not.
            x.iter().fold(0.0, |most: f64, x| if x.wide().abs() <= most { most } else { x.wide().abs() })
        } else {
            x.iter().map(|x| x.wide().abs().powf(p)).sum()
        }
    };
    let parts: Vec<f64> = parallel_map(x.chunks(GRAIN).collect(), piece);
    if p == f64::INFINITY { largest(&parts) } else { parts.iter().sum() }
}

/// The largest of nonnegative numbers; NaN if one of them is NaN.
pub(crate) fn largest(x: &[f64]) -> f64 {
    x.iter().fold(0.0, |most: f64, &x| if x <= most { most } else { x })
}

struct Sum<'a, T, F>(&'a [T], F);

impl<T: UpdateDType, F: Fn(f64) -> f64> Job for Sum<'_, T, F> {
    type Output = f64;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> f64 {
        const LANES: usize = 16;
        let Sum(x, f) = self;
        let (whole, rest) = x.as_chunks::<LANES>();
        let mut sums = [0.0; LANES];
        for chunk in whole {
            for (sum, x) in zip(&mut sums[..], chunk) {
                *sum += f(x.wide());
            }
        }
        sums.iter().sum::<f64>() + rest.iter().map(|x| f(x.wide())).sum::<f64>()
    }
}
