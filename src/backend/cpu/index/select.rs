//! Selection by rank along a dimension, without a full sort.

use super::sort::{Entry, Lanes, sort_entries, with_entries};
use crate::backend::cpu::runtime::simd::{Job, dispatch};
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, num_threads, parallel};
use crate::backend::spec::{Rank, SortKey};
use crate::backend::{View, ViewMut};
use crate::dtype::with_dtype;
use crate::error::bail;
use crate::layout::Walk;
use crate::memory::scratch::{check_room, filled, with_room};
use crate::zip::zip;
use crate::{DType, Result};
use std::sync::{Mutex, PoisonError};

/// Writes the index of the element that a stable sort along `dim` would put at `rank` to `indices`, which is `i64`, contiguous,
/// and has the shape of `x` with size 1 in `dim`. The dimension is not empty.
pub(crate) fn kth(op: &'static str, x: View<'_>, dim: usize, rank: Rank, indices: &mut ViewMut<'_>) -> Result<()> {
    let shape = x.layout.shape();
    if *indices.layout.shape() != shape.with(dim, 1) || indices.dtype != DType::I64 {
        bail!(Backend, op, "indices must be i64 and match input of shape {shape:?}, got {:?}", indices.layout.shape());
    }
    if matches!(rank, Rank::At(k) if k >= shape[dim]) || shape[dim] == 0 {
        bail!(Backend, op, "{rank:?} is out of range for {} elements", shape[dim]);
    }
    if indices.layout.numel() == 0 {
        return Ok(());
    }
    with_entries!(x.dtype, T, E => kth_as::<T, E>(op, x, dim, rank, indices))
}

/// From this length on, a lane is searched by several threads together if there are fewer lanes than threads.
const LONG: usize = if cfg!(debug_assertions) { 1 << 10 } else { 1 << 16 };

fn kth_as<T: SortKey, E: Entry>(
    op: &'static str,
    x: View<'_>,
    dim: usize,
    rank: Rank,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    let (lanes, from) = Lanes::<T>::new(op, x, dim)?;
    let (len, to) = (lanes.len, indices.layout.select(op, dim as isize, 0)?);
    let walk = Walk::new(from.shape(), [&from, &to]);
    let [across, out_across] = walk.inner();
    let indices = Ptr::new(indices.ptr().cast::<i64>());
    // SAFETY: of both, the positions are those of lanes, and `i` is below the length (L2). Every position of the output, which is
    // contiguous and not shared, is one thread's.
    let element = |first: isize, i: u32| unsafe { lanes.element(first, i) };
    // SAFETY: as above.
    let write = |to: isize, entry: E| unsafe { indices.get().offset(to).write(i64::from(entry.position())) };
    let entry = |first: isize, i: u32| E::new(element(first, i).key().into(), i);
    let nans = |first: isize| match rank {
        Rank::At(_) => 0,
        _ => (0..len as u32).filter(|&i| element(first, i).is_nan()).count(),
    };
    if len >= LONG && walk.numel() < num_threads() {
        let mut outcome = Ok(());
        walk.runs(0, walk.numel(), |[from, to], count| {
            for lane in 0..count as isize {
                let (from, to) = (from + lane * across, to + lane * out_across);
                // NaN has the largest keys.
                let before = |last: usize| rank.before(len, if T::DTYPE.is_float() { last } else { 0 });
                // SAFETY: as above.
                match unsafe { kth_together::<T, E>(op, &lanes, from, before) } {
                    Ok(entry) => write(to, entry),
                    Err(error) => outcome = Err(error),
                }
            }
        });
        return outcome;
    }
    check_room::<E>(op, len)?;
    parallel(walk.numel(), (GRAIN / len).max(1), |range| {
        let mut entries = Vec::with_capacity(len);
        walk.runs(range.start, range.end, |[from, to], lanes| {
            for lane in 0..lanes as isize {
                let (from, to) = (from + lane * across, to + lane * out_across);
                entries.clear();
                entries.extend((0..len as u32).map(|i| entry(from, i)));
                let (_, &mut entry, _) = entries.select_nth_unstable(rank.before(len, nans(from)));
                write(to, entry);
            }
        });
    });
    Ok(())
}

