//! Updates of all parameters in a few launches.

use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::gpu;
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::layout::Layout;
use crate::{DType, Device, Result};
use std::ops::Range;

const FILES: &[&str] = &[include_str!("optim.cu")];
/// Elements that a block updates, as in the source.
const PIECE: usize = 4096;
/// Bytes of kernel arguments that every driver supports, less the other arguments.
const ROOM: usize = 4096 - 64;

/// A parameter with its gradient and state: contiguous tensors of one size.
pub(crate) struct Entry<'a> {
    pub parameter: ViewMut<'a>,
    pub gradient: View<'a>,
    pub state: Vec<ViewMut<'a>>,
    /// The range of the numbers of this parameter.
    pub numbers: Range<usize>,
}

impl Entry<'_> {
    fn numel(&self) -> usize {
        self.parameter.layout.numel()
    }

    /// Whether the tensors have the expected sizes, dtypes and device.
    fn fits(&self, update: &Update<'_>, ordinal: usize) -> bool {
        let device = Device::Cuda(ordinal);
        let one = |layout: &Layout, on: Device, dtype: DType, wanted: DType| {
            layout.is_contiguous() && layout.numel() == self.numel() && on == device && dtype == wanted
        };
        let (p, g) = (&self.parameter, &self.gradient);
        one(p.layout, p.device(), p.dtype, update.parameter)
            && one(g.layout, g.device(), g.dtype, update.gradient)
            && self.state.iter().all(|s| one(s.layout, s.device(), s.dtype, update.compute))
            && self.state.len() == update.slots + usize::from(update.residual)
    }
}

/// The common part of all updates.
pub(crate) struct Update<'a> {
    /// Statements in CUDA C: see the kernel.
    pub rule: &'a str,
    /// The number of state tensors of the rule.
    pub slots: usize,
    /// Whether the last state is a residual: the difference of the value in the compute dtype and the rounded
    /// parameter.
    pub residual: bool,
    pub parameter: DType,
    pub gradient: DType,
    pub compute: DType,
}

/// All variants of the source, compiled by a test.
#[cfg(feature = "samples")]
pub(crate) fn sources(rule: &str, slots: usize) -> Vec<KernelSource> {
    let source = |parameter: DType, residual: bool| {
        let compute = parameter.compute_dtype();
        let update = Update { rule, slots, residual, parameter, gradient: parameter, compute };
        update.source((slots + usize::from(residual)).max(1), 10)
    };
    crate::backend::cuda::tests::floats().map(|dtype| source(dtype, dtype.size() == 2)).into()
}

impl Update<'_> {
    fn source(&self, states: usize, most: usize) -> KernelSource {
        KernelSource::new(FILES, self.compute, false)
            .dtype("P", self.parameter)
            .dtype("G", self.gradient)
            .set("SLOTS", self.slots)
            .set("STATES", states)
            .set("ENTRIES", most)
            .set("RESIDUAL", i32::from(self.residual))
            .set("RULE", self.rule)
    }

    /// Updates the parameters in place.
    ///
    /// # Errors
    /// If the kernel cannot be compiled or started, or an entry does not have the expected dtypes.
    pub fn run(&self, op: &'static str, ordinal: usize, entries: &[Entry<'_>], numbers: View<'_>) -> Result<()> {
        let Some(one) = entries.first() else { return Ok(()) };
        let known =
            numbers.layout.is_contiguous() && numbers.dtype == DType::F64 && numbers.device() == Device::Cuda(ordinal);
        let has_numbers = |entry: &Entry<'_>| known && entry.numbers.end <= numbers.layout.numel();
        if !entries.iter().all(|entry| entry.fits(self, ordinal) && has_numbers(entry)) {
            bail!(Backend, op, "parameter, gradient and state must be contiguous and match in size, dtype and device");
        }
        let gpu = gpu(op, ordinal)?;
        let states = one.state.len().max(1);
        let size = 5 + states;
        let most = ROOM / (8 * size);
        let source = self.source(states, most);
        let function = source.function(op, gpu, "update")?;
        for entries in entries.chunks(most) {
            let mut table = Vec::with_capacity(ROOM / 8);
            let mut blocks = 0;
            for entry in entries {
                table.extend([entry.parameter.first().addr() as u64, entry.gradient.first().addr() as u64]);
                table.extend((0..states).map(|k| entry.state.get(k).map_or(0, |state| state.first().addr() as u64)));
                let own = numbers.first().wrapping_add(entry.numbers.start * size_of::<f64>());
                table.extend([entry.numel() as u64, blocks as u64, own.addr() as u64]);
                blocks += entry.numel().div_ceil(PIECE);
            }
            table.resize(most * size, 0);
            let arguments = Arguments::new().words(&table).size(entries.len());
            if blocks > 0 {
                // SAFETY: all tensors of an entry are contiguous with the same number of elements (L2), on this GPU,
                // and what is written is borrowed mutably; every block finds its piece through the table.
                unsafe { arguments.launch(op, gpu, function, Grid::over(blocks, 1, 256))? };
            }
        }
        Ok(())
    }
}
