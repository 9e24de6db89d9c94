//! Tensors from the fixtures' JSON, and comparison with them.

use cotangent::{DType, Result, Tensor};
use serde_json::Value;

/// A file of fixtures. Any fault in it fails the test at once.
pub fn parse(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => unreadable(&format!("not JSON: {error}")),
    }
}

/// The items of a list.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or_else(|| unreadable(&format!("{value} is not a list")), Vec::as_slice)
}

/// A string.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| unreadable(&format!("{value} is not a string")))
}

/// A float; the non-finite ones are written as strings.
pub fn float(value: &Value) -> f64 {
    match value.as_str() {
        Some("nan") => f64::NAN,
        Some("inf") => f64::INFINITY,
        Some("-inf") => f64::NEG_INFINITY,
        _ => value.as_f64().unwrap_or_else(|| unreadable(&format!("{value} is not a number"))),
    }
}

/// An integer of any dtype; bools count as 0 and 1.
pub fn integer(value: &Value) -> i128 {
    match value {
        Value::Bool(b) => i128::from(*b),
        _ => match (value.as_i64(), value.as_u64()) {
            (Some(i), _) => i128::from(i),
            (None, Some(u)) => i128::from(u),
            (None, None) => unreadable(&format!("{value} is not an integer")),
        },
    }
}

/// Sizes of a shape.
pub fn sizes(value: &Value) -> Vec<usize> {
    list(value).iter().map(|v| integer(v) as usize).collect()
}

/// Dims or strides.
pub fn signed(value: &Value) -> Vec<isize> {
    list(value).iter().map(|v| integer(v) as isize).collect()
}

/// A dtype by its short name.
pub fn dtype(name: &str) -> DType {
    DType::ALL.into_iter().find(|d| d.name() == name).unwrap_or_else(|| unreadable(&format!("no dtype {name}")))
}

/// A tensor as written: contiguous, without gradient.
pub fn tensor(value: &Value) -> Result<Tensor> {
    let (shape, dtype, data) = (sizes(&value["shape"]), dtype(text(&value["dtype"])), list(&value["data"]));
    match dtype {
        DType::Bool => Tensor::from_vec(data.iter().map(|v| integer(v) != 0).collect::<Vec<bool>>(), shape),
        DType::U64 => Tensor::from_vec(data.iter().map(|v| integer(v) as u64).collect::<Vec<u64>>(), shape),
        d if d.is_complex() => {
            let pairs: Vec<usize> = shape.into_iter().chain([2]).collect();
            Tensor::from_vec(data.iter().map(float).collect::<Vec<f64>>(), pairs)?.view_as_complex()?.to_dtype(d)
        }
        d if d.is_float() => Tensor::from_vec(data.iter().map(float).collect::<Vec<f64>>(), shape)?.to_dtype(d),
        d => Tensor::from_vec(data.iter().map(|v| integer(v) as i64).collect::<Vec<i64>>(), shape)?.to_dtype(d),
    }
}

/// The tolerance of a float.
#[derive(Clone, Copy)]
pub struct Tolerance {
    pub rtol: f64,
    pub atol: f64,
}

impl Tolerance {
    /// The usual one of a dtype: some hundred roundings in f32 and f64, two in the halves, whose sums are kept in f32.
    pub fn of(dtype: DType) -> Tolerance {
        let (rtol, atol) = match dtype.to_real() {
            DType::F64 => (1e-9, 1e-11),
            DType::F32 => (1e-5, 1e-5),
            DType::F16 => (2e-3, 1e-3),
            DType::BF16 => (1.6e-2, 8e-3),
            _ => (0.0, 0.0),
        };
        Tolerance { rtol, atol }
    }

    /// The usual tolerance, unless the case has its own.
    pub fn in_case(case: &Value, dtype: DType) -> Tolerance {
        let usual = Tolerance::of(dtype);
        Tolerance {
            rtol: case["rtol"].as_f64().unwrap_or(usual.rtol),
            atol: case["atol"].as_f64().unwrap_or(usual.atol),
        }
    }

    fn accepts(self, got: f64, want: f64) -> bool {
        // Infinities are equal or wrong: their difference is NaN.
        got == want
            || (got.is_nan() && want.is_nan())
            || (want.is_finite() && (got - want).abs() <= self.atol + self.rtol * want.abs())
    }
}

/// Compares dtype, shape and values; reports the first difference.
pub fn compare(got: &Tensor, want: &Value, case: &Value) -> std::result::Result<(), String> {
    let expected = dtype(text(&want["dtype"]));
    let shape = sizes(&want["shape"]);
    if got.dtype() != expected {
        return Err(format!("dtype is {} and should be {expected}", got.dtype()));
    }
    if *got.shape() != shape[..] {
        return Err(format!("shape is {:?} and should be {shape:?}", got.shape()));
    }
    let data = list(&want["data"]);
    // The real and imaginary parts of complex numbers, alternating.
    let (got, shape) = if expected.is_complex() {
        (&got.detach().view_as_real().map_err(|e| e.to_string())?, [&shape[..], &[2]].concat())
    } else {
        (got, shape)
    };
    if got.dtype().is_float() {
        let tolerance = Tolerance::in_case(case, expected);
        let got = got.to_dtype(DType::F64).and_then(|t| t.to_vec::<f64>()).map_err(|e| e.to_string())?;
        let want: Vec<f64> = data.iter().map(float).collect();
        first_difference(&shape, &got, &want, |g, w| tolerance.accepts(*g, *w))
    } else {
        let got = integers(got).map_err(|e| e.to_string())?;
        let want: Vec<i128> = data.iter().map(integer).collect();
        first_difference(&shape, &got, &want, |g, w| g == w)
    }
}

fn integers(t: &Tensor) -> Result<Vec<i128>> {
    Ok(match t.dtype() {
        DType::Bool => t.to_vec::<bool>()?.into_iter().map(i128::from).collect(),
        DType::U64 => t.to_vec::<u64>()?.into_iter().map(i128::from).collect(),
        _ => t.to_dtype(DType::I64)?.to_vec::<i64>()?.into_iter().map(i128::from).collect(),
    })
}

fn first_difference<T: std::fmt::Debug>(
    shape: &[usize],
    got: &[T],
    want: &[T],
    same: impl Fn(&T, &T) -> bool,
) -> std::result::Result<(), String> {
    if got.len() != want.len() {
        return Err(format!("{} elements and should be {}", got.len(), want.len()));
    }
    let different: Vec<usize> = (0..got.len()).filter(|&i| !same(&got[i], &want[i])).collect();
    let Some(&first) = different.first() else { return Ok(()) };
    let mut at = vec![0; shape.len()];
    let mut rest = first;
    for (i, &size) in shape.iter().enumerate().rev() {
        at[i] = rest % size;
        rest /= size;
    }
    Err(format!(
        "at {at:?} is {:?} and should be {:?} ({} of {} differ)",
        got[first],
        want[first],
        different.len(),
        got.len()
    ))
}

#[allow(clippy::panic)]
fn unreadable(what: &str) -> ! {
    panic!("the fixtures cannot be read: {what}")
}