/// The entry of a given rank in a long lane: its leading bits are found by counting. `before` gives the rank from the number
/// of elements whose leading bits are all ones, the possible NaNs.
///
/// # Safety
/// `first` is a position of the layout of the first elements.
unsafe fn kth_together<T: SortKey, E: Entry>(
    op: &'static str,
    lanes: &Lanes<T>,
    first: isize,
    before: impl Fn(usize) -> usize,
) -> Result<E> {
    let (len, bits) = (lanes.len, 8 * size_of::<T>() as u32);
    // SAFETY: the caller's promise; `i` is below the length.
    let entry = |i: usize| E::new(unsafe { lanes.element(first, i as u32) }.key().into(), i as u32);
    let shift = E::PLACE + bits - 8;
    // Two digits, or one for keys of 8 bits.
    let short = bits == 8;
    let bucket = |entry: E| if short { entry.digit(shift) } else { entry.digit(shift) << 8 | entry.digit(shift - 8) };
    let counts = Mutex::new(filled(op, 0_usize, if short { 1 << 8 } else { 1 << 16 })?);
    // Few pieces, since every piece has its own counts, which are summed.
    let piece = len.div_ceil(num_threads()).max(LONG / 4);
    parallel(len, piece, |range| {
        let mut own = vec![0_u32; if short { 1 << 8 } else { 1 << 16 }];
        for i in range {
            own[bucket(entry(i))] += 1;
        }
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        zip(&mut counts[..], &own).for_each(|(sum, &own)| *sum += own as usize);
    });
    let counts = counts.into_inner().unwrap_or_else(PoisonError::into_inner);
    let before = before(counts.last().copied().unwrap_or(0));
    let (mut chosen, mut left) = (0, before);
    while chosen + 1 < counts.len() && left >= counts[chosen] {
        left -= counts[chosen];
        chosen += 1;
    }
    let candidates = Mutex::new(with_room(op, counts[chosen])?);
    parallel(len, piece, |range| {
        // A loop: with several codegen units, a collecting iterator would make a call per element.
        let mut own = Vec::new();
        for i in range {
            let entry = entry(i);
            if bucket(entry) == chosen {
                own.push(entry);
            }
        }
        // In any order: entries are distinct.
        candidates.lock().unwrap_or_else(PoisonError::into_inner).extend(own);
    });
    let mut candidates = candidates.into_inner().unwrap_or_else(PoisonError::into_inner);
    if left >= candidates.len() {
        bail!(Backend, op, "element {before} of {len} was not found");
    }
    let (_, &mut entry, _) = candidates.select_nth_unstable(left);
    Ok(entry)
}

/// Writes the indices of the first elements of a stable sort along `dim`, in order, to `indices`, which is `i64`, contiguous,
/// and has the shape of `x` except in `dim`, where it is not larger.
pub(crate) fn first_in_order(
    op: &'static str,
    x: View<'_>,
    dim: usize,
    descending: bool,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    let (shape, k) = (x.layout.shape(), indices.layout.shape()[dim]);
    if *indices.layout.shape() != shape.with(dim, k) || k > shape[dim] || indices.dtype != DType::I64 {
        bail!(Backend, op, "indices must be i64 and match input of shape {shape:?}, got {:?}", indices.layout.shape());
    }
    if indices.layout.numel() == 0 {
        return Ok(());
    }
    with_entries!(x.dtype, T, E => first_as::<T, E>(op, x, dim, descending, k, indices))
}

fn first_as<T: SortKey, E: Entry>(
    op: &'static str,
    x: View<'_>,
    dim: usize,
    descending: bool,
    k: usize,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    let (lanes, from) = Lanes::<T>::new(op, x, dim)?;
    let (len, to) = (lanes.len, indices.layout.select(op, dim as isize, 0)?);
    let out_step = indices.layout.strides()[dim];
    let walk = Walk::new(from.shape(), [&from, &to]);
    let [across, out_across] = walk.inner();
    let indices = Ptr::new(indices.ptr().cast::<i64>());
    let flip = if descending { T::LAST } else { T::FIRST };
    check_room::<([E; 2], T)>(op, len)?;
    parallel(walk.numel(), (GRAIN / len).max(1), |range| {
        let (mut entries, mut other, mut lane_of): (Vec<E>, Vec<E>, Vec<T>) = (Vec::new(), Vec::new(), Vec::new());
        walk.runs(range.start, range.end, |[from, to], count| {
            for lane in 0..count as isize {
                let (first, to) = (from + lane * across, to + lane * out_across);
                let start = lanes.contiguous(first).unwrap_or_else(|| {
                    lane_of.clear();
                    // SAFETY: the lane is one of the layout, and `i` is below its length.
                    lane_of.extend((0..len as u32).map(|i| unsafe { lanes.element(first, i) }));
                    lane_of.as_ptr()
                });
                // SAFETY: a lane in memory, or its copy.
                let lane = unsafe { std::slice::from_raw_parts(start, len) };
                dispatch(First { lane, k, flip, entries: &mut entries });
                // The sort by keys expects places in order.
                sort_by_place(&mut entries);
                sort_entries(&mut entries, &mut other, size_of::<T>());
                for (rank, entry) in entries.iter().enumerate() {
                    // SAFETY: a position of the output, which is contiguous and not shared (L2); threads have disjoint lanes.
                    unsafe { indices.get().offset(to + rank as isize * out_step).write(i64::from(entry.position())) };
                }
            }
        });
    });
    Ok(())
}

