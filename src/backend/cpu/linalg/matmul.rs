//! Batches of matrix products of strided operands. A transposed operand is never copied as a whole.

use crate::backend::cpu::elementwise::copy::{copy, fill};
use crate::backend::cpu::linalg::few_rows;
use crate::backend::cpu::linalg::gemm::{GRAIN, Matrix, Number, Product, Start, gemm};
use crate::backend::cpu::runtime::threads::{Ptr, num_threads, parallel, try_parallel};
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::layout::{Layout, Walk};
use crate::{DType, Element, Result, Scalar};
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use crate::{Device, storage::Storage};

/// The number of multiplications below which the overhead of `gemm` dominates.
const TINY: usize = 128;

/// `out = a · b`, plus `row`, a contiguous vector, in every row. The shapes are `[batch.., m, k]` and `[batch.., k, n]` with
/// the same batch dimensions, in which operands may repeat with stride 0. `out` is contiguous and has the elements of
/// `[batch.., m, n]`, whatever its shape. All have one dtype, a compute dtype; or [`takes_half`] is true, and the others are f32.
pub(crate) fn matmul(
    op: &'static str,
    a: View<'_>,
    b: View<'_>,
    out: &mut ViewMut<'_>,
    row: Option<View<'_>>,
) -> Result<()> {
    debug_assert!(out.layout.is_contiguous() && a.dtype == b.dtype);
    match (a.dtype, out.dtype) {
        (DType::F32, DType::F32) => batches::<f32, f32>(op, &a, &b, out, row, floats),
        (DType::F64, DType::F64) => batches::<f64, f64>(op, &a, &b, out, row, floats),
        // Wrapping arithmetic in two's complement is the same for both.
        (DType::I64, DType::I64) | (DType::U64, DType::U64) => batches::<u64, u64>(op, &a, &b, out, row, integers),
        (DType::BF16, DType::F32) => batches::<half::bf16, f32>(op, &a, &b, out, row, few_rows::product),
        (DType::F16, DType::F32) => batches::<half::f16, f32>(op, &a, &b, out, row, few_rows::product),
        (a, out) => bail!(Backend, op, "there is no kernel for {a} with sums of {out}"),
    }
}

/// Whether [`matmul`] is the fastest for operands of half precision as they are: for a few rows in all, and matrices with
/// contiguous rows or columns, such as a transposed weight.
pub(crate) fn takes_half(dtype: DType, rows: usize, b: &Layout) -> bool {
    let Some(at) = b.rank().checked_sub(2) else { return false };
    let (by_columns, by_rows) = (b.strides()[at] == 1, b.strides()[at + 1] == 1);
    // Measured with 4864 x 896 elements: the unit for bf16 is faster from about 6 and 16 rows on.
    let most = match dtype {
        DType::BF16 if has_bf16() && by_columns => 5,
        DType::BF16 if has_bf16() => 12,
        DType::BF16 | DType::F16 => few_rows::MOST,
        _ => return false,
    };
    rows <= most && (by_columns || by_rows)
}

/// Whether this CPU has a unit for products of bf16, which [`matmul_bf16`] needs.
pub(crate) fn has_bf16() -> bool {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    return crate::backend::cpu::linalg::amx::available();
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
    false
}

/// As [`matmul`], for operands of f32, which are rounded to bf16, or of bf16; the sums, `row` and `out` are of f32.
pub(crate) fn matmul_bf16(
    op: &'static str,
    a: View<'_>,
    b: View<'_>,
    out: &mut ViewMut<'_>,
    row: Option<View<'_>>,
) -> Result<()> {
    debug_assert!(out.layout.is_contiguous() && a.dtype == b.dtype && out.dtype == DType::F32);
    match a.dtype {
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        DType::F32 if has_bf16() => batches::<f32, f32>(op, &a, &b, out, row, tiles),
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        DType::BF16 if has_bf16() => batches::<half::bf16, f32>(op, &a, &b, out, row, tiles),
        dtype => {
            let _ = row;
            bail!(Backend, op, "bf16 products of {dtype} are not supported on this CPU")
        }
    }
}

