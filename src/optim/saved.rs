//! Numbers in state dictionaries, and reading a dictionary as a whole.

use crate::error::err;
use crate::io::StateDict;
use crate::{DType, Result, Tensor};

pub(super) fn save_number(name: &str, number: f64, dict: &mut StateDict) -> Result<()> {
    dict.insert(name, Tensor::full_with((), number, DType::F64)?);
    Ok(())
}

pub(super) fn save_numbers(name: &str, numbers: &[f64], dict: &mut StateDict) -> Result<()> {
    dict.insert(name, Tensor::from_slice(numbers, numbers.len())?);
    Ok(())
}

pub(super) fn save_count(name: &str, count: u64, dict: &mut StateDict) -> Result<()> {
    dict.insert(name, Tensor::full((), count as i64)?);
    Ok(())
}

/// Reads a dictionary. Mismatches are collected, and reported in one error.
pub(super) struct Saved<'a> {
    op: &'static str,
    dict: &'a StateDict,
    read: Vec<String>,
    faults: Vec<String>,
}

impl<'a> Saved<'a> {
    pub fn new(op: &'static str, dict: &'a StateDict) -> Saved<'a> {
        Saved { op, dict, read: Vec::new(), faults: Vec::new() }
    }

    /// The tensor under a name, if it has this shape and dtype.
    pub fn tensor(&mut self, name: &str, shape: &[usize], dtype: DType) -> Option<&'a Tensor> {
        self.read.push(name.to_string());
        let Some(found) = self.dict.get(name) else {
            self.faults.push(format!("missing {name}"));
            return None;
        };
        if found.shape() != shape || found.dtype() != dtype {
            let (own, there) = (found.dtype(), found.shape());
            self.faults.push(format!("{name} must be {dtype} of shape {shape:?}, got {own} of shape {there:?}"));
            return None;
        }
        Some(found)
    }

    pub fn number(&mut self, name: &str) -> f64 {
        self.tensor(name, &[], DType::F64).and_then(|x| x.item::<f64>().ok()).unwrap_or(0.0)
    }

    pub fn count(&mut self, name: &str) -> u64 {
        let count = self.tensor(name, &[], DType::I64).and_then(|x| x.item::<i64>().ok()).unwrap_or(0);
        u64::try_from(count).unwrap_or_else(|_| {
            self.faults.push(format!("{name} must be ≥ 0, got {count}"));
            0
        })
    }

    pub fn numbers(&mut self, name: &str, len: usize) -> Vec<f64> {
        self.tensor(name, &[len], DType::F64).and_then(|x| x.to_vec().ok()).unwrap_or_default()
    }

    /// A vector of floats of any length.
    pub fn vector(&mut self, name: &str) -> Option<Tensor> {
        self.form(name, format_args!("a float vector"), |x| x.rank() == 1)
    }

    /// A matrix of floats.
    pub fn matrix(&mut self, name: &str, shape: [usize; 2]) -> Option<Tensor> {
        self.form(name, format_args!("float of shape {shape:?}"), |x| x.shape() == shape)
    }

    fn form(
        &mut self,
        name: &str,
        expected: std::fmt::Arguments<'_>,
        fits: impl FnOnce(&Tensor) -> bool,
    ) -> Option<Tensor> {
        self.read.push(name.to_string());
        match self.dict.get(name) {
            Some(found) if fits(found) && found.dtype().is_float() => return Some(found.detach()),
            Some(found) => {
                let (dtype, shape) = (found.dtype(), found.shape());
                self.faults.push(format!("{name} must be {expected}, got {dtype} of shape {shape:?}"));
            }
            None => self.faults.push(format!("missing {name}")),
        }
        None
    }

    pub fn fault(&mut self, what: String) {
        self.faults.push(what);
    }

    /// Fails if anything did not fit, or an entry was not read.
    pub fn finish(mut self) -> Result<()> {
        for name in self.dict.names().filter(|name| !self.read.iter().any(|read| read == name)) {
            self.faults.push(format!("unexpected {name}"));
        }
        if self.faults.is_empty() {
            return Ok(());
        }
        Err(err!(Format, self.op, "nothing was loaded:\n  {}", self.faults.join("\n  ")))
    }
}
