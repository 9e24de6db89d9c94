//! Conversion to and from arrays of the crate `ndarray`.

use crate::error::{err, named};
use crate::{Element, Result, Tensor};
use cotangent_macros::named;
use ndarray::{ArrayBase, ArrayD, Data, Dimension, IxDyn};

/// A tensor with the elements of an array or array view, of exactly their type.
///
/// ```
/// use cotangent::Tensor;
/// let array = ndarray::array![[1.0_f32, 2.0], [3.0, 4.0]];
/// let x = Tensor::try_from(&array)?;
/// assert_eq!(x.shape(), [2, 2]);
/// assert_eq!(Tensor::try_from(&array.t())?.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
/// # Ok::<(), cotangent::Error>(())
/// ```
impl<S: Data<Elem: Element>, D: Dimension> TryFrom<&ArrayBase<S, D>> for Tensor {
    type Error = crate::Error;

    #[track_caller]
    fn try_from(array: &ArrayBase<S, D>) -> Result<Tensor> {
        let made = match array.as_slice() {
            Some(in_order) => Tensor::from_slice(in_order, array.shape()),
            None => Tensor::from_vec(array.iter().copied().collect(), array.shape()),
        };
        named("try_from", made)
    }
}

/// # Conversion to ndarray
impl Tensor {
    /// The elements as an array of `ndarray`, in row-major order. The dtype is not cast.
    ///
    /// ```
    /// let x = cotangent::tensor!([[1.0, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(x.t()?.to_ndarray::<f32>()?, ndarray::array![[1.0, 3.0], [2.0, 4.0]].into_dyn());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `T` is not the type of the elements, or memory runs out.
    #[named]
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>> {
        let values = self.to_vec::<T>()?;
        ArrayD::from_shape_vec(IxDyn(self.shape()), values)
            .map_err(|error| err!(Shape, "to_ndarray", "cannot make an array of shape {:?}: {error}", self.shape()))
    }
}
