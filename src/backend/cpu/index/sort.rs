//! Stable sorts along a dimension: radix sorts of entries of a key and the index of its element.

use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, num_threads, parallel};
use crate::backend::spec::SortKey;
use crate::backend::{View, ViewMut};
use crate::dtype::with_dtype;
use crate::error::bail;
use crate::layout::{Layout, Walk};
use crate::memory::scratch::{check_room, with_room};
use crate::{DType, Result, interrupt};
use std::sync::atomic::{AtomicU64, Ordering};

/// The key of an element and its index in the lane, packed into one integer ordered by both. All entries are distinct.
pub(super) trait Entry: Copy + Ord + Send + Sync + Default + 'static {
    /// The number of low bits that hold the place.
    const PLACE: u32 = 32;
    fn new(key: u64, position: u32) -> Self;
    fn position(self) -> u32;
    /// The key.
    fn bits(self) -> u64;
    /// Eight bits of the entry, from bit `shift` on.
    fn digit(self, shift: u32) -> usize;
}

/// For keys of up to 32 bits.
impl Entry for u64 {
    #[inline(always)]
    fn new(key: u64, position: u32) -> u64 {
        key << 32 | u64::from(position)
    }
    #[inline(always)]
    fn position(self) -> u32 {
        self as u32
    }
    #[inline(always)]
    fn bits(self) -> u64 {
        self >> 32
    }
    #[inline(always)]
    fn digit(self, shift: u32) -> usize {
        (self >> shift) as usize & 255
    }
}

impl Entry for u128 {
    #[inline(always)]
    fn new(key: u64, position: u32) -> u128 {
        u128::from(key) << 32 | u128::from(position)
    }
    #[inline(always)]
    fn position(self) -> u32 {
        self as u32
    }
    #[inline(always)]
    fn bits(self) -> u64 {
        (self >> 32) as u64
    }
    #[inline(always)]
    fn digit(self, shift: u32) -> usize {
        (self >> shift) as usize & 255
    }
}

/// A key without a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
struct Key(u64);

impl Entry for Key {
    const PLACE: u32 = 0;
    #[inline(always)]
    fn new(key: u64, _place: u32) -> Key {
        Key(key)
    }
    #[inline(always)]
    fn position(self) -> u32 {
        0
    }
    #[inline(always)]
    fn bits(self) -> u64 {
        self.0
    }
    #[inline(always)]
    fn digit(self, shift: u32) -> usize {
        (self.0 >> shift) as usize & 255
    }
}

/// Sorts a contiguous vector of `i64` into `out`, of the same length, without the indices.
pub(crate) fn sort_integers(op: &'static str, x: View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
    let layout = out.layout.clone();
    let (Some(from), Some(to)) = (x.as_slice::<i64>(), out.part(&layout).into_slice::<i64>()) else {
        bail!(Backend, op, "input and output must be contiguous i64");
    };
    if from.len() != to.len() {
        bail!(Backend, op, "output must have {} elements, got {}", from.len(), to.len());
    }
    let (mut entries, mut other) = (with_room::<Key>(op, from.len())?, with_room::<Key>(op, from.len())?);
    entries.resize(from.len(), Key::default());
    other.resize(from.len(), Key::default());
    fill(&mut entries, |i| Key(from[i as usize].key()));
    radix_sort_together(&mut entries, &mut other, size_of::<i64>());
    fill(to, |i| i64::from_key(entries[i as usize].0).unwrap_or_default());
    Ok(())
}

/// Evaluates an expression with the element type and the entry type that holds its keys.
macro_rules! with_entries {
    ($dtype:expr, $t:ident, $e:ident => $body:expr) => {
        with_dtype!($dtype, $t => {
            if size_of::<$t>() == 8 {
                type $e = u128;
                $body
            } else {
                type $e = u64;
                $body
            }
        })
    };
}
pub(super) use with_entries;

/// The elements along a dimension, lane by lane.
pub(super) struct Lanes<T> {
    start: Ptr<T>,
    step: isize,
    pub len: usize,
}

