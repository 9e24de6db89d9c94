//! Stacking by rows, columns and blocks, Cartesian products and combinations, and splitting.

use crate::error::{bail, err};
use crate::layout::{Cuts, resolve_dim};
use crate::layout::{Dim, Sections, Slice};
use crate::memory::scratch::{for_handles, with_room};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample, spread};
use crate::options::MeshIndexing;
use crate::{DType, Device, Result, Shape, Tensor};

/// Applies `change` to each tensor.
fn each(op: &'static str, tensors: &[&Tensor], change: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Vec<Tensor>> {
    if tensors.is_empty() {
        bail!(Shape, op, "tensors must not be empty");
    }
    tensors.iter().map(|x| change(x)).collect()
}

/// Splits dimension `dim` into [`Sections`], which must have equal sizes if `evenly` is true.
#[track_caller]
fn sections(op: &'static str, x: &Tensor, sections: &Sections, dim: usize, evenly: bool) -> Result<Vec<Tensor>> {
    let size = x.shape()[dim];
    match &sections.0 {
        Cuts::Parts(parts) => {
            let Some(count) = usize::try_from(*parts).ok().filter(|&count| count > 0) else {
                bail!(Value, op, "indices_or_sections must be positive, got {parts}");
            };
            if evenly && !size.is_multiple_of(count) {
                let shape = x.shape();
                bail!(
                    Shape,
                    op,
                    "cannot split size {size} of dimension {dim} of shape {shape:?} into {count} equal parts"
                );
            }
            let mut all = for_handles(op, count)?;
            let mut start = 0;
            for at in 0..count {
                let len = size / count + usize::from(at < size % count);
                all.push(x.narrow(dim, start, len)?);
                start += len;
            }
            Ok(all)
        }
        Cuts::At(positions) => {
            let mut all = for_handles(op, positions.len() + 1)?;
            let mut start = 0;
            for &end in positions {
                all.push(x.slice(dim, Slice::new(start, end))?);
                start = end;
            }
            all.push(x.slice(dim, Slice::new(start, None))?);
            Ok(all)
        }
    }
}

/// # Stacking
#[ops]
impl Tensor {
    /// Stacks tensors horizontally: concatenates vectors, and other tensors along the second dimension.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (a, b) = (tensor!([[1], [2]])?, tensor!([[3], [4]])?);
    /// assert_eq!(Tensor::hstack(&[&a, &b])?.to_vec::<i64>()?, [1, 3, 2, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no tensors, or the shapes do not match.
    #[op(samples = hstack_samples, errors = stack_errors)]
    pub fn hstack(tensors: &[impl AsRef<Tensor>]) -> Result<Tensor> {
        let all = each("hstack", tensors, Tensor::atleast_1d)?;
        Tensor::cat(&all, usize::from(all[0].rank() > 1))
    }

    /// Stacks tensors vertically, along the first dimension; vectors become rows.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (a, b) = (tensor!([1, 2])?, tensor!([3, 4])?);
    /// assert_eq!(Tensor::vstack(&[&a, &b])?.shape(), [2, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no tensors, or the shapes do not match.
    #[doc(alias = "row_stack")]
    #[op(samples = vstack_samples, errors = stack_errors, aliases = ["row_stack"])]
    pub fn vstack(tensors: &[impl AsRef<Tensor>]) -> Result<Tensor> {
        Tensor::cat(&each("vstack", tensors, Tensor::atleast_2d)?, 0)
    }

    /// Stacks tensors along the third dimension.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (a, b) = (tensor!([1, 2])?, tensor!([3, 4])?);
    /// assert_eq!(Tensor::dstack(&[&a, &b])?.to_vec::<i64>()?, [1, 3, 2, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no tensors, or the shapes do not match.
    #[op(samples = vstack_samples, errors = stack_errors)]
    pub fn dstack(tensors: &[impl AsRef<Tensor>]) -> Result<Tensor> {
        Tensor::cat(&each("dstack", tensors, Tensor::atleast_3d)?, 2)
    }

