//! New tensors.
//!
//! - `constants`: constants, ranges, and uniform and normal random numbers. `sequences`: powers, triangular indices, one-hot vectors.
//! - `like`: tensors with the dtype and device of another.
//! - `cast`: casts, copies and moves between devices.

files! { cast constants like sequences }
