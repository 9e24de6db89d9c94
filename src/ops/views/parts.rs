//! Parts of a tensor: slices, single indices, and cutting into pieces.

use super::{error_case, samples};
use crate::autograd::BackwardContext;
use crate::backend::{self, ViewMut};
use crate::error::bail;
use crate::layout::{Layout, checked_bytes, resolve_dim, resolve_dims};
use crate::ops::binary::Arithmetic;
use crate::ops::sample::{Op, Sample};
use crate::storage::Storage;
use crate::{Dims, Result, Shape, Slice, Tensor};
use smallvec::smallvec;

/// A part of a tensor, said without a layout so that the same part can be taken of a tensor laid out in another way.
#[derive(Clone)]
enum SubRange {
    /// A range of a dimension.
    Range(usize, Slice),
    /// One index of a dimension, which goes away.
    Index(usize, usize),
}

impl SubRange {
    fn range(dim: usize, start: usize, len: usize) -> SubRange {
        SubRange::Range(dim, Slice::new(Some(start as isize), Some((start + len) as isize)))
    }

    fn of(&self, op: &'static str, layout: &Layout) -> Result<Layout> {
        match self {
            SubRange::Range(dim, range) => layout.slice(op, *dim as isize, range),
            SubRange::Index(dim, index) => layout.select(op, *dim as isize, *index as isize),
        }
    }
}

/// A part of `x`, as a view.
#[track_caller]
fn take(op: &'static str, x: &Tensor, part: &SubRange) -> Result<Tensor> {
    x.with_layout(part.of(op, x.layout())?).record(op, &[x], |_| {
        let (shape, part) = (x.layout().shape().clone(), part.clone());
        move |ctx: &BackwardContext, g: &Tensor| {
            // Of many parts only the first makes a whole: the others are added where they belong.
            let whole = match ctx.take_accumulated(0) {
                Some(whole) => add_to(whole, g, &part)?,
                None => put(g, &shape, &part)?,
            };
            Ok(smallvec![Some(whole)])
        }
    })
}

/// Zeros of `shape` with `x` in place of one part: what [`take`] turns around, and is turned around by.
#[track_caller]
fn put(x: &Tensor, shape: &Shape, part: &SubRange) -> Result<Tensor> {
    let bytes = checked_bytes("put", shape, x.dtype().size())?;
    let mut storage = Storage::zeroed("put", x.device(), bytes)?;
    let whole = Layout::contiguous(shape.clone());
    let target = part.of("put", &whole)?;
    backend::copy("put", x.as_view()?, &mut ViewMut::new("put", &mut storage, &target, x.dtype())?)?;
    Tensor::from_parts(storage, whole, x.dtype()).record("put", &[x], |_| {
        let part = part.clone();
        move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(take("slice", g, &part)?)])
    })
}

/// `whole` with `x` added to one part, without a graph.
fn add_to(mut whole: Tensor, x: &Tensor, part: &SubRange) -> Result<Tensor> {
    let mut target = whole.as_view_mut("put")?;
    let layout = part.of("put", target.layout)?;
    backend::zip_in_place("put", Arithmetic::Add.tile(), &mut target.part(&layout), x.as_view()?)?;
    Ok(whole)
}

impl Tensor {
    /// A range of one dimension, with Python's meaning: negative positions count from the end, ends beyond the size are
    /// cut off, and a [`Slice`] may have a step of either sign.
    ///
    /// ```
    /// # use cotangent::{Slice, Tensor};
    /// let x = Tensor::arange(0, 5, 1)?;
    /// assert_eq!(x.slice(0, 1..-1)?.to_vec::<i64>()?, [1, 2, 3]);
    /// assert_eq!(x.slice(0, Slice::from(..).step(-2))?.to_vec::<i64>()?, [4, 2, 0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or the step is 0.
    #[track_caller]
    pub fn slice(&self, dim: isize, range: impl Into<Slice>) -> Result<Tensor> {
        let dim = resolve_dim("slice", dim, self.rank())?;
        take("slice", self, &SubRange::Range(dim, range.into()))
    }

