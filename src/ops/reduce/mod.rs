//! Reductions, scans and summary statistics.
//!
//! - `sums`, `product`, `extreme`, `statistics`: sums, means, variances, products, extrema, counts, `all` and `any`.
//! - `norm`: norms of elements. `quantile`: medians and quantiles. `covariance`, `histogram`.
//! - `scan`: cumulative sums, products and extrema. `calculus`: differences, integrals and gradients of samples.

files! { calculus covariance extreme histogram norm product quantile scan statistics sums }
