//! Fourier transforms of rows, through `rustfft`. None of them is scaled.

use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::backend::{View, ViewMut};
use crate::error::{bail, err};
use crate::storage::Storage;
use crate::{DType, Device, Element, Error, Result};
use cotangent_fft::{Complex, Fft, LONG, Part};

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
    if n >= LONG && n.is_power_of_two() {
        return long(op, &rows, n, forward);
    }
    let plan = T::complex(n, forward);
    let scratch = || vec![Complex::new(T::zero(), T::zero()); plan.get_immutable_scratch_len()];
    rows.run(scratch, |from, to, scratch| plan.process_immutable_with_scratch(complex(from), complex_mut(to), scratch));
    Ok(())
}

/// Columns, or rows, of a matrix that are transformed together: so many complex numbers side by side fill cache lines.
const TOGETHER: usize = 16;

/// The transforms of long rows, each by all threads.
fn long<T: Part + Element>(op: &'static str, rows: &Rows<'_, T>, n: usize, forward: bool) -> Result<()> {
    let plan = T::long(n, forward);
    let (height, width) = (plan.rows.len(), plan.columns.len());
    let zero = Complex::new(T::zero(), T::zero());
    let mut between = Storage::new(op, Device::Cpu, n * size_of::<Complex<T>>())?;
    let Some(between) = between.get_mut() else { bail!(Backend, op, "fresh memory is shared") };
    let between = Ptr::new(between.cast::<Complex<T>>());
    for row in 0..rows.rows {
        let from = complex(&rows.from[2 * row * n..2 * (row + 1) * n]);
        let to = Ptr::new(rows.to.get().wrapping_add(2 * row * n).cast::<Complex<T>>());
        // One more line apart than a power of 2, so that columns do not compete for the same places in the cache.
        let room = |len: usize, plan: &dyn Fft<T>| {
            (vec![zero; TOGETHER * (len + TOGETHER)], vec![zero; plan.get_inplace_scratch_len()])
        };
        parallel(width / TOGETHER, 2, |range| {
            let step = height + TOGETHER;
            let (mut columns, mut scratch) = room(height, &*plan.rows);
            for first in range.map(|block| block * TOGETHER) {
                for (i, line) in from.chunks_exact(width).enumerate() {
                    line[first..][..TOGETHER].iter().enumerate().for_each(|(c, &x)| columns[c * step + i] = x);
                }
                for (c, column) in columns.chunks_exact_mut(step).enumerate() {
                    let column = &mut column[..height];
                    plan.rows.process_with_scratch(column, &mut scratch);
                    let factors = &plan.factors[(first + c) * height..][..height];
                    column.iter_mut().zip(factors).for_each(|(x, factor)| *x = *x * factor);
                }
                for i in 0..height {
                    // SAFETY: there is room for `n` numbers, and these are one thread's.
                    let line =
                        unsafe { std::slice::from_raw_parts_mut(between.get().add(i * width + first), TOGETHER) };
                    line.iter_mut().enumerate().for_each(|(c, to)| *to = columns[c * step + i]);
                }
            }
        });
        parallel(height / TOGETHER, 2, |range| {
            let step = width + TOGETHER;
            let (mut lines, mut scratch) = room(width, &*plan.columns);
            for first in range.map(|block| block * TOGETHER) {
                for (r, line) in lines.chunks_exact_mut(step).enumerate() {
                    // SAFETY: rows of the matrix, which was written above.
                    let row = unsafe { std::slice::from_raw_parts(between.get().add((first + r) * width), width) };
                    line[..width].copy_from_slice(row);
                    plan.columns.process_with_scratch(&mut line[..width], &mut scratch);
                }
                for k in 0..width {
                    // SAFETY: the output has `n` numbers, and these are one thread's.
                    let out = unsafe { std::slice::from_raw_parts_mut(to.get().add(k * height + first), TOGETHER) };
                    out.iter_mut().enumerate().for_each(|(r, to)| *to = lines[r * step + k]);
                }
            }
        });
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Generator, with_num_threads};

    #[test]
    fn long_transforms_are_those_of_the_plan_on_any_number_of_threads() -> Result<()> {
        for (n, batch) in [(LONG, 2), (2 * LONG, 1)] {
            for forward in [true, false] {
                let x = Generator::seed(1).randn_with([batch, n, 2], DType::F64)?;
                let run = || {
                    crate::Tensor::build("test", x.layout().shape().clone(), DType::F64, Device::Cpu, |out| {
                        c2c("test", x.as_view()?, n, forward, out)
                    })?
                    .to_vec::<f64>()
                };
                let (got, mut want) = (run()?, x.to_vec::<f64>()?);
                want.chunks_exact_mut(2 * n).for_each(|row| f64::complex(n, forward).process(complex_mut(row)));
                let far = got.iter().zip(&want).fold(0.0, |far: f64, (got, want)| far.max((got - want).abs()));
                assert!(far < 1e-10, "{n}, forward: {forward}: {far}");
                assert_eq!(with_num_threads(1, run)??, got);
            }
        }
        Ok(())
    }
}
