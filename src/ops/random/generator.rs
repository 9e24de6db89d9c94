//! Random tensors from a user-created generator.

use crate::error::{bail, named};
use crate::ops::create::constants::{Distribution, random_tensor};
use crate::tensor::batch::{VmapRandomness, running};
use crate::{Generator, Result, Shape, Tensor, TensorOptions};

/// Draws from this generator: the same seed gives the same numbers, independent of all other draws.
///
/// ```
/// use cotangent::Generator;
/// let a = Generator::seed(42).randn([3])?;
/// let b = Generator::seed(42).randn([3])?;
/// assert_eq!(a.to_vec::<f32>()?, b.to_vec::<f32>()?);
/// # Ok::<(), cotangent::Error>(())
/// ```
impl Generator {
    /// As [`Tensor::rand`].
    ///
    /// ```
    /// # use cotangent::Generator;
    /// assert_eq!(Generator::seed(1).rand([3])?.shape(), [3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::rand`].
    #[track_caller]
    pub fn rand(&mut self, shape: impl Into<Shape>) -> Result<Tensor> {
        self.rand_with(shape, TensorOptions::new())
    }

    /// As [`Tensor::rand_with`]. The numbers are the same on every device.
    ///
    /// ```
    /// # use cotangent::{DType, Generator};
    /// assert_eq!(Generator::seed(1).rand_with([3], DType::F64)?.dtype(), DType::F64);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::rand`].
    #[track_caller]
    pub fn rand_with(&mut self, shape: impl Into<Shape>, options: impl Into<TensorOptions>) -> Result<Tensor> {
        self.draw("rand", shape.into(), options.into(), Distribution::Uniform)
    }

    /// As [`Tensor::randn`].
    ///
    /// ```
    /// # use cotangent::Generator;
    /// assert_eq!(Generator::seed(1).randn([2, 3])?.shape(), [2, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::randn`].
    #[track_caller]
    pub fn randn(&mut self, shape: impl Into<Shape>) -> Result<Tensor> {
        self.randn_with(shape, TensorOptions::new())
    }

    /// As [`Tensor::randn_with`]. The numbers are the same on every device.
    ///
    /// ```
    /// # use cotangent::{DType, Generator};
    /// assert_eq!(Generator::seed(1).randn_with([3], DType::BF16)?.dtype(), DType::BF16);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tensor::randn`].
    #[track_caller]
    pub fn randn_with(&mut self, shape: impl Into<Shape>, options: impl Into<TensorOptions>) -> Result<Tensor> {
        self.draw("randn", shape.into(), options.into(), Distribution::Normal)
    }

    /// As [`Tensor::randint`].
    ///
    /// ```
    /// # use cotangent::Generator;
    /// assert!((0..10).contains(&Generator::seed(1).randint(0, 10, ())?.item::<i64>()?));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no integer in that range.
    #[track_caller]
    pub fn randint(&mut self, low: i64, high: i64, shape: impl Into<Shape>) -> Result<Tensor> {
        self.randint_with(low, high, shape, TensorOptions::new())
    }

    /// [`randint`](Self::randint) with a dtype, a device, or both: see [`TensorOptions`].
    ///
    /// ```
    /// use cotangent::{DType, Generator};
    /// assert_eq!(Generator::seed(1).randint_with(0, 10, [3], DType::U8)?.dtype(), DType::U8);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`randint`](Self::randint); also if there is no such device.
    #[track_caller]
    pub fn randint_with(
        &mut self,
        low: i64,
        high: i64,
        shape: impl Into<Shape>,
        options: impl Into<TensorOptions>,
    ) -> Result<Tensor> {
        let integers = Distribution::Integers(low, high);
        self.draw("randint", shape.into(), options.into(), integers)
    }

    #[track_caller]
    fn draw(
        &mut self,
        op: &'static str,
        shape: Shape,
        options: TensorOptions,
        numbers: Distribution,
    ) -> Result<Tensor> {
        check_own_generator(op)?;
        named(op, random_tensor(op, shape, options, numbers, |n| self.take(n)))
    }
}

/// Refuses draws from a user-created generator inside `vmap`, unless all examples get the same numbers: only the generator of
/// the thread can draw different ones.
fn check_own_generator(op: &'static str) -> Result<()> {
    match running().map(|running| running.randomness) {
        None | Some(VmapRandomness::Same) => Ok(()),
        Some(asked) => bail!(
            Value,
            op,
            "a Generator inside vmap requires VmapRandomness::Same, got {asked:?}: use the methods of Tensor for different \
             numbers"
        ),
    }
}
