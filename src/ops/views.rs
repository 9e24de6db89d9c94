//! Views: the same elements under another shape, without a copy.
//!
//! A view shares the bytes of the tensor it was made from, with offset and strides of its own; see the layout module
//! for the algebra. Views are ordinary operations with ordinary derivatives.

mod parts;
mod strided;

use super::sample::{ErrorCase, Op, Sample, normal, spread};
use crate::autograd::BackwardContext;
use crate::error::bail;
use crate::layout::{Layout, resolve_dim, resolve_dims};
use crate::{Dims, Result, Sizes, Tensor};
use smallvec::{SmallVec, smallvec};

/// A view of all the elements in the same order; the cotangent gets the input's shape back.
#[track_caller]
fn reshaped(op: &'static str, x: &Tensor, layout: Layout) -> Result<Tensor> {
    x.with_layout(layout).record(op, &[x], |_| {
        let shape = x.layout().shape().clone();
        move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.reshape(&shape)?)])
    })
}

impl Tensor {
    /// The dimensions in another order, each named once.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::zeros([2, 3, 4])?;
    /// assert_eq!(x.permute([2, 0, 1])?.shape(), [4, 2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a dimension is missing, named twice or does not exist.
    #[track_caller]
    pub fn permute(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        let dims: SmallVec<[isize; 5]> = match dims.into() {
            Dims::All => (0..self.rank() as isize).collect(),
            Dims::Some(dims) => dims,
        };
        let layout = self.layout().permute("permute", &dims)?;
        let order = self.layout().permutation("permute", &dims)?;
        self.with_layout(layout).record("permute", &[self], |_| {
            let mut inverse: SmallVec<[isize; 5]> = SmallVec::from_elem(0, order.len());
            for (to, &from) in order.iter().enumerate() {
                inverse[from] = to as isize;
            }
            move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.permute(&inverse[..])?)])
        })
    }

    /// Two dimensions exchanged.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([[1, 2], [3, 4]])?;
    /// assert_eq!(x.transpose(0, -1)?.to_vec::<i64>()?, [1, 3, 2, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If one of the dimensions does not exist.
    #[track_caller]
    pub fn transpose(&self, dim0: isize, dim1: isize) -> Result<Tensor> {
        transposed("transpose", self, dim0, dim1)
    }

    /// A matrix transposed; a vector or a single number as it is.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3])?.t()?.shape(), [3, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are more than two dimensions.
    #[track_caller]
    pub fn t(&self) -> Result<Tensor> {
        match self.rank() {
            0 | 1 => Ok(self.clone()),
            2 => transposed("t", self, 0, 1),
            rank => bail!(Shape, "t", "shape {:?} has {rank} dimensions, more than 2: use transpose", self.shape()),
        }
    }

    /// The same elements in the same order under another shape, of which one size may be left open with `-1`. Never a
    /// copy.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::arange(0, 6, 1)?;
    /// assert_eq!(x.view([2, -1])?.shape(), [2, 3]);
    /// assert!(x.view([2, 3])?.t()?.view([6]).is_err());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the number of elements differs, or the elements do not lie so that strides could express the shape:
    /// [`reshape`](Self::reshape) copies then.
    #[track_caller]
    pub fn view(&self, sizes: impl Into<Sizes>) -> Result<Tensor> {
        let shape = self.layout().resolve_sizes("view", &sizes.into())?;
        let Some(layout) = self.layout().reshape(&shape) else {
            let (from, strides) = (self.shape(), self.strides());
            bail!(
                Shape,
                "view",
                "shape {from:?} with strides {strides:?} cannot be seen as {shape:?} without a copy: use reshape"
            );
        };
        reshaped("view", self, layout)
    }

    /// The same elements in the same order under another shape, of which one size may be left open with `-1`; a copy
    /// only if the elements do not lie so that strides could express the shape.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([[1, 2], [3, 4]])?;
    /// assert_eq!(x.t()?.reshape(-1)?.to_vec::<i64>()?, [1, 3, 2, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the number of elements differs.
    #[track_caller]
    pub fn reshape(&self, sizes: impl Into<Sizes>) -> Result<Tensor> {
        let shape = self.layout().resolve_sizes("reshape", &sizes.into())?;
        if let Some(layout) = self.layout().reshape(&shape) {
            return reshaped("reshape", self, layout);
        }
        let copy = self.copied("reshape")?.with_layout(Layout::contiguous(shape));
        copy.record("reshape", &[self], |_| {
            let shape = self.layout().shape().clone();
            move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.reshape(&shape)?)])
        })
    }

    /// The dimensions from `start` to `end`, both included, made one; a copy only if [`reshape`](Self::reshape) needs
    /// one. A single number becomes a vector.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3, 4])?.flatten(1, -1)?.shape(), [2, 12]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If one of the dimensions does not exist, or `end` comes before `start`.
    #[track_caller]
    pub fn flatten(&self, start: isize, end: isize) -> Result<Tensor> {
        let rank = self.rank().max(1);
        let (from, to) = (resolve_dim("flatten", start, rank)?, resolve_dim("flatten", end, rank)?);
        if from > to {
            bail!(Index, "flatten", "dimension {end} comes before {start} in shape {:?}", self.shape());
        }
        let shape = self.shape();
        let mut sizes: SmallVec<[usize; 5]> = SmallVec::from_slice(&shape[..from]);
        sizes.push(shape[from..shape.len().min(to + 1)].iter().product());
        sizes.extend_from_slice(shape.get(to + 1..).unwrap_or(&[]));
        self.reshape(&sizes[..])
    }

    /// Without the dimensions of size 1.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([1, 3, 1])?.squeeze()?.shape(), [3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// None, but every operation returns a result.
    #[track_caller]
    pub fn squeeze(&self) -> Result<Tensor> {
        let all: SmallVec<[usize; 5]> = (0..self.rank()).collect();
        reshaped("squeeze", self, self.layout().squeeze(&all))
    }

    /// Without those of the named dimensions that have size 1; the others stay.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([1, 3, 1])?.squeeze_dim([-1, 1])?.shape(), [1, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a dimension does not exist or is named twice.
    #[track_caller]
    pub fn squeeze_dim(&self, dims: impl Into<Dims>) -> Result<Tensor> {
        let dims = resolve_dims("squeeze_dim", &dims.into(), self.rank())?;
        reshaped("squeeze_dim", self, self.layout().squeeze(&dims))
    }

    /// With a dimension of size 1 put in at `dim`, which may be one past the last.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3])?.unsqueeze(-1)?.shape(), [2, 3, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such place.
    #[track_caller]
    pub fn unsqueeze(&self, dim: isize) -> Result<Tensor> {
        reshaped("unsqueeze", self, self.layout().unsqueeze("unsqueeze", dim)?)
    }

    /// Dimensions of size 1 repeated and new leading ones put in, without a copy; `-1` keeps a size.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::new([[1], [2]])?;
    /// assert_eq!(x.expand([-1, 3])?.to_vec::<i64>()?, [1, 1, 1, 2, 2, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a size other than 1 would change.
    #[track_caller]
    pub fn expand(&self, sizes: impl Into<Sizes>) -> Result<Tensor> {
        let layout = self.layout().expand("expand", &sizes.into())?;
        // The engine sums a cotangent back to its tensor's shape.
        self.with_layout(layout)
            .record("expand", &[self], |_| |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.clone())]))
    }
}

