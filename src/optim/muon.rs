//! Muon (Jordan and others, 2024): orthogonalised momentum.

use super::engine::{Algorithm, Call, Groups, optimizer};
use super::settings::{Setting, SettingValue, Settings, not_negative, settings};
use super::store::{TensorUpdate, same_form};
use crate::error::bail;
use crate::ops::choices;
use crate::options::options;
use crate::{Result, Tensor};

options! {
    /// The settings of [`Muon`], or of one of its parameter groups.
    ///
    /// ```
    /// use cotangent::optim::{Muon, MuonOptions};
    /// let optimizer = Muon::new_with(MuonOptions::new().lr(0.02).weight_decay(0.01));
    /// ```
    pub struct MuonOptions {
        /// The learning rate.
        lr: f64 = 1e-3,
        /// The momentum factor.
        momentum: f64 = 0.95,
        /// Whether to use Nesterov momentum.
        nesterov: bool = true,
        /// The decoupled weight decay.
        weight_decay: f64 = 0.1,
        /// The coefficients of the Newton-Schulz polynomial, for the powers 1, 3 and 5.
        ns_coefficients: Vec<f64> = vec![3.4445, -4.7750, 2.0315],
        /// The number of Newton-Schulz iterations.
        ns_steps: usize = 5,
        /// The lower bound of the norm that a direction is divided by.
        eps: f64 = 1e-7,
        /// How the learning rate depends on the shape of a matrix.
        adjust_lr: AdjustLr = AdjustLr::Original,
    }
}

choices! {
    /// How the learning rate of [`Muon`] depends on the shape of a matrix.
    ///
    /// ```
    /// use cotangent::optim::{AdjustLr, Muon};
    /// let optimizer = Muon::new(3e-4).adjust_lr(AdjustLr::MatchRmsAdamW);
    /// ```
    pub enum AdjustLr {
        /// Multiplied by `sqrt(max(1, rows / columns))`.
        #[default]
        Original = "original",
        /// Multiplied by `0.2 · sqrt(max(rows, columns))`: updates have the root mean square of AdamW's, so that its learning rate
        /// and weight decay can be used.
        MatchRmsAdamW = "match_rms_adamw",
        /// Multiplied by `sqrt(rows / columns)`.
        SpectralUnclamped = "spectral_unclamped",
    }
}

impl AdjustLr {
    const ALL: [AdjustLr; 3] = [AdjustLr::Original, AdjustLr::MatchRmsAdamW, AdjustLr::SpectralUnclamped];

    fn factor(self, rows: usize, columns: usize) -> f64 {
        let (rows, columns) = (rows as f64, columns.max(1) as f64);
        match self {
            AdjustLr::Original => (rows / columns).max(1.0).sqrt(),
            AdjustLr::MatchRmsAdamW => 0.2 * rows.max(columns).sqrt(),
            AdjustLr::SpectralUnclamped => (rows / columns).sqrt(),
        }
    }
}

impl SettingValue for AdjustLr {
    fn get(&self) -> f64 {
        AdjustLr::ALL.iter().position(|one| one == self).map_or(0.0, |at| at as f64)
    }

    fn set(&mut self, number: f64) {
        *self = AdjustLr::ALL.get(number as usize).copied().unwrap_or_default();
    }
}

optimizer! {
    /// Muon: momentum that is replaced approximately by the nearest orthogonal matrix, by Newton-Schulz iterations. It is for
    /// matrices only, such as the weights of linear layers: [`only`](Muon::only) selects them, and another optimiser trains the
    /// other parameters.
    ///
    /// ```
    /// use cotangent::nn::{Forward, Linear, Module};
    /// use cotangent::optim::{AdamW, Muon, Optimizer};
    /// use cotangent::Tensor;
    /// let mut model = Linear::new(4, 3)?;
    /// let mut muon = Muon::new(0.02).only(|name| name.ends_with("weight"));
    /// let mut adamw = AdamW::new(1e-3).only(|name| !name.ends_with("weight"));
    /// model.forward(&Tensor::ones([2, 4])?)?.square()?.mean(..)?.backward()?;
    /// muon.step(&mut model)?;
    /// adamw.step(&mut model)?;
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    Muon(MuonOptions) {
        momentum: f64, nesterov: bool, weight_decay: f64, ns_coefficients: Vec<f64>, ns_steps: usize, eps: f64,
        adjust_lr: AdjustLr
    }
}

