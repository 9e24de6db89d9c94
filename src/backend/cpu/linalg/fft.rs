//! Fourier transforms. None of them is scaled.

use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, num_threads, parallel, try_parallel};
use crate::backend::{View, ViewMut};
use crate::error::err;
use crate::storage::Storage;
use crate::{DType, Device, Element, Error, Result};
use cotangent_fft::{Complex, Fft, Halves, Part};
use std::sync::Arc;

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

/// Complex numbers from which on the threads share a single row.
const LONG: usize = if cfg!(debug_assertions) { 1 << 10 } else { 1 << 14 };

/// The transform of rows of complex numbers, by the crate's own kernels or by `rustfft`.
enum RowPlan<T: Part> {
    Own(Arc<cotangent_fft::Rows<T>>),
    Other(Arc<dyn Fft<T>>),
}

impl<T: Part + Element> RowPlan<T> {
    /// For at least so many rows: a few short ones would leave most lanes of a register empty.
    fn new(n: usize, rows: usize, forward: bool) -> RowPlan<T> {
        match T::rows(n) {
            Some(own) if 4 * rows >= own.group() => RowPlan::Own(own),
            _ => RowPlan::Other(T::complex(n, forward)),
        }
    }

    /// Rows that are best transformed together.
    fn group(&self) -> usize {
        match self {
            RowPlan::Own(own) => own.group(),
            RowPlan::Other(_) => 1,
        }
    }

    /// Numbers that a thread needs memory for.
    fn room(&self) -> usize {
        match self {
            RowPlan::Own(own) => own.room(),
            RowPlan::Other(plan) => 2 * plan.get_immutable_scratch_len(),
        }
    }

    /// # Safety
    /// `from` and `to` have so many rows of `n` complex numbers, which do not overlap, and `room` what [`room`](Self::room) says.
    unsafe fn run(&self, from: *const T, to: *mut T, n: usize, count: usize, forward: bool, room: *mut T) {
        match self {
            // SAFETY: the caller's promise.
            RowPlan::Own(own) => unsafe { own.run(from, to, count, !forward, room) },
            RowPlan::Other(plan) => {
                // SAFETY: the caller's promise; no bits but those of numbers were ever written there, and all 0 is one.
                let (from, to, scratch) = unsafe {
                    room.write_bytes(0, self.room());
                    (
                        std::slice::from_raw_parts(from, 2 * n * count),
                        std::slice::from_raw_parts_mut(to, 2 * n * count),
                        std::slice::from_raw_parts_mut(room, self.room()),
                    )
                };
                for (from, to) in from.chunks_exact(2 * n).zip(to.chunks_exact_mut(2 * n)) {
                    plan.process_immutable_with_scratch(complex(from), complex_mut(to), complex_mut(scratch));
                }
            }
        }
    }
}

/// Memory for one thread.
struct Room(Storage);

impl Room {
    fn new<T>(op: &'static str, numbers: usize) -> Result<Room> {
        Storage::new(op, Device::Cpu, numbers.saturating_mul(size_of::<T>()).min(isize::MAX as usize)).map(Room)
    }

    fn ptr<T>(&mut self, op: &'static str) -> Result<*mut T> {
        let start = self.0.get_mut().ok_or_else(|| err!(Backend, op, "the scratch memory of a transform is shared"))?;
        Ok(start.cast())
    }
}

/// A matrix for each of the outer dimensions: `n` rows of `inner` complex numbers, to be transformed along its columns.
struct Matrices<T> {
    op: &'static str,
    from: Ptr<T>,
    to: Ptr<T>,
    outer: usize,
    n: usize,
    inner: usize,
    forward: bool,
}

impl<T: Part + Element> Matrices<T> {
    /// Transforms them. `from` and `to` are the same place or do not overlap; if they are the same, `inner` is not 1.
    fn run(&self) -> Result<()> {
        if self.inner == 1 {
            return self.rows();
        }
        match T::columns(self.n) {
            Some(plan) if 4 * self.inner >= plan.group() => self.columns(&plan),
            _ => self.gathered(),
        }
    }

    /// Pieces of so many items for a thread, each of which transforms `numbers` numbers.
    fn grain(&self, numbers: usize) -> usize {
        (GRAIN / (2 * numbers)).max(1)
    }

    fn rows(&self) -> Result<()> {
        let (op, n, count) = (self.op, self.n, self.outer);
        let plan = RowPlan::<T>::new(n, count, self.forward);
        if let RowPlan::Own(own) = &plan
            && n >= LONG
            && count < 2 * num_threads()
            && let Some(halves) = own.halves()
        {
            return (0..count).try_for_each(|row| self.long_row(own, 2 * n * row, halves));
        }
        let group = plan.group();
        try_parallel(count.div_ceil(group), self.grain(group * n), |range| {
            let mut room = Room::new::<T>(op, plan.room())?;
            let (start, end) = (range.start * group, count.min(range.end * group));
            // SAFETY: the rows of a piece are one thread's, and all of them are there.
            unsafe {
                let (from, to) = (self.from.get().add(2 * n * start), self.to.get().add(2 * n * start));
                plan.run(from, to, n, end - start, self.forward, room.ptr(op)?);
            }
            Ok(())
        })
    }

