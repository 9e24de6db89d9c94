//! Linear layers of few rows, with matrices whose rows are contiguous: they take as long as reading the matrices once. A norm
//! before them, a gate and a sum after them are part of the same kernel.

use crate::backend::cuda::linalg::matmul;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource, WIDE};
use crate::backend::cuda::runtime::gpu::{Gpu, gpu};
use crate::backend::spec::{Gate, RowLayers};
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::{DType, Result};
use smallvec::{SmallVec, smallvec};

const FILES: &[&str] = &[include_str!("../runtime/groups.cu"), include_str!("few_rows.cu")];

/// The most rows. On an H200 the gate and up matrices of 8192 × 2048 take 18 µs in the library with 1, 2, 4 and 8 rows, and 18,
/// 20, 23 and 42 µs here. With 4 rows, what is joined here saves more than that; with 8 it does not. 5 to 7 were not measured.
const MOST: usize = 4;
/// With fewer outputs, a warp for each of them would leave processors without enough reads under way.
const MANY: usize = 8192;
/// The most shared memory for normalized rows, in bytes.
const SHARED: usize = 32 << 10;

/// How the kernel cuts the outputs. The numbers follow measurements of a decoder with 2048 hidden units on an H200.
#[derive(Clone, Copy)]
struct Cut {
    /// The outputs of a layer that are computed together. Each element of the rows is read again for every group of them.
    together: usize,
    /// The reads of a matrix row by a thread that are under way at the same time.
    unroll: usize,
    /// The warps of a block.
    warps: usize,
    /// Whether all warps of a block share its outputs.
    sharing: bool,
}

impl Cut {
    fn new(rows: usize, outputs: usize, is_gated: bool, is_normed: bool) -> Cut {
        let unroll = if rows == 1 { 1 } else { 2 };
        if outputs >= MANY {
            let rows_read = [2, 4, 4, 4][rows.clamp(1, MOST) - 1];
            let together = if is_gated && rows <= 2 { rows_read / 2 } else { rows_read };
            return Cut {
                together,
                unroll: if is_gated { unroll } else { 1 },
                warps: if is_normed { 8 } else { 4 },
                sharing: false,
            };
        }
        if is_normed && rows > 1 {
            return Cut { together: 1, unroll: 8, warps: 8, sharing: false };
        }
        Cut { together: if is_gated { 1 } else { 2 }, unroll, warps: 4, sharing: true }
    }
}

/// A weight `[outputs, inputs]`.
struct Layer {
    weight: *const u8,
    /// The elements from a row to the next one.
    step: usize,
    bias: Option<*const u8>,
    outputs: usize,
}

/// A call of the kernel.
struct Call {
    operands: DType,
    out_dtype: DType,
    rows: usize,
    inputs: usize,
    x: *const u8,
    layers: SmallVec<[Layer; 3]>,
    norm: Option<(*const u8, f64)>,
    gate: Option<Gate>,
    residual: Option<*const u8>,
    out: *const u8,
}

impl Call {
    /// Whether the kernel supports it and is the fastest one.
    fn fits(&self) -> bool {
        let size = self.operands.size();
        let aligned = |address: &*const u8| address.addr().is_multiple_of(WIDE);
        let norm = self.norm.map(|(weight, _)| weight);
        matches!(self.operands, DType::F32 | DType::F16 | DType::BF16)
            && (1..=MOST).contains(&self.rows)
            && self.inputs > 0
            && (self.inputs * size).is_multiple_of(WIDE)
            && self.layers.iter().all(|layer| (layer.step * size).is_multiple_of(WIDE) && layer.outputs > 0)
            && self.layers.iter().map(|layer| &layer.weight).chain([&self.x]).chain(&norm).all(aligned)
            && (norm.is_none() || self.rows * self.inputs * size <= SHARED)
    }

