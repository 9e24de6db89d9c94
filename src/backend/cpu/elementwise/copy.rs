//! Copying, casting and filling.

use crate::backend::cpu::elementwise::map::map;
use crate::backend::cpu::runtime::threads::{GRAIN, Ptr, parallel};
use crate::backend::spec::{Draw, Formula};
use crate::backend::{View, ViewMut};
use crate::dtype::with_dtype;
use crate::error::err;
use crate::layout::Walk;
use crate::{DType, Element, Result, Scalar, random};
use std::sync::LazyLock;

/// Copies the elements of `from` to `to`, which has the same shape, casting where the dtypes differ.
pub(crate) fn copy(from: View<'_>, to: &mut ViewMut<'_>) -> Result<()> {
    if from.dtype != to.dtype {
        static IDENTITY: LazyLock<Formula> = LazyLock::new(|| Formula::new("copy", 1, 0, |x, _| x[0]));
        return map("copy", (&IDENTITY, &[]), from.dtype, &[from], to);
    }
    match from.dtype.size() {
        1 => copy_as::<u8>(from, to),
        2 => copy_as::<u16>(from, to),
        4 => copy_as::<u32>(from, to),
        _ => copy_as::<u64>(from, to),
    }
    Ok(())
}

/// Copies elements of the width of `W`, whatever their dtype.
fn copy_as<W: Copy + Send>(from: View<'_>, to: &mut ViewMut<'_>) {
    let walk = Walk::new(to.layout.shape(), [from.layout, to.layout]);
    let (from, to) = (from.ptr().cast_mut().cast::<W>(), to.ptr().cast::<W>());
    // Adjacent pairs, such as the parts of complex numbers.
    match walk.pairs() {
        Some(pairs) => copy_walk::<[W; 2]>(&pairs, Ptr::new(from.cast()), Ptr::new(to.cast())),
        None => copy_walk::<W>(&walk, Ptr::new(from), Ptr::new(to)),
    }
}

fn copy_walk<W: Copy + Send>(walk: &Walk<2>, from: Ptr<W>, to: Ptr<W>) {
    if let Some(transposed) = Transposed::new(walk) {
        return transposed.copy(from, to);
    }
    let [from_step, to_step] = walk.inner();
    parallel(walk.numel(), GRAIN, |range| {
        walk.runs(range.start, range.end, |[a, b], len| {
            // SAFETY: the walk yields positions of both layouts, inside their storages (L2); the target is not shared
            // with the source, and threads have disjoint ranges of it.
            unsafe {
                let (from, to) = (from.get().offset(a), to.get().offset(b));
                if from_step == 1 && to_step == 1 {
                    to.copy_from_nonoverlapping(from, len);
                } else {
                    for i in 0..len as isize {
                        *to.offset(i * to_step) = *from.offset(i * from_step);
                    }
                }
            }
        });
    });
}

/// A copy between layouts that are contiguous along different dimensions: matrices of these two dimensions are transposed tile
/// by tile, so that whole cache lines are used on both sides.
struct Transposed<'a> {
    walk: &'a Walk<2>,
    /// The dimension along which the source is contiguous; the target is contiguous along the last.
    rows: usize,
}

impl Transposed<'_> {
    /// Rows and columns of a tile: source and target tiles fit the L1 cache.
    const TILE: usize = 32;

    fn new(walk: &Walk<2>) -> Option<Transposed<'_>> {
        let (&(columns, [from_step, to_step]), others) = walk.dims().split_last()?;
        let rows = others.iter().position(|&(size, [step, _])| step == 1 && size >= 4)?;
        (to_step == 1 && from_step != 1 && columns >= 4).then_some(Transposed { walk, rows })
    }

    fn copy<W: Copy + Send>(&self, from: Ptr<W>, to: Ptr<W>) {
        const TILE: usize = Transposed::TILE;
        let (dims, last) = (self.walk.dims(), self.walk.dims().len() - 1);
        let (columns, [across, _]) = dims[last];
        let (rows, [_, down]) = dims[self.rows];
        let strips = rows.div_ceil(TILE);
        let outer = self.walk.numel() / (rows * columns);
        parallel(outer * strips, (GRAIN / (TILE * columns)).max(1), |range| {
            for strip in range {
                let (mut rest, [mut a, mut b]) = (strip / strips, self.walk.first());
                for (_, &(size, [from_step, to_step])) in
                    dims[..last].iter().enumerate().rev().filter(|(d, _)| *d != self.rows)
                {
                    a += (rest % size) as isize * from_step;
                    b += (rest % size) as isize * to_step;
                    rest /= size;
                }
                let first = strip % strips * TILE;
                for start in (0..columns).step_by(TILE) {
                    for row in first..rows.min(first + TILE) {
                        // SAFETY: a row and a column of both layouts, inside their storages (L2); the target is not shared
                        // with the source, and threads have disjoint rows of it.
                        unsafe {
                            let from = from.get().offset(a + row as isize);
                            let to = to.get().offset(b + row as isize * down);
                            for column in start..columns.min(start + TILE) {
                                *to.add(column) = *from.offset(column as isize * across);
                            }
                        }
                    }
                }
            }
        });
    }
}

