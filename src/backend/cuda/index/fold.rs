//! Writing by index: replacing elements, or combining them with the existing ones. Several algorithms are used, depending on the
//! operation and on the number of elements per place.

use super::bits;
use super::fixed::FixedSums;
use super::group::{self, Groups};
use super::radix::RadixSort;
use crate::backend::cpu::index::{Indices, lanes};
use crate::backend::cuda::elementwise::chain::copy;
use crate::backend::cuda::nn::rows::InOrder;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource, steps};
use crate::backend::cuda::runtime::gpu::{Gpu, gpu};
use crate::backend::deterministic::deterministic_algorithms;
use crate::backend::spec::IndexFold;
use crate::backend::{View, ViewMut};
use crate::layout::{Layout, Walk};
use crate::storage::Storage;
use crate::{DType, Device, Result};
use smallvec::SmallVec;

const FILES: &[&str] = &[include_str!("../runtime/fault.cu"), include_str!("fold.cu")];

/// Sources of every kind, to be compiled by a test.
#[cfg(feature = "samples")]
pub(super) fn sources() -> Vec<KernelSource> {
    use crate::backend::deterministic::with_deterministic_algorithms;
    let moved = [DType::U8, DType::U16, DType::F32, DType::F64];
    let mut all: Vec<KernelSource> = moved.map(|dtype| source(IndexFold::Replace, dtype, false, 2)).into();
    for by in [IndexFold::Add, IndexFold::Multiply, IndexFold::Max, IndexFold::Min] {
        all.extend([DType::F32, DType::F64, DType::I64, DType::U64].map(|dtype| source(by, dtype, true, 1)));
    }
    let floats = || [DType::F32, DType::F64].map(|dtype| source(IndexFold::Add, dtype, false, 2));
    all.extend(with_deterministic_algorithms(false, floats));
    all
}

/// The source of the kernels that write elements at indices.
fn source(by: IndexFold, dtype: DType, wide: bool, rank: usize) -> KernelSource {
    let which = match by {
        // Elements are moved without interpretation: only the size of the dtype matters.
        IndexFold::Replace => return KernelSource::new(FILES, DType::I64, wide).dtype("E", bits(dtype)).set("R", rank),
        IndexFold::Add => 0,
        IndexFold::Multiply => 1,
        IndexFold::Max => 2,
        IndexFold::Min => 3,
    };
    let whole = usize::from(in_any_order(by, dtype));
    KernelSource::new(FILES, dtype, wide)
        .dtype("E", bits(dtype))
        .set("R", rank)
        .set("FOLD", which)
        .set("WHOLE", whole)
        .set("FEW", group::FEW)
}

/// Whether elements may be combined in any order, by atomic operations.
fn in_any_order(by: IndexFold, dtype: DType) -> bool {
    if dtype.is_float() {
        return by == IndexFold::Add && !deterministic_algorithms();
    }
    matches!(by, IndexFold::Add | IndexFold::Max | IndexFold::Min)
}

/// As the CPU's [`index_fold`](crate::backend::cpu::index::fold::index_fold): the elements for one place have a fixed order, so
/// that sums are reproducible, and the last of several replacements wins.
///
/// # Errors
/// If memory runs out, or a kernel cannot be compiled or started.
pub(crate) fn index_fold(
    op: &'static str,
    ordinal: usize,
    by: IndexFold,
    base: Option<View<'_>>,
    out: &mut ViewMut<'_>,
    dim: usize,
    indices: &Indices<'_>,
    source: View<'_>,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let shape = source.layout.shape();
    if shape.numel() == 0 {
        return base.map_or(Ok(()), |base| copy(op, ordinal, base, out));
    }
    let from = InOrder::new(op, ordinal, source)?;
    let chosen = indices.view.layout.broadcast_to(shape);
    let alike =
        |d: usize| d == dim || (shape[d] == out.layout.shape()[d] && (shape[d] == 1 || chosen.strides()[d] == 0));
    // One index for whole slices, or one for each element.
    let positions = if (0..shape.len()).all(alike) {
        let line = Layout::contiguous([shape[dim]].into());
        let still = Layout::contiguous([1].into()).broadcast_to(line.shape());
        let along =
            (0..shape.len()).filter(|&d| d != dim).try_fold(chosen, |layout, d| layout.narrow(op, d as isize, 0, 1))?;
        let (outer, inner) = (shape[..dim].iter().product(), shape[dim + 1..].iter().product());
        let along = along.reshape(line.shape()).unwrap_or(line);
        Places { to: still, chosen: along, step: 1, last: indices.size, outer, size: indices.size, inner }
    } else {
        let (to, step) = (lanes(out.layout, dim, shape)?, out.layout.strides()[dim]);
        Places { to, chosen, step, last: out.layout.numel(), outer: 1, size: 1, inner: 1 }
    };
    Folding::new(op, gpu, by, &positions, indices, from.first, out).run(base, out)
}

