//! Poisson random numbers. The GPU kernel takes the same steps, with sums, products and square roots that give the same bits
//! on every device, so that its numbers are the same.

use crate::Result;
use crate::backend::cpu::runtime::threads::{Ptr, parallel};
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::random::{ln, philox};
use std::f64::consts::TAU;

/// The fewest elements per thread.
const GRAIN: usize = 256;
/// Below this rate events are counted sequentially.
const FEW: f64 = 10.0;
/// Factorials of smaller numbers are computed exactly.
const EXACT: usize = 16;

/// The random numbers of one element, from its own key.
struct Stream {
    key: [u32; 2],
    counter: u32,
    second: Option<f64>,
}

impl Stream {
    fn new(seed: i64) -> Stream {
        Stream { key: [seed as u32, (seed as u64 >> 32) as u32], counter: 0, second: None }
    }

    /// The next uniform number in (0, 1].
    fn next(&mut self) -> f64 {
        if let Some(number) = self.second.take() {
            return number;
        }
        let words = philox([self.counter, 0, 0, 0], self.key);
        self.counter = self.counter.wrapping_add(1);
        let number = |low: u32, high: u32| {
            (((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 + 1.0) / (1_u64 << 53) as f64
        };
        self.second = Some(number(words[2], words[3]));
        number(words[0], words[1])
    }
}

/// The logarithm of the probability of `k` events.
fn log_probability(k: f64, rate: f64) -> f64 {
    if k < EXACT as f64 {
        let factorial = (2..=k as usize).fold(1.0, |product, factor| product * factor as f64);
        return k * ln(rate) - rate - ln(factorial);
    }
    // k ln(k / rate) + rate - k, without cancellation of large, nearly equal numbers.
    let (difference, sum) = (k - rate, k + rate);
    let from_mean = if difference.abs() < 0.1 * sum {
        let ratio = difference / sum;
        let (square, mut total, mut power) = (ratio * ratio, difference * ratio, 2.0 * k * ratio);
        for term in 1..12 {
            power *= square;
            total += power / f64::from(2 * term + 1);
        }
        total
    } else {
        k * ln(k / rate) - difference
    };
    // Stirling's series of the factorial.
    let inverse = 1.0 / k;
    let series = inverse * (1.0 / 12.0 - inverse * inverse * (1.0 / 360.0 - inverse * inverse / 1260.0));
    -from_mean - 0.5 * ln(TAU * k) - series
}

/// A Poisson number with the given rate, which is finite and not negative.
fn draw(rate: f64, stream: &mut Stream) -> f64 {
    if rate == 0.0 {
        return 0.0;
    }
    if rate < FEW {
        // Exponential arrival times, until they exceed the rate.
        let (mut time, mut count) = (-ln(stream.next()), 0.0);
        while time <= rate {
            time -= ln(stream.next());
            count += 1.0;
        }
        return count;
    }
    // Hörmann's transformed rejection, which takes 1.1 to 1.2 rounds.
    let b = 0.931 + 2.53 * rate.sqrt();
    let a = -0.059 + 0.02483 * b;
    let inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
    let at_once = 0.9277 - 3.6224 / (b - 2.0);
    loop {
        let (u, v) = (stream.next() - 0.5, stream.next());
        let us = 0.5 - u.abs();
        let k = ((2.0 * a / us + b) * u + rate + 0.43).floor();
        if us >= 0.07 && v <= at_once {
            return k;
        }
        if !(0.0..1e17).contains(&k) || (us < 0.013 && v > us) {
            continue;
        }
        if ln(v) + ln(inverse_alpha) - ln(a / (us * us) + b) <= log_probability(k, rate) {
            return k;
        }
    }
}

/// A Poisson number for each rate, which is in [0, 1e15]; each element has its own seed. All views are contiguous.
pub(crate) fn poisson(op: &'static str, rates: View<'_>, seeds: View<'_>, out: &mut ViewMut<'_>) -> Result<()> {
    let (Some(rates), Some(seeds)) = (rates.as_slice::<f64>(), seeds.as_slice::<i64>()) else {
        bail!(Backend, op, "rates and seeds must be contiguous f64 and i64");
    };
    let layout = out.layout;
    let Some(out) = out.part(layout).into_slice::<f64>().filter(|out| out.len() == rates.len().min(seeds.len())) else {
        bail!(Backend, op, "output must be contiguous f64 with {} elements", rates.len());
    };
    let to = Ptr::new(out.as_mut_ptr());
    parallel(out.len(), GRAIN, |range| {
        for at in range {
            let number = draw(rates[at], &mut Stream::new(seeds[at]));
            // SAFETY: the ranges are disjoint parts of the output, which is borrowed for the whole call.
            unsafe { to.get().add(at).write(number) };
        }
    });
    Ok(())
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_the_distribution() {
        for rate in [10.0, 17.3, 100.0, 5e3, 1e6, 3e9, 1e13, 1e15] {
            for far in [-6.0_f64, -2.0, -0.3, 0.0, 0.5, 3.0, 6.0] {
                let k = (rate + far * f64::sqrt(rate)).floor().max(0.0);
                // Products of ratios of neighbours, starting at the integer nearest to the rate, have no cancellation.
                let (from, mut sum) = (f64::floor(rate), 0.0);
                if (k - from).abs() > 1e5 {
                    continue;
                }
                let (low, high) = (k.min(from), k.max(from));
                let mut at = low + 1.0;
                while at <= high {
                    sum += f64::ln_1p((rate - at) / at);
                    at += 1.0;
                }
                let want = if k >= from { sum } else { -sum };
                let found = log_probability(k, rate) - log_probability(from, rate);
                assert!((found - want).abs() < 1e-9 * want.abs().max(1.0), "{k} at {rate}: {found}, not {want}");
            }
        }
        // The probabilities sum to one.
        for rate in [10.0, 40.0] {
            let sum: f64 = (0..300).map(|k| log_probability(f64::from(k), rate).exp()).sum();
            assert!((sum - 1.0).abs() < 1e-11, "{sum} at {rate}");
        }
    }
}
