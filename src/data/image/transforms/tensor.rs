//! Conversion of images to tensors, and normalization.

use super::Transform;
use crate::data::Image;
use crate::error::bail;
use crate::{DType, Result, Tensor};
use cotangent_macros::named;

/// Converts an image to a tensor: `[channels, height, width]`, `f32` from 0 to 1.
///
/// ```
/// use cotangent::data::{Image, transforms::{ToTensor, Transform}};
/// let x = ToTensor.apply(Image::new(vec![0, 255], 1, 2, 1)?)?;
/// assert_eq!((x.shape(), x.to_vec::<f32>()?), (&[1, 1, 2][..], vec![0.0, 1.0]));
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ToTensor;

impl Transform<Image> for ToTensor {
    type Output = Tensor;

    fn apply(&self, image: Image) -> Result<Tensor> {
        image.to_tensor()
    }
}

/// Normalizes each channel of a tensor `[.., channels, height, width]`: (x − mean) / std.
///
/// ```
/// use cotangent::{Tensor, data::transforms::{Normalize, Transform}};
/// let x = Normalize::new([0.5], [0.25])?.apply(Tensor::ones([1, 2, 2])?)?;
/// assert_eq!(x.to_vec::<f32>()?, [2.0; 4]);
/// # Ok::<(), cotangent::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Normalize {
    mean: Tensor,
    std: Tensor,
}

impl Normalize {
    /// With a mean and a standard deviation for each channel.
    ///
    /// # Errors
    /// If the lengths differ or are 0, or a standard deviation is 0 or not finite.
    #[named("Normalize::new")]
    pub fn new(mean: impl Into<Vec<f64>>, std: impl Into<Vec<f64>>) -> Result<Normalize> {
        let (mean, std) = (mean.into(), std.into());
        if mean.len() != std.len() || mean.is_empty() || std.iter().any(|&x| x == 0.0 || !x.is_finite()) {
            bail!(
                Value,
                "Normalize::new",
                "mean and std must have one value per channel, std finite and not 0, got {mean:?} and {std:?}"
            );
        }
        let tensor = |x: Vec<f64>| {
            let n = x.len();
            Tensor::from_vec(x, [n, 1, 1])?.to_dtype(DType::F32)
        };
        Ok(Normalize { mean: tensor(mean)?, std: tensor(std)? })
    }
}

impl Transform<Tensor> for Normalize {
    type Output = Tensor;

    fn apply(&self, x: Tensor) -> Result<Tensor> {
        let channels = self.mean.numel();
        if x.rank() < 3 || x.shape()[x.rank() - 3] != channels || !x.dtype().is_float() {
            let (dtype, shape) = (x.dtype(), x.shape());
            bail!(
                Shape,
                "Normalize",
                "input must be floating point of shape [.., {channels}, height, width], got {dtype}{shape:?}"
            );
        }
        let (mean, std) = (self.mean.to_dtype(x.dtype())?, self.std.to_dtype(x.dtype())?);
        x.sub(&mean.to_device(x.device())?)?.div(&std.to_device(x.device())?)
    }
}
