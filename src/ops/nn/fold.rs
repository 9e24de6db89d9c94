//! The sliding windows of an image as columns (`im2col`), and its transpose (`fold`).

use crate::error::bail;
use crate::layout::Sizes;
use crate::ops::index::gather::index_vector;
use crate::ops::nn::conv::{each, spatial};
use crate::ops::nn::pool::{Frame, check_rank, image};
use crate::ops::ops;
use crate::ops::sample::{ErrorCase, Sample, error, normal, sample};
use crate::options::options;
use crate::{Result, Shape, Tensor};

options! {
    /// The options of [`Tensor::im2col_with`] and [`Tensor::fold_with`].
    ///
    /// ```
    /// use cotangent::{Tensor, options::FoldOptions};
    /// let x = Tensor::ones([1, 2, 4, 4])?;
    /// assert_eq!(x.im2col_with([2, 2], FoldOptions::new().stride(2))?.shape(), [1, 8, 4]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub struct FoldOptions {
        /// The spacing between the elements of a window.
        dilation: Sizes = Sizes::from(1),
        /// The zero padding on both sides.
        padding: Sizes = Sizes::from(0),
        /// The stride of the windows.
        stride: Sizes = Sizes::from(1),
    }
}

/// # Unfold and fold
#[ops]
impl Tensor {
    /// The sliding windows of an image `[batch, channels, height, width]`, as columns: `[batch, channels · window
    /// elements, windows]`. The batch dimension may be missing. It is `torch.nn.functional.unfold`;
    /// [`unfold`](Self::unfold) is for one dimension.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::arange(0, 6)?.reshape([1, 2, 3])?;
    /// assert_eq!(x.im2col([2, 2])?.to_vec::<i64>()?, [0, 1, 1, 2, 3, 4, 4, 5]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the input has the wrong rank, or no window fits.
    #[doc(alias = "unfold")]
    #[op(samples = im2col_samples, errors = im2col_errors)]
    pub fn im2col(&self, kernel_size: impl Into<Sizes>, options: impl Into<FoldOptions>) -> Result<Tensor> {
        let grid = Grid::new("im2col", spatial_of("im2col", self)?, &kernel_size, &options)?;
        grid.columns(self)
    }

    /// The transpose of [`im2col`](Self::im2col): adds up columns `[batch, channels · window elements, windows]` into
    /// an image of `output_size`.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let columns = Tensor::ones([1, 4, 2])?;
    /// assert_eq!(columns.fold([2, 3], [2, 2])?.to_vec::<f32>()?, [1.0, 2.0, 1.0, 1.0, 2.0, 1.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the shape of the columns does not match `output_size` and the windows.
    #[doc(alias = "col2im")]
    #[op(samples = fold_samples, errors = fold_errors, aliases = ["col2im"])]
    pub fn fold(
        &self,
        output_size: impl Into<Sizes>,
        kernel_size: impl Into<Sizes>,
        options: impl Into<FoldOptions>,
    ) -> Result<Tensor> {
        let [_, h, w] = each("fold", "output_size", &output_size.0, 2, 1, 1)?;
        Grid::new("fold", [h, w], &kernel_size, &options)?.image(self)
    }
}

fn spatial_of(op: &'static str, x: &Tensor) -> Result<[usize; 2]> {
    check_rank(op, x, 2)?;
    let [_, h, w] = spatial(x.shape(), 2);
    Ok([h, w])
}

/// The windows of an image, for [`im2col`](Tensor::im2col) and [`fold`](Tensor::fold).
struct Grid {
    op: &'static str,
    frame: Frame,
    size: [usize; 2],
    count: [usize; 2],
}

impl Grid {
    fn new(op: &'static str, size: [usize; 2], kernel: &Sizes, options: &FoldOptions) -> Result<Grid> {
        let frame = Frame::new(op, 2, kernel, &options.stride, &options.padding, &options.dilation)?;
        let mut count = [0; 2];
        for dim in 0..2 {
            let wide = |x: &[usize; 3]| x[dim + 1] as i128;
            let span = (wide(&frame.kernel) - 1) * wide(&frame.dilation) + 1;
            let padded = size[dim] as i128 + 2 * wide(&frame.pad);
            if span > padded || padded > isize::MAX as i128 {
                bail!(
                    Shape,
                    op,
                    "a kernel that spans {span} elements does not fit size {} with padding {} on both sides",
                    size[dim],
                    frame.pad[dim + 1]
                );
            }
            count[dim] = ((padded - span) / wide(&frame.stride)) as usize + 1;
        }
        Ok(Grid { op, frame, size, count })
    }

