//! Fourier transforms of rows, through `rustfft`. None of them is scaled.

use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::backend::{View, ViewMut};
use crate::error::err;
use crate::{DType, Element, Error, Result};
use cotangent_fft::{Complex, Part};

/// Rows of numbers to read, and rows to write.
struct Rows<'a, T> {
    from: &'a [T],
    to: Ptr<T>,
    rows: usize,
    /// Numbers in a row, each way.
    lengths: (usize, usize),
}

impl<'a, T: Element> Rows<'a, T> {
    /// Both views are contiguous; `lengths` are numbers of reals in a row.
    fn new(op: &'static str, x: View<'a>, out: &mut ViewMut<'_>, lengths: (usize, usize)) -> Result<Rows<'a, T>> {
        let missing = || -> Error { err!(Backend, op, "the elements of a transform must lie in order") };
        let layout = out.layout.clone();
        let (from, to) =
            (x.as_slice::<T>().ok_or_else(missing)?, out.part(&layout).into_slice::<T>().ok_or_else(missing)?);
        let rows = to.len() / lengths.1.max(1);
        if rows * lengths.0 != from.len() || rows * lengths.1 != to.len() {
            return Err(missing());
        }
        Ok(Rows { from, to: Ptr::new(to.as_mut_ptr()), rows, lengths })
    }

    /// Calls `each` for every row, on the threads; what `state` makes is there once for a run of rows.
    fn run<S>(&self, state: impl Fn() -> S + Sync, each: impl Fn(&[T], &mut [T], &mut S) + Sync) {
        let (from_len, to_len) = self.lengths;
        let grain = (GRAIN / 8 / from_len.max(to_len)).max(1);
        parallel(self.rows, grain, |range| {
            let mut state = state();
            for row in range {
                // SAFETY: there are so many rows of this length behind the pointer, and each is one thread's.
                let to = unsafe { std::slice::from_raw_parts_mut(self.to.get().add(row * to_len), to_len) };
                each(&self.from[row * from_len..][..from_len], to, &mut state);
            }
        });
    }
}

/// Pairs of parts as complex numbers.
fn complex<T: Part>(parts: &[T]) -> &[Complex<T>] {
    // SAFETY: a complex number is its two parts, in this order and without a gap (`repr(C)`), and as many are there.
    unsafe { std::slice::from_raw_parts(parts.as_ptr().cast(), parts.len() / 2) }
}

fn complex_mut<T: Part>(parts: &mut [T]) -> &mut [Complex<T>] {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts_mut(parts.as_mut_ptr().cast(), parts.len() / 2) }
}

/// The transform of rows of `n` complex numbers, given and written as pairs of parts.
pub(crate) fn c2c(op: &'static str, x: View<'_>, n: usize, forward: bool, out: &mut ViewMut<'_>) -> Result<()> {
    if out.layout.numel() == 0 {
        // A plan takes memory by the length alone.
        return Ok(());
    }
    match out.dtype {
        DType::F64 => c2c_as::<f64>(op, x, n, forward, out),
        _ => c2c_as::<f32>(op, x, n, forward, out),
    }
}

fn c2c_as<T: Part + Element>(
    op: &'static str,
    x: View<'_>,
    n: usize,
    forward: bool,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let rows = Rows::<T>::new(op, x, out, (2 * n, 2 * n))?;
    let plan = T::complex(n, forward);
    let scratch = || vec![Complex::new(T::zero(), T::zero()); plan.get_immutable_scratch_len()];
    rows.run(scratch, |from, to, scratch| plan.process_immutable_with_scratch(complex(from), complex_mut(to), scratch));
    Ok(())
}

/// The first half, `n / 2 + 1` complex numbers, of the transforms of rows of `n` real numbers.
pub(crate) fn r2c(op: &'static str, x: View<'_>, n: usize, out: &mut ViewMut<'_>) -> Result<()> {
    if out.layout.numel() == 0 {
        // A plan takes memory by the length alone.
        return Ok(());
    }
    match out.dtype {
        DType::F64 => r2c_as::<f64>(op, x, n, out),
        _ => r2c_as::<f32>(op, x, n, out),
    }
}

fn r2c_as<T: Part + Element>(op: &'static str, x: View<'_>, n: usize, out: &mut ViewMut<'_>) -> Result<()> {
    let rows = Rows::<T>::new(op, x, out, (n, 2 * (n / 2 + 1)))?;
    let plan = T::forward(n);
    rows.run(
        || (plan.make_input_vec(), plan.make_scratch_vec()),
        |from, to, (input, scratch)| {
            // The plan uses its input up. It refuses wrong lengths alone, and these are its own.
            input.copy_from_slice(from);
            let _ = plan.process_with_scratch(input, complex_mut(to), scratch);
        },
    );
    Ok(())
}

/// The opposite: `n` real numbers from the first half of what would be their transforms.
pub(crate) fn c2r(op: &'static str, x: View<'_>, n: usize, out: &mut ViewMut<'_>) -> Result<()> {
    if out.layout.numel() == 0 {
        // A plan takes memory by the length alone.
        return Ok(());
    }
    match out.dtype {
        DType::F64 => c2r_as::<f64>(op, x, n, out),
        _ => c2r_as::<f32>(op, x, n, out),
    }
}

fn c2r_as<T: Part + Element>(op: &'static str, x: View<'_>, n: usize, out: &mut ViewMut<'_>) -> Result<()> {
    let rows = Rows::<T>::new(op, x, out, (2 * (n / 2 + 1), n))?;
    let plan = T::inverse(n);
    rows.run(
        || (plan.make_input_vec(), plan.make_scratch_vec()),
        |from, to, (input, scratch)| {
            input.copy_from_slice(complex(from));
            // The transform of real numbers is real at 0 and, of an even number of them, in the middle.
            input[0].im = T::zero();
            if n.is_multiple_of(2) {
                input[n / 2].im = T::zero();
            }
            let _ = plan.process_with_scratch(input, to, scratch);
        },
    );
    Ok(())
}
