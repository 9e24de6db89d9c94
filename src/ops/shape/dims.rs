//! Operations that move, split, rotate and add dimensions, composed of other operations.

use crate::error::bail;
use crate::layout::{At, Dim, Dims, Sizes};
use crate::layout::{Ints, Layout, broadcast, reduced_dims, resolve_dim};
use crate::memory::scratch::for_handles;
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, ints, normal, sample, spread};
use crate::ops::shape::views::samples;
use crate::{Result, Shape, Tensor, keepdim};
use smallvec::SmallVec;

/// The resolved dimensions in the given order, each at most once.
fn ordered_dims(op: &'static str, dims: &Dims, rank: usize) -> Result<SmallVec<[usize; 5]>> {
    let Some(named) = &dims.named else { return Ok((0..rank).collect()) };
    let mut resolved = SmallVec::new();
    for &dim in named {
        let at = resolve_dim(op, dim, rank)?;
        if resolved.contains(&at) {
            bail!(Index, op, "dimension {dim} occurs twice in {:?}", &named[..]);
        }
        resolved.push(at);
    }
    Ok(resolved)
}

/// # Reshaping
#[ops]
impl Tensor {
    /// Moves the dimensions in `source` to the positions in `destination`. The others keep their order.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::zeros([2, 3, 4])?;
    /// assert_eq!(x.movedim(0, -1)?.shape(), [3, 4, 2]);
    /// assert_eq!(x.movedim([0, 1], [1, 2])?.shape(), [4, 2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a dimension does not exist or is named twice, or the lengths differ.
    #[doc(alias = "moveaxis")]
    #[op(samples = movedim_samples, errors = movedim_errors, aliases = ["moveaxis"], view)]
    pub fn movedim(&self, source: impl Into<Dims>, destination: impl Into<Dims>) -> Result<Tensor> {
        // A 0-dimensional tensor accepts the dimensions 0 and -1.
        let (rank, named) = (self.rank(), self.rank().max(1));
        let (from, to) = (ordered_dims("movedim", &source, named)?, ordered_dims("movedim", &destination, named)?);
        if from.len() != to.len() {
            bail!(
                Shape,
                "movedim",
                "source and destination must have the same length, got {} and {}",
                from.len(),
                to.len()
            );
        }
        let mut rest = (0..rank).filter(|dim| !from.contains(dim));
        let at = |position: usize| match to.iter().position(|&to| to == position) {
            Some(k) => from[k],
            None => rest.next().unwrap_or(position),
        };
        let order: Ints = (0..rank).map(at).map(|dim| dim as isize).collect();
        self.permute(&order[..])
    }