    /// The positions of all window elements along a dimension, ordered by element and then by window.
    fn positions(&self, dim: usize, like: &Tensor) -> Result<Tensor> {
        let (kernel, count) = (self.frame.kernel[dim + 1], self.count[dim]);
        let (dilation, stride) = (self.frame.dilation[dim + 1], self.frame.stride[dim + 1]);
        let all = (0..kernel).flat_map(|k| (0..count).map(move |o| k * dilation + o * stride));
        index_vector(self.op, kernel.saturating_mul(count), all)?.to_device(like.device())
    }

    fn pad(&self, dim: usize) -> isize {
        self.frame.pad[dim + 1] as isize
    }

    #[track_caller]
    fn columns(&self, x: &Tensor) -> Result<Tensor> {
        let [_, kh, kw] = self.frame.kernel;
        let [oh, ow] = self.count;
        let (h, w) = (self.pad(0), self.pad(1));
        let x = if (h, w) == (0, 0) { x.clone() } else { x.pad(&[w, w, h, h])? };
        let x = x.index_select(-1, &self.positions(1, &x)?)?.unflatten(-1, [kw, ow])?;
        let x = x.index_select(-3, &self.positions(0, &x)?)?.unflatten(-3, [kh, oh])?;
        // From [channels, kh, oh, kw, ow].
        x.transpose(-3, -2)?.flatten(-2, -1)?.flatten(-4, -2)
    }

    #[track_caller]
    fn image(&self, x: &Tensor) -> Result<Tensor> {
        let [_, kh, kw] = self.frame.kernel;
        let [oh, ow] = self.count;
        let fits = match *x.shape() {
            [rows, columns] | [_, rows, columns] => {
                rows.is_multiple_of(kh.saturating_mul(kw)) && Some(columns) == oh.checked_mul(ow)
            }
            _ => false,
        };
        if !fits {
            let (shape, size) = (x.shape(), self.size);
            bail!(
                Shape,
                self.op,
                "input must have shape [batch, channels · {}, {}] for output_size {size:?}, got {shape:?}",
                kh.saturating_mul(kw),
                oh.saturating_mul(ow)
            );
        }
        let channels = x.shape()[x.rank() - 2] / (kh * kw);
        let x = x.unflatten(-1, [oh, ow])?.unflatten(-3, [channels, kh, kw])?;
        let x = x.transpose(-3, -2)?;
        let added = |x: Tensor, dim: isize, at: usize| -> Result<Tensor> {
            let size = self.size[at] + 2 * self.frame.pad[at + 1];
            let mut shape: Shape = x.shape().into();
            let position = shape.len().wrapping_add_signed(dim);
            shape = shape.with(position, size);
            let zeros = Tensor::zeros_with(&shape, (x.dtype(), x.device()))?;
            zeros.index_add(dim, &self.positions(at, &x)?, &x)?.narrow(dim, self.pad(at), self.size[at])
        };
        let x = added(x.flatten(-2, -1)?, -1, 1)?;
        added(x.flatten(-3, -2)?, -2, 0)
    }
}

fn im2col_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![image(2, 2, 2)?, vec![2, 3]],
        sample![image(1, 2, 2)?.select(0, 0)?, 2; stride = 2],
        sample![image(1, 1, 2)?, vec![2, 2]; padding = vec![1, 0], dilation = 2],
        sample![image(0, 2, 2)?, 2],
    ])
}

fn im2col_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["another rank", "[3]"; sample![normal([3], 1)?, 2]],
        error!["windows larger than the image", "9"; sample![image(1, 2, 2)?, 9]],
        error!["an empty window", "kernel_size", "[0]"; sample![image(1, 2, 2)?, 0]],
    ])
}

fn fold_samples() -> Result<Vec<Sample>> {
    Ok(vec![
        sample![normal([2, 8, 12], 1)?, vec![4, 5], 2],
        sample![normal([4, 4], 1)?, vec![4, 5], 2; stride = 2],
        sample![normal([1, 6, 9], 1)?, vec![4, 5], vec![2, 3]; padding = vec![1, 0], dilation = vec![3, 1]],
        sample![normal([0, 4, 12], 1)?, vec![4, 5], 2],
    ])
}

fn fold_errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["another rank", "[3]"; sample![normal([3], 1)?, vec![4, 5], 2]],
        error!["too few columns", "[2, 8, 11]", "12"; sample![normal([2, 8, 11], 1)?, vec![4, 5], 2]],
        error!["rows that are no windows", "[2, 7, 12]"; sample![normal([2, 7, 12], 1)?, vec![4, 5], 2]],
        error!["windows larger than the image", "9"; sample![normal([2, 8, 12], 1)?, vec![4, 5], 9]],
    ])
}