/// Which elements are written to which places.
struct Places {
    /// The layouts of the start of the place of each key, and of its index. Both have one shape.
    to: Layout,
    chosen: Layout,
    step: isize,
    /// A key larger than all valid ones.
    last: usize,
    /// A slice with one key has `outer` times `inner` elements; the outer ones are `size` times `inner` apart.
    outer: usize,
    size: usize,
    inner: usize,
}

/// The algorithm.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Each place records the number of its last element, and then copies it.
    Put,
    /// Each place records its last element together with the number.
    PutWithClaims,
    /// By atomic operations, in any order.
    Whole,
    /// As fixed-point sums of integers, in any order.
    Fixed,
    /// Each place has a list of its elements.
    Groups,
    /// The elements are sorted by their places.
    Sorted,
}

impl Way {
    fn of(by: IndexFold, dtype: DType, n: usize, positions: &Places, is_wide: bool) -> Way {
        let (last, single) = (positions.last, positions.outer * positions.inner == 1);
        match by {
            // A record per place is worth its memory unless there are far more places than elements.
            IndexFold::Replace if last / 16 <= n => {
                if single && dtype.size() <= 4 && !is_wide {
                    Way::PutWithClaims
                } else {
                    Way::Put
                }
            }
            IndexFold::Replace => Way::Sorted,
            _ if in_any_order(by, dtype) => Way::Whole,
            IndexFold::Add if dtype == DType::F32 && single && !is_wide && last / 4 <= n => Way::Fixed,
            _ if last / 4 <= n && n / 8 <= last => Way::Groups,
            _ => Way::Sorted,
        }
    }

    /// Whether every place is written, so that the previous values can be read from the base.
    fn writes_all(self) -> bool {
        matches!(self, Way::Put | Way::PutWithClaims | Way::Fixed)
    }
}

/// The state of a call.
struct Folding<'a> {
    op: &'static str,
    gpu: &'a Gpu,
    by: IndexFold,
    way: Way,
    positions: &'a Places,
    indices: &'a Indices<'a>,
    /// The walk over the start of the place of each key, and over its index.
    walk: Walk<2>,
    /// The number of keys.
    n: usize,
    /// Whether numbers of keys and places need more than 32 bits.
    wide: bool,
    source: KernelSource,
    from: *const u8,
    target: *const u8,
}

