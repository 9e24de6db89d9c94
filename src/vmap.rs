//! Vectorisation: a function of one example, applied to all examples of a batch.
//!
//! [`vmap()`](crate::vmap()) calls the function once. Inside, every tensor has the shape of one example, and each operation
//! computes all examples.
//!
//! ```
//! use cotangent::{tensor, vmap};
//! let (x, w) = (tensor!([[1.0, 2.0], [3.0, 4.0]])?, tensor!([10.0, 1.0])?);
//! // `dot` takes vectors; here it gets the rows of `x`.
//! assert_eq!(vmap(|x| x[0].dot(&w), &[&x])?.to_vec::<f32>()?, [12.0, 34.0]);
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! # Gradients of each example
//! A derivative inside of the function is that of one example.
//!
//! ```
//! use cotangent::{autograd::value_and_grad, tensor, vmap};
//! let (x, y, w) = (tensor!([[1.0, 2.0], [3.0, 4.0]])?, tensor!([5.0, 6.0])?, tensor!([10.0, 1.0])?);
//! let grads = vmap(
//!     |example| {
//!         let (x, y) = (&example[0], &example[1]);
//!         let (_loss, mut grads) = value_and_grad(|w| w[0].dot(x)?.sub(y)?.square(), &[&w])?;
//!         Ok(grads.swap_remove(0))
//!     },
//!     &[&x, &y],
//! )?;
//! // Two rows: the gradient of each example's loss with respect to `w`.
//! assert_eq!(grads.to_vec::<f32>()?, [14.0, 28.0, 168.0, 224.0]);
//! # Ok::<(), cotangent::Error>(())
//! ```
//!
//! # Rules
//! - The function gets the inputs in a slice. [`VmapOptions::in_dims`] says which dimension of each input has the examples, or
//!   that all examples share it. Other tensors that the function uses are shared, too.
//! - The function cannot read values of a batched tensor, as by [`item`](crate::Tensor::item), and cannot branch on them.
//! - Random draws are errors unless [`VmapRandomness`] says whether examples share the numbers.
//! - A few operations have no rule for batches and run once for each example, which is slow. [`VmapFallback`] can warn about or
//!   refuse them.
//! - [`vmap_all`] is for functions with several results. Calls can be nested.
#![forbid(unsafe_code)]

use crate::error::{bail, named};
use crate::layout::resolve_dim;
use crate::tensor::batch::{Level, Running, Scope};
pub use crate::tensor::batch::{VmapFallback, VmapRandomness};
use crate::{Result, Tensor, flags};

/// The options of [`vmap_with`]. A [`VmapRandomness`] or [`VmapFallback`] alone converts into them.
///
/// ```
/// use cotangent::{Tensor, vmap::{VmapOptions, vmap_with}};
/// let (x, w) = (Tensor::randn([4, 3])?, Tensor::randn([4])?);
/// // The columns of a matrix, each with the same vector.
/// let options = VmapOptions::new().in_dims([Some(1), None]);
/// assert_eq!(vmap_with(|a| a[0].dot(&a[1]), &[&x, &w], options)?.shape(), [3]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct VmapOptions {
    in_dims: Option<Vec<Option<isize>>>,
    out_dim: isize,
    randomness: VmapRandomness,
    fallback: VmapFallback,
}

impl VmapOptions {
    /// All options at their defaults.
    pub fn new() -> VmapOptions {
        VmapOptions::default()
    }

    /// The dimension of the examples in each input, or `None` if the input is the same for all of them. Unless set: the first
    /// dimension of each.
    pub fn in_dims(mut self, dims: impl Into<Vec<Option<isize>>>) -> VmapOptions {
        self.in_dims = Some(dims.into());
        self
    }

    /// The dimension of the examples in the results. Unless set: 0.
    pub fn out_dim(mut self, dim: isize) -> VmapOptions {
        self.out_dim = dim;
        self
    }

    /// What random draws do. Unless set: they are errors.
    pub fn randomness(mut self, randomness: VmapRandomness) -> VmapOptions {
        self.randomness = randomness;
        self
    }

    /// What happens to operations without a batching rule. Unless set: a loop.
    pub fn fallback(mut self, fallback: VmapFallback) -> VmapOptions {
        self.fallback = fallback;
        self
    }
}

impl From<VmapRandomness> for VmapOptions {
    fn from(randomness: VmapRandomness) -> VmapOptions {
        VmapOptions::new().randomness(randomness)
    }
}

impl From<VmapFallback> for VmapOptions {
    fn from(fallback: VmapFallback) -> VmapOptions {
        VmapOptions::new().fallback(fallback)
    }
}

