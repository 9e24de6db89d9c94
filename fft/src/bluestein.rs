//! Bluestein's algorithm: a transform of any length as a convolution, by transforms of a longer length that has kernels.
//!
//! With the chirp `c[k] = exp(-πi k² / n)`, and since `2 j k = j² + k² - (k - j)²`, the transform of `x` at `k` is `c[k]` times
//! the sum of `x[j] c[j]` times `c*[k - j]`.

use crate::kernels::{Kernel, Kernels};
use crate::panel::twiddle;
use crate::plan::{Plan, table};
use crate::smooth::{Smooth, cheapest};

pub(crate) struct Chirp<T> {
    /// The length of the transforms, at least `2 n - 1`.
    pub padded: usize,
    /// The chirp, as a [`table`].
    pub factors: Vec<T>,
    /// The transform of its conjugate, divided by the length, as a [`table`].
    pub transform: Vec<T>,
}

impl<T: Kernel> Chirp<T> {
    /// The chirp of `n` numbers, which must not be 0, and the transform that it needs.
    pub fn new(n: usize, few: bool, kernels: &'static Kernels<T>) -> (Smooth<T>, Chirp<T>) {
        // There always is a power of two.
        let padded = cheapest(2 * n - 1, few, kernels.lanes);
        let smooth = Smooth::new(padded, few, kernels).unwrap_or(Smooth::One);
        // Squares modulo 2 n, incrementally, so that nothing overflows.
        let mut square = 0;
        let chirp: Vec<_> = (0..n)
            .map(|k| {
                let number = twiddle(square, 2 * n);
                square = (square + 2 * k + 1) % (2 * n);
                number
            })
            .collect();
        let factors = table(n, kernels.lanes, |k| chirp.get(k).copied().unwrap_or_default());
        // In f64, so that its errors are negligible for f32.
        let plan = Plan::<f64>::complex(padded, true);
        let mut given = vec![0.0; 2 * padded];
        for (k, &(re, im)) in chirp.iter().enumerate() {
            for at in [k, (padded - k) % padded] {
                (given[2 * at], given[2 * at + 1]) = (re, -im);
            }
        }
        let (mut written, mut room) = (vec![0.0; 2 * padded], vec![0.0; plan.room()]);
        // SAFETY: both have a row, and there is room.
        unsafe { plan.run(given.as_ptr(), written.as_mut_ptr(), 1, false, room.as_mut_ptr()) };
        let scale = 1.0 / padded as f64;
        let transform = table(padded, kernels.lanes, |k| match written.get(2 * k..2 * k + 2) {
            Some(number) => (number[0] * scale, number[1] * scale),
            None => (0.0, 0.0),
        });
        (smooth, Chirp { padded, factors, transform })
    }
}
