//! LAMB (You and others, 2020): Adam with a rate for each layer, for large batches.

use super::engine::{Algorithm, Call, Groups, optimizer};
use super::settings::{Settings, check_betas, not_negative, settings, sign};
use super::store::{TensorUpdate, same_form};
use crate::options::options;
use crate::{Result, Tensor};

options! {
    /// The settings of [`Lamb`], or of one of its parameter groups.
    ///
    /// ```
    /// use cotangent::optim::{Lamb, LambOptions};
    /// let optimizer = Lamb::new_with(LambOptions::new().weight_decay(0.01));
    /// ```
    pub struct LambOptions {
        /// The learning rate.
        lr: f64 = 1e-3,
        /// The decay rate of the running mean of the gradient.
        beta1: f64 = 0.9,
        /// The decay rate of the running mean of the squared gradient.
        beta2: f64 = 0.999,
        /// Added to the denominator.
        eps: f64 = 1e-6,
        /// The weight decay, which is added to the update.
        weight_decay: f64 = 0.0,
        /// Whether to correct the bias of the running means, which start at zero.
        bias_correction: bool = true,
        /// Whether to clip the trust ratio at 1.
        trust_clip: bool = false,
        /// Whether to maximise the loss instead of minimising it.
        maximize: bool = false,
    }
}

optimizer! {
    /// LAMB: Adam's update plus weight decay, scaled for each parameter by its trust ratio, the norm of the parameter over the norm
    /// of the update.
    ///
    /// ```
    /// use cotangent::optim::Lamb;
    /// let optimizer = Lamb::new(2e-3).weight_decay(0.01).no_decay(|name| name.ends_with("bias"));
    /// ```
    #[doc(alias = "LAMB")]
    Lamb(LambOptions) {
        beta1: f64, beta2: f64, eps: f64, weight_decay: f64, bias_correction: bool, trust_clip: bool, maximize: bool
    }
}

impl Algorithm for LambOptions {
    const OP: &'static str = "Lamb";
    const SLOTS: &'static [&'static str] = &["exp_avg", "exp_avg_sq"];

    fn settings(&mut self) -> Settings<'_> {
        settings!(self: lr, beta1, beta2, eps, weight_decay, bias_correction, trust_clip, maximize)
    }

    fn check(&self) -> Result<()> {
        not_negative(Self::OP, "lr", self.lr)?;
        not_negative(Self::OP, "weight_decay", self.weight_decay)?;
        not_negative(Self::OP, "eps", self.eps)?;
        check_betas(Self::OP, [self.beta1, self.beta2])
    }

    fn run(groups: &Groups<LambOptions>, call: Call<'_>) -> Result<()> {
        call.tensors(Self::OP, |TensorUpdate { name, parameter, gradient, state }| {
            let own = groups.of(name);
            let gradient = gradient.mul(sign(own.maximize))?;
            for tensor in &state.tensors {
                same_form(Self::OP, name, tensor, gradient.shape(), gradient.dtype())?;
            }
            let (mean, square) = match &state.tensors[..] {
                [mean, square] => (mean.mul(own.beta1)?, square.mul(own.beta2)?),
                _ => (gradient.zeros_like()?, gradient.zeros_like()?),
            };
            let mean = mean.add(&gradient.mul(1.0 - own.beta1)?)?;
            let square = square.add(&gradient.square()?.mul(1.0 - own.beta2)?)?;
            let step = state.step as f64;
            let (first, second) =
                if own.bias_correction { (1.0 - own.beta1.powf(step), 1.0 - own.beta2.powf(step)) } else { (1.0, 1.0) };
            let update = mean.div(first)?.div(&square.div(second)?.sqrt()?.add(own.eps)?)?;
            let update = update.add(&parameter.mul(own.weight_decay)?)?;
            let mut trust = ratio(&norm(parameter)?, &norm(&update)?)?;
            if own.trust_clip {
                trust = trust.minimum(1.0)?;
            }
            state.tensors = vec![mean, square];
            parameter.sub(&update.mul(&trust.mul(own.lr)?)?)
        })
    }
}

fn norm(x: &Tensor) -> Result<Tensor> {
    x.square()?.sum(..)?.sqrt()
}

/// A norm over another; 1 if one of them is 0.
fn ratio(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let both = a.gt(0.0)?.logical_and(&b.gt(0.0)?)?;
    both.where_(&a.div(b)?, &a.ones_like()?)
}
