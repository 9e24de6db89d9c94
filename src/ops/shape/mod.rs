//! Operations that move elements without arithmetic.
//!
//! - `views`, `dims`, `strided`: the same storage under another shape or other strides.
//! - `parts`, `diagonal`: slices, pieces and diagonals, and copies with one of these replaced.
//! - `join`, `stacking`: concatenation, stacking and splitting.
//! - `repeat`, `pad`: elements repeated and rolled, and padding.

files! { diagonal dims join pad parts repeat stacking strided views }
