//! Losses.
//!
//! - `cross_entropy`, `linear`, `ctc`: classification losses. `linear` includes the last linear layer.
//! - `elementwise`, `distributions`: regression and probabilities.
//! - `margin`, `margin_classes`: margin losses.

files! { cross_entropy ctc distributions elementwise linear margin margin_classes }
