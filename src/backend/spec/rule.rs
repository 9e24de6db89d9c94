//! Elementwise rules of optimisers.

use super::formula::{Inst, Sym, build_all};
use super::functions::Real;
use super::number::Constant;

/// The rule of an optimiser with `N` state tensors and `M` numbers, generic over the number type: for compute dtypes it gives the
/// loop on the CPU, for symbols the source of the GPU kernel.
pub(crate) trait Rule<const N: usize, const M: usize>: 'static {
    /// The new element and the new state, from the numbers, the element, its gradient and its state. It must be
    /// `#[inline(always)]`, so that its loop can be compiled for every vector width.
    fn at<T: Real>(numbers: [T; M], parameter: T, gradient: T, state: [T; N]) -> (T, [T; N])
    where
        f64: Constant<T>;
}

/// A rule as data. Its inputs are the parameter, the gradient and the state, its parameters the numbers.
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
pub(crate) struct RuleSteps {
    pub steps: Vec<Inst>,
    /// The positions of the steps for the new parameter and the new state.
    pub results: Vec<usize>,
}

#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
impl RuleSteps {
    pub fn of<R: Rule<N, M>, const N: usize, const M: usize>() -> RuleSteps {
        let (steps, results) = build_all(|| {
            let input = |k: usize| Sym::add_step(Inst::Input(k));
            let numbers = std::array::from_fn(|k| Sym::add_step(Inst::Param(k)));
            let (parameter, state) = R::at(numbers, input(0), input(1), std::array::from_fn(|k| input(k + 2)));
            std::iter::once(parameter).chain(state).collect()
        });
        RuleSteps { steps, results }
    }
}