    /// The transpose of the last two dimensions, without a copy.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3, 4])?.mt()?.shape(), [2, 4, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are fewer than two dimensions.
    #[doc(alias = "mT")]
    #[doc(alias = "matrix_transpose")]
    #[op(name = "mT", samples = || samples(&[&[2, 3], &[2, 3, 4], &[0, 3]], |x| sample![x]),
        errors = || Ok(vec![error!["a vector", "[3]"; sample![normal([3], 1)?]]]),
        aliases = ["matrix_transpose"], view)]
    pub fn mt(&self) -> Result<Tensor> {
        if self.rank() < 2 {
            bail!(Shape, "mT", "input must have at least 2 dimensions, got shape {:?}", self.shape());
        }
        self.transpose(-2, -1)
    }

    /// Splits one dimension into several, without a copy. One of the sizes may be -1, and is inferred.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([2, 12])?.unflatten(1, [3, -1])?.shape(), [2, 3, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or the product of the sizes is not its size.
    #[op(samples = unflatten_samples, errors = unflatten_errors, view)]
    pub fn unflatten(&self, dim: impl Into<Dim>, sizes: impl Into<Sizes>) -> Result<Tensor> {
        let dim = resolve_dim("unflatten", dim.0, self.rank())?;
        if sizes.0.is_empty() {
            bail!(Shape, "unflatten", "sizes must not be empty for dimension {dim} of shape {:?}", self.shape());
        }
        let line = Layout::contiguous([self.shape()[dim]].into());
        let parts = line.resolve_sizes("unflatten", &sizes)?;
        let shape = [&self.shape()[..dim], &parts, &self.shape()[dim + 1..]].concat();
        self.view(shape)
    }

    /// [`expand`](Self::expand) to the shape of another tensor.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([3])?.expand_as(&Tensor::zeros([2, 3])?)?.shape(), [2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a size other than 1 would change.
    #[op(samples = || Ok(vec![sample![spread([3], -2.0, 2.0)?, ints(&[0; 6], [2, 3])?], sample![spread([2, 1], -2.0, 2.0)?, ints(&[0; 6], [2, 3])?]]),
        errors = || Ok(vec![error!["another size", "[2]", "[3]"; sample![normal([2], 1)?, normal([3], 1)?]]]), view)]
    pub fn expand_as(&self, other: &Tensor) -> Result<Tensor> {
        self.expand(other.shape())
    }

    /// [`view`](Self::view) with the shape of another tensor.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([6])?.view_as(&Tensor::zeros([2, 3])?)?.shape(), [2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the number of elements differs, or a copy is needed.
    #[op(samples = || Ok(vec![sample![spread([6], -2.0, 2.0)?, ints(&[0; 6], [2, 3])?]]), errors = as_other_errors, view, reads_layout)]
    pub fn view_as(&self, other: &Tensor) -> Result<Tensor> {
        self.view(other.shape())
    }

    /// [`reshape`](Self::reshape) to the shape of another tensor.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([6])?.reshape_as(&Tensor::zeros([2, 3])?)?.shape(), [2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the number of elements differs.
    #[op(samples = || Ok(vec![sample![spread([2, 6], -2.0, 2.0)?.t()?, ints(&[0; 12], [3, 4])?], sample![spread([1], -2.0, 2.0)?, ints(&[0], [])?]]),
        errors = as_other_errors)]
    pub fn reshape_as(&self, other: &Tensor) -> Result<Tensor> {
        self.reshape(other.shape())
    }

    /// Expands all tensors to the shape they broadcast to.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let both = Tensor::broadcast_tensors(&[Tensor::zeros([2, 1])?, Tensor::zeros([3])?])?;
    /// assert_eq!((both[0].shape(), both[1].shape()), (&[2, 3][..], &[2, 3][..]));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shapes do not broadcast.
    #[op(samples = broadcast_samples, errors = broadcast_errors, outputs = [tensors])]
    pub fn broadcast_tensors(tensors: &[impl AsRef<Tensor>]) -> Result<Vec<Tensor>> {
        let shapes: Vec<&Shape> = tensors.iter().map(|tensor| tensor.layout().shape()).collect();
        let shape = broadcast("broadcast_tensors", &shapes)?;
        tensors.iter().map(|tensor| tensor.expand(&shape)).collect()
    }

    /// A 0-dimensional tensor as a vector; other tensors are unchanged.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!(2.0)?.atleast_1d()?.shape(), [1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// None.
    #[op(samples = || samples(&[&[], &[3], &[2, 3], &[0]], |x| sample![x]), view)]
    pub fn atleast_1d(&self) -> Result<Tensor> {
        if self.rank() == 0 { self.unsqueeze(0) } else { Ok(self.clone()) }
    }

    /// A 0-dimensional tensor or a vector as a matrix of one row; other tensors are unchanged.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([1.0, 2.0])?.atleast_2d()?.shape(), [1, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// None.
    #[op(samples = || samples(&[&[], &[3], &[2, 3], &[0]], |x| sample![x]), view)]
    pub fn atleast_2d(&self) -> Result<Tensor> {
        if self.rank() < 2 { self.atleast_1d()?.unsqueeze(0) } else { Ok(self.clone()) }
    }

    /// A tensor of up to 2 dimensions with 3: a vector of `n` elements becomes `[1, n, 1]`, a matrix `[m, n]` becomes
    /// `[m, n, 1]`. Other tensors are unchanged.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([1.0, 2.0])?.atleast_3d()?.shape(), [1, 2, 1]);
    /// assert_eq!(Tensor::zeros([2, 3])?.atleast_3d()?.shape(), [2, 3, 1]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// None.
    #[op(samples = || samples(&[&[], &[3], &[2, 3], &[2, 1, 3], &[0]], |x| sample![x]), view)]
    pub fn atleast_3d(&self) -> Result<Tensor> {
        if self.rank() < 3 { self.atleast_2d()?.unsqueeze(-1) } else { Ok(self.clone()) }
    }

    /// Rotates by `k` times 90 degrees, from the first of two dimensions towards the second; in the other direction for
    /// negative `k`. Never a copy.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let x = tensor!([[1, 2], [3, 4]])?;
    /// assert_eq!(x.rot90(1, [0, 1])?.to_vec::<i64>()?, [2, 4, 1, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `dims` are not two different dimensions of the tensor.
    #[op(samples = rot90_samples, errors = rot90_errors, view)]
    pub fn rot90(&self, #[default(1)] k: isize, #[default([0, 1])] dims: impl Into<Dims>) -> Result<Tensor> {
        let dims = ordered_dims("rot90", &dims, self.rank())?;
        let [a, b] = dims[..] else {
            bail!(Shape, "rot90", "dims must be 2 dimensions, got {:?} for shape {:?}", &dims[..], self.shape());
        };
        match k.rem_euclid(4) {
            1 => self.flip(b)?.transpose(a, b),
            2 => self.flip([a, b]),
            3 => self.flip(a)?.transpose(a, b),
            _ => Ok(self.clone()),
        }
    }

    /// Reverses the second dimension, without a copy.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([[1, 2], [3, 4]])?.fliplr()?.to_vec::<i64>()?, [2, 1, 4, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are fewer than two dimensions.
    #[op(samples = || samples(&[&[2, 3], &[2, 3, 2], &[2, 0]], |x| sample![x]),
        errors = || Ok(vec![error!["a vector", "1", "rank 1"; sample![normal([3], 1)?]]]), view)]
    pub fn fliplr(&self) -> Result<Tensor> {
        let dim = resolve_dim("fliplr", 1, self.rank())?;
        self.flip(dim)
    }

    /// Reverses the first dimension, without a copy.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// assert_eq!(tensor!([[1, 2], [3, 4]])?.flipud()?.to_vec::<i64>()?, [3, 4, 1, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor is 0-dimensional.
    #[op(samples = || samples(&[&[3], &[2, 3], &[0, 2]], |x| sample![x]),
        errors = || Ok(vec![error!["a single number", "0", "rank 0"; sample![normal([], 1)?]]]), view)]
    pub fn flipud(&self) -> Result<Tensor> {
        let dim = resolve_dim("flipud", 0, self.rank())?;
        self.flip(dim)
    }

    /// Sums over the dimensions that broadcasting would expand, so that the result has the given shape.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::ones([2, 3])?.sum_to_size([1, 3])?.to_vec::<f32>()?, [2.0, 2.0, 2.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `size` does not broadcast to the shape of this tensor.
    #[op(autocast_cuda = f32, samples = sum_to_size_samples, errors = sum_to_size_errors)]
    pub fn sum_to_size(&self, size: impl Into<Shape>) -> Result<Tensor> {
        match reduced_dims(self.layout().shape(), &size) {
            Some(dims) if dims.is_empty() => Ok(self.clone()),
            Some(dims) => self.sum(keepdim(&dims[..]))?.reshape(&size),
            None => bail!(Shape, "sum_to_size", "size must broadcast to shape {:?}, got {size:?}", self.shape()),
        }
    }

    /// [`narrow`](Self::narrow) as a copy.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::arange(0, 5)?.narrow_copy(0, 1, 2)?.to_vec::<i64>()?, [1, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or the elements do not all lie in it.
    #[op(samples = || samples(&[&[3, 2], &[3], &[3, 0]], |x| sample![x, 0, -2, 2]),
        errors = || Ok(vec![error!["too long", "3", "[2, 3]"; sample![normal([2, 3], 1)?, 0, 0, 3]]]))]
    pub fn narrow_copy(&self, dim: impl Into<Dim>, start: impl Into<At>, length: usize) -> Result<Tensor> {
        self.narrow(dim, start, length)?.deep_clone()
    }

    /// Coordinate grids from vectors: result k has the elements of vector k along dimension k and repeats them along
    /// all others. With the indexing [`Xy`](MeshIndexing::Xy) the first two dimensions are exchanged.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor, options::MeshIndexing};
    /// let (x, y) = (tensor!([1, 2])?, tensor!([3, 4, 5])?);
    /// let grids = Tensor::meshgrid(&[&x, &y], MeshIndexing::Ij)?;
    /// assert_eq!(grids[0].to_vec::<i64>()?, [1, 1, 1, 2, 2, 2]);
    /// assert_eq!(grids[1].to_vec::<i64>()?, [3, 4, 5, 3, 4, 5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no tensors, or one has more than one dimension.
    #[op(samples = meshgrid_samples, errors = meshgrid_errors, outputs = [tensors])]
    pub fn meshgrid(
        tensors: &[impl AsRef<Tensor>],
        #[default(MeshIndexing::Ij)] indexing: MeshIndexing,
    ) -> Result<Vec<Tensor>> {
        if tensors.is_empty() {
            bail!(Shape, "meshgrid", "tensors must not be empty");
        }
        if let Some(x) = tensors.iter().find(|x| x.rank() > 1) {
            bail!(Shape, "meshgrid", "tensors must have at most 1 dimension, got shape {:?}", x.shape());
        }
        let swapped = indexing == MeshIndexing::Xy && tensors.len() > 1;
        let position = |at: usize| if swapped && at < 2 { 1 - at } else { at };
        let mut shape = vec![1; tensors.len()];
        tensors.iter().enumerate().for_each(|(at, x)| shape[position(at)] = x.numel());
        let mut grids = for_handles("meshgrid", tensors.len())?;
        for (at, x) in tensors.iter().enumerate() {
            let mut along = vec![1; tensors.len()];
            along[position(at)] = x.numel();
            grids.push(x.reshape(along)?.expand(&shape)?);
        }
        Ok(grids)
    }
}

