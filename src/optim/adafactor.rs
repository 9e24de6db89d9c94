//! Adafactor (Shazeer and Stern, 2018): second moments of matrices, factored into rows and columns.

use super::engine::{Algorithm, Call, Groups, optimizer};
use super::settings::{Settings, not_negative, settings, sign};
use super::store::{TensorUpdate, same_form};
use crate::error::bail;
use crate::options::options;
use crate::{DType, Result, Tensor, keepdim};

options! {
    /// The settings of [`Adafactor`], or of one of its parameter groups.
    ///
    /// ```
    /// use cotangent::optim::{Adafactor, AdafactorOptions};
    /// let optimizer = Adafactor::new_with(AdafactorOptions::new().d(2.0));
    /// ```
    pub struct AdafactorOptions {
        /// The learning rate.
        lr: f64 = 1e-2,
        /// The exponent of the weight of new squares in the running means: `step^beta2_decay`.
        beta2_decay: f64 = -0.8,
        /// Its square is the lower bound of the second moments; by default it is the machine epsilon of the compute dtype.
        eps1: Option<f64> = None,
        /// The lower bound of the root mean square of a parameter, to which its steps are relative.
        eps2: f64 = 1e-3,
        /// The clipping threshold: the largest root mean square of an update.
        d: f64 = 1.0,
        /// The decoupled weight decay.
        weight_decay: f64 = 0.0,
        /// Whether to maximise the loss instead of minimising it.
        maximize: bool = false,
    }
}

optimizer! {
    /// Adafactor: adaptive steps without momentum, with factored second moments, which keep one number for each row and each
    /// column of a matrix. Steps are relative to the size of the parameters. The arithmetic is PyTorch's.
    ///
    /// ```
    /// use cotangent::optim::Adafactor;
    /// let optimizer = Adafactor::new(1e-2).weight_decay(0.01);
    /// ```
    Adafactor(AdafactorOptions) {
        beta2_decay: f64, eps1: Option<f64>, eps2: f64, d: f64, weight_decay: f64, maximize: bool
    }
}

impl Algorithm for AdafactorOptions {
    const OP: &'static str = "Adafactor";
    /// Vectors keep the moments of all their elements in the first.
    const SLOTS: &'static [&'static str] = &["row_var", "col_var"];
    const REQUIRED_SLOTS: usize = 1;

    fn settings(&mut self) -> Settings<'_> {
        settings!(self: lr, beta2_decay, eps1, eps2, d, weight_decay, maximize)
    }

    fn check(&self) -> Result<()> {
        not_negative(Self::OP, "lr", self.lr)?;
        not_negative(Self::OP, "weight_decay", self.weight_decay)?;
        not_negative(Self::OP, "eps1", self.eps1.unwrap_or(0.0))?;
        not_negative(Self::OP, "eps2", self.eps2)?;
        if self.beta2_decay.is_nan() || self.beta2_decay > 0.0 {
            bail!(Value, Self::OP, "beta2_decay must be ≤ 0, got {}", self.beta2_decay);
        }
        if self.d.is_nan() || self.d < 1.0 {
            bail!(Value, Self::OP, "d must be ≥ 1, got {}", self.d);
        }
        Ok(())
    }

    fn run(groups: &Groups<AdafactorOptions>, call: Call<'_>) -> Result<()> {
        call.tensors(Self::OP, |TensorUpdate { name, parameter, gradient, state }| {
            let own = groups.of(name);
            let gradient = gradient.mul(sign(own.maximize))?;
            let precision = if parameter.dtype() == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
            let eps1 = own.eps1.unwrap_or(precision);
            let step = state.step as f64;
            let new = step.powf(own.beta2_decay);
            let size = (1.0 / step.sqrt()).min(own.lr);
            let rate = root_mean_square(parameter)?.maximum(own.eps2)?.mul(size)?;
            let moments = Moments { name, gradient: &gradient, new };
            let variance = if gradient.rank() > 1 {
                let row = moments.along(-1, state.tensors.first())?;
                let column = moments.along(-2, state.tensors.get(1))?;
                let variance = row.matmul(&column)?.div(&row.mean(keepdim(-2))?.maximum(eps1)?)?;
                state.tensors = vec![row, column];
                variance
            } else {
                let all = moments.moved(state.tensors.first(), &gradient.square()?)?;
                state.tensors = vec![all.clone()];
                all
            };
            let update = variance.maximum(eps1 * eps1)?.rsqrt()?.mul(&gradient)?;
            let most = root_mean_square(&update)?.div(own.d)?.maximum(1.0)?;
            let kept = parameter.mul(1.0 - own.lr * own.weight_decay)?;
            kept.sub(&update.mul(&rate.div(&most)?)?)
        })
    }
}

/// Running means of squares, in which new squares have the weight `new`.
struct Moments<'a> {
    name: &'a str,
    gradient: &'a Tensor,
    new: f64,
}

impl Moments<'_> {
    /// Averaged over a dimension.
    fn along(&self, dim: isize, last: Option<&Tensor>) -> Result<Tensor> {
        self.moved(last, &self.gradient.square()?.mean(keepdim(dim))?)
    }

    fn moved(&self, last: Option<&Tensor>, squares: &Tensor) -> Result<Tensor> {
        match last {
            Some(last) => {
                same_form(AdafactorOptions::OP, self.name, last, squares.shape(), squares.dtype())?;
                last.add(&squares.sub(last)?.mul(self.new)?)
            }
            None => squares.mul(self.new),
        }
    }
}

fn root_mean_square(x: &Tensor) -> Result<Tensor> {
    x.square()?.mean(..)?.sqrt()
}
