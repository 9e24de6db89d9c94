//! The tolerances of gradients, compared with the same rule in `f64` for the same inputs and cotangents.

use cotangent::DType;

/// Operations whose gradients need a larger tolerance: the factor, and why.
const WIDER: &[(&str, f64, &str)] = &[
    ("group_norm", 10.0, "groups of two elements are 1 and -1 whatever they were, so that the terms cancel"),
    ("inner", 4.0, "a sum of products that cancel, where one side is a number"),
    ("laguerre_polynomial_l", 2.0, "a derivative near its root"),
    ("logaddexp", 20.0, "a sum over the elements that cancels, where one side is a number"),
    ("logaddexp2", 20.0, "a sum over the elements that cancels, where one side is a number"),
    ("lstm", 2.0, "steps are rounded to the dtype one after another"),
    ("tanhshrink", 2.0, "one less the derivative of tanh, near 0"),
];

/// The part of its largest element that a gradient may be off by: some roundings of the dtype.
pub fn tolerance(op: &str, dtype: DType) -> f64 {
    let usual = match dtype {
        DType::F32 => 5e-6,
        DType::F16 => 4e-3,
        _ => 3.2e-2,
    };
    WIDER.iter().find(|(name, ..)| *name == op).map_or(usual, |(_, factor, _)| usual * factor)
}