impl<'a> Folding<'a> {
    fn new(
        op: &'static str,
        gpu: &'a Gpu,
        by: IndexFold,
        positions: &'a Places,
        indices: &'a Indices<'a>,
        from: *const u8,
        out: &mut ViewMut<'_>,
    ) -> Folding<'a> {
        let n = positions.to.numel();
        // Two bits of a count are flags: see the sort.
        let is_wide = |count: usize| n.max(count) >= 1 << 30;
        let way = Way::of(by, out.dtype, n, positions, is_wide(positions.last));
        let wide = is_wide(if way == Way::Put { out.layout.numel() } else { positions.last });
        let walk = Walk::new(positions.to.shape(), [&positions.to, &positions.chosen]);
        let source = source(by, out.dtype, wide, walk.dims().len());
        let target = out.first().cast_const();
        Folding { op, gpu, by, way, positions, indices, walk, n, wide, source, from, target }
    }

    fn run(&self, base: Option<View<'_>>, out: &mut ViewMut<'_>) -> Result<()> {
        let (op, gpu) = (self.op, self.gpu);
        let before = self.before(base, out)?;
        match self.way {
            Way::PutWithClaims => {
                let (last, address) = (self.positions.last, |at: *const u8| at.addr() as u64);
                let claims = Storage::new(op, Device::Cuda(gpu.ordinal), last * size_of::<u64>())?;
                // SAFETY: the memory was just asked for.
                unsafe { gpu.clear(op, claims.as_ptr().cast_mut(), last * size_of::<u64>())? };
                self.by_index(&self.source, "claim_with", self.n, &[address(self.from), address(claims.as_ptr())])?;
                self.write("put_claimed", last, Arguments::new().at(claims.as_ptr()).at(before))
            }
            Way::Put => {
                let winner = self.numbers(self.positions.last)?;
                // SAFETY: the memory was just asked for.
                unsafe { gpu.clear(op, winner.as_ptr().cast_mut(), self.positions.last * self.size())? };
                self.keys("claim", &[&winner])?;
                self.write("put", self.positions.last, Arguments::new().at(winner.as_ptr()).at(before))
            }
            Way::Whole if self.positions.outer * self.positions.inner == 1 => {
                self.by_index(&self.source, "fold_each", self.n, &[self.from.addr() as u64, self.target.addr() as u64])
            }
            Way::Whole => {
                let key = self.numbers(self.n)?;
                self.keys("keys", &[&key])?;
                self.write("fold_whole", self.n, Arguments::new().at(key.as_ptr()))
            }
            Way::Fixed => {
                let sums = FixedSums::new(op, gpu, self.n, self.positions.last, self.walk.dims().len())?;
                let by_index = |source: &KernelSource, name: &str, threads: usize, rest: &[u64]| {
                    self.by_index(source, name, threads, rest)
                };
                // SAFETY: keys below `last` are places of the target.
                unsafe { sums.run(op, gpu, [self.from, before, self.target], by_index) }
            }
            Way::Groups => {
                let groups = Groups::new(op, gpu, self.n, self.positions.last, self.wide)?;
                self.keys("count_places", &[&groups.key, &groups.order, &groups.counts])?;
                groups.run(op, gpu)?;
                self.write("fold_groups", self.positions.last, groups.result())
            }
            Way::Sorted => {
                let bits = (usize::BITS - self.positions.last.leading_zeros()) as usize;
                let sort = RadixSort::new(op, gpu, self.n, 1, bits, [self.wide; 2])?;
                self.keys("keys", &[&sort.keys[0]])?;
                sort.run(op, gpu)?;
                let name = if self.by == IndexFold::Replace { "put_sorted" } else { "fold_sorted" };
                self.write(name, self.n, sort.result(Arguments::new()))
            }
        }
    }

    /// The address of the previous values: the base, or the target if the algorithm needs a copy there.
    fn before(&self, base: Option<View<'_>>, out: &mut ViewMut<'_>) -> Result<*const u8> {
        let Some(base) = base else { return Ok(self.target) };
        let alike = base.dtype == out.dtype && base.layout.is_contiguous() && out.layout.is_contiguous();
        if alike && self.way.writes_all() {
            return Ok(base.first());
        }
        copy(self.op, self.gpu.ordinal, base, out)?;
        Ok(self.target)
    }

    /// The bytes of a number of a key or a place.
    fn size(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// Memory for `count` numbers of keys or places.
    fn numbers(&self, count: usize) -> Result<Storage> {
        Storage::new(self.op, Device::Cuda(self.gpu.ordinal), count * self.size())
    }

    /// Launches a kernel that reads the indices, with `threads` threads; `rest` are its other arguments.
    fn by_index(&self, source: &KernelSource, name: &str, threads: usize, rest: &[u64]) -> Result<()> {
        let (own, taken, fault) = self.gpu.faults(self.op);
        let arguments = Arguments::new()
            .at(self.indices.view.first())
            .words(&steps(&self.walk, 0))
            .words(&steps(&self.walk, 1))
            .word(self.positions.step as i64 as u64)
            .words(&[self.indices.size as u64, u64::from(self.indices.from_end)])
            .size(self.n)
            .size(self.positions.last);
        let arguments = rest.iter().fold(arguments, |all, &word| all.word(word));
        let arguments = arguments.word(own).word(taken).word(fault);
        let function = source.function(self.op, self.gpu, name)?;
        // SAFETY: the walk stays inside the index's layout (L2); there is memory for `n` keys, and a number for every place.
        unsafe { arguments.launch(self.op, self.gpu, function, Grid::over(threads, 256, 256)) }
    }

    /// Launches a kernel that reads every index, and writes to memory for all keys or places.
    fn keys(&self, name: &str, results: &[&Storage]) -> Result<()> {
        let results: SmallVec<[u64; 4]> = results.iter().map(|result| result.as_ptr().addr() as u64).collect();
        self.by_index(&self.source, name, self.n, &results)
    }

    /// Launches a kernel that writes to the target, for each of `each` elements or places.
    fn write(&self, name: &str, each: usize, arguments: Arguments) -> Result<()> {
        let Places { outer, size, inner, last, .. } = *self.positions;
        let slices = [outer, size, inner].map(|size| size as u64);
        let arguments = arguments.at(self.from).at(self.target).size(self.n).size(last).words(&slices);
        let function = self.source.function(self.op, self.gpu, name)?;
        // SAFETY: keys below `last` are places of the target, and numbers are below `n`.
        unsafe { arguments.launch(self.op, self.gpu, function, Grid::over(each * outer * inner, 256, 256)) }
    }
}
