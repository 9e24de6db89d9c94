//! Rotary positions with scaled frequencies.

use super::super::config::ConfigFile;
use crate::error::bail;
use crate::ops::nn::rope::rotary_rates;
use crate::{DType, Result, Tensor};
use std::f64::consts::TAU;

/// How the frequencies of rotary positions change for contexts longer than those of the first training: `rope_scaling` in files,
/// or `rope_parameters` in newer ones.
///
/// ```
/// use cotangent::models::{LlamaConfig, RopeScaling};
/// // The one of Llama 3.1.
/// let scaling = RopeScaling::Llama3 {
///     factor: 8.0,
///     low_freq_factor: 1.0,
///     high_freq_factor: 4.0,
///     original_max_position_embeddings: 8192,
/// };
/// let config = LlamaConfig { rope_theta: 500_000.0, rope_scaling: Some(scaling), ..LlamaConfig::default() };
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// All frequencies are divided by a factor.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// The low frequencies are divided by a factor, the high ones stay, and those between them are interpolated.
    Llama3 {
        /// The divisor of the low frequencies.
        factor: f64,
        /// Low frequencies have at most this many periods in the original context.
        low_freq_factor: f64,
        /// High frequencies have at least this many periods in the original context.
        high_freq_factor: f64,
        /// The number of tokens of the original context.
        original_max_position_embeddings: usize,
    },
}

impl RopeScaling {
    pub(super) fn check(&self) -> Result<()> {
        let (Self::Linear { factor } | Self::Llama3 { factor, .. }) = *self;
        if !(factor.is_finite() && factor > 0.0) {
            bail!(Value, "Llama", "factor of rope_scaling must be finite and > 0, got {factor}");
        }
        if let Self::Llama3 { low_freq_factor: low, high_freq_factor: high, original_max_position_embeddings, .. } =
            *self
        {
            if !(low > 0.0 && low < high && high.is_finite()) {
                bail!(Value, "Llama", "high_freq_factor must be > low_freq_factor > 0, got {high} and {low}");
            }
            if original_max_position_embeddings == 0 {
                bail!(Value, "Llama", "original_max_position_embeddings must be ≥ 1, got 0");
            }
        }
        Ok(())
    }

    /// The factors of the frequencies `rates`, which are angles per token.
    pub(super) fn factors(&self, rates: &Tensor) -> Result<Tensor> {
        match *self {
            Self::Linear { factor } => Tensor::full_with([1], 1.0 / factor, (rates.dtype(), rates.device())),
            Self::Llama3 { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } => {
                let periods = rates.mul(original_max_position_embeddings as f64 / TAU)?;
                let kept = periods.sub(low_freq_factor)?.div(high_freq_factor - low_freq_factor)?.clamp(0.0, 1.0)?;
                kept.mul(1.0 - 1.0 / factor)?.add(1.0 / factor)
            }
        }
    }
}

/// Reads the base of the frequencies and their scaling, in the old and the new form: `rope_theta` and `rope_scaling`, or both in
/// `rope_parameters`.
pub(super) fn read(file: &ConfigFile, default_theta: f64) -> Result<(f64, Option<RopeScaling>)> {
    const OP: &str = "from_file";
    let forms = ["rope_scaling", "rope_parameters"];
    if !forms.iter().any(|name| file.is_empty(name)) {
        bail!(Format, OP, "either rope_scaling or rope_parameters must be absent, got both");
    }
    if let Some(name) = forms.into_iter().find(|name| file.has(name) && file.entries(name).is_none()) {
        bail!(Format, OP, "{name} must be an object");
    }
    let rope = file.inside(if file.is_empty(forms[0]) { forms[1] } else { forms[0] });
    for settings in [file, &rope] {
        let part = settings.number("partial_rotary_factor", 1.0)?;
        if part != 1.0 {
            bail!(
                Format,
                OP,
                "partial_rotary_factor must be 1, as partial rotary positions are not supported, got {part}"
            );
        }
    }
    let theta = rope.number("rope_theta", file.number("rope_theta", default_theta)?)?;
    let kind = match rope.text("rope_type")? {
        Some(kind) => kind,
        None => rope.text("type")?.unwrap_or("default"),
    };
    const SHARED: [&str; 4] = ["rope_type", "type", "rope_theta", "partial_rotary_factor"];
    let (more, scaling): (&[&str], _) = match kind {
        "default" => (&[], None),
        "linear" => (&["factor"], Some(RopeScaling::Linear { factor: rope.required_number("factor")? })),
        "llama3" => {
            let most = file.size("max_position_embeddings", 2048)?;
            let inside = rope.size("original_max_position_embeddings", most)?;
            let scaling = RopeScaling::Llama3 {
                factor: rope.required_number("factor")?,
                low_freq_factor: rope.required_number("low_freq_factor")?,
                high_freq_factor: rope.required_number("high_freq_factor")?,
                // The reference prefers the outer one.
                original_max_position_embeddings: file.size("original_max_position_embeddings", inside)?,
            };
            (&["factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"], Some(scaling))
        }
        _ => bail!(Format, OP, "rope_type must be one of default, linear and llama3, got {kind}"),
    };
    if let Some(name) = rope.unknown(&[&SHARED, more].concat()) {
        bail!(Format, OP, "{name} is not supported for positions of type {kind} and must be absent");
    }
    Ok((theta, scaling))
}

/// The cosines and sines of positions for heads of `size`, in f64 for positions in f64, and otherwise in f32.
pub(super) fn cos_sin(
    positions: &Tensor,
    size: usize,
    theta: f64,
    scaling: Option<RopeScaling>,
) -> Result<(Tensor, Tensor)> {
    let Some(scaling) = scaling else { return positions.rope_cos_sin_with(size, theta) };
    let dtype = if positions.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let rates = rotary_rates(size, theta, positions.device())?;
    let rates = rates.mul(&scaling.factors(&rates)?)?;
    let angles = positions.to_dtype(DType::F64)?.unsqueeze(-1)?.mul(&rates)?;
    Ok((angles.cos()?.to_dtype(dtype)?, angles.sin()?.to_dtype(dtype)?))
}
