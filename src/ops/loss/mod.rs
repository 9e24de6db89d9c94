//! Losses.
//!
//! - `cross_entropy`, `linear`, `ctc`: of classes. `linear` includes the last layer of a network.
//! - `elementwise`, `distributions`: of numbers and probabilities.
//! - `margin`, `margin_classes`: with a margin.

files! { cross_entropy ctc distributions elementwise linear margin margin_classes }