    /// One index of a dimension, which goes away; a negative one counts from the end.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([[1, 2], [3, 4]])?;
    /// assert_eq!(x.select(1, -1)?.to_vec::<i64>()?, [2, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension or index.
    #[track_caller]
    pub fn select(&self, dim: isize, index: isize) -> Result<Tensor> {
        // Checked with the index as given, which the message then names.
        self.layout().select("select", dim, index)?;
        let dim = resolve_dim("select", dim, self.rank())?;
        let index = if index < 0 { index + self.shape()[dim] as isize } else { index };
        take("select", self, &SubRange::Index(dim, index as usize))
    }

    /// `len` elements of a dimension from `start` on, all of which must exist; a negative start counts from the end.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::arange(0, 5, 1)?.narrow(0, -3, 2)?.to_vec::<i64>()?, [2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or the elements do not all lie in it.
    #[track_caller]
    pub fn narrow(&self, dim: isize, start: isize, len: usize) -> Result<Tensor> {
        self.layout().narrow("narrow", dim, start, len)?;
        let dim = resolve_dim("narrow", dim, self.rank())?;
        let start = if start < 0 { start + self.shape()[dim] as isize } else { start };
        take("narrow", self, &SubRange::range(dim, start as usize, len))
    }
}

impl Tensor {
    /// The named dimensions back to front, without a copy.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([[1, 2], [3, 4]])?;
    /// assert_eq!(x.flip(-1)?.to_vec::<i64>()?, [2, 1, 4, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a dimension does not exist or is named twice.
    #[track_caller]
    pub fn flip(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        let dims = resolve_dims("flip", &dims.into(), self.rank())?;
        let layout = self.layout().flip("flip", &dims)?;
        self.with_layout(layout)
            .record("flip", &[self], |_| move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.flip(&dims[..])?)]))
    }

    /// Pieces of `size` of a dimension; the last one is shorter if the dimension does not divide evenly.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let pieces = Tensor::arange(0, 5, 1)?.split(2, 0)?;
    /// assert_eq!(pieces.iter().map(|p| p.numel()).collect::<Vec<_>>(), [2, 2, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or the size is 0 and the dimension's is not.
    #[track_caller]
    pub fn split(&self, size: usize, dim: isize) -> Result<Vec<Tensor>> {
        let dim = resolve_dim("split", dim, self.rank())?;
        let whole = self.shape()[dim];
        if size == 0 && whole != 0 {
            bail!(Value, "split", "pieces of size 0 do not make up dimension {dim} of shape {:?}", self.shape());
        }
        // A dimension without elements makes one piece without elements.
        let mut pieces = Vec::with_capacity(whole.div_ceil(size.max(1)));
        for start in (0..whole.max(1)).step_by(size.max(1)) {
            pieces.push(take("split", self, &SubRange::range(dim, start, size.min(whole - start.min(whole))))?);
        }
        Ok(pieces)
    }

    /// At most `n` pieces of a dimension, of equal size but for the last. There are fewer where sizes rounded up make
    /// do with fewer.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let pieces = Tensor::arange(0, 5, 1)?.chunk(4, 0)?;
    /// assert_eq!(pieces.iter().map(|p| p.numel()).collect::<Vec<_>>(), [2, 2, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or `n` is 0.
    #[track_caller]
    pub fn chunk(&self, n: usize, dim: isize) -> Result<Vec<Tensor>> {
        let dim = resolve_dim("chunk", dim, self.rank())?;
        if n == 0 {
            bail!(Value, "chunk", "a tensor of shape {:?} cannot be cut into 0 pieces", self.shape());
        }
        let whole = self.shape()[dim];
        let size = whole.div_ceil(n);
        let count = if size == 0 { n } else { whole.div_ceil(size) };
        let mut pieces = Vec::with_capacity(count);
        for at in 0..count {
            pieces.push(take("chunk", self, &SubRange::range(dim, at * size, size.min(whole - at * size)))?);
        }
        Ok(pieces)
    }

    /// Every index of a dimension by itself.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let rows = Tensor::new([[1, 2], [3, 4]])?.unbind(0)?;
    /// assert_eq!(rows[1].to_vec::<i64>()?, [3, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension.
    #[track_caller]
    pub fn unbind(&self, dim: isize) -> Result<Vec<Tensor>> {
        let dim = resolve_dim("unbind", dim, self.rank())?;
        let mut parts = Vec::with_capacity(self.shape()[dim]);
        for index in 0..self.shape()[dim] {
            parts.push(take("unbind", self, &SubRange::Index(dim, index))?);
        }
        Ok(parts)
    }
}

