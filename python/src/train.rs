//! Training: metrics, logs, the report and the progress bar of the crate.
// Arguments of functions called from Python are passed by value.
#![allow(clippy::needless_pass_by_value)]

use crate::error::OrRaise;
use crate::tensor::{PyTensor, expect};
use cotangent::train::{
    Accuracy, Average, ConfusionMatrix, CsvLog, Examples, F1, JsonlLog, Log, MeanAbsoluteError, MeanSquaredError,
    Metric, Perplexity, Precision, Progress, R2Score, Recall, Report, RocAuc, RootMeanSquaredError, TensorBoard,
    TopKAccuracy,
};
use cotangent::{Result, Tensor};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `f` on the value with the interpreter released.
fn with<T: Send, R: Send>(py: Python<'_>, mutex: &Mutex<T>, f: impl FnOnce(&mut T) -> R + Send) -> R {
    py.detach(|| f(&mut lock(mutex)))
}

type AnyMetric = Box<dyn Metric + Send>;

/// A metric over batches.
#[pyclass(name = "_Metric", module = "cotangent.train", frozen)]
struct PyMetric(Mutex<AnyMetric>);

/// The options of metrics.
#[derive(FromPyObject)]
struct MetricOptions {
    #[pyo3(item)]
    classes: Option<usize>,
    #[pyo3(item)]
    average: Option<String>,
    #[pyo3(item)]
    k: Option<usize>,
    #[pyo3(item)]
    threshold: Option<f64>,
    #[pyo3(item)]
    ignore_index: Option<i64>,
}

impl MetricOptions {
    fn average(&self) -> PyResult<Average> {
        Ok(match self.average.as_deref().unwrap_or("macro") {
            "binary" => Average::Binary,
            "micro" => Average::Micro,
            "macro" => Average::Macro,
            "weighted" => Average::Weighted,
            other => {
                let text = format!("average must be 'binary', 'micro', 'macro' or 'weighted', got {other:?}");
                return Err(PyValueError::new_err(text));
            }
        })
    }

    fn classes(&self) -> usize {
        self.classes.unwrap_or(2)
    }
}

/// Sets the given options of a metric of classes.
macro_rules! of_classes {
    ($metric:expr, $options:expr) => {{
        let mut metric = $metric;
        if let Some(threshold) = $options.threshold {
            metric = metric.threshold(threshold);
        }
        if let Some(class) = $options.ignore_index {
            metric = metric.ignore_index(class);
        }
        Box::new(metric)
    }};
}

#[pymethods]
impl PyMetric {
    #[new]
    fn new(name: &str, options: MetricOptions) -> PyResult<PyMetric> {
        let metric: AnyMetric = match name {
            "Accuracy" => of_classes!(Accuracy::new(), options),
            "TopKAccuracy" => {
                let metric = TopKAccuracy::new(options.k.unwrap_or(5)).or_raise()?;
                Box::new(match options.ignore_index {
                    Some(class) => metric.ignore_index(class),
                    None => metric,
                })
            }
            "Precision" => of_classes!(Precision::new(options.classes(), options.average()?).or_raise()?, options),
            "Recall" => of_classes!(Recall::new(options.classes(), options.average()?).or_raise()?, options),
            "F1" => of_classes!(F1::new(options.classes(), options.average()?).or_raise()?, options),
            "RocAuc" if options.classes.is_none() => Box::new(RocAuc::binary()),
            "RocAuc" => Box::new(RocAuc::one_vs_rest(options.classes(), options.average()?).or_raise()?),
            "MeanSquaredError" => Box::new(MeanSquaredError::new()),
            "RootMeanSquaredError" => Box::new(RootMeanSquaredError::new()),
            "MeanAbsoluteError" => Box::new(MeanAbsoluteError::new()),
            "R2Score" => Box::new(R2Score::new()),
            "Perplexity" => Box::new(match options.ignore_index {
                Some(target) => Perplexity::new().ignore_index(target),
                None => Perplexity::new(),
            }),
            _ => return Err(PyValueError::new_err(format!("unknown metric {name}"))),
        };
        Ok(PyMetric(Mutex::new(metric)))
    }

    fn name(&self) -> String {
        lock(&self.0).name()
    }

    fn higher_is_better(&self) -> bool {
        lock(&self.0).higher_is_better()
    }

    fn update(&self, py: Python<'_>, prediction: &Bound<'_, PyAny>, target: &Bound<'_, PyAny>) -> PyResult<()> {
        let (prediction, target) = pair(prediction, target)?;
        with(py, &self.0, |metric| metric.update(&prediction, &target)).or_raise()
    }