/// The `k` first entries of a lane, in any order.
struct First<'a, T: SortKey, E> {
    lane: &'a [T],
    k: usize,
    flip: T::Key,
    entries: &'a mut Vec<E>,
}

impl<T: SortKey, E: Entry> Job for First<'_, T, E> {
    type Output = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let First { lane, k, flip, entries } = self;
        // SAFETY: places are below the length.
        first_of(lane.len(), k, entries, |i| unsafe { lane.get_unchecked(i) }.key() ^ flip);
    }
}

/// Not part of the job, so that it is compiled for two entry types, not for every dtype.
fn sort_by_place<E: Entry>(entries: &mut [E]) {
    entries.sort_unstable_by_key(|entry| entry.position());
}

/// Keeps the first `k` entries, and returns the place of the last one. Not part of the job either.
#[inline(never)]
fn cut_to<E: Entry>(k: usize, entries: &mut Vec<E>) -> usize {
    let (_, &mut last, _) = entries.select_nth_unstable(k - 1);
    entries.truncate(k);
    last.position() as usize
}

/// Collects the first `k` of `len` entries, from their keys.
#[inline(always)]
fn first_of<K: Copy + Ord + Into<u64>, E: Entry>(len: usize, k: usize, entries: &mut Vec<E>, key: impl Fn(usize) -> K) {
    /// Elements that are compared together: usually none of them is among the first.
    const TILE: usize = 64;
    // Large enough that the entries are rarely cut back to `k`.
    let room = k.saturating_mul(4).max(256).min(len);
    let cut = |entries: &mut Vec<E>| key(cut_to(k, entries));
    entries.clear();
    entries.extend((0..room).map(|i| E::new(key(i).into(), i as u32)));
    if room < len {
        // An element with an equal key comes after the last entry.
        let mut limit = cut(entries);
        for start in (room..len).step_by(TILE) {
            let end = len.min(start + TILE);
            if (start..end).fold(key(start), |least, i| least.min(key(i))) >= limit {
                continue;
            }
            for i in start..end {
                let own = key(i);
                if own < limit {
                    entries.push(E::new(own.into(), i as u32));
                }
            }
            if entries.len() > room {
                limit = cut(entries);
            }
        }
    }
    if entries.len() > k {
        cut(entries);
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use crate::Tensor;

    /// Unsorted numbers with ties.
    fn numbers(n: usize, different: usize) -> Result<Tensor> {
        let at = |i: usize| ((i * 7919) % 104_729 % different) as f32 - 3.0;
        Tensor::from_vec((0..n).map(at).collect(), [n])
    }

    #[test]
    fn what_is_selected_is_what_a_sort_puts_there() -> Result<()> {
        for (n, different) in [(1, 5), (50, 7), (300, 1000), (5000, 3), (5000, 100_000)] {
            let x = numbers(n, different)?;
            let order = x.sort(0)?.1.to_vec::<i64>()?;
            let descending = x.sort_with(0, crate::options::SortOptions::new().descending(true))?.1.to_vec::<i64>()?;
            for k in [0, 1, n / 3, n / 2, n - 1].into_iter().filter(|&k| k < n) {
                let mut at = Tensor::empty("test", [1].into(), DType::I64, crate::Device::Cpu)?;
                kth("test", x.as_view()?, 0, Rank::At(k), &mut at.as_view_mut("test")?)?;
                assert_eq!(at.item::<i64>()?, order[k], "{k} of {n}");
                for (reverse, order) in [(false, &order), (true, &descending)] {
                    let mut first = Tensor::empty("test", [k + 1].into(), DType::I64, crate::Device::Cpu)?;
                    first_in_order("test", x.as_view()?, 0, reverse, &mut first.as_view_mut("test")?)?;
                    assert_eq!(first.to_vec::<i64>()?, order[..=k], "{k} of {n}");
                }
            }
        }
        Ok(())
    }
}