crate::ops::arg::choices! {
    /// The order of the dimensions in the results of [`Tensor::meshgrid`].
    ///
    /// ```
    /// use cotangent::{Tensor, options::MeshIndexing};
    /// let vectors = [Tensor::zeros([2])?, Tensor::zeros([3])?];
    /// assert_eq!(Tensor::meshgrid(&vectors, MeshIndexing::Ij)?[0].shape(), [2, 3]);
    /// assert_eq!(Tensor::meshgrid(&vectors, MeshIndexing::Xy)?[0].shape(), [3, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub enum MeshIndexing {
        /// Matrix indexing: vector k runs along dimension k.
        #[default]
        Ij = "ij",
        /// Cartesian indexing: the first two dimensions are exchanged.
        Xy = "xy",
    }
}

fn movedim_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[2, 3, 4], &[2, 0, 3]], |x| sample![x, 0, -1])?;
    all.extend(samples(&[&[2, 3, 4]], |x| sample![x, [0, 2], [1, 0]])?);
    all.extend(samples(&[&[]], |x| sample![x, [], []])?);
    Ok(all)
}

fn movedim_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3, 4], 1)?;
    Ok(vec![
        error!["no such dimension", "3", "rank 3"; sample![&x, 3, 0]],
        error!["a dimension twice", "-1", "twice"; sample![&x, [2, -1], [0, 1]]],
        error!["fewer places", "2", "1"; sample![&x, [0, 1], 0]],
    ])
}