pub(super) static SLICE: Op = Op {
    name: "slice",
    samples: || {
        let mut all = samples(&[&[4, 3], &[4], &[4, 0]], |x| x.slice(0, Slice::new(Some(1), Some(-1))))?;
        all.extend(samples(&[&[2, 5]], |x| x.slice(-1, Slice::from(..).step(-2)))?);
        all.extend(samples(&[&[5, 2]], |x| x.slice(0, Slice::from(1..).step(3)))?);
        all.extend(samples(&[&[2, 4, 3]], |x| x.slice(1, 1..)?.slice(2, ..2)?.slice(1, -1..))?);
        all.extend(samples(&[&[3, 2]], |x| x.slice(0, 3..))?.into_iter().map(Sample::with_zero_derivative));
        Ok(all)
    },
    error_cases: || {
        Ok(vec![
            error_case("no such dimension", &["slice", "2"], &[2, 3], |x| x.slice(2, ..))?,
            error_case("a step of 0", &["slice", "step", "0"], &[2, 3], |x| x.slice(0, Slice::from(..).step(0)))?,
        ])
    },
};

pub(super) static SELECT: Op = Op {
    name: "select",
    samples: || {
        let mut all = samples(&[&[2, 3], &[2], &[2, 0]], |x| x.select(0, 1))?;
        all.extend(samples(&[&[2, 3, 4]], |x| x.select(-2, -1)?.select(1, 0))?);
        Ok(all)
    },
    error_cases: || {
        Ok(vec![
            error_case("no such index", &["select", "-4", "1", "[2, 3]"], &[2, 3], |x| x.select(1, -4))?,
            error_case("no such dimension", &["select", "0"], &[], |x| x.select(0, 0))?,
        ])
    },
};

pub(super) static NARROW: Op = Op {
    name: "narrow",
    samples: || {
        let mut all = samples(&[&[3, 2], &[3], &[3, 0]], |x| x.narrow(0, 1, 2))?;
        all.extend(samples(&[&[2, 4]], |x| x.narrow(-1, -3, 2))?);
        all.extend(samples(&[&[3]], |x| x.narrow(0, 3, 0))?.into_iter().map(Sample::with_zero_derivative));
        Ok(all)
    },
    error_cases: || {
        Ok(vec![
            error_case("too long", &["narrow", "2", "[2, 3]"], &[2, 3], |x| x.narrow(1, 2, 2))?,
            error_case("before the first", &["narrow", "-4", "[2, 3]"], &[2, 3], |x| x.narrow(1, -4, 1))?,
        ])
    },
};

pub(super) static FLIP: Op = Op {
    name: "flip",
    samples: || {
        let mut all = samples(&[&[2, 3, 4], &[3, 0, 2]], |x| x.flip([0, -1]))?;
        all.extend(samples(&[&[3], &[]], |x| x.flip(..))?);
        Ok(all)
    },
    error_cases: || {
        Ok(vec![
            error_case("a dimension twice", &["flip", "-1", "twice"], &[2, 3], |x| x.flip([1, -1]))?,
            error_case("no such dimension", &["flip", "2"], &[2, 3], |x| x.flip(2))?,
        ])
    },
};