#[track_caller]
fn transposed(op: &'static str, x: &Tensor, dim0: isize, dim1: isize) -> Result<Tensor> {
    let layout = x.layout().transpose(op, dim0, dim1)?;
    x.with_layout(layout)
        .record(op, &[x], |_| move |_: &BackwardContext, g: &Tensor| Ok(smallvec![Some(g.transpose(dim0, dim1)?)]))
}

/// Samples of a view on tensors of several shapes.
fn samples(shapes: &[&[usize]], call: fn(&Tensor) -> Result<Tensor>) -> Result<Vec<Sample>> {
    let sample = |&shape: &&[usize]| Ok(Sample::new("view", vec![spread(shape, -2.0, 2.0)?], move |x| call(&x[0])));
    shapes.iter().map(sample).collect()
}

/// A call on a tensor of a shape that must be errors.
fn error_case(
    label: &str,
    message: &[&str],
    shape: &[usize],
    call: fn(&Tensor) -> Result<Tensor>,
) -> Result<ErrorCase> {
    let x = normal(shape, 1)?;
    Ok(ErrorCase::new(label, message, move || call(&x)))
}

static PERMUTE: Op = Op {
    name: "permute",
    samples: || {
        let mut all = samples(&[&[2, 3, 4], &[2, 0, 3]], |x| x.permute([2, 0, 1]))?;
        all.extend(samples(&[&[2, 3, 4]], |x| x.permute([-1, -2, 0]))?);
        all.extend(samples(&[&[]], |x| x.permute(..))?);
        Ok(all)
    },
    error_cases: || {
        Ok(vec![
            error_case("too few dimensions", &["permute", "[0, 1]", "[2, 3, 4]"], &[2, 3, 4], |x| x.permute([0, 1]))?,
            error_case("a dimension twice", &["permute", "-2", "twice"], &[2, 3, 4], |x| x.permute([0, 1, -2]))?,
            error_case("no such dimension", &["permute", "3"], &[2, 3, 4], |x| x.permute([0, 1, 3]))?,
        ])
    },
};