    /// One row, whose halves are dealt out in blocks.
    fn long_row(&self, plan: &cotangent_fft::Rows<T>, start: usize, halves: Halves) -> Result<()> {
        let op = self.op;
        let mut middle = Room::new::<T>(op, halves.middle)?;
        let middle = Ptr::new(middle.ptr::<T>(op)?);
        let grain = |blocks: usize| self.grain(self.n / blocks.max(1));
        try_parallel(halves.first, grain(halves.first), |blocks| {
            let mut room = Room::new::<T>(op, halves.room)?;
            // SAFETY: the row is there; each block is one thread's, and writes columns of its own.
            unsafe { plan.first(blocks, self.from.get().add(start), middle.get(), !self.forward, room.ptr(op)?) };
            Ok(())
        })?;
        try_parallel(halves.second, grain(halves.second), |blocks| {
            let mut room = Room::new::<T>(op, halves.room)?;
            // SAFETY: as above; the first half is done.
            unsafe { plan.second(blocks, middle.get(), self.to.get().add(start), !self.forward, room.ptr(op)?) };
            Ok(())
        })
    }

    /// Neighbouring columns are the lanes of registers.
    fn columns(&self, plan: &cotangent_fft::Columns<T>) -> Result<()> {
        let (op, n, inner, group) = (self.op, self.n, self.inner, plan.group());
        let blocks = inner.div_ceil(group);
        try_parallel(self.outer * blocks, self.grain(group * n), |range| {
            let mut room = Room::new::<T>(op, plan.room())?;
            let room = room.ptr(op)?;
            for item in range {
                let column = item % blocks * group;
                let start = 2 * (item / blocks * n * inner + column);
                let count = group.min(inner - column);
                // SAFETY: the columns of an item are one thread's, and all of them are there.
                unsafe {
                    plan.run(self.from.get().add(start), self.to.get().add(start), inner, count, !self.forward, room);
                }
            }
            Ok(())
        })
    }

    /// Columns of lengths for which there is no such kernel, as rows: some neighbours at a time.
    fn gathered(&self) -> Result<()> {
        const GROUP: usize = 16;
        let (op, n, inner) = (self.op, self.n, self.inner);
        let group = GROUP.min(inner);
        let (plan, blocks) = (RowPlan::<T>::new(n, group, self.forward), inner.div_ceil(group));
        // Rows to read, rows to write, and what the plan needs.
        let rows = 2 * n * group;
        try_parallel(self.outer * blocks, self.grain(group * n), |range| {
            let mut room = Room::new::<T>(op, rows.saturating_mul(2).saturating_add(plan.room()))?;
            let (read, written) = (room.ptr::<T>(op)?, room.ptr::<T>(op)?.wrapping_add(rows));
            for item in range {
                let column = item % blocks * group;
                let start = 2 * (item / blocks * n * inner + column);
                let count = group.min(inner - column);
                // SAFETY: the columns of an item are one thread's, all of them are there, and so is the room.
                unsafe {
                    let (from, to) = (self.from.get().add(start), self.to.get().add(start));
                    each_number(n, inner, count, |row, at| {
                        read.add(row).cast::<[T; 2]>().write(from.add(at).cast::<[T; 2]>().read());
                    });
                    plan.run(read, written, n, count, self.forward, written.add(rows));
                    each_number(n, inner, count, |row, at| {
                        to.add(at).cast::<[T; 2]>().write(written.add(row).cast::<[T; 2]>().read());
                    });
                }
            }
            Ok(())
        })
    }
}

/// Calls `each` with the places of every number of `count` neighbouring columns: as rows, and in the matrix.
#[inline(always)]
fn each_number(n: usize, width: usize, count: usize, each: impl Fn(usize, usize)) {
    for e in 0..n {
        for column in 0..count {
            each(2 * (column * n + e), 2 * (e * width + column));
        }
    }
}

/// The transform of complex numbers, given and written as pairs of parts, along dimensions of these lengths. After them come
/// others of `inner` numbers in all.
pub(crate) fn c2c(
    op: &'static str,
    x: View<'_>,
    lengths: &[usize],
    inner: usize,
    forward: bool,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    if out.layout.numel() == 0 {
        // A plan takes memory by the length alone.
        return Ok(());
    }
    match out.dtype {
        DType::F64 => c2c_as::<f64>(op, x, lengths, inner, forward, out),
        _ => c2c_as::<f32>(op, x, lengths, inner, forward, out),
    }
}

fn c2c_as<T: Part + Element>(
    op: &'static str,
    x: View<'_>,
    lengths: &[usize],
    mut inner: usize,
    forward: bool,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let all = 2 * inner * lengths.iter().product::<usize>();
    let rows = Rows::<T>::new(op, x, out, (all, all))?;
    let (mut from, to, mut outer) = (rows.from.as_ptr().cast_mut(), rows.to.get(), rows.from.len() / 2 / inner);
    // The last dimension first: from then on, in place. A dimension of one element is its own transform.
    for &n in lengths.iter().rev().filter(|&&n| n > 1) {
        outer /= n;
        Matrices::<T> { op, from: Ptr::new(from), to: Ptr::new(to), outer, n, inner, forward }.run()?;
        (from, inner) = (to, inner * n);
    }
    if from != to {
        // SAFETY: nothing was written yet, to as many numbers as there are to read, which do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, to, rows.from.len()) };
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