impl Algorithm for MuonOptions {
    const OP: &'static str = "Muon";
    const SLOTS: &'static [&'static str] = &["momentum_buffer"];

    fn settings(&mut self) -> Settings<'_> {
        let mut all = settings!(self: lr, momentum, nesterov, weight_decay, ns_steps, eps, adjust_lr);
        let names = ["ns_coefficient_a", "ns_coefficient_b", "ns_coefficient_c"];
        all.extend(names.into_iter().zip(self.ns_coefficients.iter_mut().map(|own| own as Setting<'_>)));
        all
    }

    fn check(&self) -> Result<()> {
        not_negative(Self::OP, "lr", self.lr)?;
        not_negative(Self::OP, "weight_decay", self.weight_decay)?;
        not_negative(Self::OP, "momentum", self.momentum)?;
        not_negative(Self::OP, "eps", self.eps)?;
        if self.ns_steps >= 100 {
            bail!(Value, Self::OP, "ns_steps must be less than 100, got {}", self.ns_steps);
        }
        if self.ns_coefficients.len() != 3 {
            bail!(Value, Self::OP, "ns_coefficients must be 3 numbers, got {:?}", self.ns_coefficients);
        }
        Ok(())
    }

    fn run(groups: &Groups<MuonOptions>, call: Call<'_>) -> Result<()> {
        call.tensors(Self::OP, |TensorUpdate { name, parameter, gradient, state }| {
            let [rows, columns] = *gradient.shape() else {
                bail!(
                    Shape,
                    Self::OP,
                    "{name} must be a matrix, got shape {:?}: choose the matrices with only()",
                    gradient.shape()
                );
            };
            let own = groups.of(name);
            let direction = match state.tensors.first() {
                Some(last) => {
                    same_form(Self::OP, name, last, gradient.shape(), gradient.dtype())?;
                    last.add(&gradient.sub(last)?.mul(1.0 - own.momentum)?)?
                }
                None => gradient.mul(1.0 - own.momentum)?,
            };
            let ahead = if own.nesterov {
                gradient.add(&direction.sub(gradient)?.mul(own.momentum)?)?
            } else {
                direction.clone()
            };
            let rate = own.lr * own.adjust_lr.factor(rows, columns);
            let kept = parameter.mul(1.0 - own.lr * own.weight_decay)?;
            state.tensors = vec![direction];
            kept.sub(&orthogonal(&ahead, own)?.mul(rate)?)
        })
    }
}

/// Approximately the nearest orthogonal matrix: the same singular vectors, with singular values between 0.7 and 1.2.
fn orthogonal(x: &Tensor, options: &MuonOptions) -> Result<Tensor> {
    let tall = x.shape()[0] > x.shape()[1];
    let x = if tall { x.t()? } else { x.clone() };
    // At most 1 in any norm.
    let norm = x.square()?.sum(..)?.sqrt()?.maximum(options.eps)?;
    let mut x = x.div(&norm)?;
    // The default polynomial has a steep slope at 0, so that small singular values grow fast.
    let [a, b, c] = options.ns_coefficients[..] else { return Ok(x) };
    for _ in 0..options.ns_steps {
        let square = x.matmul(&x.t()?)?;
        let even = square.mul(b)?.add(&square.matmul(&square)?.mul(c)?)?;
        x = x.mul(a)?.add(&even.matmul(&x)?)?;
    }
    if tall { x.t() } else { Ok(x) }
}

#[cotangent_macros::unit_tests]
mod tests {
    use super::*;
    use crate::Generator;

    #[test]
    fn directions_become_nearly_orthogonal() -> Result<()> {
        for shape in [[4, 7], [7, 4], [5, 5]] {
            let x = Generator::seed(3).randn_with(shape, crate::DType::F64)?;
            let x = orthogonal(&x, &MuonOptions::new())?;
            let x = if shape[0] > shape[1] { x.t()? } else { x };
            // Singular values between 0.7 and 1.2 have squares within 0.6 of 1.
            let gram = x.matmul(&x.t()?)?;
            let n = gram.shape()[0];
            let distance =
                gram.sub(&Tensor::eye_with(n, crate::DType::F64)?)?.square()?.sum(..)?.sqrt()?.item::<f64>()?;
            assert!(distance < 0.6 * (n as f64).sqrt(), "{gram}");
        }
        Ok(())
    }
}
