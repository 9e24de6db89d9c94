//! Unscaled Fourier transforms.

use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, num_threads, try_parallel};
use crate::backend::{View, ViewMut};
use crate::error::err;
use crate::storage::Storage;
use crate::{DType, Device, Element, Error, Result};
use cotangent_fft::{Part, Plan};

/// Rows to read and rows to write.
struct Rows<'a, T> {
    from: &'a [T],
    to: Ptr<T>,
    rows: usize,
}

impl<'a, T: Element> Rows<'a, T> {
    /// Both views are contiguous; `lengths` are the numbers of reals in a row that is read, and in one that is written.
    fn new(op: &'static str, x: View<'a>, out: &mut ViewMut<'_>, lengths: (usize, usize)) -> Result<Rows<'a, T>> {
        let missing = || -> Error { err!(Backend, op, "input and output must be contiguous rows of the transform") };
        let layout = out.layout.clone();
        let (from, to) =
            (x.as_slice::<T>().ok_or_else(missing)?, out.part(&layout).into_slice::<T>().ok_or_else(missing)?);
        let rows = to.len() / lengths.1.max(1);
        if rows * lengths.0 != from.len() || rows * lengths.1 != to.len() {
            return Err(missing());
        }
        Ok(Rows { from, to: Ptr::new(to.as_mut_ptr()), rows })
    }
}

/// The number of complex numbers from which on the threads share a single row.
const LONG: usize = if cfg!(debug_assertions) { 1 << 10 } else { 1 << 14 };

/// The number of items of a thread's piece, where each item transforms `numbers` complex numbers.
fn grain(numbers: usize) -> usize {
    (GRAIN / (2 * numbers).max(1)).max(1)
}

/// The transforms of `count` contiguous rows, which do not overlap those that are written.
///
/// # Safety
/// There are `count` rows of the plan's lengths.
unsafe fn transform_rows<T: Part + Element>(
    op: &'static str,
    plan: &Plan<T>,
    (from, to): (Ptr<T>, Ptr<T>),
    count: usize,
    inverse: bool,
) -> Result<()> {
    let (read, written) = plan.lengths(inverse);
    let numbers = read.max(written) / 2;
    let group = plan.group();
    if group == 1 && numbers >= LONG && count < 2 * num_threads() {
        return (0..count).try_for_each(|row| {
            // SAFETY: the caller's promise.
            unsafe {
                let (from, to) = (from.get().add(row * read), to.get().add(row * written));
                long_row(op, plan, (Ptr::new(from), Ptr::new(to)), inverse)
            }
        });
    }
    try_parallel(count.div_ceil(group), grain(group * numbers), |range| {
        let mut room = Room::new::<T>(op, plan.room())?;
        let (start, end) = (range.start * group, count.min(range.end * group));
        // SAFETY: the caller's promise; the rows of a piece are one thread's.
        unsafe {
            let (from, to) = (from.get().add(start * read), to.get().add(start * written));
            plan.run(from, to, end - start, inverse, room.ptr(op)?);
        }
        Ok(())
    })
}

/// One row: the blocks of each stage are split among the threads.
///
/// # Safety
/// As above.
unsafe fn long_row<T: Part + Element>(
    op: &'static str,
    plan: &Plan<T>,
    (from, to): (Ptr<T>, Ptr<T>),
    inverse: bool,
) -> Result<()> {
    let (read, written) = plan.lengths(inverse);
    let mut shared = Room::new::<T>(op, plan.shared_room())?;
    let shared = Ptr::new(shared.ptr::<T>(op)?);
    for (stage, blocks) in plan.stages(inverse).enumerate() {
        try_parallel(blocks, grain(read.max(written) / 2 / blocks.max(1)), |blocks| {
            let mut room = Room::new::<T>(op, plan.own_room())?;
            // SAFETY: the caller's promise; each block is one thread's, and the stages before are done.
            unsafe { plan.stage(stage, blocks, from.get(), to.get(), inverse, shared.get(), room.ptr(op)?) };
            Ok(())
        })?;
    }
    Ok(())
}

/// The workspace of one thread.
struct Room(Storage);

impl Room {
    fn new<T>(op: &'static str, numbers: usize) -> Result<Room> {
        Storage::new(op, Device::Cpu, numbers.saturating_mul(size_of::<T>()).min(isize::MAX as usize)).map(Room)
    }

