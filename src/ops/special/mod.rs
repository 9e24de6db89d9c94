//! Special functions, elementwise.
//!
//! - `functions`: error functions, gamma functions, zeta, and those of distributions.
//! - `bessel`: Bessel and Airy functions, and orthogonal polynomials.

files! { bessel functions }