    /// The length of a row of the result.
    fn outputs(&self) -> usize {
        match self.gate {
            Some(_) => self.layers[0].outputs,
            None => self.layers.iter().map(|layer| layer.outputs).sum(),
        }
    }

    fn cut(&self) -> Cut {
        Cut::new(self.rows, self.outputs(), self.gate.is_some(), self.norm.is_some())
    }

    fn source(&self) -> KernelSource {
        let Cut { together, unroll, warps, sharing } = self.cut();
        let gate = match self.gate {
            None => 0,
            Some(Gate::Silu) => 1,
            Some(Gate::GeluTanh) => 2,
        };
        KernelSource::new(FILES, DType::F32, false)
            .fused()
            .dtype("E", self.operands)
            .dtype("V", self.out_dtype)
            .set("M", self.rows)
            .set("C", together)
            .set("UNROLL", unroll)
            .set("WARPS", warps)
            .set("S", if sharing { warps } else { 1 })
            .set("LAYERS", self.layers.len())
            .set("GATE", gate)
            .set("NORM", u8::from(self.norm.is_some()))
            .set("K", if self.norm.is_some() { self.inputs } else { 0 })
    }

    /// # Errors
    /// If the kernel cannot be compiled or started.
    ///
    /// # Safety
    /// The addresses are those of memory with these sizes on the GPU, and nothing else uses the result.
    unsafe fn run(&self, op: &'static str, gpu: &Gpu) -> Result<()> {
        let Cut { together, warps, sharing, .. } = self.cut();
        let function = self.source().function(op, gpu, "few_rows")?;
        let of = |layer: &Layer| {
            let bias = layer.bias.map_or(0, |bias| bias.addr() as u64);
            [layer.weight.addr() as u64, layer.step as u64, bias, layer.outputs as u64]
        };
        let layers: SmallVec<[u64; 12]> = self.layers.iter().flat_map(of).collect();
        let arguments = Arguments::new()
            .at(self.x)
            .size(self.inputs)
            .words(&layers)
            .at_or_null(self.norm.map(|(weight, _)| weight))
            .float(self.norm.map_or(0.0, |(_, eps)| eps))
            .at_or_null(self.residual)
            .at(self.out)
            .size(self.outputs())
            .size(self.inputs);
        let count = if self.gate.is_some() { 1 } else { self.layers.len() };
        let units: usize = self.layers[..count].iter().map(|layer| layer.outputs.div_ceil(together)).sum();
        let blocks = if sharing { units } else { units.div_ceil(warps) };
        let grid = Grid { blocks: [blocks, 1], threads: [32 * warps, 1], shared: 0 };
        // SAFETY: the caller's promise; `fits` has checked the alignment. The kernel waits for the one before.
        unsafe { arguments.launch_overlapping(op, gpu, function, grid) }
    }
}