impl<T: SortKey> Lanes<T> {
    /// The lanes of a layout along `dim`, and the layout of their first elements.
    pub fn new(op: &'static str, x: View<'_>, dim: usize) -> Result<(Lanes<T>, Layout)> {
        let len = x.layout.shape()[dim];
        if u32::try_from(len).is_err() {
            bail!(Backend, op, "cannot sort more than 2^32 - 1 elements along a dimension, got {len}");
        }
        let lanes = Lanes { start: Ptr::new(x.ptr().cast_mut().cast::<T>()), step: x.layout.strides()[dim], len };
        Ok((lanes, x.layout.select(op, dim as isize, 0)?))
    }

    /// The first element of a lane, if the lane is contiguous.
    #[inline(always)]
    pub fn contiguous(&self, first: isize) -> Option<*const T> {
        (self.step == 1).then(|| self.start.get().wrapping_offset(first).cast_const())
    }

    /// Element `i` of the lane whose first element is at a position.
    ///
    /// # Safety
    /// `first` is a position of the layout of the first elements, and `i` is below the length.
    #[inline(always)]
    pub unsafe fn element(&self, first: isize, i: u32) -> T {
        debug_assert!((i as usize) < self.len);
        // SAFETY: the caller's promise (L2), and the elements are of type T.
        unsafe { self.start.get().offset(first + i as isize * self.step).read() }
    }
}

/// Sorts along `dim`: writes the elements to `values`, if given, and their original indices to `indices`, which is `i64`. Both
/// are contiguous and have the shape of `x`. The sort is stable; NaN counts as the largest.
pub(crate) fn sort(
    op: &'static str,
    x: View<'_>,
    dim: usize,
    descending: bool,
    values: Option<&mut ViewMut<'_>>,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    let shape = x.layout.shape();
    let fits = |view: &ViewMut<'_>, dtype: DType| *view.layout.shape() == *shape && view.dtype == dtype;
    if !fits(indices, DType::I64) || values.as_ref().is_some_and(|values| !fits(values, x.dtype)) {
        bail!(Backend, op, "outputs must have shape {shape:?} and dtypes {} and i64", x.dtype);
    }
    if shape.numel() == 0 {
        return Ok(());
    }
    let values = values.map(|values| values.ptr());
    with_entries!(x.dtype, T, E => sort_as::<T, E>(op, x, dim, descending, values, indices))
}

/// From this length on, a lane is sorted by several threads together if there are fewer lanes than threads.
const LONG: usize = if cfg!(debug_assertions) { 1 << 10 } else { 1 << 16 };

fn sort_as<T: SortKey, E: Entry>(
    op: &'static str,
    x: View<'_>,
    dim: usize,
    descending: bool,
    values: Option<*mut u8>,
    indices: &mut ViewMut<'_>,
) -> Result<()> {
    let (lanes, from) = Lanes::<T>::new(op, x, dim)?;
    let (len, to) = (lanes.len, indices.layout.select(op, dim as isize, 0)?);
    let out_step = indices.layout.strides()[dim];
    let walk = Walk::new(from.shape(), [&from, &to]);
    let [across, out_across] = walk.inner();
    let (values, indices) = (values.map(|to| Ptr::new(to.cast::<T>())), Ptr::new(indices.ptr().cast::<i64>()));
    let flip = if descending { T::LAST } else { T::FIRST };
    // SAFETY: of both, the callers' positions are those of lanes, and `i` and `rank` are below the length (L2). Of the outputs
    // one thread has each position; they are contiguous, of one shape, and not shared.
    let entry = |first: isize, i: u32| E::new((unsafe { lanes.element(first, i) }.key() ^ flip).into(), i);
    // SAFETY: as above.
    let write = |first: isize, to: isize, rank: usize, entry: E| unsafe {
        let (to, position) = (to + rank as isize * out_step, entry.position());
        if let Some(values) = &values {
            // From the key: reading the element would be a random access.
            let value = T::from_key(entry.bits() ^ flip.into()).unwrap_or_else(|| lanes.element(first, position));
            values.get().offset(to).write(value);
        }
        indices.get().offset(to).write(i64::from(position));
    };
    if len >= LONG && walk.numel() < num_threads() {
        let (mut entries, mut other) = (with_room::<E>(op, len)?, with_room::<E>(op, len)?);
        entries.resize(len, E::default());
        other.resize(len, E::default());
        walk.runs(0, walk.numel(), |[from, to], lanes| {
            for lane in 0..lanes as isize {
                let (from, to) = (from + lane * across, to + lane * out_across);
                fill(&mut entries, |i| entry(from, i));
                radix_sort_together(&mut entries, &mut other, size_of::<T>());
                parallel(len, GRAIN, |range| range.for_each(|rank| write(from, to, rank, entries[rank])));
            }
        });
        return Ok(());
    }
    check_room::<[E; 2]>(op, len)?;
    parallel(walk.numel(), (GRAIN / len).max(1), |range| {
        let (mut entries, mut other) = (Vec::with_capacity(len), Vec::new());
        walk.runs(range.start, range.end, |[from, to], lanes| {
            for lane in 0..lanes as isize {
                let (from, to) = (from + lane * across, to + lane * out_across);
                entries.clear();
                entries.extend((0..len as u32).map(|i| entry(from, i)));
                sort_entries(&mut entries, &mut other, size_of::<T>());
                entries.iter().enumerate().for_each(|(rank, &entry)| write(from, to, rank, entry));
            }
        });
    });
    Ok(())
}

