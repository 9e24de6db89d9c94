//! A report of a run as one self-contained HTML file.

mod curves;
mod examples;
mod graph;
mod phases;
mod sections;

pub use examples::Examples;
pub use phases::Phases;

use super::logs::Log;
use super::metrics::ConfusionMatrix;
use crate::autograd::{drawn, no_grad};
use crate::error::bail;
use crate::nn::Module;
use crate::{DType, Device, Error, Result, Tensor, io};
use cotangent_macros::named;
use curves::Series;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

/// A report of a run as a self-contained HTML page: curves of the logged numbers, a confusion matrix with examples, norms of
/// weights and gradients, time and memory by phase, the model, and a drawing of its graph. Empty sections are left out.
///
/// As a [`Log`] it takes numbers by step. Names that differ only by a prefix `train_`, `val_` or `test_` (or `train/`, ..)
/// share a chart.
///
/// ```
/// use cotangent::nn::{Forward, Linear};
/// use cotangent::train::{Log, Report};
/// use cotangent::Tensor;
/// # let folder = std::env::temp_dir().join(format!("cotangent-doc-report-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let model = Linear::new(3, 2)?;
/// let mut report = Report::new("A first run");
/// report.model(&model);
/// for step in 0..10 {
///     let loss = model.forward(&Tensor::ones([4, 3])?)?.square()?.mean(..)?;
///     if step == 0 {
///         report.graph(&loss, &model)?;
///     }
///     loss.backward()?;
///     report.norms(step, &model)?;
///     report.log(step, &[("loss", loss.item()?), ("val_loss", 0.5)])?;
/// }
/// report.fact("examples", "4");
/// report.save(folder.join("report.html"))?;
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Report {
    title: String,
    facts: Vec<(String, String)>,
    series: Vec<Series>,
    confusion: Option<Confusion>,
    norms: Vec<Norms>,
    phases: Option<Phases>,
    model: Option<(Vec<[String; 4]>, String)>,
    graph: Option<Graph>,
}

/// A matrix with the names of its classes.
#[derive(Debug)]
struct Confusion {
    matrix: ConfusionMatrix,
    labels: Vec<String>,
    examples: Option<Examples>,
}

/// The norms of a parameter and its gradient.
#[derive(Debug)]
struct Norms {
    name: String,
    shape: Vec<usize>,
    weight: Series,
    grad: Series,
}

#[derive(Debug)]
struct Graph {
    svg: String,
    nodes: usize,
    drawn: usize,
}

impl Report {
    /// An empty report.
    pub fn new(title: impl Into<String>) -> Report {
        Report { title: title.into(), ..Report::default() }
    }

    /// Sets a fact at the top of the page, such as the test accuracy. A fact of the same name is replaced.
    pub fn fact(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let (name, value) = (name.into(), value.into());
        match self.facts.iter_mut().find(|(old, _)| *old == name) {
            Some(fact) => fact.1 = value,
            None => self.facts.push((name, value)),
        }
    }

    /// Adds the table of a model's parts, as [`Module::summary`] prints it.
    pub fn model(&mut self, model: &dyn Module) {
        self.model = Some(crate::nn::summary::rows(model));
    }

    /// Draws the graph of a tensor: call it before the backward pass, which frees the graph. Leaves have the names of the
    /// model's parameters. Of a graph of more than 400 nodes, the 400 closest to the tensor are drawn.
    ///
    /// # Errors
    /// If the tensor has no graph, or a backward pass has freed it.
    #[named("Report::graph")]
    pub fn graph(&mut self, tensor: &Tensor, model: &dyn Module) -> Result<()> {
        let mut nodes = drawn("Report::graph", tensor)?;
        let all = nodes.len();
        let left_out = all.saturating_sub(graph::MOST);
        nodes.drain(..left_out);
        for node in &mut nodes {
            node.inputs = node.inputs.iter().filter_map(|input| input.checked_sub(left_out)).collect();
        }
        let named = |(name, parameter): (String, &crate::nn::Parameter)| Some((parameter.grad_node()?.seq, name));
        let names: HashMap<u64, String> = model.named_parameters().into_iter().filter_map(named).collect();
        self.graph = Some(Graph { svg: graph::svg(&nodes, &names), nodes: all, drawn: nodes.len() });
        Ok(())
    }

