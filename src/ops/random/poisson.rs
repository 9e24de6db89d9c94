//! Random numbers from the Poisson distribution.

use crate::backend::kernel;
use crate::error::bail;
use crate::ops::create::constants::{Distribution, random_tensor};
use crate::ops::ops;
use crate::ops::reduce::sums::float_only;
use crate::ops::sample::{ErrorCase, Sample, error, ints, sample, spread};
use crate::{DType, Result, Tensor, random};

/// The largest rate: f64 represents all integers near it exactly.
const LARGEST: f64 = 1e15;

/// # Poisson and binomial draws
#[ops]
impl Tensor {
    /// Random numbers from the Poisson distribution. Each element is a rate.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0])?.poisson()?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a rate is negative, NaN or above 1e15, or the tensor is not floating point.
    #[op(samples = samples, errors = errors, derivative = none, random)]
    pub fn poisson(&self) -> Result<Tensor> {
        float_only("poisson", self)?;
        let rates = self.detach().to_dtype(DType::F64)?.contiguous()?;
        let outside = rates.ge(0.0)?.logical_and(rates.le(LARGEST)?)?.logical_not()?;
        if outside.any(..)?.item::<bool>()? {
            let rate = rates.masked_select(&outside)?.select(0, 0)?.item::<f64>()?;
            bail!(Value, "poisson", "rates must be in [0, {LARGEST:e}], got {rate}");
        }
        // A seed per element, since the number of draws that an element takes is not known in advance.
        let (shape, options) = (self.layout().shape(), (DType::I64, self.device()));
        let seeds = Distribution::Integers(i64::MIN, i64::MAX);
        let seeds = random_tensor("poisson", shape.clone(), options.into(), seeds, random::next_range)?;
        let out = Tensor::build("poisson", shape.clone(), DType::F64, self.device(), |out| {
            let (rates, seeds) = (rates.as_view()?, seeds.as_view()?);
            kernel!("poisson" on [rates, seeds, out]: elementwise::poisson::poisson(rates, seeds, out))
        })?;
        Ok(out.to_dtype(self.dtype())?.record_barrier("poisson", &[self]))
    }
}

fn samples() -> Result<Vec<Sample>> {
    Ok(vec![sample![spread([2, 3], 0.0, 50.0)?], sample![spread([], 1.0, 2.0)?], sample![spread([0], 1.0, 2.0)?]])
}

fn errors() -> Result<Vec<ErrorCase>> {
    Ok(vec![
        error!["a negative rate", "-1"; sample![spread([], -1.0, -0.999)?.floor()?]],
        error!["integers", "i64"; sample![ints(&[1], [1])?]],
    ])
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn mean_and_variance_are_the_rate() -> Result<()> {
        for rate in [0.3, 4.0, 9.9, 10.1, 60.0, 1e6, 1e12] {
            let rates = Tensor::full_with([20_000], rate, DType::F64)?;
            let x = crate::with_generator(&mut crate::Generator::seed(5), || rates.poisson())?;
            let (mean, var) = (x.mean(..)?.item::<f64>()?, x.var(..)?.item::<f64>()?);
            assert!((mean - rate).abs() < 5.0 * (rate / 20_000.0).sqrt(), "{mean} for {rate}");
            assert!((var / rate - 1.0).abs() < 0.08, "{var} for {rate}");
        }
        Ok(())
    }
}