fn unflatten_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[2, 6], &[6]], |x| sample![x, -1, [3, -1]])?;
    all.extend(samples(&[&[4, 3]], |x| sample![x, 0, [2, 1, 2]])?);
    all.extend(samples(&[&[0, 3]], |x| sample![x, 0, [0, 5]])?);
    Ok(all)
}

fn unflatten_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 6], 1)?;
    Ok(vec![
        error!["sizes that do not fit", "[4, 2]"; sample![&x, 1, [4, 2]]],
        error!["no sizes", "[2, 6]"; sample![&x, 1, []]],
        error!["no such dimension", "2"; sample![&x, 2, [6]]],
    ])
}

fn as_other_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![error!["another number of elements", "[2, 3]", "[7]"; sample![normal([2, 3], 1)?, normal([7], 1)?]]])
}

fn broadcast_samples() -> Result<Vec<Sample>> {
    let several =
        |shapes: &[&[usize]]| -> Result<Vec<Tensor>> { shapes.iter().map(|&shape| spread(shape, -2.0, 2.0)).collect() };
    Ok(vec![
        sample![several(&[&[2, 1], &[3]])?],
        sample![several(&[&[], &[2, 1, 2], &[3, 1]])?],
        sample![several(&[&[3]])?],
        sample![several(&[&[1], &[0]])?],
    ])
}