    /// Stacks tensors horizontally; vectors become columns.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let (a, b) = (tensor!([1, 2])?, tensor!([3, 4])?);
    /// assert_eq!(Tensor::column_stack(&[&a, &b])?.to_vec::<i64>()?, [1, 3, 2, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no tensors, or the shapes do not match.
    #[op(samples = column_stack_samples, errors = stack_errors)]
    pub fn column_stack(tensors: &[impl AsRef<Tensor>]) -> Result<Tensor> {
        let column = |x: &Tensor| if x.rank() < 2 { x.reshape([x.numel(), 1]) } else { Ok(x.clone()) };
        Tensor::cat(&each("column_stack", tensors, column)?, 1)
    }

    /// A block diagonal matrix of the tensors, with zeros elsewhere. A vector is a block of one row.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = Tensor::block_diag(&[tensor!([[1], [2]])?, tensor!([3, 4])?])?;
    /// assert_eq!(x.to_vec::<i64>()?, [1, 0, 0, 2, 0, 0, 0, 3, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no tensors, or one has more than two dimensions.
    #[op(samples = block_diag_samples, errors = block_diag_errors)]
    pub fn block_diag(tensors: &[impl AsRef<Tensor>]) -> Result<Tensor> {
        if let Some(x) = tensors.iter().find(|x| x.rank() > 2) {
            bail!(Shape, "block_diag", "tensors must have at most 2 dimensions, got shape {:?}", x.shape());
        }
        let blocks = each("block_diag", tensors, Tensor::atleast_2d)?;
        let width = blocks.iter().fold(0_isize, |sum, x| sum.saturating_add_unsigned(x.shape()[1]));
        let mut before = 0;
        let mut rows = for_handles("block_diag", blocks.len())?;
        for block in &blocks {
            let own = block.shape()[1] as isize;
            rows.push(block.pad(&[before, width - before - own])?);
            before += own;
        }
        Tensor::cat(&rows, 0)
    }

    /// The Cartesian product of vectors: all tuples with one element of each, as rows. One vector is returned
    /// unchanged.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let rows = Tensor::cartesian_prod(&[tensor!([1, 2])?, tensor!([3, 4])?])?;
    /// assert_eq!(rows.to_vec::<i64>()?, [1, 3, 1, 4, 2, 3, 2, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are no tensors, or one is not a vector.
    #[op(samples = cartesian_samples, errors = cartesian_errors)]
    pub fn cartesian_prod(tensors: &[impl AsRef<Tensor>]) -> Result<Tensor> {
        if let Some(x) = tensors.iter().find(|x| x.rank() != 1) {
            bail!(Shape, "cartesian_prod", "tensors must be vectors, got shape {:?}", x.shape());
        }
        if let [only] = tensors {
            return Ok((*only).clone());
        }
        let rows: usize = tensors.iter().fold(1, |rows, x| rows.saturating_mul(x.numel()));
        Tensor::stack(&Tensor::meshgrid(tensors, MeshIndexing::Ij)?, -1)?.reshape([rows, tensors.len()])
    }

