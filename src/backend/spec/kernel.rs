//! Elementwise kernels.

use super::formula::{Formula, Params};
use crate::Scalar;

/// An elementwise kernel: a formula with its parameters, or one number everywhere.
#[derive(Clone)]
pub(crate) enum Kernel {
    Formula(&'static Formula, Params),
    /// On a GPU, filling a tensor with a number needs a launch; passing the number to the kernel that uses it does not.
    Number(Scalar),
}

impl From<&'static Formula> for Kernel {
    fn from(formula: &'static Formula) -> Kernel {
        Kernel::Formula(formula, Params::new())
    }
}
