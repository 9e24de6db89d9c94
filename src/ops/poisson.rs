//! Random numbers with the Poisson distribution.

use super::create::{Distribution, random_tensor};
use super::ops;
use super::reduce::float_only;
use super::sample::{ErrorCase, Sample, error, ints, sample, spread};
use crate::error::bail;
use crate::{DType, Device, Result, Tensor, random};

/// Numbers from one seed, for one element: SplitMix64.
struct Stream(u64);

impl Stream {
    /// From 0 up to but without 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A number of events that happen at a rate.
fn draw(rate: f64, stream: &mut Stream) -> f64 {
    if rate == 0.0 {
        return 0.0;
    }
    if rate < 10.0 {
        // Events in turn, until the time is over.
        let (end, mut product, mut count) = ((-rate).exp(), stream.next(), 0.0);
        while product > end {
            product *= stream.next();
            count += 1.0;
        }
        return count;
    }
    // Hörmann's transformed rejection, which takes 1.1 to 1.2 rounds.
    let log_rate = rate.ln();
    let b = 0.931 + 2.53 * rate.sqrt();
    let a = -0.059 + 0.024_83 * b;
    let inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
    let v_r = 0.9277 - 3.6224 / (b - 2.0);
    loop {
        let (u, v) = (stream.next() - 0.5, stream.next());
        let us = 0.5 - u.abs();
        let k = ((2.0 * a / us + b) * u + rate + 0.43).floor();
        if us >= 0.07 && v <= v_r {
            return k;
        }
        if k < 0.0 || (us < 0.013 && v > us) {
            continue;
        }
        let accepted = v.ln() + inverse_alpha.ln() - (a / (us * us) + b).ln();
        if accepted <= k * log_rate - rate - libm::lgamma(k + 1.0) {
            return k;
        }
    }
}

/// # Numbers of events
#[ops]
impl Tensor {
    /// A random number from the Poisson distribution with each element as its rate, in this tensor's dtype. It is
    /// drawn on the CPU, also for a tensor on a GPU, which is brought there and back.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// assert_eq!(tensor!([0.0])?.poisson()?.to_vec::<f32>()?, [0.0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If a rate is negative or NaN, or these are not of floating point.
    #[op(samples = samples, errors = errors, derivative = none, random)]
    pub fn poisson(&self) -> Result<Tensor> {
        float_only("poisson", self)?;
        let rates = self.detach().to_dtype(DType::F64)?.to_device(Device::Cpu)?.to_vec::<f64>()?;
        if let Some(rate) = rates.iter().find(|&&rate| !(0.0..=1e15).contains(&rate)) {
            bail!(Value, "poisson", "a rate of {rate} is not between 0 and 1e15");
        }
        // A seed for each element, so that the numbers do not depend on the device.
        let seeds = Distribution::Integers(i64::MIN, i64::MAX);
        let seeds = random_tensor("poisson", rates.len().into(), DType::I64.into(), seeds, random::next_range)?;
        let draws = seeds.to_vec::<i64>()?.into_iter().zip(rates).map(|(seed, rate)| draw(rate, &mut Stream(seed as u64)));
        let out = Tensor::empty("poisson", self.layout().shape().clone(), DType::F64, Device::Cpu)?.filled_from(draws)?;
        Ok(out.to_dtype(self.dtype())?.to_device(self.device())?.record_barrier("poisson", &[self]))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_variance_are_the_rate() -> Result<()> {
        crate::manual_seed(5);
        for rate in [0.3, 4.0, 9.9, 10.1, 60.0, 1e6] {
            let x = Tensor::full_with([20_000], rate, DType::F64)?.poisson()?;
            let (mean, var) = (x.mean(..)?.item::<f64>()?, x.var(..)?.item::<f64>()?);
            assert!((mean - rate).abs() < 5.0 * (rate / 20_000.0).sqrt(), "{mean} for {rate}");
            assert!((var / rate - 1.0).abs() < 0.08, "{var} for {rate}");
        }
        Ok(())
    }
}
