//! Products of few rows with a matrix whose columns are contiguous, such as the weight of a linear layer. They take as long as
//! reading the matrix once.

use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource, WIDE};
use crate::backend::cuda::runtime::gpu::Gpu;
use crate::backend::{View, ViewMut};
use crate::{DType, Result};

const FILES: &[&str] = &[include_str!("../runtime/groups.cu"), include_str!("few_rows.cu")];

/// The most rows for which the library's products are slower.
const MOST: usize = 8;

/// How the kernel cuts a product.
#[derive(Clone, Copy)]
struct Cut {
    /// The columns that are computed together. Each element of the rows is read again for every group of them.
    columns: usize,
    /// The reads of a column by a thread that are under way at the same time.
    unroll: usize,
    /// The warps of a block that share its columns: 1, or all of them.
    sharing: usize,
}

/// The warps of a block.
const WARPS: usize = 4;
/// With fewer columns, a warp for each of them leaves processors without enough reads under way.
const MANY: usize = 16384;

impl Cut {
    fn new(rows: usize, columns: usize, depth: usize) -> Cut {
        let (together, unroll) = match rows {
            0..=2 => (1, 8),
            3..=4 => (2, 4),
            _ => (4, 2),
        };
        if columns < MANY && depth >= 1024 {
            return Cut { columns: together, unroll: 2, sharing: WARPS };
        }
        Cut { columns: together, unroll, sharing: 1 }
    }

    fn blocks(self, columns: usize) -> usize {
        columns.div_ceil(self.columns * WARPS / self.sharing)
    }
}

fn source(operands: DType, out: DType, rows: usize, cut: Cut) -> KernelSource {
    KernelSource::new(FILES, DType::F32, false)
        .fused()
        .dtype("E", operands)
        .dtype("V", out)
        .set("M", rows)
        .set("C", cut.columns)
        .set("UNROLL", cut.unroll)
        .set("S", cut.sharing)
}

/// Sources of every kind, to be compiled by a test.
#[cfg(feature = "samples")]
pub(crate) fn sources() -> Vec<KernelSource> {
    let mut all = Vec::new();
    for columns in [64, MANY] {
        let of = |operands, out, rows| source(operands, out, rows, Cut::new(rows, columns, 2048));
        all.extend([1, 2, 4, 8].map(|rows| of(DType::BF16, DType::BF16, rows)));
        all.extend([of(DType::F32, DType::F32, 3), of(DType::F16, DType::F32, 1)]);
    }
    all
}

/// `out = a · b`, plus `row` in every row, if this kernel is the fastest for it: `a` is contiguous and has few rows in all, and
/// `b` is one matrix with contiguous columns. Returns false, without any effect, if not.
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub(crate) fn product(
    op: &'static str,
    gpu: &Gpu,
    a: View<'_>,
    b: View<'_>,
    out: &mut ViewMut<'_>,
    row: Option<View<'_>>,
) -> Result<bool> {
    let rank = b.layout.rank();
    let (sizes, steps) = (&b.layout.shape()[rank - 2..], &b.layout.strides()[rank - 2..]);
    let (k, n) = (sizes[0], sizes[1]);
    let rows = a.layout.numel() / k.max(1);
    let pack = WIDE / a.dtype.size();
    let one_matrix = (0..rank - 2).all(|dim| b.layout.shape()[dim] == 1 || b.layout.strides()[dim] == 0);
    let aligned = [a.first(), b.first()].iter().all(|first| first.addr().is_multiple_of(WIDE));
    let fits = matches!(a.dtype, DType::F32 | DType::F16 | DType::BF16)
        && (1..=MOST).contains(&rows)
        && one_matrix
        && steps[0] == 1
        && steps[1] > 0
        && [k, steps[1] as usize].iter().all(|size| size.is_multiple_of(pack))
        && a.layout.is_contiguous()
        && aligned;
    if !fits {
        return Ok(false);
    }
    let cut = Cut::new(rows, n, k);
    let source = source(a.dtype, out.dtype, rows, cut);
    let function = source.function(op, gpu, "few_rows")?;
    let arguments = Arguments::new()
        .at(a.first())
        .size(k)
        .at(b.first())
        .size(steps[1] as usize)
        .at_or_null(row.map(|row| row.first()))
        .at(out.first().cast_const())
        .size(n)
        .size(k);
    let grid = Grid { blocks: [cut.blocks(n), 1], threads: [32 * WARPS, 1], shared: 0 };
    // SAFETY: the operands have these sizes and strides (L2), aligned as the kernel requires; `row` is contiguous, and so is the
    // result, which is borrowed mutably.
    unsafe { arguments.launch(op, gpu, function, grid)? };
    Ok(true)
}