/// A function that multiplies one pair of matrices.
///
/// # Safety
/// All elements of the three matrices are inside their buffers, and nothing else uses `out` meanwhile.
type Multiply<S, O> = unsafe fn(&'static str, &Product<S, O>) -> Result<()>;

/// A batched product with operands of type `S` and sums of type `O`.
fn batches<S: Element, O: Element>(
    op: &'static str,
    a: &View<'_>,
    b: &View<'_>,
    out: &mut ViewMut<'_>,
    row: Option<View<'_>>,
    multiply: Multiply<S, O>,
) -> Result<()> {
    let at = a.layout.rank() - 2;
    let (m, n, k) = (a.layout.shape()[at], b.layout.shape()[at + 1], a.layout.shape()[at + 1]);
    if out.layout.numel() == 0 {
        return Ok(());
    }
    if k == 0 {
        match row {
            None => fill(out, Scalar::F64(0.0)),
            Some(row) => copy(View { layout: &row.layout.broadcast_to(out.layout.shape()), ..row }, out)?,
        }
        return Ok(());
    }
    let start = row.map_or(Start::Zero, |row| Start::Row(row.first().cast::<O>()));
    let steps = |layout: &Layout| (layout.strides()[at], layout.strides()[at + 1]);
    let (a_steps, b_steps) = (steps(a.layout), steps(b.layout));
    let one = Product {
        m,
        n,
        k,
        a: Matrix { ptr: a.first().cast::<S>(), row: a_steps.0, col: a_steps.1 },
        b: Matrix { ptr: b.first().cast::<S>(), row: b_steps.0, col: b_steps.1 },
        out: out.first().cast::<O>(),
        width: n,
        start,
    };
    if at == 0 {
        // SAFETY: from their first elements on, all `m·k` and `k·n` elements are positions of the layouts, inside their storages
        // (L2). `out` has `m·n` elements, without gaps, and one owner.
        return unsafe { multiply(op, &one) };
    }
    let corners = |layout: &Layout| layout.select(op, -1, 0)?.select(op, -1, 0);
    let (la, lb) = (corners(a.layout)?, corners(b.layout)?);
    let walk = Walk::new(la.shape(), [&la, &lb]);
    let inner = walk.inner();
    let (a, b) = (Ptr::new(a.ptr().cast_mut().cast::<S>()), Ptr::new(b.ptr().cast_mut().cast::<S>()));
    let to = Ptr::new(one.out);
    let run = |start: usize, end: usize| -> Result<()> {
        let (mut batch, mut outcome) = (start, Ok(()));
        walk.runs(start, end, |first, len| {
            for i in 0..len as isize {
                // SAFETY: the walk yields the positions of the matrices' first elements; from there all `m·k` and `k·n`
                // elements are positions of the layouts, inside their storages (L2). `out` has `m·n` elements for each
                // batch, without gaps, and one owner.
                let done = unsafe {
                    let a = Matrix { ptr: a.get().offset(first[0] + i * inner[0]), ..one.a };
                    let b = Matrix { ptr: b.get().offset(first[1] + i * inner[1]), ..one.b };
                    multiply(op, &Product { a, b, out: to.get().add(batch * m * n), ..one })
                };
                if outcome.is_ok() {
                    outcome = done;
                }
                batch += 1;
            }
        });
        outcome
    };
    let (count, work) = (walk.numel(), one.work());
    // Few large products are each computed by all threads; many are split among them. The bits are the same.
    if count < num_threads() || work >= GRAIN << 5 {
        return run(0, count);
    }
    try_parallel(count, (GRAIN / work).max(1), |range| run(range.start, range.end))
}

/// # Safety
/// As [`Multiply`].
unsafe fn floats<T: Number + std::ops::Mul<Output = T>>(op: &'static str, product: &Product<T>) -> Result<()> {
    // SAFETY: the caller's promise.
    unsafe {
        if product.work() <= TINY {
            plain(product, |sum, x, y| sum + x * y, T::ZERO);
            return Ok(());
        }
        gemm(op, product)
    }
}

/// # Safety
/// As [`Multiply`].
unsafe fn integers(_: &'static str, product: &Product<u64>) -> Result<()> {
    let piece = (GRAIN / (product.n * product.k)).max(1);
    parallel(product.m, piece, |rows| {
        let part = product.rows(rows.start, rows.end);
        // SAFETY: the caller's promise; the rows of `out` are disjoint.
        unsafe { plain(&part, |sum, x, y| sum.wrapping_add(x.wrapping_mul(y)), 0) };
    });
    Ok(())
}

/// A product by the bf16 unit. The longer side is split among threads, which share only what they read.
///
/// # Safety
/// As [`Multiply`], and the CPU has the unit.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
unsafe fn tiles<S: crate::backend::cpu::linalg::amx::PackElement>(
    op: &'static str,
    product: &Product<S, f32>,
) -> Result<()> {
    let &Product { m, n, .. } = product;
    // The unit does about sixteen times as much work in the time that a fork takes.
    let (len, pieces) = (m.max(n), (product.work() / (GRAIN << 4)).clamp(1, num_threads()));
    let piece = len.div_ceil(pieces).next_multiple_of(32);
    try_parallel(len.div_ceil(piece), 1, |range| {
        let (start, end) = (range.start * piece, len.min(range.end * piece));
        let part = if m >= n { product.rows(start, end) } else { product.columns(start, end) };
        let mut space =
            Storage::new(op, Device::Cpu, crate::backend::cpu::linalg::amx::workspace(&part) * size_of::<u16>())?;
        let to = space.get_mut().unwrap_or(std::ptr::null_mut()).cast::<u16>();
        // SAFETY: the caller's promise; the parts of `out` are disjoint, and the space, which is fresh and so has one
        // owner, has the size asked for and the alignment of all storage.
        unsafe { crate::backend::cpu::linalg::amx::multiply(&part, to) };
        Ok(())
    })
}

/// The definition: three loops, with sums from the first element of the inner dimension on.
///
/// # Safety
/// As [`Multiply`].
#[inline(always)]
unsafe fn plain<T: Copy>(product: &Product<T>, add: impl Fn(T, T, T) -> T, zero: T) {
    let &Product { m, n, k, a, b, out, width, start } = product;
    for i in 0..m {
        for j in 0..n {
            // SAFETY: `i`, `j` and `p` are inside the sizes, for which the caller has promised elements.
            unsafe {
                let slot = out.add(i * width + j);
                let mut sum = match start {
                    Start::Zero => zero,
                    Start::Out => slot.read(),
                    Start::Row(row) => row.add(j).read(),
                };
                for p in 0..k {
                    sum = add(sum, a.at(i, p).read(), b.at(p, j).read());
                }
                slot.write(sum);
            }
        }
    }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use crate::layout::{Shape, Slice};
    use crate::{Generator, Tensor};

    /// The numbers of `x`, in layouts that views can have.
    fn arrangements(x: &Tensor) -> Result<Vec<(&'static str, Tensor)>> {
        let last = x.rank() as isize - 1;
        let by = |change: &dyn Fn(&Layout) -> Result<Layout>| -> Result<Tensor> {
            // Changed, copied, and changed back: the values are those of x, the strides are not.
            let copy = x.with_layout(change(x.layout())?).copied("test")?;
            Ok(copy.with_layout(change(copy.layout())?))
        };
        let reversed = Slice::new(None, None).step(-1);
        Ok(vec![
            ("plain", x.clone()),
            ("transposed", by(&|l| l.transpose("test", last - 1, last))?),
            ("rows reversed", by(&|l| l.slice("test", last - 1, &reversed))?),
            ("columns reversed", by(&|l| l.slice("test", last, &reversed))?),
            ("both reversed", by(&|l| l.flip("test", &[last as usize - 1, last as usize]))?),
            ("reversed and transposed", by(&|l| l.transpose("test", last - 1, last)?.slice("test", last, &reversed))?),
        ])
    }

    fn random(shape: &[usize], dtype: DType, seed: u64) -> Result<Tensor> {
        match dtype {
            DType::I64 => Generator::seed(seed).randint(-9, 9, shape),
            _ => Generator::seed(seed).randn_with(shape, dtype),
        }
    }

    fn multiply(a: &Tensor, b: &Tensor, row: Option<&Tensor>) -> Result<Tensor> {
        let rank = a.rank();
        let shape: Shape = a.shape()[..rank - 1].iter().copied().chain([b.shape()[rank - 1]]).collect();
        let mut out = Tensor::full_with(shape, f64::NAN, DType::F64)?.to_dtype(a.dtype())?;
        matmul(
            "test",
            a.as_view()?,
            b.as_view()?,
            &mut out.as_view_mut("test")?,
            row.map(Tensor::as_view).transpose()?,
        )?;
        Ok(out)
    }

    /// Sums of products in f64, from the definition.
    fn reference(a: &Tensor, b: &Tensor, row: Option<&Tensor>) -> Result<Vec<f64>> {
        let values = |t: &Tensor| t.to_dtype(DType::F64)?.to_vec::<f64>();
        let at = a.rank() - 2;
        let (m, k, n) = (a.shape()[at], a.shape()[at + 1], b.shape()[at + 1]);
        let count: usize = a.shape()[..at].iter().product();
        let (a, b) = (values(a)?, values(b)?);
        let mut out = row.map_or_else(|| Ok(vec![0.0; n]), values)?.repeat(count * m);
        for (at, slot) in out.iter_mut().enumerate() {
            let (batch, i, j) = (at / (m * n), at / n % m, at % n);
            *slot += (0..k).map(|p| a[batch * m * k + i * k + p] * b[batch * k * n + p * n + j]).sum::<f64>();
        }
        Ok(out)
    }

    fn check(a: &Tensor, b: &Tensor, row: Option<&Tensor>, what: &str) -> Result<()> {
        let got = multiply(a, b, row)?.to_dtype(DType::F64)?.to_vec::<f64>()?;
        let tolerance = if a.dtype() == DType::F32 { 1e-4 } else { 1e-11 };
        for (i, (got, want)) in got.iter().zip(reference(a, b, row)?).enumerate() {
            assert!((got - want).abs() <= tolerance * (1.0 + want.abs()), "{what}, element {i}: {got}, not {want}");
        }
        Ok(())
    }

    #[test]
    fn all_strides_give_the_products_of_the_definition() -> Result<()> {
        for dtype in [DType::F32, DType::F64, DType::I64] {
            for (m, n, k) in [
                (1, 1, 1),
                (1, 1, 40),
                (2, 3, 4),
                (1, 33, 17),
                (33, 1, 17),
                (40, 50, 1),
                (9, 40, 2),
                (17, 19, 70),
                (70, 65, 600),
                (1, 300, 65),
                (2, 37, 70),
                (3, 300, 33),
                (4, 50, 129),
                (300, 1, 65),
            ] {
                let (a, b) = (random(&[m, k], dtype, 1)?, random(&[k, n], dtype, 2)?);
                let row = random(&[n], dtype, 3)?;
                for (how_a, a) in arrangements(&a)? {
                    for (how_b, b) in arrangements(&b)? {
                        let what = format!("{dtype} {m}x{n}x{k}, a {how_a}, b {how_b}");
                        check(&a, &b, None, &what)?;
                        check(&a, &b, Some(&row), &format!("{what}, onto a row"))?;
                    }
                }
            }
        }
        Ok(())
    }

    #[test]
    fn repeated_rows_and_columns_are_read_with_stride_0() -> Result<()> {
        for (m, n, k) in [(3, 4, 5), (20, 30, 40), (40, 1, 33)] {
            let row = random(&[1, k], DType::F64, 1)?;
            let a = row.with_layout(row.layout().broadcast_to(&[m, k].into()));
            let column = random(&[k, 1], DType::F64, 2)?;
            let b = column.with_layout(column.layout().broadcast_to(&[k, n].into()));
            check(&a, &b, None, "both repeated")?;
            let number = random(&[1, 1], DType::F64, 3)?;
            check(&number.with_layout(number.layout().broadcast_to(&[m, k].into())), &b, None, "one number")?;
        }
        Ok(())
    }

    #[test]
    fn batches_broadcast_by_stride_0() -> Result<()> {
        for (m, n, k) in [(2, 3, 4), (16, 17, 18)] {
            let (a, b) = (random(&[2, 1, m, k], DType::F64, 1)?, random(&[3, k, n], DType::F64, 2)?);
            let a = a.with_layout(a.layout().broadcast_to(&[2, 3, m, k].into()));
            let b = b.with_layout(b.layout().broadcast_to(&[2, 3, k, n].into()));
            check(&a, &b, None, "broadcast")?;
        }
        Ok(())
    }

    #[test]
    fn the_number_of_threads_does_not_change_a_bit() -> Result<()> {
        let shapes: [(&[usize], &[usize]); 8] = [
            (&[150, 300], &[300, 170]),
            (&[33, 784], &[784, 128]),
            (&[1, 3000], &[3000, 1000]),
            (&[3, 3001], &[3001, 1000]),
            (&[2000, 1500], &[1500, 1]),
            (&[2000, 1], &[1, 1500]),
            (&[40, 30, 50], &[40, 50, 60]),
            (&[3, 100, 200], &[3, 200, 300]),
        ];
        for dtype in [DType::F32, DType::F64, DType::I64] {
            for (a, b) in shapes {
                let (a, b) = (random(a, dtype, 1)?, random(b, dtype, 2)?);
                for (how, b) in arrangements(&b)?.into_iter().take(2) {
                    let by_threads = |threads: usize| -> Result<Tensor> {
                        crate::backend::with_num_threads(threads, || multiply(&a, &b, None))?
                    };
                    let one = by_threads(1)?;
                    for threads in [2, 5] {
                        let several = by_threads(threads)?;
                        let (a, b) = (a.shape(), b.shape());
                        assert!(several.equal(&one)?, "{a:?} by {b:?} {how} of {dtype} on {threads} threads");
                    }
                }
            }
        }
        Ok(())
    }

    #[test]
    fn an_empty_inner_dimension_gives_zeros() -> Result<()> {
        let (a, b) = (random(&[2, 0], DType::F64, 1)?, random(&[0, 3], DType::F64, 2)?);
        assert_eq!(multiply(&a, &b, None)?.to_vec::<f64>()?, [0.0; 6]);
        let row = random(&[3], DType::F64, 3)?;
        assert!(multiply(&a, &b, Some(&row))?.equal(&row.expand([2, 3])?)?);
        Ok(())
    }
}