/// All pieces in one tensor, each multiplied by its place so that they cannot be mistaken for each other.
fn rejoined(pieces: &[Tensor]) -> Result<Tensor> {
    let weighted = pieces.iter().enumerate().map(|(i, piece)| piece.flatten(0, -1)?.mul(i as f64 + 1.0));
    let weighted = weighted.collect::<Result<Vec<_>>>()?;
    Tensor::cat(&weighted.iter().collect::<Vec<_>>(), 0)
}

pub(super) static SPLIT: Op = Op {
    name: "split",
    samples: || {
        let mut all = samples(&[&[5, 3], &[4], &[0, 2]], |x| rejoined(&x.split(2, 0)?))?;
        all.extend(samples(&[&[2, 7]], |x| rejoined(&x.split(3, -1)?))?);
        all.extend(samples(&[&[2, 7]], |x| Ok(x.split(3, 1)?.swap_remove(1)))?);
        Ok(all)
    },
    error_cases: || {
        Ok(vec![
            error_case("pieces of nothing", &["split", "0", "[2, 3]"], &[2, 3], |x| rejoined(&x.split(0, 1)?))?,
            error_case("no such dimension", &["split", "2"], &[2, 3], |x| rejoined(&x.split(1, 2)?))?,
        ])
    },
};

pub(super) static CHUNK: Op = Op {
    name: "chunk",
    samples: || {
        let mut all = samples(&[&[5, 3], &[4], &[0, 2], &[1]], |x| rejoined(&x.chunk(3, 0)?))?;
        all.extend(samples(&[&[2, 7]], |x| rejoined(&x.chunk(4, -1)?))?);
        Ok(all)
    },
    error_cases: || {
        Ok(vec![
            error_case("no pieces", &["chunk", "0", "[2, 3]"], &[2, 3], |x| rejoined(&x.chunk(0, 1)?))?,
            error_case("no such dimension", &["chunk", "-3"], &[2, 3], |x| rejoined(&x.chunk(1, -3)?))?,
        ])
    },
};