    fn ptr<T>(&mut self, op: &'static str) -> Result<*mut T> {
        let start = self.0.get_mut().ok_or_else(|| err!(Backend, op, "the workspace must not be shared"))?;
        Ok(start.cast())
    }
}

/// A batch of `outer` matrices of `n` rows and `inner` columns of complex numbers, to be transformed along the columns.
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
    /// Transforms them. `from` and `to` are the same address or do not overlap; if they are the same, `inner` is not 1.
    fn run(&self) -> Result<()> {
        if self.inner == 1 {
            let plan = T::complex(self.n, self.outer);
            // SAFETY: both sides have that many rows.
            return unsafe { transform_rows(self.op, &plan, (self.from, self.to), self.outer, !self.forward) };
        }
        match T::columns(self.n) {
            Some(plan) if 4 * self.inner >= plan.group() => self.columns(&plan),
            _ => self.gathered(),
        }
    }

    /// Transforms neighbouring columns in the lanes of registers.
    fn columns(&self, plan: &cotangent_fft::Columns<T>) -> Result<()> {
        let (op, n, inner, group) = (self.op, self.n, self.inner, plan.group());
        let blocks = inner.div_ceil(group);
        try_parallel(self.outer * blocks, grain(group * n), |range| {
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

    /// Transforms columns of lengths without such kernels: copies a few neighbours at a time to rows.
    fn gathered(&self) -> Result<()> {
        const GROUP: usize = 16;
        let (op, n, inner) = (self.op, self.n, self.inner);
        let group = GROUP.min(inner);
        let (plan, blocks) = (T::complex(n, group), inner.div_ceil(group));
        // Rows to read, rows to write, and the workspace of the plan.
        let rows = 2 * n * group;
        try_parallel(self.outer * blocks, grain(group * n), |range| {
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
                    plan.run(read, written, count, !self.forward, written.add(rows));
                    each_number(n, inner, count, |row, at| {
                        to.add(at).cast::<[T; 2]>().write(written.add(row).cast::<[T; 2]>().read());
                    });
                }
            }
            Ok(())
        })
    }
}

/// Calls `each` with the positions of every number of `count` neighbouring columns: as rows, and in the matrix.
#[inline(always)]
fn each_number(n: usize, width: usize, count: usize, each: impl Fn(usize, usize)) {
    for e in 0..n {
        for column in 0..count {
            each(2 * (column * n + e), 2 * (e * width + column));
        }
    }
}

/// The transform of complex numbers, read and written as pairs of parts, along dimensions of these lengths. The dimensions after
/// them have `inner` numbers in all.
pub(crate) fn c2c(
    op: &'static str,
    x: View<'_>,
    lengths: &[usize],
    inner: usize,
    forward: bool,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    if out.layout.numel() == 0 {
        // A plan takes memory for the length, even without rows.
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
        // SAFETY: nothing was written yet; there are as many numbers to write as to read, and they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, to, rows.from.len()) };
    }
    Ok(())
}

/// The first half, `n / 2 + 1` complex numbers, of the transforms of rows of `n` real numbers.
pub(crate) fn r2c(op: &'static str, x: View<'_>, n: usize, out: &mut ViewMut<'_>) -> Result<()> {
    if out.layout.numel() == 0 {
        // A plan takes memory for the length, even without rows.
        return Ok(());
    }
    match out.dtype {
        DType::F64 => real_as::<f64>(op, x, n, false, out),
        _ => real_as::<f32>(op, x, n, false, out),
    }
}

/// The inverse: rows of `n` real numbers from the first half of their transforms. The imaginary parts of numbers that must be
/// real are not read.
pub(crate) fn c2r(op: &'static str, x: View<'_>, n: usize, out: &mut ViewMut<'_>) -> Result<()> {
    if out.layout.numel() == 0 {
        // A plan takes memory for the length, even without rows.
        return Ok(());
    }
    match out.dtype {
        DType::F64 => real_as::<f64>(op, x, n, true, out),
        _ => real_as::<f32>(op, x, n, true, out),
    }
}

fn real_as<T: Part + Element>(
    op: &'static str,
    x: View<'_>,
    n: usize,
    inverse: bool,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let half = 2 * (n / 2 + 1);
    let rows = Rows::<T>::new(op, x, out, if inverse { (half, n) } else { (n, half) })?;
    let plan = T::real(n, rows.rows);
    // SAFETY: both sides have that many rows.
    unsafe { transform_rows(op, &plan, (Ptr::new(rows.from.as_ptr().cast_mut()), rows.to), rows.rows, inverse) }
}