    /// Adds the current norms of all parameters and their gradients.
    ///
    /// # Errors
    /// If memory runs out.
    #[named("Report::norms")]
    pub fn norms(&mut self, step: u64, model: &dyn Module) -> Result<()> {
        let found = no_grad(|| {
            let norms = |(name, parameter): (String, &crate::nn::Parameter)| {
                let grad = parameter.grad().map(|grad| norm(&grad)).transpose()?;
                Ok((name, parameter.shape().to_vec(), norm(parameter)?, grad))
            };
            model.named_parameters().into_iter().map(norms).collect::<Result<Vec<_>>>()
        })?;
        for (name, shape, weight, grad) in found {
            let at = self.norms.iter().position(|norms| norms.name == name).unwrap_or_else(|| {
                let (weight, grad) = (Series::new("weight"), Series::new("gradient"));
                self.norms.push(Norms { name, shape, weight, grad });
                self.norms.len() - 1
            });
            self.norms[at].weight.push(step, weight);
            if let Some(grad) = grad {
                self.norms[at].grad.push(step, grad);
            }
        }
        Ok(())
    }

    /// Sets the confusion matrix, with the names of the classes, or none to number them.
    ///
    /// # Errors
    /// If `labels` is neither empty nor one per class.
    #[named("Report::confusion")]
    pub fn confusion(&mut self, matrix: &ConfusionMatrix, labels: &[&str]) -> Result<()> {
        if !labels.is_empty() && labels.len() != matrix.classes() {
            bail!(
                Value,
                "Report::confusion",
                "labels must be empty or one for each class, got {} for {} classes",
                labels.len(),
                matrix.classes()
            );
        }
        let labels = match labels {
            [] => (0..matrix.classes()).map(|class| class.to_string()).collect(),
            labels => labels.iter().map(ToString::to_string).collect(),
        };
        let examples = self.confusion.take().and_then(|old| old.examples);
        self.confusion = Some(Confusion { matrix: matrix.clone(), labels, examples });
        Ok(())
    }

    /// Sets example images for the cells of the confusion matrix, which must be set before.
    ///
    /// # Errors
    /// If there is no matrix, or it has another number of classes.
    #[named("Report::examples")]
    pub fn examples(&mut self, examples: Examples) -> Result<()> {
        const OP: &str = "Report::examples";
        let Some(confusion) = &mut self.confusion else {
            bail!(Value, OP, "no confusion matrix to show examples of: call confusion first");
        };
        if examples.classes() != confusion.matrix.classes() {
            let (own, classes) = (examples.classes(), confusion.matrix.classes());
            bail!(Value, OP, "examples must have the {classes} classes of the confusion matrix, got {own}");
        }
        confusion.examples = Some(examples);
        Ok(())
    }

    /// Sets the time and memory by phase.
    pub fn phases(&mut self, phases: &Phases) {
        self.phases = Some(phases.clone());
    }

    /// The page as HTML.
    pub fn html(&self) -> String {
        sections::page(self)
    }

    /// Writes the page to a file, atomically.
    ///
    /// # Errors
    /// If the file cannot be written.
    #[named("Report::save")]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let (path, html) = (path.as_ref(), self.html());
        io::replace_file(path, |file| file.write_all(html.as_bytes()))
            .map_err(|error| Error::io("Report::save", path, error))
    }
}

impl Log for Report {
    fn log(&mut self, step: u64, values: &[(&str, f64)]) -> Result<()> {
        for &(name, value) in values {
            match self.series.iter_mut().find(|series| series.name == name) {
                Some(series) => series.push(step, value),
                None => {
                    let mut series = Series::new(name);
                    series.push(step, value);
                    self.series.push(series);
                }
            }
        }
        Ok(())
    }
}

/// The Euclidean norm, of any dtype and on any device.
fn norm(values: &Tensor) -> Result<f64> {
    let wide = if values.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let values = if values.dtype().is_complex() { values.detach().abs()? } else { values.detach().to_dtype(wide)? };
    Ok(values.square()?.sum(..)?.to_device(Device::Cpu)?.item::<f64>()?.sqrt())
}

/// Escapes text for HTML, also in an attribute.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter => escaped.push(letter),
        }
    }
    escaped
}