/// Fills a view with one number.
pub(crate) fn fill(to: &mut ViewMut<'_>, value: Scalar) {
    with_dtype!(to.dtype, T => {
        let value = <T as Element>::from_scalar(value);
        // SAFETY: an element is a number, all of whose bytes are initialised.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const value).cast::<u8>(), size_of::<T>()) };
        // Bools, bytes and zeros are filled by bytes, which is fastest, even without optimisations.
        let byte = bytes.first().copied().filter(|first| bytes.iter().all(|byte| byte == first));
        let walk = Walk::new(to.layout.shape(), [to.layout]);
        let [step] = walk.inner();
        let to = Ptr::new(to.ptr().cast::<T>());
        parallel(walk.numel(), GRAIN, |range| {
            walk.runs(range.start, range.end, |[at], len| {
                // SAFETY: the walk yields positions of the layout (L2); threads have disjoint ranges of it.
                unsafe {
                    let to = to.get().offset(at);
                    if let (1, Some(byte)) = (step, byte) {
                        to.write_bytes(byte, len);
                    } else if step == 1 {
                        // The elements may be uninitialised; the slice is only written to.
                        std::slice::from_raw_parts_mut(to, len).fill(value);
                    } else {
                        (0..len as isize).for_each(|i| to.offset(i * step).write(value));
                    }
                }
            });
        });
    });
}

/// Fills a slice in pieces, on several threads if it is long; `f` gets the index of the first element of a piece.
fn fill_parallel<T: Send>(data: &mut [T], f: impl Fn(usize, &mut [T]) + Sync) {
    let ptr = Ptr::new(data.as_mut_ptr());
    parallel(data.len(), GRAIN, |range| {
        // SAFETY: the pieces are disjoint parts of the slice, which is borrowed for the whole call.
        let part = unsafe { std::slice::from_raw_parts_mut(ptr.get().add(range.start), range.len()) };
        f(range.start, part);
    });
}

/// Fills contiguous elements with random numbers; f32, f64, i64 and bool are supported.
pub(crate) fn draw(op: &'static str, draw: Draw, (seed, offset): (u64, u64), out: &mut ViewMut<'_>) -> Result<()> {
    let (dtype, layout) = (out.dtype, out.layout);
    let refused = || err!(Backend, op, "cannot draw {draw:?} as {dtype}");
    match (draw, dtype) {
        (Draw::Uniform(bits), DType::F32) => {
            let data = out.part(layout).into_slice().ok_or_else(refused)?;
            fill_parallel(data, |at, part| random::fill_uniform_bits(part, seed, offset, at as u64, bits));
        }
        (Draw::Normal, DType::F32) => {
            let data = out.part(layout).into_slice().ok_or_else(refused)?;
            fill_parallel(data, |at, part| random::fill_normal_f32(part, seed, offset, at as u64));
        }
        (Draw::Uniform(_), DType::F64) => {
            let data = out.part(layout).into_slice().ok_or_else(refused)?;
            fill_parallel(data, |at, part| random::fill_uniform_f64(part, seed, offset, at as u64));
        }
        (Draw::Normal, DType::F64) => {
            let data = out.part(layout).into_slice().ok_or_else(refused)?;
            fill_parallel(data, |at, part| random::fill_normal_f64(part, seed, offset, at as u64));
        }
        (Draw::Integers(low, high), DType::I64) => {
            let data = out.part(layout).into_slice().ok_or_else(refused)?;
            fill_parallel(data, |at, part| random::fill_integers(part, seed, offset, at as u64, low, high));
        }
        (Draw::Booleans(last), DType::Bool) => {
            let data = out.part(layout).into_slice::<bool>().ok_or_else(refused)?;
            fill_parallel(data, |at, part| random::fill_bernoulli(part, seed, offset, at as u64, last, [true, false]));
        }
        _ => return Err(refused()),
    }
    Ok(())
}