    /// All combinations of `r` elements of a vector, as rows.
    ///
    /// ```
    /// # use cotangent::tensor;
    /// let x = tensor!([1, 2, 3])?;
    /// assert_eq!(x.combinations(2, false)?.to_vec::<i64>()?, [1, 2, 1, 3, 2, 3]);
    /// assert_eq!(x.combinations(2, true)?.shape(), [6, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor is not a vector, or memory runs out.
    #[op(samples = combinations_samples, errors = combinations_errors)]
    pub fn combinations(&self, #[default(2)] r: usize, #[default(false)] with_replacement: bool) -> Result<Tensor> {
        const OP: &str = "combinations";
        if self.rank() != 1 {
            bail!(Shape, OP, "input must be a vector, got shape {:?}", self.shape());
        }
        let n = self.numel();
        if r == 0 {
            return self.narrow(0, 0, 0);
        }
        let rows = number_of_combinations(n, r, with_replacement);
        let rows = usize::try_from(rows).ok().filter(|rows| rows.checked_mul(r).is_some());
        let rows = rows.ok_or_else(|| err!(Shape, OP, "too many combinations of {r} out of {n} elements"))?;
        let index = Tensor::empty(OP, (rows * r).into(), DType::I64, Device::Cpu)?;
        // Lexicographic order: the next combination advances the last place that can still grow.
        let first = |position: usize| if with_replacement { 0 } else { position };
        let last = |position: usize| if with_replacement { n - 1 } else { n - r + position };
        let mut row = if rows == 0 { Vec::new() } else { with_room::<usize>(OP, r)? };
        row.extend((0..r.min(row.capacity())).map(first));
        let mut at = 0;
        let next = || {
            if at == r {
                at = 0;
                let position = (0..r).rev().find(|&position| row[position] < last(position)).unwrap_or(0);
                let next = row[position] + 1;
                (position..r).for_each(|p| row[p] = if with_replacement { next } else { next + p - position });
            }
            at += 1;
            row[at - 1] as i64
        };
        let index = index.filled_from(std::iter::repeat_with(next).take(rows * r))?;
        self.index_select(0, &index.to_device(self.device())?)?.reshape([rows, r])
    }

    /// Splits a dimension into a number of parts, the first of which are longer by 1 if it does not divide evenly, or
    /// before each of the given indices.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::arange(0, 5)?;
    /// let parts = x.tensor_split(3, 0)?;
    /// assert_eq!(parts.iter().map(Tensor::numel).collect::<Vec<_>>(), [2, 2, 1]);
    /// assert_eq!(x.tensor_split([1, 4], 0)?[1].to_vec::<i64>()?, [1, 2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or the number of parts is not positive.
    #[doc(alias = "array_split")]
    #[op(samples = tensor_split_samples, errors = tensor_split_errors, outputs = [tensors], view)]
    pub fn tensor_split(
        &self,
        indices_or_sections: impl Into<Sections>,
        #[default(0)] dim: impl Into<Dim>,
    ) -> Result<Vec<Tensor>> {
        let dim = resolve_dim("tensor_split", dim.0, self.rank())?;
        sections("tensor_split", self, &indices_or_sections, dim, false)
    }

    /// [`tensor_split`](Self::tensor_split) into equal parts along the second dimension, or the first of a vector.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([2, 6])?.hsplit(3)?[0].shape(), [2, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the tensor is 0-dimensional, or the parts would not be equal.
    #[op(samples = || split_samples(&[&[2, 4], &[4], &[2, 4, 3]]), errors = || split_errors(&[2, 3]), outputs = [tensors], view)]
    pub fn hsplit(&self, indices_or_sections: impl Into<Sections>) -> Result<Vec<Tensor>> {
        let dim = resolve_dim("hsplit", isize::from(self.rank() > 1), self.rank())?;
        sections("hsplit", self, &indices_or_sections, dim, true)
    }

    /// [`tensor_split`](Self::tensor_split) into equal parts along the first dimension of a tensor with at least 2.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([6, 2])?.vsplit(3)?[0].shape(), [2, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are fewer than two dimensions, or the parts would not be equal.
    #[op(samples = || split_samples(&[&[4, 2], &[2, 0]]), errors = || split_errors(&[3, 2]), outputs = [tensors], view)]
    pub fn vsplit(&self, indices_or_sections: impl Into<Sections>) -> Result<Vec<Tensor>> {
        resolve_dim("vsplit", 1, self.rank())?;
        sections("vsplit", self, &indices_or_sections, 0, true)
    }