/// Sources of every kind, to be compiled by a test.
#[cfg(feature = "samples")]
pub(crate) fn sources() -> Vec<KernelSource> {
    let null = std::ptr::null();
    let call = |dtype, rows: usize, outputs: &[usize]| Call {
        operands: dtype,
        out_dtype: dtype,
        rows,
        inputs: 64,
        x: null,
        layers: outputs.iter().map(|&outputs| Layer { weight: null, step: 64, bias: None, outputs }).collect(),
        norm: None,
        gate: None,
        residual: None,
        out: null,
    };
    let mut all: Vec<Call> =
        [64, MANY].map(|n| [1, 2, 4].map(|rows| call(DType::BF16, rows, &[n]))).into_iter().flatten().collect();
    all.push(call(DType::F32, 3, &[64]));
    all.push(Call { out_dtype: DType::F32, ..call(DType::F16, 1, &[MANY]) });
    for rows in [1, 2, 4] {
        all.push(Call { norm: Some((null, 0.0)), ..call(DType::BF16, rows, &[64, 32, 32]) });
        let gate = if rows == 2 { Gate::GeluTanh } else { Gate::Silu };
        all.push(Call { norm: Some((null, 0.0)), gate: Some(gate), ..call(DType::BF16, rows, &[MANY, MANY]) });
    }
    all.push(Call { gate: Some(Gate::Silu), ..call(DType::F32, 1, &[64, 64]) });
    all.iter().map(Call::source).collect()
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
    let (inputs, outputs) = (sizes[0], sizes[1]);
    let one_matrix = (0..rank - 2).all(|dim| b.layout.shape()[dim] == 1 || b.layout.strides()[dim] == 0);
    if !one_matrix || steps[0] != 1 || steps[1] <= 0 || !a.layout.is_contiguous() {
        return Ok(false);
    }
    let bias = row.map(|row| row.first());
    let call = Call {
        operands: a.dtype,
        out_dtype: out.dtype,
        rows: a.layout.numel() / inputs.max(1),
        inputs,
        x: a.first(),
        layers: smallvec![Layer { weight: b.first(), step: steps[1] as usize, bias, outputs }],
        norm: None,
        gate: None,
        residual: None,
        out: out.first().cast_const(),
    };
    if !call.fits() {
        return Ok(false);
    }
    // SAFETY: the operands have these sizes and strides (L2); `row` is contiguous, and so is the result, which is borrowed mutably.
    unsafe { call.run(op, gpu)? };
    Ok(true)
}

/// The call for layers of one dtype, which writes to `out`.
fn call(layers: &RowLayers<'_>, out: *const u8) -> Option<Call> {
    let RowLayers { x, norm, gate, residual, .. } = layers;
    let inputs = *x.layout.shape().last()?;
    let layer = |(weight, bias): &(View<'_>, Option<View<'_>>)| {
        let step = usize::try_from(weight.layout.strides()[0]).ok()?;
        let contiguous = weight.layout.strides()[1] == 1 && step >= inputs;
        let bias = bias.map(|bias| bias.first());
        contiguous.then(|| Layer { weight: weight.first(), step, bias, outputs: weight.layout.shape()[0] })
    };
    Some(Call {
        operands: x.dtype,
        out_dtype: x.dtype,
        rows: x.layout.numel() / inputs.max(1),
        inputs,
        x: x.first(),
        layers: layers.layers.iter().map(layer).collect::<Option<_>>()?,
        norm: norm.map(|(weight, eps)| (weight.first(), eps)),
        gate: *gate,
        residual: residual.map(|residual| residual.first()),
        out,
    })
}

/// Whether this is one layer whose result is added to something, which the library computes, too, with any number of rows.
fn is_sum(layers: &RowLayers<'_>) -> bool {
    layers.layers.len() == 1
        && layers.norm.is_none()
        && layers.gate.is_none()
        && layers.residual.is_some()
        && matches!(layers.x.dtype, DType::F16 | DType::BF16)
        && layers.x.layout.numel() > 0
        && layers.layers[0].0.layout.numel() > 0
}

/// Whether [`row_layers`] supports these layers and is the fastest way to compute them.
pub(crate) fn has_row_layers(layers: &RowLayers<'_>) -> bool {
    is_sum(layers) || call(layers, std::ptr::null()).is_some_and(|call| call.fits())
}

/// Linear layers of few rows, where [`has_row_layers`] says so. The result is contiguous, with the results of a row side by side.
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub(crate) fn row_layers(
    op: &'static str,
    ordinal: usize,
    layers: &RowLayers<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    match (call(layers, out.first().cast_const()), layers.residual) {
        // SAFETY: the operands have these sizes and strides (L2); norm, biases and residual are contiguous, and so is the result,
        // which is borrowed mutably.
        (Some(call), _) if call.fits() => unsafe { call.run(op, gpu(op, ordinal)?) },
        (_, Some(residual)) if is_sum(layers) => {
            matmul::add_product(op, ordinal, layers.x, layers.layers[0], residual, out)
        }
        _ => bail!(Backend, op, "there is no kernel for these layers"),
    }
}
