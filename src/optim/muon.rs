//! Muon (Jordan and others, 2024): momentum whose direction is made orthogonal.

use super::engine::{Algorithm, Call, Groups, Setting, not_negative, optimizer, settings};
use super::store::TensorUpdate;
use crate::error::bail;
use crate::options::options;
use crate::{Result, Tensor};

options! {
    /// The settings of [`Muon`], also of one of its groups of parameters.
    ///
    /// ```
    /// use cotangent::optim::{Muon, MuonOptions};
    /// let optimizer = Muon::new_with(MuonOptions::new().lr(0.02).weight_decay(0.01));
    /// ```
    pub struct MuonOptions {
        /// The learning rate.
        lr: f64 = 1e-3,
        /// How much of the last direction is kept.
        momentum: f64 = 0.95,
        /// Whether to look one step ahead along the direction.
        nesterov: bool = true,
        /// The factor by which parameters decay, apart from the gradient.
        weight_decay: f64 = 0.1,
    }
}

optimizer! {
    /// Momentum whose direction is replaced by the nearest orthogonal matrix, about, by five steps of a Newton-Schulz iteration.
    /// It is for matrices alone, such as the weights of linear layers: [`only`](Muon::only) chooses them, and another
    /// optimiser trains what is left.
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
    Muon(MuonOptions) { momentum: f64, nesterov: bool, weight_decay: f64 }
}

impl Algorithm for MuonOptions {
    const OP: &'static str = "Muon";
    const SLOTS: &'static [&'static str] = &["momentum_buffer"];

    fn settings(&mut self) -> Vec<(&'static str, Setting<'_>)> {
        settings!(self: lr, momentum, nesterov, weight_decay)
    }

    fn check(&self) -> Result<()> {
        not_negative(Self::OP, "learning rate", self.lr)?;
        not_negative(Self::OP, "weight decay", self.weight_decay)?;
        not_negative(Self::OP, "momentum", self.momentum)
    }

    fn run(groups: &Groups<MuonOptions>, call: Call<'_>) -> Result<()> {
        call.tensors(Self::OP, |TensorUpdate { name, parameter, gradient, state }| {
            let [rows, columns] = *gradient.shape() else {
                bail!(
                    Shape,
                    Self::OP,
                    "{name} of shape {:?} is no matrix: choose matrices with `only`",
                    gradient.shape()
                );
            };
            let MuonOptions { lr, momentum, nesterov, weight_decay } = *groups.of(name);
            let direction = match state.tensors.first() {
                Some(last) => last.add(&gradient.sub(last)?.mul(1.0 - momentum)?)?,
                None => gradient.mul(1.0 - momentum)?,
            };
            let ahead =
                if nesterov { gradient.add(&direction.sub(gradient)?.mul(momentum)?)? } else { direction.clone() };
            // Matrices with more rows than columns have larger updates, element by element.
            let rate = lr * (rows as f64 / columns.max(1) as f64).max(1.0).sqrt();
            let new = parameter.detach().mul(1.0 - lr * weight_decay)?.sub(&orthogonal(&ahead)?.mul(rate)?)?;
            state.tensors = vec![direction];
            Ok(new)
        })
    }
}

/// Nearly the orthogonal matrix nearest to this one: with its singular vectors, and singular values between 0.7 and 1.2.
fn orthogonal(x: &Tensor) -> Result<Tensor> {
    // A polynomial with a steep slope at 0, so that small singular values grow fast.
    const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];
    let tall = x.shape()[0] > x.shape()[1];
    let x = if tall { x.t()? } else { x.clone() };
    // At most 1 in any norm.
    let norm = x.square()?.sum(..)?.sqrt()?.maximum(1e-7)?;
    let mut x = x.div(&norm)?;
    let [a, b, c] = COEFFICIENTS;
    for _ in 0..5 {
        let square = x.matmul(&x.t()?)?;
        let even = square.mul(b)?.add(&square.matmul(&square)?.mul(c)?)?;
        x = x.mul(a)?.add(&even.matmul(&x)?)?;
    }
    if tall { x.t() } else { Ok(x) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Generator;

    #[test]
    fn directions_become_nearly_orthogonal() -> Result<()> {
        for shape in [[4, 7], [7, 4], [5, 5]] {
            let x = orthogonal(&Generator::seed(3).randn_with(shape, crate::DType::F64)?)?;
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