pub(super) static UNBIND: Op = Op {
    name: "unbind",
    samples: || {
        let mut all = samples(&[&[3, 2], &[4], &[2, 0]], |x| rejoined(&x.unbind(0)?))?;
        all.extend(samples(&[&[2, 5, 2]], |x| rejoined(&x.unbind(-2)?))?);
        Ok(all)
    },
    error_cases: || Ok(vec![error_case("no such dimension", &["unbind", "0"], &[], |x| rejoined(&x.unbind(0)?))?]),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_share_the_bytes_and_keep_offsets() -> Result<()> {
        let x = Tensor::arange(0, 24, 1)?.reshape([2, 3, 4])?;
        let part = x.select(0, 1)?.slice(0, 1..)?.t()?.narrow(0, -2, 1)?;
        assert_eq!((part.shape(), part.strides(), part.offset()), (&[1, 2][..], &[1, 4][..], 18));
        assert!(part.storage().ptr_eq(x.storage()));
        assert_eq!(part.to_vec::<i64>()?, [18, 22]);
        assert_eq!(part.flip(1)?.to_vec::<i64>()?, [22, 18]);
        Ok(())
    }

    #[test]
    fn pieces_have_pytorchs_sizes() -> Result<()> {
        let lengths = |pieces: Vec<Tensor>| pieces.iter().map(|p| p.shape()[0]).collect::<Vec<_>>();
        let x = Tensor::zeros([7, 2])?;
        assert_eq!(lengths(x.split(3, 0)?), [3, 3, 1]);
        assert_eq!(lengths(x.split(9, 0)?), [7]);
        assert_eq!(lengths(x.chunk(4, 0)?), [2, 2, 2, 1]);
        assert_eq!(lengths(x.chunk(5, 0)?), [2, 2, 2, 1]);
        let empty = Tensor::zeros([0, 2])?;
        assert_eq!(lengths(empty.split(3, 0)?), [0]);
        assert_eq!(lengths(empty.split(0, 0)?), [0]);
        assert_eq!(lengths(empty.chunk(3, 0)?), [0, 0, 0]);
        assert!(empty.unbind(0)?.is_empty());
        Ok(())
    }

    #[test]
    fn every_piece_can_be_gone_back_from_by_itself() -> Result<()> {
        let x = Tensor::arange(0.0, 6.0, 1.0)?.requires_grad_(true)?;
        for (i, piece) in x.unbind(0)?.iter().enumerate() {
            piece.mul(i as f64)?.backward()?;
        }
        assert_eq!(x.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
        Ok(())
    }

    #[test]
    fn the_gradient_of_a_part_is_zero_elsewhere_to_any_order() -> Result<()> {
        let x = Tensor::new([1.0, 2.0, 3.0, 4.0])?.requires_grad_(true)?;
        let y = x.slice(0, Slice::from(..).step(-2))?.pow(3)?.sum()?;
        y.backward_opts(None, crate::autograd::Backward { create_graph: true, retain_graph: true })?;
        let first = x.grad().unwrap_or_else(|| x.detach());
        assert_eq!(first.to_vec::<f32>()?, [0.0, 12.0, 0.0, 48.0]);
        x.zero_grad();
        first.sum()?.backward()?;
        assert_eq!(x.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![0.0, 12.0, 0.0, 24.0]));
        Ok(())
    }

    /// Parts that overlap and a use of the whole, before and after them, of `x`; `z` shares the whole's cotangent.
    fn parts_and_whole(x: &Tensor, z: &Tensor) -> Result<Tensor> {
        let first = x.add(z)?;
        let mut total = x.select(1, 1)?.square()?.sum()?;
        for (i, piece) in x.split(2, 1)?.iter().enumerate() {
            total = total.add(&piece.pow(3)?.mul(i as f64 + 1.0)?.sum()?)?;
        }
        total = total.add(&x.slice(0, Slice::from(..).step(-2))?.exp()?.sum()?)?;
        let last = x.add(z)?;
        total.add(&first.square()?.sum()?)?.add(&last.sin()?.sum()?)
    }

    #[test]
    fn parts_added_in_place_are_the_recorded_sum_and_leave_shared_cotangents_alone() -> Result<()> {
        let leaf =
            |shift: f64| Tensor::arange(0.0, 15.0, 1.0)?.mul(0.1)?.add(shift)?.reshape([3, 5])?.requires_grad_(true);
        let (x, z) = (leaf(0.0)?, leaf(0.5)?);
        let grads = |create_graph| {
            let how = crate::autograd::Backward { create_graph, retain_graph: false };
            let grads = crate::autograd::grad_with(&parts_and_whole(&x, &z)?, &[&x, &z], None, how)?;
            grads.into_iter().flatten().map(|g| g.to_vec::<f32>()).collect::<Result<Vec<_>>>()
        };
        let (plain, recorded) = (grads(false)?, grads(true)?);
        assert_eq!(plain.len(), 2);
        for (plain, recorded) in plain.iter().flatten().zip(recorded.iter().flatten()) {
            assert!((plain - recorded).abs() <= 1e-5 * recorded.abs(), "{plain} is not {recorded}");
        }
        Ok(())
    }

    #[test]
    fn a_node_hook_on_a_part_sees_this_part_alone() -> Result<()> {
        let x = Tensor::new([1.0, 2.0, 3.0])?.requires_grad_(true)?;
        let parts = x.unbind(0)?;
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let store = seen.clone();
        parts[0].register_node_hook(move |event| {
            let inputs = event.inputs.iter().flatten().filter_map(|g| g.to_vec::<f32>().ok());
            store.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(inputs);
        })?;
        rejoined(&parts)?.sum()?.backward()?;
        assert_eq!(*seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner), [[1.0, 0.0, 0.0]]);
        assert_eq!(x.grad().map(|g| g.to_vec::<f32>()).transpose()?, Some(vec![1.0, 2.0, 3.0]));
        Ok(())
    }
}