/// Applies a function of one example to all examples of a batch. Inside the function every tensor has the shape of one example,
/// and each operation runs once for all of them. It can be nested, and derivatives inside of it
/// ([`value_and_grad`](crate::autograd::value_and_grad), [`jvp`](crate::autograd::jvp),
/// [`jacobian`](crate::autograd::jacobian), ..) are those of single examples.
///
/// A tensor that is the same for all examples can be captured, or passed as an input without a dimension of examples:
/// [`VmapOptions::in_dims`]. The values of a batched tensor cannot be read inside the function.
///
/// ```
/// use cotangent::{Tensor, autograd::value_and_grad, tensor, vmap};
/// let (x, w) = (tensor!([[1.0, 2.0], [3.0, 4.0]])?, tensor!([10.0, 1.0])?);
/// assert_eq!(vmap(|x| x[0].dot(&w), &[&x])?.to_vec::<f32>()?, [12.0, 34.0]);
/// // The gradient of each example.
/// let grads = vmap(|x| Ok(value_and_grad(|w| w[0].dot(&x[0])?.square(), &[&w])?.1.swap_remove(0)), &[&x])?;
/// assert_eq!(grads.to_vec::<f32>()?, [24.0, 48.0, 204.0, 272.0]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// Those of the function; also if no input has a dimension of examples, or their sizes differ; if the function reads values,
/// changes a batched tensor in place, or draws random numbers ([`VmapRandomness`]).
#[track_caller]
pub fn vmap(f: impl FnOnce(&[Tensor]) -> Result<Tensor>, inputs: &[&Tensor]) -> Result<Tensor> {
    vmap_with(f, inputs, VmapOptions::new())
}

/// As [`vmap`](crate::vmap()), with options: see [`VmapOptions`].
///
/// ```
/// use cotangent::{Tensor, vmap::{VmapOptions, vmap_with}};
/// let x = Tensor::randn([2, 3, 4])?;
/// let y = vmap_with(|x| x[0].t(), &[&x], VmapOptions::new().in_dims([Some(-1)]).out_dim(-1))?;
/// assert_eq!(y.shape(), [3, 2, 4]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As [`vmap`](crate::vmap()); also if an option is not valid.
#[track_caller]
pub fn vmap_with(
    f: impl FnOnce(&[Tensor]) -> Result<Tensor>,
    inputs: &[&Tensor],
    options: impl Into<VmapOptions>,
) -> Result<Tensor> {
    let mut results = vmap_all(|x| Ok(vec![f(x)?]), inputs, options)?;
    Ok(results.swap_remove(0))
}

/// As [`vmap_with`], for a function with several results.
///
/// ```
/// use cotangent::{Tensor, tensor, vmap::{VmapOptions, vmap_all}};
/// let x = tensor!([[3.0, 1.0], [2.0, 5.0]])?;
/// let sorted = vmap_all(|x| x[0].sort(0).map(|(values, order)| vec![values, order]), &[&x], VmapOptions::new())?;
/// assert_eq!(sorted[0].to_vec::<f32>()?, [1.0, 3.0, 2.0, 5.0]);
/// assert_eq!(sorted[1].to_vec::<i64>()?, [1, 0, 0, 1]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Errors
/// As [`vmap_with`].
#[track_caller]
pub fn vmap_all(
    f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &[&Tensor],
    options: impl Into<VmapOptions>,
) -> Result<Vec<Tensor>> {
    let options = options.into();
    flags::set(flags::VMAP);
    let (entries, level) = named("vmap", entries(inputs, &options))?;
    let VmapOptions { randomness, fallback, .. } = options;
    let results = {
        let _scope = Scope::new(Running { level, randomness, fallback });
        f(&entries)?
    };
    let out = |result: &Tensor| {
        let all = result.unbatch(level)?;
        let dim = resolve_dim("vmap", options.out_dim, all.rank())?;
        if dim == 0 { Ok(all) } else { all.movedim(0, dim) }
    };
    named("vmap", results.iter().map(out).collect())
}

/// The inputs as the function sees them.
fn entries(inputs: &[&Tensor], options: &VmapOptions) -> Result<(Vec<Tensor>, Level)> {
    let everywhere = vec![Some(0); inputs.len()];
    let dims = options.in_dims.as_ref().unwrap_or(&everywhere);
    if dims.len() != inputs.len() {
        bail!(Value, "vmap", "expected {} in_dims, one for each input, got {dims:?}", inputs.len());
    }
    let mut size = None;
    for (x, dim) in inputs.iter().zip(dims) {
        let Some(dim) = dim else { continue };
        let own = x.shape()[resolve_dim("vmap", *dim, x.rank())?];
        if *size.get_or_insert(own) != own {
            let shapes: Vec<&[usize]> = inputs.iter().map(|x| x.shape()).collect();
            bail!(
                Shape,
                "vmap",
                "inputs must have the same number of examples, got shapes {shapes:?} with in_dims {dims:?}"
            );
        }
    }
    let Some(size) = size else {
        bail!(Value, "vmap", "at least one of the {} inputs must have a dimension of examples", inputs.len())
    };
    let level = Level::new(size);
    let entry = |(x, dim): (&&Tensor, &Option<isize>)| match dim {
        Some(dim) => x.movedim(*dim, 0)?.batch(level),
        None => Ok((*x).clone()),
    };
    Ok((inputs.iter().zip(dims).map(entry).collect::<Result<_>>()?, level))
}