static TRANSPOSE: Op = Op {
    name: "transpose",
    samples: || {
        let mut all = samples(&[&[2, 3, 4], &[2, 3, 0]], |x| x.transpose(0, -1))?;
        all.extend(samples(&[&[2, 3]], |x| x.transpose(1, 1))?);
        Ok(all)
    },
    error_cases: || Ok(vec![error_case("no such dimension", &["transpose", "2"], &[2, 3], |x| x.transpose(0, 2))?]),
};

static T: Op = Op {
    name: "t",
    samples: || samples(&[&[2, 3], &[0, 3], &[3], &[]], Tensor::t),
    error_cases: || Ok(vec![error_case("three dimensions", &["t:", "[2, 3, 4]"], &[2, 3, 4], Tensor::t)?]),
};

static VIEW: Op = Op {
    name: "view",
    samples: || {
        let mut all = samples(&[&[2, 3, 4]], |x| x.view([4, -1]))?;
        all.extend(samples(&[&[2, 6]], |x| x.view([2, 3, -1, 1]))?);
        all.extend(samples(&[&[1, 1], &[]], |x| x.view(()))?);
        all.extend(samples(&[&[2, 0]], |x| x.view([0, 7]))?);
        Ok(all)
    },
    error_cases: || {
        Ok(vec![
            error_case("strides that cannot say it", &["view", "[3, 2]", "[6]", "use reshape"], &[2, 3], |x| {
                x.t()?.view([6])
            })?,
            error_case("another number of elements", &["view", "[2, 3]", "[7]"], &[2, 3], |x| x.view([7]))?,
        ])
    },
};

static RESHAPE: Op = Op {
    name: "reshape",
    samples: || {
        let mut all = samples(&[&[2, 3, 4]], |x| x.reshape([4, -1]))?;
        all.extend(samples(&[&[2, 3, 4]], |x| x.transpose(0, 1)?.reshape([2, 12]))?);
        all.extend(samples(&[&[1, 1], &[]], |x| x.reshape(()))?);
        all.extend(samples(&[&[2, 0]], |x| x.reshape([0, 7]))?);
        Ok(all)
    },
    error_cases: || {
        Ok(vec![
            error_case("another number of elements", &["reshape", "[2, 3]", "[-1, 4]", "6"], &[2, 3], |x| {
                x.reshape([-1, 4])
            })?,
            error_case("two open sizes", &["reshape", "[-1, -1]"], &[2, 3], |x| x.reshape([-1, -1]))?,
            error_case("a negative size", &["reshape", "[-2, -3]"], &[2, 3], |x| x.reshape([-2, -3]))?,
        ])
    },
};

