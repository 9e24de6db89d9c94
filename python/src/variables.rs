//! Python variables as a module of the crate, so that its optimisers can update them.
//!
//! The variables own the values. While the crate works on them each is locked, and its tensor is moved into a `Parameter` and
//! back. So only the parameter holds the bytes, which are changed in place, and no other thread sees an intermediate value.
//! The identities of the parameters stay the same from call to call.

use crate::error::OrRaise;
use crate::tensor::{Held, PyTensor};
use cotangent::nn::{Module, Parameter, Part, PartMut, Visit, Visitor};
use cotangent::{Result, Tensor};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// Named parameters.
pub struct Variables(Vec<(String, Parameter)>);

impl Visit for Variables {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'_, Part<'a>>) {
        for (name, parameter) in &self.0 {
            visitor.module(name, parameter);
        }
    }

    fn visit_mut<'a>(&'a mut self, visitor: &mut Visitor<'_, PartMut<'a>>) {
        for (name, parameter) in &mut self.0 {
            visitor.module(name, parameter);
        }
    }
}

impl Module for Variables {}

/// Named variables that are trained together.
#[pyclass(name = "_Parameters", module = "cotangent._cotangent", frozen)]
pub struct PyParameters {
    objects: Vec<Py<PyTensor>>,
    module: Mutex<Variables>,
}

/// The value of a parameter that is not in use.
pub fn placeholder() -> Result<Tensor> {
    Tensor::zeros(())
}

/// Locked variables with their tensors in the parameters of a module. Dropping it moves the tensors back.
struct Session<'a> {
    held: Vec<Held<'a>>,
    /// The parameter of each variable.
    places: Vec<usize>,
    module: &'a mut Variables,
}

impl<'a> Session<'a> {
    fn new(objects: &'a [Py<PyTensor>], module: &'a mut Variables) -> Result<Option<Session<'a>>> {
        // In a fixed order of locking, to avoid deadlocks.
        let mut places: Vec<usize> = (0..objects.len()).collect();
        places.sort_by_key(|&at| objects[at].as_ptr().addr());
        let nothing = placeholder()?;
        let mut held = Vec::with_capacity(objects.len());
        for &at in &places {
            let Some(one) = objects[at].get().hold() else { return Ok(None) };
            held.push(one);
        }
        for (held, &at) in held.iter_mut().zip(&places) {
            module.0[at].1.swap_tensor(held.swap(nothing.clone()));
        }
        Ok(Some(Session { held, places, module }))
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        for (held, &at) in self.held.iter_mut().zip(&self.places) {
            // The variable returns the placeholder, which goes back to the parameter.
            let parameter = &mut self.module.0[at].1;
            let value = Tensor::clone(parameter);
            parameter.swap_tensor(held.swap(value));
        }
    }
}

impl PyParameters {
    /// Runs `f` on the variables as a module, with the variables locked and the interpreter released.
    pub fn with<R: Send>(&self, py: Python<'_>, f: impl FnOnce(&mut Variables) -> Result<R> + Send) -> PyResult<R> {
        let done = py.detach(|| {
            let mut module = self.module.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(session) = Session::new(&self.objects, &mut module)? else { return Ok(None) };
            f(session.module).map(Some)
        });
        done.or_raise()?
            .ok_or_else(|| PyValueError::new_err("a view cannot be trained: use the tensor that it is a view of"))
    }

    /// Runs `f` on the variables as a module without locking them: `f` publishes its values by [`PyParameters::show`].
    pub fn with_copies<R>(&self, f: impl FnOnce(&mut Variables) -> Result<R>) -> PyResult<R> {
        let mut module = self.module.lock().unwrap_or_else(PoisonError::into_inner);
        for ((_, parameter), object) in module.0.iter_mut().zip(&self.objects) {
            parameter.swap_tensor(object.get().get()?);
        }
        let done = f(&mut module);
        self.show(&module);
        let nothing = placeholder().or_raise()?;
        for (_, parameter) in &mut module.0 {
            parameter.swap_tensor(nothing.clone());
        }
        done.or_raise()
    }

    /// Copies the values of the parameters to the variables.
    pub fn show(&self, module: &Variables) {
        for ((_, parameter), object) in module.0.iter().zip(&self.objects) {
            if let Some(mut held) = object.get().hold() {
                // As an independent tensor: the closure may change it.
                held.swap(Tensor::clone(parameter).into_value());
            }
        }
    }
}

#[pymethods]
impl PyParameters {
    #[new]
    fn py_new(objects: Vec<Py<PyTensor>>, names: Vec<String>) -> PyResult<PyParameters> {
        if objects.len() != names.len() {
            return Err(PyValueError::new_err(format!("got {} names for {} parameters", names.len(), objects.len())));
        }
        let mut addresses: Vec<usize> = objects.iter().map(|object| object.as_ptr().addr()).collect();
        addresses.sort_unstable();
        if addresses.windows(2).any(|two| two[0] == two[1]) {
            return Err(PyValueError::new_err("a parameter appears more than once"));
        }
        let parameter = |name| Ok((name, Parameter::new(placeholder()?)?));
        let parameters = names.into_iter().map(parameter).collect::<Result<_>>().or_raise()?;
        Ok(PyParameters { objects, module: Mutex::new(Variables(parameters)) })
    }

    fn __len__(&self) -> usize {
        self.objects.len()
    }

    /// Scales the gradients so that their norm is at most `max_norm`, and returns the norm before.
    #[pyo3(signature = (max_norm, norm_type=2.0, error_if_nonfinite=false))]
    fn clip_grad_norm(&self, py: Python<'_>, max_norm: f64, norm_type: f64, error_if_nonfinite: bool) -> PyResult<f64> {
        use cotangent::optim::{ClipGradNormOptions, clip_grad_norm_with};
        let options = ClipGradNormOptions::new().norm_type(norm_type).error_if_nonfinite(error_if_nonfinite);
        self.with(py, |module| clip_grad_norm_with(module, max_norm, options))
    }

    /// Bounds every element of the gradients by ±`clip_value`.
    fn clip_grad_value(&self, py: Python<'_>, clip_value: f64) -> PyResult<()> {
        self.with(py, |module| cotangent::optim::clip_grad_value(module, clip_value))
    }
}
