//! Special functions, elementwise.
//!
//! - `functions`: error functions, gamma functions, zeta, and functions of the normal distribution.
//! - `bessel`: Bessel and Airy functions, and orthogonal polynomials.

files! { bessel functions }
