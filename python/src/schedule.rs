//! The crate's learning rate schedules, as functions of the step.

use crate::error::OrRaise;
use cotangent::Result;
use cotangent::optim::{
    AnnealStrategy, ConstantLR, CosineAnnealingLR, CosineAnnealingWarmRestarts, CyclicLR, CyclicMode, ExponentialLR,
    LinearLR, MultiStepLR, OneCycleLR, PolynomialLR, Schedule, StepLR, SwaLR,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A schedule.
#[pyclass(name = "_Schedule", module = "cotangent._cotangent", frozen)]
struct PySchedule(Box<dyn Schedule>);

/// The keyword arguments of a schedule.
struct Arguments<'a, 'py>(&'a str, &'a Bound<'py, PyDict>);

impl<'py> Arguments<'_, 'py> {
    fn object(&self, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let lacking = || PyTypeError::new_err(format!("{}: {name} is missing", self.0));
        self.1.get_item(name)?.ok_or_else(lacking)
    }

    fn number(&self, name: &str) -> PyResult<f64> {
        self.object(name)?.extract()
    }

    fn flag(&self, name: &str) -> PyResult<bool> {
        self.object(name)?.extract()
    }

    fn steps(&self, name: &str) -> PyResult<u64> {
        let object = self.object(name)?;
        let wrong = |_| PyValueError::new_err(format!("{}: {name} must be an integer ≥ 0, got {object}", self.0));
        object.extract().map_err(wrong)
    }

    /// One number, or one for each group.
    fn numbers(&self, name: &str) -> PyResult<Vec<f64>> {
        let object = self.object(name)?;
        object.extract::<f64>().map(|number| vec![number]).or_else(|_| object.extract())
    }

    fn word<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> PyResult<T> {
        let word: String = self.object(name)?.extract()?;
        let known = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        let wrong = || PyValueError::new_err(format!("{}: {name} must be one of {}, got {word}", self.0, known()));
        words.iter().find(|(known, _)| *known == word).map(|(_, value)| *value).ok_or_else(wrong)
    }
}

const STRATEGIES: [(&str, AnnealStrategy); 2] = [("cos", AnnealStrategy::Cos), ("linear", AnnealStrategy::Linear)];
const MODES: [(&str, CyclicMode); 3] = [
    ("triangular", CyclicMode::Triangular),
    ("triangular2", CyclicMode::Triangular2),
    ("exp_range", CyclicMode::ExpRange),
];

fn build(name: &str, arguments: &Bound<'_, PyDict>) -> PyResult<Box<dyn Schedule>> {
    let a = Arguments(name, arguments);
    Ok(match name {
        "ConstantLR" => Box::new(ConstantLR::new().factor(a.number("factor")?).total_iters(a.steps("total_iters")?)),
        "LinearLR" => Box::new(
            LinearLR::new()
                .start_factor(a.number("start_factor")?)
                .end_factor(a.number("end_factor")?)
                .total_iters(a.steps("total_iters")?),
        ),
        "StepLR" => Box::new(StepLR::new(a.steps("step_size")?).gamma(a.number("gamma")?)),
        "MultiStepLR" => {
            let milestones: Vec<u64> = a.object("milestones")?.extract()?;
            Box::new(MultiStepLR::new(milestones).gamma(a.number("gamma")?))
        }
        "ExponentialLR" => Box::new(ExponentialLR::new(a.number("gamma")?)),
        "PolynomialLR" => Box::new(PolynomialLR::new().total_iters(a.steps("total_iters")?).power(a.number("power")?)),
        "CosineAnnealingLR" => Box::new(CosineAnnealingLR::new(a.steps("T_max")?).eta_min(a.number("eta_min")?)),
        "CosineAnnealingWarmRestarts" => Box::new(
            CosineAnnealingWarmRestarts::new(a.steps("T_0")?).t_mult(a.steps("T_mult")?).eta_min(a.number("eta_min")?),
        ),
        "SWALR" => Box::new(
            SwaLR::new(a.numbers("swa_lr")?)
                .anneal_epochs(a.steps("anneal_epochs")?)
                .anneal_strategy(a.word("anneal_strategy", &STRATEGIES)?),
        ),
        "OneCycleLR" => Box::new(
            OneCycleLR::new(a.numbers("max_lr")?, a.steps("total_steps")?)
                .pct_start(a.number("pct_start")?)
                .anneal_strategy(a.word("anneal_strategy", &STRATEGIES)?)
                .cycle_momentum(a.flag("cycle_momentum")?)
                .base_momentum(a.numbers("base_momentum")?)
                .max_momentum(a.numbers("max_momentum")?)
                .div_factor(a.number("div_factor")?)
                .final_div_factor(a.number("final_div_factor")?)
                .three_phase(a.flag("three_phase")?),
        ),
        "CyclicLR" => {
            let schedule = CyclicLR::new(a.numbers("base_lr")?, a.numbers("max_lr")?)
                .step_size_up(a.steps("step_size_up")?)
                .mode(a.word("mode", &MODES)?)
                .gamma(a.number("gamma")?)
                .cycle_momentum(a.flag("cycle_momentum")?)
                .base_momentum(a.numbers("base_momentum")?)
                .max_momentum(a.numbers("max_momentum")?);
            let down = if a.object("step_size_down")?.is_none() { None } else { Some(a.steps("step_size_down")?) };
            Box::new(schedule.step_size_down(down))
        }
        _ => return Err(PyValueError::new_err(format!("unknown schedule {name}"))),
    })
}

#[pymethods]
impl PySchedule {
    #[new]
    fn new(name: &str, arguments: &Bound<'_, PyDict>) -> PyResult<PySchedule> {
        build(name, arguments).map(PySchedule)
    }

    /// Refuses invalid options.
    fn check(&self, groups: usize) -> PyResult<()> {
        self.0.check(groups).or_raise()
    }

    /// The learning rates of all groups in a step.
    fn lrs(&self, step: u64, base_lrs: Vec<f64>) -> PyResult<Vec<f64>> {
        let lr = |(group, base): (usize, f64)| self.0.lr(step, base, group);
        base_lrs.into_iter().enumerate().map(lr).collect::<Result<_>>().or_raise()
    }

    /// The momenta of all groups in a step, if the schedule sets them.
    fn momenta(&self, step: u64, groups: usize) -> PyResult<Option<Vec<f64>>> {
        let momenta = (0..groups).map(|group| self.0.momentum(step, group)).collect::<Result<Vec<_>>>().or_raise()?;
        Ok(momenta.into_iter().collect())
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PySchedule>()
}