/// Writes all elements of a vector on the thread pool.
fn fill<E: Send>(to: &mut [E], element: impl Fn(u32) -> E + Sync) {
    let (len, to) = (to.len(), Ptr::new(to.as_mut_ptr()));
    parallel(len, GRAIN, |range| {
        for i in range {
            // SAFETY: `i` is below the length; threads have disjoint ranges. What was there needs no dropping: it is a number.
            unsafe { to.get().add(i).write(element(i as u32)) };
        }
    });
}

/// Sorts entries with keys of `bytes` bytes, whose places are already in order.
pub(super) fn sort_entries<E: Entry>(entries: &mut Vec<E>, other: &mut Vec<E>, bytes: usize) {
    // For few entries a comparison sort is faster than a counting pass per byte.
    if entries.len() < 48 * bytes {
        entries.sort_unstable();
        return;
    }
    other.resize(entries.len(), E::default());
    let mut counts = [[0_u32; 256]; 8];
    for &entry in entries.iter() {
        for (byte, counts) in counts[..bytes].iter_mut().enumerate() {
            counts[entry.digit(E::PLACE + 8 * byte as u32)] += 1;
        }
    }
    for (byte, counts) in counts[..bytes].iter_mut().enumerate() {
        interrupt::poll();
        // Skip a digit that is the same in all entries.
        if counts.iter().any(|&count| count as usize == entries.len()) {
            continue;
        }
        let mut before = 0;
        for count in counts.iter_mut() {
            (*count, before) = (before, before + *count);
        }
        for &entry in entries.iter() {
            let next = &mut counts[entry.digit(E::PLACE + 8 * byte as u32)];
            other[*next as usize] = entry;
            *next += 1;
        }
        std::mem::swap(entries, other);
    }
}

/// As [`sort_entries`], on several threads: each counts and moves pieces of the entries.
fn radix_sort_together<E: Entry>(entries: &mut Vec<E>, other: &mut Vec<E>, bytes: usize) {
    let n = entries.len();
    let piece = LONG / 2;
    let mut counts = vec![[0_u32; 256]; n.div_ceil(piece)];
    // The bits in which keys differ; wide keys often share many.
    let bits = AtomicU64::new(if bytes == 8 { 0 } else { u64::MAX });
    if let (8, Some(first)) = (bytes, entries.first()) {
        parallel(n, piece, |range| {
            let differ = entries[range].iter().fold(0, |bits, entry| bits | (entry.bits() ^ first.bits()));
            bits.fetch_or(differ, Ordering::Relaxed);
        });
    }
    let bits = bits.into_inner();
    for byte in (0..bytes as u32).filter(|byte| bits >> (8 * byte) & 255 != 0) {
        let (from, shift) = (&entries[..], E::PLACE + 8 * byte);
        let each = Ptr::new(counts.as_mut_ptr());
        let of_piece = |at: usize| &from[at * piece..n.min((at + 1) * piece)];
        parallel(counts.len(), 1, |range| {
            for at in range {
                // SAFETY: the counts of this piece, which no other thread has.
                let counts = unsafe { &mut *each.get().add(at) };
                counts.fill(0);
                of_piece(at).iter().for_each(|entry| counts[entry.digit(shift)] += 1);
            }
        });
        let total = |digit: usize| counts.iter().map(|counts| counts[digit] as usize).sum::<usize>();
        if (0..256).any(|digit| total(digit) == n) {
            continue;
        }
        // The target of each digit of each piece: after those of smaller digits and of earlier pieces.
        let mut before = 0;
        for digit in 0..256 {
            for counts in &mut counts {
                (counts[digit], before) = (before, before + counts[digit]);
            }
        }
        let (each, to) = (Ptr::new(counts.as_mut_ptr()), Ptr::new(other.as_mut_ptr()));
        parallel(counts.len(), 1, |range| {
            for at in range {
                // SAFETY: as above.
                let next = unsafe { &mut *each.get().add(at) };
                for &entry in of_piece(at) {
                    let next = &mut next[entry.digit(shift)];
                    // SAFETY: by the counts every entry has a place of its own, below their number.
                    unsafe { to.get().add(*next as usize).write(entry) };
                    *next += 1;
                }
            }
        });
        std::mem::swap(entries, other);
    }
}

