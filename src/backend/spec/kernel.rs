//! What an elementwise kernel computes.

use super::formula::{Formula, Params};
use crate::Scalar;

/// An elementwise kernel: a formula with its parameters, or one number everywhere.
#[derive(Clone)]
pub(crate) enum Kernel {
    Formula(&'static Formula, Params),
    /// On a GPU it takes a launch to write a number down, and none to hand it to the kernel that uses it.
    Number(Scalar),
}

impl From<&'static Formula> for Kernel {
    fn from(formula: &'static Formula) -> Kernel {
        Kernel::Formula(formula, Params::new())
    }
}