    /// [`tensor_split`](Self::tensor_split) into equal parts along the third dimension.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([1, 2, 6])?.dsplit(3)?[0].shape(), [1, 2, 2]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are fewer than three dimensions, or the parts would not be equal.
    #[op(samples = || split_samples(&[&[2, 1, 4]]), errors = || split_errors(&[1, 2, 3]), outputs = [tensors], view)]
    pub fn dsplit(&self, indices_or_sections: impl Into<Sections>) -> Result<Vec<Tensor>> {
        let dim = resolve_dim("dsplit", 2, self.rank())?;
        sections("dsplit", self, &indices_or_sections, dim, true)
    }

    /// Splits a dimension into parts of the given sizes, which must sum to its size.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let parts = Tensor::arange(0, 5)?.split_with_sizes([1, 4], 0)?;
    /// assert_eq!(parts[1].to_vec::<i64>()?, [1, 2, 3, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such dimension, or the sizes do not sum to its size.
    #[op(samples = split_with_sizes_samples, errors = split_with_sizes_errors, outputs = [tensors], view, aliases = ["split_with_sizes_copy", "unsafe_split_with_sizes"])]
    pub fn split_with_sizes(
        &self,
        split_sizes: impl Into<Shape>,
        #[default(0)] dim: impl Into<Dim>,
    ) -> Result<Vec<Tensor>> {
        let dim = resolve_dim("split_with_sizes", dim.0, self.rank())?;
        let sum = split_sizes.iter().fold(0_usize, |sum, &size| sum.saturating_add(size));
        if sum != self.shape()[dim] {
            let shape = self.shape();
            bail!(
                Shape,
                "split_with_sizes",
                "split_sizes must sum to the size of dimension {dim} of shape {shape:?}, got {split_sizes:?}"
            );
        }
        let mut start = 0;
        let part = |&size: &usize| {
            start += size;
            self.narrow(dim, start - size, size)
        };
        split_sizes.iter().map(part).collect()
    }
}

/// The number of combinations of `r` out of `n`, or `u128::MAX` if it exceeds about 2^64.
fn number_of_combinations(n: usize, r: usize, with_replacement: bool) -> u128 {
    let n = n as u128 + if with_replacement && n > 0 { r as u128 - 1 } else { 0 };
    let r = r as u128;
    if r > n {
        return 0;
    }
    let mut count: u128 = 1;
    for k in 0..r.min(n - r) {
        // Divides evenly: the quotient is the number of ways to choose k + 1.
        match count.checked_mul(n - k) {
            Some(product) if product / (k + 1) <= 1 << 64 => count = product / (k + 1),
            _ => return u128::MAX,
        }
    }
    count
}

fn several(shapes: &[&[usize]]) -> Result<Vec<Tensor>> {
    shapes.iter().enumerate().map(|(i, &shape)| spread(shape, i as f64, i as f64 + 1.0)).collect()
}

fn hstack_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![several(&[&[3], &[2]])?],
        sample![several(&[&[2, 3], &[2, 1]])?],
        sample![several(&[&[], &[], &[2]])?],
        sample![several(&[&[2, 0, 2], &[2, 1, 2]])?],
    ])
}

fn vstack_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![several(&[&[3], &[3]])?],
        sample![several(&[&[2, 3], &[2, 3]])?],
        sample![several(&[&[], &[1]])?],
        sample![several(&[&[2, 2, 1]])?],
    ])
}

fn column_stack_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![several(&[&[3], &[3, 2], &[3]])?],
        sample![several(&[&[], &[1]])?],
        sample![several(&[&[2, 2, 2], &[2, 1, 2]])?],
    ])
}

fn stack_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no tensors", "must not be empty"; sample![Vec::<Tensor>::new()]],
        error!["shapes that do not fit", "must match"; sample![several(&[&[2, 3, 1], &[5, 4, 2]])?]],
    ])
}

