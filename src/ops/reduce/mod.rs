//! Reductions, scans and what summarizes elements.
//!
//! - `sums`, `product`, `extreme`, `statistics`: sums, means, variances, products, extrema, counts and truth.
//! - `norm`: norms of elements. `quantile`: medians and quantiles. `covariance`, `histogram`.
//! - `scan`: cumulative sums, products and extrema. `calculus`: differences, integrals and gradients of samples.

files! { calculus covariance extreme histogram norm product quantile scan statistics sums }
