//! Operations that move elements and compute nothing.
//!
//! - `views`, `dims`, `strided`: the same storage under another shape or other strides.
//! - `parts`, `diagonal`: slices, pieces and diagonals, and tensors with one of them replaced.
//! - `join`, `stacking`: several tensors as one, and one cut apart.
//! - `repeat`, `pad`: elements repeated and rolled, and padding.

files! { diagonal dims join pad parts repeat stacking strided views }