/// Writes the lexicographic order of the rows of a matrix, as row indices, to `order`, which is `i64`. The sort is stable.
pub(crate) fn order_rows(op: &'static str, x: View<'_>, order: &mut ViewMut<'_>) -> Result<()> {
    let [rows, columns] = x.layout.shape()[..] else {
        bail!(Backend, op, "input must be a matrix, got shape {:?}", x.layout.shape());
    };
    if order.layout.numel() != rows || order.dtype != DType::I64 || !order.layout.is_contiguous() {
        bail!(Backend, op, "order must be contiguous i64 with {rows} elements");
    }
    let mut numbers: Vec<usize> = with_room(op, rows)?;
    numbers.extend(0..rows);
    with_dtype!(x.dtype, T => {
        let (start, strides) = (x.ptr().cast::<T>(), x.layout.strides());
        let first = |row: usize| x.layout.offset() as isize + row as isize * strides[0];
        // SAFETY: rows and columns of the layout (L2), and elements of type T.
        let key = |first: isize, column: usize| unsafe { start.offset(first + column as isize * strides[1]).read() }.key();
        sort_numbers(&mut numbers, &|a, b| {
            let (a, b) = (first(a), first(b));
            (0..columns).map(|column| key(a, column).cmp(&key(b, column))).find(|order| order.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
        });
    });
    let to = order.first().cast::<i64>();
    for (rank, &row) in numbers.iter().enumerate() {
        // SAFETY: the output is contiguous and has as many elements (checked).
        unsafe { to.add(rank).write(row as i64) };
    }
    Ok(())
}

/// A stable sort that is compiled once, not per dtype: comparing rows takes longer than the dynamic call.
fn sort_numbers(numbers: &mut [usize], compare: &dyn Fn(usize, usize) -> std::cmp::Ordering) {
    numbers.sort_by(|&a, &b| compare(a, b));
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    /// Unsorted entries, with repeated keys.
    fn entries<E: Entry>(n: u32, bits: u32) -> Vec<E> {
        let key = |i: u32| (u64::from(i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7) & (u64::MAX >> (64 - bits));
        (0..n).map(|i| E::new(key(i), i)).collect()
    }

    fn sorts_like_the_standard_library<E: Entry + std::fmt::Debug>(bytes: usize) {
        for (n, bits) in [(0, 8), (1, 8), (47, 8), (1000, 3), (1000, 8 * bytes as u32), (5000, 8 * bytes as u32)] {
            let given = entries::<E>(n, bits.min(8 * bytes as u32));
            let mut want = given.clone();
            want.sort();
            let (mut alone, mut together) = (given.clone(), given);
            sort_entries(&mut alone, &mut Vec::new(), bytes);
            radix_sort_together(&mut together, &mut vec![E::default(); n as usize], bytes);
            assert_eq!(alone, want, "{n} of {bits} bits");
            assert_eq!(together, want, "{n} of {bits} bits");
        }
    }

    #[test]
    fn radix_sorts_agree_with_comparisons() {
        [1, 2, 4].into_iter().for_each(sorts_like_the_standard_library::<u64>);
        sorts_like_the_standard_library::<u128>(8);
        sorts_like_the_standard_library::<Key>(8);
    }
}