    fn compute(&self) -> PyResult<f64> {
        lock(&self.0).compute().or_raise()
    }

    fn reset(&self) {
        lock(&self.0).reset();
    }
}

fn pair(prediction: &Bound<'_, PyAny>, target: &Bound<'_, PyAny>) -> PyResult<(Tensor, Tensor)> {
    Ok((expect("update", "prediction", prediction)?.detach(), expect("update", "target", target)?.detach()))
}

/// The confusion matrix: rows are targets, columns predictions.
#[pyclass(name = "ConfusionMatrix", module = "cotangent.train", frozen)]
struct PyConfusion(Mutex<ConfusionMatrix>);

#[pymethods]
impl PyConfusion {
    #[new]
    #[pyo3(signature = (classes, *, threshold=None, ignore_index=None))]
    fn new(classes: usize, threshold: Option<f64>, ignore_index: Option<i64>) -> PyResult<PyConfusion> {
        let mut matrix = ConfusionMatrix::new(classes).or_raise()?;
        if let Some(threshold) = threshold {
            matrix = matrix.threshold(threshold);
        }
        if let Some(class) = ignore_index {
            matrix = matrix.ignore_index(class);
        }
        Ok(PyConfusion(Mutex::new(matrix)))
    }

    /// Counts a batch. Predictions are classes, or a score for each class.
    fn update(&self, py: Python<'_>, prediction: &Bound<'_, PyAny>, target: &Bound<'_, PyAny>) -> PyResult<()> {
        let (prediction, target) = pair(prediction, target)?;
        with(py, &self.0, |matrix| matrix.update(&prediction, &target)).or_raise()
    }

    /// The accuracy.
    fn compute(&self) -> PyResult<f64> {
        lock(&self.0).compute().or_raise()
    }

    /// Resets the counts.
    fn reset(&self) {
        lock(&self.0).reset();
    }

    /// The counts, with a row for each target and a column for each prediction.
    fn to_tensor(&self, py: Python<'_>) -> PyResult<Py<PyTensor>> {
        PyTensor::object(py, lock(&self.0).to_tensor().or_raise()?)
    }

    /// The recall of each class.
    fn recall(&self) -> Vec<f64> {
        lock(&self.0).recall()
    }

    /// The precision of each class.
    fn precision(&self) -> Vec<f64> {
        lock(&self.0).precision()
    }

    /// The F1 score of each class.
    fn f1(&self) -> Vec<f64> {
        lock(&self.0).f1()
    }

    fn __str__(&self) -> String {
        lock(&self.0).to_string()
    }
}

/// Named numbers.
fn numbers(values: &Bound<'_, PyDict>) -> PyResult<Vec<(String, f64)>> {
    values.iter().map(|(name, value)| Ok((name.extract()?, value.extract()?))).collect()
}

fn log(py: Python<'_>, log: &Mutex<impl Log + Send>, step: u64, values: &Bound<'_, PyDict>) -> PyResult<()> {
    let values = numbers(values)?;
    let all: Vec<(&str, f64)> = values.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    with(py, log, |log| log.log(step, &all)).or_raise()
}

/// A log of lines: CSV or JSON.
#[pyclass(name = "_LineLog", module = "cotangent.train", frozen)]
struct PyLineLog(Mutex<Box<dyn Log + Send>>);

#[pymethods]
impl PyLineLog {
    #[new]
    fn new(kind: &str, path: PathBuf, append: bool) -> PyResult<PyLineLog> {
        let made: Result<Box<dyn Log + Send>> = match (kind, append) {
            ("csv", false) => CsvLog::create(path).map(|log| Box::new(log) as _),
            ("csv", true) => CsvLog::append(path).map(|log| Box::new(log) as _),
            (_, false) => JsonlLog::create(path).map(|log| Box::new(log) as _),
            (_, true) => JsonlLog::append(path).map(|log| Box::new(log) as _),
        };
        Ok(PyLineLog(Mutex::new(made.or_raise()?)))
    }

    fn log(&self, py: Python<'_>, step: u64, values: &Bound<'_, PyDict>) -> PyResult<()> {
        log(py, &self.0, step, values)
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        with(py, &self.0, Log::flush).or_raise()
    }
}

/// Event files of TensorBoard.
#[pyclass(name = "_TensorBoard", module = "cotangent.train", frozen)]
struct PyTensorBoard(Mutex<TensorBoard>);