fn broadcast_errors() -> Result<Vec<ErrorCase>> {
    let several = vec![normal([2], 1)?, normal([3], 2)?];
    Ok(vec![error!["shapes that do not fit", "[2]", "[3]"; sample![several]]])
}

fn rot90_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[2, 3], &[2, 3, 2], &[0, 2]], |x| sample![x])?;
    for k in [-1, 0, 2, 3, 5] {
        all.push(sample![spread([2, 3, 4], -2.0, 2.0)?, k, [-1, 0]]);
    }
    Ok(all)
}

fn rot90_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["one dimension", "2 dimensions", "[2, 3]"; sample![&x, 1, [0]]],
        error!["a dimension twice", "-1", "twice"; sample![&x, 1, [1, -1]]],
        error!["a vector", "1", "rank 1"; sample![normal([3], 1)?]],
    ])
}

fn sum_to_size_samples() -> Result<Vec<Sample>> {
    let mut all = samples(&[&[2, 3], &[4, 2, 3]], |x| sample![x, [1, 3]])?;
    all.extend(samples(&[&[2, 3]], |x| sample![x, []])?);
    all.extend(samples(&[&[2, 3], &[0, 3]], |x| sample![x, [3]])?);
    all.extend(samples(&[&[2, 3]], |x| sample![x, [2, 3]])?);
    Ok(all)
}

fn sum_to_size_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["a size that was not broadcast", "[2, 3]", "[2, 2]"; sample![&x, [2, 2]]],
        error!["more dimensions", "[2, 3]", "[1, 2, 3]"; sample![&x, [1, 2, 3]]],
    ])
}

fn meshgrid_samples() -> Result<Vec<Sample>> {
    let vectors =
        || -> Result<Vec<Tensor>> { Ok(vec![spread([2], -2.0, 2.0)?, spread([3], -1.0, 1.0)?, spread([], 0.0, 1.0)?]) };
    Ok(vec![
        sample![vectors()?],
        sample![vectors()?; indexing = "xy"],
        sample![vec![spread([3], -1.0, 1.0)?]; indexing = "xy"],
        sample![vec![spread([2], -1.0, 1.0)?, spread([0], -1.0, 1.0)?]],
    ])
}

fn meshgrid_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no tensors", "must not be empty"; sample![Vec::<Tensor>::new()]],
        error!["a matrix", "[2, 3]"; sample![vec![normal([2, 3], 1)?]]],
    ])
}