static FLATTEN: Op = Op {
    name: "flatten",
    samples: || {
        let mut all = samples(&[&[2, 3, 4], &[2, 0], &[3], &[]], |x| x.flatten(0, -1))?;
        all.extend(samples(&[&[2, 3, 4]], |x| x.flatten(-2, 2))?);
        all.extend(samples(&[&[2, 3, 4]], |x| x.transpose(0, 1)?.flatten(0, 1))?);
        Ok(all)
    },
    error_cases: || {
        Ok(vec![
            error_case("end before start", &["flatten", "0", "1", "[2, 3]"], &[2, 3], |x| x.flatten(1, 0))?,
            error_case("no such dimension", &["flatten", "2"], &[2, 3], |x| x.flatten(0, 2))?,
        ])
    },
};

static SQUEEZE: Op = Op {
    name: "squeeze",
    samples: || samples(&[&[1, 3, 1], &[2, 3], &[1], &[], &[1, 0]], Tensor::squeeze),
    error_cases: || Ok(Vec::new()),
};

static SQUEEZE_DIM: Op = Op {
    name: "squeeze_dim",
    samples: || {
        let mut all = samples(&[&[1, 3, 1], &[2, 1, 3], &[2, 0]], |x| x.squeeze_dim(-1))?;
        all.extend(samples(&[&[1, 3, 1]], |x| x.squeeze_dim([0, 1, 2]))?);
        Ok(all)
    },
    error_cases: || Ok(vec![error_case("no such dimension", &["squeeze_dim", "2"], &[2, 3], |x| x.squeeze_dim(2))?]),
};

static UNSQUEEZE: Op = Op {
    name: "unsqueeze",
    samples: || {
        let mut all = samples(&[&[2, 3], &[3], &[], &[0]], |x| x.unsqueeze(-1))?;
        all.extend(samples(&[&[2, 3]], |x| x.unsqueeze(1))?);
        Ok(all)
    },
    error_cases: || Ok(vec![error_case("no such place", &["unsqueeze", "3"], &[2, 3], |x| x.unsqueeze(3))?]),
};

static EXPAND: Op = Op {
    name: "expand",
    samples: || {
        let mut all = samples(&[&[2, 1], &[1, 3], &[3], &[1], &[]], |x| x.expand([2, 3]))?;
        all.extend(samples(&[&[2, 1, 3]], |x| x.expand([4, -1, 5, -1]))?);
        all.extend(samples(&[&[1, 3]], |x| x.expand([0, 3]))?.into_iter().map(Sample::with_zero_derivative));
        Ok(all)
    },
    error_cases: || {
        Ok(vec![
            error_case("another size", &["expand", "[2, 3]", "[2, 4]"], &[2, 3], |x| x.expand([2, 4]))?,
            error_case("fewer dimensions", &["expand", "[2, 3]", "[3]"], &[2, 3], |x| x.expand([3]))?,
            error_case("an open leading size", &["expand", "[3]", "[-1, 3]"], &[3], |x| x.expand([-1, 3]))?,
        ])
    },
};

pub(crate) static OPS: &[&Op] = &[
    &PERMUTE,
    &TRANSPOSE,
    &T,
    &VIEW,
    &RESHAPE,
    &FLATTEN,
    &SQUEEZE,
    &SQUEEZE_DIM,
    &UNSQUEEZE,
    &EXPAND,
    &parts::SLICE,
    &parts::SELECT,
    &parts::NARROW,
    &parts::FLIP,
    &parts::SPLIT,
    &parts::CHUNK,
    &parts::UNBIND,
    &strided::AS_STRIDED,
];