fn block_diag_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![several(&[&[2, 3], &[1, 2], &[3, 1]])?],
        sample![several(&[&[], &[2], &[2, 2]])?],
        sample![several(&[&[2, 0], &[0, 1], &[1, 1]])?],
    ])
}

fn block_diag_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no tensors", "must not be empty"; sample![Vec::<Tensor>::new()]],
        error!["three dimensions", "[1, 2, 3]"; sample![several(&[&[2], &[1, 2, 3]])?]],
    ])
}

fn cartesian_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![several(&[&[2], &[3]])?],
        sample![several(&[&[2], &[1], &[2]])?],
        sample![several(&[&[3]])?],
        sample![several(&[&[2], &[0]])?],
    ])
}

fn cartesian_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["no tensors", "must not be empty"; sample![Vec::<Tensor>::new()]],
        error!["a matrix", "[2, 2]"; sample![several(&[&[2], &[2, 2]])?]],
    ])
}

fn combinations_samples() -> Result<Vec<Sample>> {
    let x = || spread([4], -2.0, 2.0);
    Ok(vec![
        sample![x()?],
        sample![x()?, 3],
        sample![x()?, 2, true],
        sample![x()?, 1],
        sample![x()?, 4],
        sample![x()?, 5].zero_derivative(),
        sample![x()?, 0].zero_derivative(),
        sample![spread([0], -2.0, 2.0)?, 2, true],
    ])
}

fn combinations_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["a matrix", "[2, 3]"; sample![normal([2, 3], 1)?]],
        error!["too many", "50", "200"; sample![normal([200], 1)?, 50]],
        error!["too many to hold", "memory"; sample![normal([100], 1)?, 10]],
    ])
}

fn tensor_split_samples() -> Result<Vec<Sample>> {
    let x = || spread([5, 4], -2.0, 2.0);
    Ok(vec![
        sample![x()?, 2],
        sample![x()?, 3, 1],
        sample![x()?, 7, -1],
        sample![x()?, [1, 3]],
        sample![x()?, [-2, 9], 1],
        sample![x()?, [3, 1]],
        sample![x()?, []],
        sample![spread([0, 2], -2.0, 2.0)?, 2],
    ])
}

fn tensor_split_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["no parts", "indices_or_sections", "0"; sample![&x, 0]],
        error!["no such dimension", "2"; sample![&x, 2, 2]],
        error!["more parts than memory holds", "out of memory"; sample![&x, isize::MAX]],
    ])
}

fn split_samples(shapes: &[&[usize]]) -> Result<Vec<Sample>> {
    let mut all = Vec::new();
    for &shape in shapes {
        all.push(sample![spread(shape, -2.0, 2.0)?, 2]);
        all.push(sample![spread(shape, -2.0, 2.0)?, [1, 2]]);
    }
    Ok(all)
}

fn split_errors(shape: &[usize]) -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["parts that are not equal", "3", "2"; sample![normal(shape, 1)?, 2]],
        error!["a single number", "rank 0"; sample![normal([], 1)?, 1]],
        error!["no parts", "0"; sample![normal(shape, 1)?, 0]],
    ])
}

fn split_with_sizes_samples() -> Result<Vec<Sample>> {
    let x = || spread([5, 4], -2.0, 2.0);
    Ok(vec![
        sample![x()?, [2, 3]],
        sample![x()?, [1, 0, 3], -1],
        sample![spread([0, 2], -2.0, 2.0)?, [0, 0]],
        sample![spread([0, 2], -2.0, 2.0)?, [0]],
    ])
}

fn split_with_sizes_errors() -> Result<Vec<ErrorCase>> {
    let x = normal([2, 3], 1)?;
    Ok(vec![
        error!["sizes that do not add up", "[1, 1]", "[2, 3]"; sample![&x, [1, 1], 1]],
        error!["a negative size", "split_sizes"; sample![&x, [-1, 4], 1]],
        error!["no such dimension", "2"; sample![&x, [2], 2]],
    ])
}