#[pymethods]
impl PyTensorBoard {
    #[new]
    fn new(folder: PathBuf) -> PyResult<PyTensorBoard> {
        Ok(PyTensorBoard(Mutex::new(TensorBoard::create(folder).or_raise()?)))
    }

    fn log(&self, py: Python<'_>, step: u64, values: &Bound<'_, PyDict>) -> PyResult<()> {
        log(py, &self.0, step, values)
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        with(py, &self.0, Log::flush).or_raise()
    }

    fn scalar(&self, name: &str, step: u64, value: f64) -> PyResult<()> {
        lock(&self.0).scalar(name, step, value).or_raise()
    }

    fn histogram(&self, py: Python<'_>, name: &str, step: u64, values: &Bound<'_, PyTensor>) -> PyResult<()> {
        let values = values.get().get()?.detach();
        with(py, &self.0, |log| log.histogram(name, step, &values)).or_raise()
    }

    fn image(&self, py: Python<'_>, name: &str, step: u64, image: &Bound<'_, PyTensor>) -> PyResult<()> {
        let image = image.get().get()?.detach();
        with(py, &self.0, |log| log.image(name, step, &image)).or_raise()
    }

    fn text(&self, name: &str, step: u64, text: &str) -> PyResult<()> {
        lock(&self.0).text(name, step, text).or_raise()
    }

    fn path(&self) -> PathBuf {
        lock(&self.0).path().to_path_buf()
    }
}

/// Example images for the confusion matrix of a report.
#[pyclass(name = "Examples", module = "cotangent.train", frozen)]
struct PyExamples(Mutex<Examples>);

#[pymethods]
impl PyExamples {
    #[new]
    fn new(classes: usize) -> PyResult<PyExamples> {
        Ok(PyExamples(Mutex::new(Examples::new(classes).or_raise()?)))
    }

    /// Adds images of a batch, up to the limits.
    fn update(
        &self,
        py: Python<'_>,
        images: &Bound<'_, PyTensor>,
        prediction: &Bound<'_, PyAny>,
        target: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (images, (prediction, target)) = (images.get().get()?.detach(), pair(prediction, target)?);
        with(py, &self.0, |examples| examples.update(&images, &prediction, &target)).or_raise()
    }
}

/// An HTML page with the curves of a run.
#[pyclass(name = "_Report", module = "cotangent.train", frozen)]
struct PyReport(Mutex<Report>);

#[pymethods]
impl PyReport {
    #[new]
    fn new(title: String) -> PyReport {
        PyReport(Mutex::new(Report::new(title)))
    }

    fn log(&self, py: Python<'_>, step: u64, values: &Bound<'_, PyDict>) -> PyResult<()> {
        log(py, &self.0, step, values)
    }

    fn fact(&self, name: String, value: String) {
        lock(&self.0).fact(name, value);
    }

    fn confusion(&self, matrix: &Bound<'_, PyConfusion>, labels: Vec<String>) -> PyResult<()> {
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        lock(&self.0).confusion(&lock(&matrix.get().0), &labels).or_raise()
    }

    fn examples(&self, examples: &Bound<'_, PyExamples>) -> PyResult<()> {
        let examples = lock(&examples.get().0).clone();
        lock(&self.0).examples(examples).or_raise()
    }

    fn html(&self, py: Python<'_>) -> String {
        with(py, &self.0, |report| report.html())
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        with(py, &self.0, |report| report.save(path)).or_raise()
    }
}

/// A progress bar on the terminal.
#[pyclass(name = "_Progress", module = "cotangent.train", frozen)]
struct PyProgress(Mutex<Progress>);

#[pymethods]
impl PyProgress {
    #[new]
    fn new(total: Option<u64>, label: Option<String>, quiet: bool) -> PyProgress {
        let mut bar = total.map_or_else(Progress::unbounded, Progress::new);
        if let Some(label) = label {
            bar = bar.label(label);
        }
        PyProgress(Mutex::new(if quiet { bar.quiet() } else { bar }))
    }

    fn update(&self, done: u64, values: &Bound<'_, PyDict>) -> PyResult<()> {
        let values = numbers(values)?;
        let all: Vec<(&str, f64)> = values.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        lock(&self.0).update(done, &all);
        Ok(())
    }

    fn finish(&self) {
        lock(&self.0).finish();
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyMetric>()?;
    module.add_class::<PyConfusion>()?;
    module.add_class::<PyLineLog>()?;
    module.add_class::<PyTensorBoard>()?;
    module.add_class::<PyExamples>()?;
    module.add_class::<PyReport>()?;
    module.add_class::<PyProgress>()
}
