//! Operations that move elements and compute nothing.
//!
//! - `views`, `dims`, `strided`: the same storage under another shape or other strides.
//! - `parts`, `diagonal`: slices, pieces and diagonals, and tensors with one of them replaced.
//! - `join`, `stacking`: several tensors as one, and one cut apart.
//! - `repeat`, `pad`: elements repeated and rolled, and padding.
//! - `variants`: PyTorch's other forms of operations, and pixels as channels.

files! { diagonal dims join pad parts repeat stacking strided variants views }