/// The element at a position of a view's layout.
pub(crate) fn read(from: View<'_>, position: usize) -> Scalar {
    debug_assert!(from.layout.extent().is_some_and(|(low, high)| (low..=high).contains(&position)));
    with_dtype!(from.dtype, T => {
        // SAFETY: the caller computed the position from the layout and an index inside its shape (L2).
        unsafe { from.ptr().cast::<T>().add(position).read() }.to_scalar()
    })
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use crate::Tensor;

    #[test]
    fn one_number_is_put_everywhere_and_nowhere_else() -> Result<()> {
        for dtype in
            [DType::Bool, DType::U8, DType::I8, DType::I16, DType::U32, DType::I64, DType::F16, DType::F32, DType::F64]
        {
            // Values with equal bytes, and others.
            for value in [0, 1, 2, -1, 0x0101, 0x0102].into_iter().filter(|&x| x <= 1 || dtype != DType::Bool) {
                let (low, high) = if dtype == DType::I8 { (-128, 127) } else { (0, 255) };
                let outside = !(low..=high).contains(&value) && dtype.size() == 1;
                if outside || (value < 0 && matches!(dtype, DType::U32 | DType::Bool)) {
                    continue;
                }
                let one = Tensor::full_with([1], value, dtype)?.to_dtype(DType::F64)?.item::<f64>()?;
                assert_eq!(one, if dtype == DType::Bool { f64::from(u8::from(value != 0)) } else { f64::from(value) });
                for strided in [false, true] {
                    let mut x = Tensor::full_with([40], 1, dtype)?;
                    let part = match strided {
                        false => x.layout().narrow("test", 0, 3, 27)?,
                        true => {
                            let pairs = x.layout().reshape(&[20, 2].into());
                            pairs.ok_or_else(|| err!(Backend, "test", "no pairs"))?.select("test", 1, 1)?
                        }
                    };
                    fill(&mut x.as_view_mut("test")?.part(&part), value.into());
                    let inside = |i: usize| if strided { i % 2 == 1 } else { (3..30).contains(&i) };
                    let want = (0..40).map(|i| if inside(i) { one } else { 1.0 });
                    assert!(x.to_dtype(DType::F64)?.to_vec::<f64>()?.into_iter().eq(want), "{value} as {dtype}");
                }
            }
        }
        Ok(())
    }

    #[test]
    fn transposed_elements_and_pairs_are_copied_in_order() -> Result<()> {
        for shape in [vec![70, 90], vec![3, 40, 33], vec![5, 4, 37, 2], vec![2, 3, 64, 3]] {
            let n: usize = shape.iter().product();
            let x = Tensor::arange(0, n as i64)?.reshape(shape.clone())?;
            for (a, b) in [(0, 1), (1, 2), (0, 2)].into_iter().filter(|&(_, b)| b < shape.len()) {
                for dtype in [DType::U8, DType::F16, DType::I32, DType::I64] {
                    let turned = x.to_dtype(dtype)?.transpose(a, b)?;
                    let mut order: Vec<usize> = (0..shape.len()).collect();
                    order.swap(a, b);
                    let sizes: Vec<usize> = order.iter().map(|&d| shape[d]).collect();
                    let strides: Vec<usize> = order.iter().map(|&d| shape[d + 1..].iter().product()).collect();
                    let want = (0..n).map(|mut at| {
                        let mut position = 0;
                        for (size, stride) in sizes.iter().zip(&strides).rev() {
                            position += at % size * stride;
                            at /= size;
                        }
                        position as i64
                    });
                    let want = Tensor::from_vec(want.collect::<Vec<i64>>(), [n])?.to_dtype(dtype)?;
                    let copied = turned.contiguous()?.reshape([n])?;
                    assert!(copied.eq(&want)?.all(..)?.item::<bool>()?, "{shape:?} {a} {b} {dtype}");
                }
            }
        }
        Ok(())
    }
}
