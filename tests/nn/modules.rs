//! Modules: names, state, modes, initialisation, and gradients through containers.

use crate::checks::both;
use cotangent::io::StateDict;
use cotangent::nn::{self, *};
use cotangent::optim::{Optimizer, Sgd};
use cotangent::{DType, Error, ErrorKind, Generator, Result, Tensor, tensor, with_generator};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A module with a field of every kind.
#[derive(Module)]
struct Everything<A: Module> {
    first: Linear,
    blocks: Vec<Block>,
    pair: [Linear; 2],
    absent: Option<Linear>,
    present: Option<Box<Linear>>,
    boxed: Box<dyn Layer>,
    heads: BTreeMap<String, Linear>,
    generic: A,
    scale: Parameter,
    rest: Vec<Parameter>,
    running_mean: Buffer,
    seen: Option<Buffer>,
    width: usize,
    label: Option<String>,
    sizes: [(usize, f64); 2],
    #[module(skip)]
    counter: Arc<AtomicUsize>,
    r#type: Linear,
}

#[derive(Module)]
struct Block {
    norm: LayerNorm,
    mlp: Sequential,
}

#[derive(Module)]
struct Pair(Linear, ReLU, Parameter);

fn ones(shape: impl Into<cotangent::Shape>) -> Result<Parameter> {
    Parameter::new(Tensor::ones(shape)?)
}

fn without_bias(inputs: usize, outputs: usize) -> Result<Linear> {
    Linear::new_with(inputs, outputs, LinearOptions::new().bias(false))
}

fn block() -> Result<Block> {
    let mlp =
        Sequential::new().add(Linear::new(2, 4)?).add(GELU::default()).add(Dropout::new(0.5)?).add(without_bias(4, 2)?);
    Ok(Block { norm: LayerNorm::new(2)?, mlp })
}

fn everything() -> Result<Everything<Pair>> {
    Ok(Everything {
        first: Linear::new(3, 2)?,
        blocks: vec![block()?, block()?],
        pair: [without_bias(2, 2)?, without_bias(2, 2)?],
        absent: None,
        present: Some(Box::new(without_bias(2, 2)?)),
        boxed: Box::new(Sequential::new().add(Embedding::new(5, 2)?)),
        heads: BTreeMap::from([("a".to_string(), without_bias(2, 1)?)]),
        generic: Pair(without_bias(2, 2)?, ReLU, ones([2])?),
        scale: ones(())?,
        rest: vec![ones([1])?, ones([1])?],
        running_mean: Buffer::new(Tensor::zeros([2])?),
        seen: Some(Buffer::new(tensor!(0)?)),
        width: 2,
        label: None,
        sizes: [(1, 2.0); 2],
        counter: Arc::default(),
        r#type: without_bias(1, 1)?,
    })
}

fn names<T>(parts: &[(String, &T)]) -> Vec<String> {
    parts.iter().map(|(name, _)| name.clone()).collect()
}

fn text(result: Result<impl Sized>) -> String {
    result.map_or_else(|error| error.to_string(), |_| "no error".to_string())
}

#[test]
fn names_are_the_ones_that_pytorch_gives() -> Result<()> {
    let model = everything()?;
    let expected = [
        "first.weight",
        "first.bias",
        "blocks.0.norm.weight",
        "blocks.0.norm.bias",
        "blocks.0.mlp.0.weight",
        "blocks.0.mlp.0.bias",
        "blocks.0.mlp.3.weight",
        "blocks.1.norm.weight",
        "blocks.1.norm.bias",
        "blocks.1.mlp.0.weight",
        "blocks.1.mlp.0.bias",
        "blocks.1.mlp.3.weight",
        "pair.0.weight",
        "pair.1.weight",
        "present.weight",
        "boxed.0.weight",
        "heads.a.weight",
        "generic.0.weight",
        "generic.2",
        "scale",
        "rest.0",
        "rest.1",
        "type.weight",
    ];
    assert_eq!(names(&model.named_parameters()), expected);
    assert_eq!(
        (model.width, model.label.as_deref(), model.sizes[0], model.counter.load(Ordering::Relaxed)),
        (2, None, (1, 2.0), 0)
    );
    assert!(model.absent.is_none());
    Ok(())
}

#[test]
fn buffers_are_part_of_the_state_but_never_parameters() -> Result<()> {
    let model = everything()?;
    assert_eq!(names(&model.named_buffers()), ["running_mean", "seen"]);
    assert!(names(&model.named_parameters()).iter().all(|name| name != "running_mean" && name != "seen"));
    let dict = model.state_dict();
    assert_eq!(dict.len(), model.named_parameters().len() + 2);
    assert!(dict.get("running_mean").is_some() && dict.get("seen").is_some());
    assert!(dict.iter().all(|(_, tensor)| !tensor.requires_grad()), "detached");
    Ok(())
}

#[derive(Module)]
struct Tied {
    embedding: Embedding,
    inner: Linear,
    output: Linear,
}

impl Tied {
    fn new() -> Result<Tied> {
        let embedding = Embedding::new(5, 3)?;
        let output = Linear { weight: embedding.weight.tie(), bias: None };
        Ok(Tied { embedding, inner: Linear::new(3, 3)?, output })
    }

    fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        self.output.forward(&self.inner.forward(&self.embedding.forward(indices)?)?)
    }
}

#[test]
fn a_tied_parameter_is_listed_counted_and_updated_once() -> Result<()> {
    let mut model = Tied::new()?;
    assert_eq!(names(&model.named_parameters()), ["embedding.weight", "inner.weight", "inner.bias"]);
    assert_eq!(model.num_parameters(), 15 + 9 + 3);
    assert!(model.state_dict().get("output.weight").is_some(), "PyTorch's state has both names");

    let before = model.embedding.weight.to_vec::<f32>()?;
    let indices = tensor!([0, 1, 4])?;
    let mut optimizer = Sgd::new(0.5);
    for _ in 0..3 {
        model.zero_grad();
        model.forward(&indices)?.square()?.mean(..)?.backward()?;
        optimizer.step(&mut model)?;
        assert!(model.embedding.weight.is_same(&model.output.weight), "still the same bytes");
    }
    assert_ne!(model.embedding.weight.to_vec::<f32>()?, before);
    assert_eq!(model.parameters().len(), 3, "still one leaf");

    // A step by hand: the gradient is the sum over both uses, and is applied once.
    let mut other = Tied::new()?;
    other.load_state_dict(&model.state_dict())?;
    model.zero_grad();
    model.forward(&indices)?.square()?.mean(..)?.backward()?;
    let grad = model.embedding.weight.grad().ok_or_else(no_gradient)?;
    let expected = model.embedding.weight.detach().sub(grad.mul(0.5)?)?;
    optimizer.step(&mut model)?;
    assert!(model.output.weight.allclose_with(&expected, (0.0, 1e-6))?);
    assert!(!other.output.weight.allclose_with(&expected, (0.0, 1e-6))?, "the copy is not trained with the original");
    Ok(())
}

#[test]
fn a_tied_parameter_is_not_changed_through_one_of_its_handles() -> Result<()> {
    let mut model = Tied::new()?;
    let before = model.embedding.weight.to_vec::<f32>()?;
    let alone = "is tied to 1 other handles, which would keep the old value: change it through parameters_mut";
    let by_hand = [
        text(model.embedding.weight.update(|w| w.zero_())),
        text(model.output.weight.set(&Tensor::zeros([5, 3])?)),
        text(model.output.weight.set_requires_grad(false)),
    ];
    for (refused, op) in both(by_hand.iter(), ["update: ", "set: ", "set_requires_grad: "]) {
        assert!(refused.contains(alone) && refused.starts_with(op), "{refused}");
    }
    assert_eq!(model.output.weight.to_vec::<f32>()?, before);
    // All handles together, and separately again after the others are dropped.
    for mut parameter in model.parameters_mut() {
        parameter.update(|values| values.fill_(0.5))?;
    }
    assert!(model.embedding.weight.is_same(&model.output.weight));
    assert_eq!(model.output.weight.to_vec::<f32>()?, [0.5; 15]);
    let Tied { mut embedding, output, .. } = model;
    // A model that holds some of the handles cannot be trained, cast or frozen: the others would be left behind.
    embedding.forward(&tensor!([1])?)?.sum(..)?.backward()?;
    let outside = "weight is tied to 1 handles outside this module";
    for refused in [
        text(Sgd::new(0.1).step(&mut embedding)),
        text(embedding.to_dtype(DType::F64)),
        text(embedding.requires_grad_(false)),
    ] {
        assert!(refused.contains(outside), "{refused}");
    }
    drop(output);
    embedding.weight.update(|w| w.zero_())?;
    assert_eq!(embedding.weight.to_vec::<f32>()?, [0.0; 15]);
    Ok(())
}

#[test]
fn a_failed_update_of_a_parameter_changes_nothing() -> Result<()> {
    let mut weight = Parameter::new(tensor!([1.0, 2.0])?)?;
    let hook = weight.register_hook(|g| Ok(Some(g.clone())))?;
    let failed = weight.update(|w| {
        w.mul_(3)?;
        w.add_(Tensor::ones([5])?)
    });
    let error = failed.err().ok_or_else(no_gradient)?;
    // The error is that of the inner call, with its line.
    assert_eq!((error.op(), error.location().map(cotangent::error::Location::line)), ("add_", Some(line!() - 4)));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        weight.update(|w| {
            w.mul_(3)?;
            std::panic::panic_any("on purpose")
        })
    }));
    assert!(panicked.is_err());
    assert!(
        weight
            .update(|w| w.fill_(7.0).and_then(|()| {
                *w = w.reshape([1, 2])?;
                Ok(())
            }))
            .is_err()
    );
    assert_eq!(weight.to_vec::<f32>()?, [1.0, 2.0]);
    assert!(weight.requires_grad() && weight.is_leaf());
    weight.mul(2.0)?.sum(..)?.backward()?;
    assert_eq!(weight.grad().ok_or_else(no_gradient)?.to_vec::<f32>()?, [2.0, 2.0]);
    hook.remove();
    Ok(())
}

fn no_gradient() -> Error {
    Error::new(ErrorKind::Graph, "test", "no gradient arrived")
}

#[test]
fn a_tied_parameter_stays_tied_when_it_is_loaded_cast_or_frozen() -> Result<()> {
    let mut model = Tied::new()?;
    let fresh = Tied::new()?;
    model.load_state_dict(&fresh.state_dict())?;
    assert!(model.embedding.weight.is_same(&model.output.weight) && model.parameters().len() == 3);
    // One of the two names is enough.
    let mut one = Tied::new()?.state_dict();
    assert!(one.remove("embedding.weight").is_some());
    model.load_state_dict(&one)?;
    assert!(model.embedding.weight.is_same(&model.output.weight));
    // Two that differ cannot both be the one parameter.
    one.insert("embedding.weight", Tensor::zeros([5, 3])?);
    let message = text(model.load_state_dict(&one));
    assert!(
        message.contains("embedding.weight and output.weight are one parameter, but their values differ"),
        "{message}"
    );

    // NaN equals NaN.
    let broken = Tensor::full([5, 3], f64::NAN)?;
    one.insert("embedding.weight", broken.clone());
    one.insert("output.weight", broken.add(1.0)?);
    model.load_state_dict(&one)?;

    model.to_dtype(DType::F64)?;
    assert!(model.embedding.weight.is_same(&model.output.weight) && model.parameters().len() == 3);
    assert!(model.parameters().iter().all(|t| t.dtype() == DType::F64 && t.requires_grad() && t.is_leaf()));
    model.requires_grad_(false)?;
    assert!(model.parameters().iter().all(|t| !t.requires_grad()));
    assert_eq!(model.num_parameters(), 27, "frozen, it is still one parameter");
    model.requires_grad_(true)?;
    assert_eq!(model.parameters().len(), 3);
    assert!(model.parameters().iter().all(|t| t.requires_grad()));
    Ok(())
}

#[test]
fn dropout_drops_in_training_only_however_deep_it_lies() -> Result<()> {
    let mut model = everything()?;
    assert!(model.is_training());
    let x = Tensor::ones([64, 2])?;
    let run = |model: &Everything<Pair>| model.blocks[1].mlp.forward(&x)?.to_vec::<f32>();
    assert_ne!(run(&model)?, run(&model)?, "different elements are dropped");
    model.eval();
    assert!(!model.is_training());
    assert_eq!(run(&model)?, run(&model)?);
    assert!(Dropout::new(0.3)?.forward(&x)?.to_vec::<f32>()?.contains(&0.0));
    let mut dropout = Dropout::new(0.3)?;
    dropout.eval();
    assert!(dropout.forward(&x)?.to_vec::<f32>()?.iter().all(|v| *v == 1.0));
    model.train();
    assert!(model.is_training());
    let refused = text(Dropout::new(1.5));
    assert_eq!(refused, "Dropout: dropout probability p must be in [0, 1], got 1.5");
    Ok(())
}

#[test]
fn gradients_and_hooks_reach_the_first_layer_through_dropout_and_layer_norm() -> Result<()> {
    let first = Linear::new(4, 8)?;
    let fired = Arc::new(AtomicUsize::new(0));
    let count = fired.clone();
    first.weight.register_hook(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    })?;
    let model = Sequential::new()
        .add(first)
        .add(LayerNorm::new(8)?)
        .add(Dropout::new(0.5)?)
        .add(Sequential::new().add(Tanh).add(Linear::new(8, 1)?));
    let x = Generator::seed(1).randn([32, 4])?;
    model.forward(&x)?.square()?.mean(..)?.backward()?;
    for (name, parameter) in model.named_parameters() {
        let grad = parameter.grad().ok_or_else(no_gradient)?;
        assert_eq!(grad.shape(), parameter.shape(), "{name}");
        assert!(grad.to_vec::<f32>()?.iter().any(|g| *g != 0.0), "{name} is not trained");
    }
    assert_eq!(fired.load(Ordering::Relaxed), 1);
    model.zero_grad();
    assert!(model.parameters().iter().all(|parameter| parameter.grad().is_none()));
    Ok(())
}

#[test]
fn a_state_goes_from_one_model_to_another() -> Result<()> {
    let (source, mut target) = (block()?, block()?);
    let leaf = target.norm.weight.as_deref().cloned();
    // A handle outside of the model would keep the old values.
    let handle = target.norm.weight.as_ref().map(Parameter::tie);
    let refused = text(target.load_state_dict(&source.state_dict()));
    assert!(refused.contains("norm.weight is tied to 1 handles outside this module"), "{refused}");
    drop(handle);
    target.load_state_dict(&source.state_dict())?;
    for ((name, a), (_, b)) in both(source.named_parameters(), target.named_parameters()) {
        assert!(a.equal(b)?, "{name}");
        assert!(b.requires_grad() && b.is_leaf(), "{name}");
    }
    // The parameter is the same: a gradient is visible through the old handle.
    let x = tensor!([[1.0, 2.0]])?;
    target.norm.forward(&x)?.sum(..)?.backward()?;
    assert!(leaf.as_ref().and_then(Tensor::grad).is_some());
    // But the old handle has the old values: it cannot be differentiated by mistake.
    let stale = leaf.map(|leaf| text(leaf.mul(2.0))).unwrap_or_default();
    assert!(stale.contains("made before the leaf was changed"), "{stale}");
    // Training the target changes neither the dictionary nor the source.
    let dict = target.state_dict();
    let before = dict.get("norm.weight").map(Tensor::to_vec::<f32>).transpose()?;
    Sgd::new(1.0).step(&mut target)?;
    assert_ne!(target.norm.weight.as_deref().map(Tensor::to_vec::<f32>).transpose()?, before);
    assert_eq!(dict.get("norm.weight").map(Tensor::to_vec::<f32>).transpose()?, before);
    assert_eq!(source.norm.weight.as_deref().map(Tensor::to_vec::<f32>).transpose()?, before);
    Ok(())
}

#[test]
fn a_state_that_does_not_fit_is_reported_whole_and_changes_nothing() -> Result<()> {
    let mut model = Sequential::new().add(Linear::new(2, 3)?).add(Linear::new(3, 1)?).add(without_bias(1, 1)?);
    let before: Vec<Vec<f32>> = model.parameters().iter().map(|t| t.to_vec::<f32>()).collect::<Result<_>>()?;
    let dict: StateDict = [
        ("0.weight", Tensor::zeros([3, 2])?),
        ("0.bias", Tensor::zeros([4])?),
        ("1.weight", Tensor::zeros_with([1, 3], DType::F64)?),
        ("2.weight", Tensor::zeros([1, 1])?),
        ("2.bias", Tensor::zeros([1])?),
    ]
    .into_iter()
    .collect();
    let expected = "load_state_dict: nothing was loaded:
  0.bias must have shape [3], got [4]
  1.weight must be f32, got f64
  missing 1.bias
  unexpected 2.bias";
    assert_eq!(text(model.load_state_dict(&dict)), expected);
    let lenient = "load_matching: nothing was loaded:
  0.bias must have shape [3], got [4]
  1.weight must be f32, got f64";
    assert_eq!(text(model.load_matching(&dict)), lenient);
    let after: Vec<Vec<f32>> = model.parameters().iter().map(|t| t.to_vec::<f32>()).collect::<Result<_>>()?;
    assert_eq!(before, after);
    Ok(())
}

#[test]
fn loading_what_fits_says_what_did_not_and_never_succeeds_with_nothing() -> Result<()> {
    let mut model = Sequential::new().add(Linear::new(2, 3)?);
    let dict: StateDict = [("0.weight", Tensor::ones([3, 2])?), ("1.weight", Tensor::ones([1])?)].into_iter().collect();
    let report = model.load_matching(&dict)?;
    assert_eq!(
        (report.loaded, &report.missing[..], &report.unexpected[..]),
        (1, &["0.bias".to_string()][..], &["1.weight".to_string()][..])
    );
    assert_eq!(report.to_string(), "1 loaded, missing: 0.bias; unexpected: 1.weight");
    assert!(model.parameters()[0].to_vec::<f32>()?.iter().all(|x| *x == 1.0));

    let strangers: StateDict = [("weight", Tensor::ones([3, 2])?)].into_iter().collect();
    let message = text(model.load_matching(&strangers));
    assert_eq!(message, "load_matching: no name matches: the module has 0.weight, 0.bias; the dictionary has weight");
    assert!(text(model.load_matching(&StateDict::new())).contains("no name matches"));
    assert!(text(model.load_state_dict(&StateDict::new())).contains("missing 0.weight"));
    Ok(())
}

#[test]
fn parameters_begin_as_in_pytorch() -> Result<()> {
    let mut generator = Generator::seed(3);
    let (linear, embedding, norm) = with_generator(&mut generator, || -> Result<_> {
        Ok((Linear::new(400, 300)?, Embedding::new(300, 200)?, LayerNorm::new([4, 5])?))
    })?;
    let statistics = |t: &Tensor| -> Result<(f64, f64, f64)> {
        let values: Vec<f64> = t.to_vec::<f32>()?.into_iter().map(f64::from).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / values.len() as f64;
        Ok((mean, variance.sqrt(), values.iter().fold(0.0, |most: f64, x| most.max(x.abs()))))
    };
    let bound = 1.0 / 400_f64.sqrt();
    for t in [Some(&*linear.weight), linear.bias.as_deref()].into_iter().flatten() {
        let (mean, std, most) = statistics(t)?;
        assert!(most <= bound && most > 0.95 * bound, "{most} of {bound}");
        assert!(mean.abs() < 0.12 * bound && (std - bound / 3_f64.sqrt()).abs() < 0.05 * bound, "{mean} {std}");
    }
    let (mean, std, most) = statistics(&embedding.weight)?;
    assert!(mean.abs() < 0.02 && (std - 1.0).abs() < 0.02 && most > 3.0);
    let expected = [(&norm.weight, 1.0), (&norm.bias, 0.0)];
    for (tensor, value) in expected {
        let tensor = tensor.as_ref().ok_or_else(no_gradient)?;
        assert!(tensor.shape() == [4, 5] && tensor.to_vec::<f32>()?.iter().all(|x| *x == value));
    }
    for t in [&linear.weight, &embedding.weight] {
        assert!(t.requires_grad() && t.is_leaf());
    }
    Ok(())
}

#[test]
fn weights_of_every_layer_fill_their_range() -> Result<()> {
    let all: Vec<(&str, f64, StateDict)> = with_generator(&mut Generator::seed(4), || {
        Ok::<_, Error>(vec![
            ("Conv1d", 1.0 / 60_f64.sqrt(), Conv1d::new(20, 50, 3)?.state_dict()),
            ("Conv2d", 1.0 / 90_f64.sqrt(), Conv2d::new(10, 50, 3)?.state_dict()),
            ("RNNCell", 0.2, RNNCell::new(8, 25)?.state_dict()),
            ("LSTMCell", 0.2, LSTMCell::new(8, 25)?.state_dict()),
            ("GRUCell", 0.2, GRUCell::new(8, 25)?.state_dict()),
            ("RNN", 0.2, RNN::new(8, 25)?.state_dict()),
            ("LSTM", 0.2, LSTM::new(8, 25)?.state_dict()),
            ("GRU", 0.2, GRU::new(8, 25)?.state_dict()),
        ])
    })?;
    for (layer, bound, state) in all {
        for name in state.names() {
            let values = state.get(name).ok_or_else(no_gradient)?.abs()?;
            let most = values.max(..)?.item::<f32>()? as f64;
            // Of twenty-five draws the greatest is in the upper third, but for one seed in twenty thousand.
            assert!(most <= bound * (1.0 + 1e-6) && most > 0.66 * bound, "{layer}.{name}: {most} of {bound}");
        }
    }
    Ok(())
}

#[test]
fn weights_of_a_sequence_learn_without_a_gradient_of_the_input() -> Result<()> {
    let gradients = |wanted: bool| -> Result<Vec<Vec<f32>>> {
        with_generator(&mut Generator::seed(5), || {
            let layer = LSTM::new(3, 4)?;
            let x = Tensor::randn([5, 2, 3])?.requires_grad_(wanted)?;
            layer.forward(&x)?.square()?.sum(..)?.backward()?;
            layer.parameters().iter().map(|w| w.grad().ok_or_else(no_gradient)?.to_vec::<f32>()).collect()
        })
    };
    assert_eq!(gradients(false)?, gradients(true)?);
    Ok(())
}

#[test]
fn the_same_seed_gives_the_same_network() -> Result<()> {
    let make = |seed: u64| with_generator(&mut Generator::seed(seed), || Linear::new(5, 4)?.weight.to_vec::<f32>());
    assert_eq!(make(1)?, make(1)?);
    assert_ne!(make(1)?, make(2)?);
    Ok(())
}

#[test]
fn initialisers_have_the_spread_they_promise() -> Result<()> {
    with_generator(&mut Generator::seed(0), || {
        use init::{Fan, Gain};
        // For the smallest tensor one draw in forty exceeds the tolerance.
        let shape = [200, 300];
        let check = |tensor: Tensor, std: f64, bounded: bool| -> Result<()> {
            let values = tensor.to_vec::<f32>()?;
            let measured = (values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / values.len() as f64).sqrt();
            assert!((measured / std - 1.0).abs() < 0.02, "{measured} and not {std}");
            let bound = std * 3_f64.sqrt();
            assert_eq!(values.iter().all(|x| f64::from(x.abs()) <= bound * 1.000_001), bounded);
            Ok(())
        };
        check(init::kaiming_uniform(shape, Gain::Relu, Fan::In)?, (2.0 / 300_f64).sqrt(), true)?;
        check(init::kaiming_normal(shape, Gain::LeakyRelu(0.5), Fan::Out)?, (1.6 / 200_f64).sqrt(), false)?;
        check(init::xavier_uniform(shape, Gain::Tanh)?, 5.0 / 3.0 * (2.0 / 500_f64).sqrt(), true)?;
        check(init::xavier_normal(shape, Gain::Linear)?, (2.0 / 500_f64).sqrt(), false)?;
        check(init::kaiming_normal([20, 10, 5, 6], Gain::Linear, Fan::In)?, (1.0 / 300_f64).sqrt(), false)?;
        assert!(init::constant([3], 0.5)?.to_vec::<f32>()?.iter().all(|x| *x == 0.5));
        assert!(
            text(init::kaiming_uniform([3], Gain::Relu, Fan::In)).contains("must have at least 2 dimensions, got [3]")
        );
        assert!(text(init::uniform([3], 1.0, 0.0)).contains("got low 1 and high 0"));
        assert!(text(init::normal([3], 0.0, -1.0)).contains("std must be ≥ 0, got -1"));
        Ok(())
    })
}

#[test]
fn the_summary_is_a_table_with_totals() -> Result<()> {
    let mut tied = Tied::new()?;
    tied.inner.bias.as_mut().map(|bias| bias.set_requires_grad(false)).transpose()?;
    let expected = "\
name              kind       shape   parameters
-----------------------------------------------
                  Tied
embedding         Embedding
embedding.weight  parameter  [5, 3]          15
inner             Linear
inner.weight      parameter  [3, 3]           9
inner.bias        frozen     [3]              3
output            Linear
output.weight     tied       [5, 3]
-----------------------------------------------
27 parameters, 3 of them frozen, 0.00 MiB";
    assert_eq!(tied.summary(), expected);
    let large = without_bias(1024, 1024)?.summary();
    assert!(large.ends_with("1 048 576 parameters, 4.00 MiB"), "{large}");
    let model = everything()?.summary();
    assert!(model.contains("running_mean           buffer"), "{model}");
    Ok(())
}

#[test]
fn a_model_is_saved_and_loaded() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("cotangent-nn-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = folder.join("model.safetensors");
    let (source, mut target) = (block()?, block()?);
    nn::save(&source, &path)?;
    nn::load(&mut target, &path)?;
    for ((name, a), (_, b)) in both(source.named_parameters(), target.named_parameters()) {
        assert!(a.equal(b)?, "{name}");
    }
    let mut other = Linear::new(1, 1)?;
    assert!(text(nn::load(&mut other, &path)).contains("missing weight"));
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

#[test]
fn activations_are_layers() -> Result<()> {
    let x = tensor!([[-2.0, -0.5], [0.0, 3.0]])?;
    let pairs: [(Box<dyn Layer>, Tensor); 12] = [
        (Box::new(ReLU), x.relu()?),
        (Box::new(SiLU), x.silu()?),
        (Box::new(Tanh), x.tanh()?),
        (Box::new(Sigmoid), x.sigmoid()?),
        (Box::new(Identity), x.clone()),
        (Box::new(GELU::default()), x.gelu_with(cotangent::options::Gelu::Erf)?),
        (Box::new(LeakyReLU::default()), x.leaky_relu_with(0.01)?),
        (Box::new(ELU::default()), x.elu_with(1.0)?),
        (
            Box::new(Softplus::default()),
            x.softplus_with(cotangent::options::SoftplusOptions::new().beta(1.0).threshold(20.0))?,
        ),
        (Box::new(Softmax::new(-1)?), x.softmax(-1)?),
        (Box::new(LogSoftmax::new(0)?), x.log_softmax(0)?),
        (Box::new(Flatten::new_with(FlattenOptions::new().start_dim(0))), x.flatten(0, -1)?),
    ];
    for (layer, expected) in pairs {
        assert!(layer.forward(&x)?.equal(&expected)?);
        assert_eq!(layer.num_parameters(), 0);
    }
    let model = Sequential::new().add(Linear::new(2, 2)?).add(ReLU).add(Sequential::new().add(Tanh));
    assert_eq!(format!("{model:?}"), "Sequential(Linear, ReLU, Sequential)");
    assert!(Sequential::new().forward(&x)?.is_same(&x));
    Ok(())
}

#[test]
fn modules_can_cross_threads() {
    fn assert_send_sync<T: Send + Sync>() {}
    assert_send_sync::<Sequential>();
    assert_send_sync::<Linear>();
    assert_send_sync::<Box<dyn Layer>>();
    assert_send_sync::<cotangent::optim::AdamW>();
}

#[test]
fn without_a_momentum_running_statistics_are_means_of_all_batches() -> Result<()> {
    let mut layer = BatchNorm1d::new_with(1, BatchNormLayerOptions::new().momentum(None))?;
    for batch in [[1.0_f32, 3.0], [5.0, 9.0], [2.0, 4.0]] {
        layer.forward(&Tensor::from_slice(&batch, [2, 1])?)?;
    }
    let value = |buffer: &Option<Buffer>| buffer.as_ref().map_or(Ok(f32::NAN), |buffer| buffer.get().item::<f32>());
    let (mean, var) = (value(&layer.running_mean)?, value(&layer.running_var)?);
    assert!((mean - 4.0).abs() < 1e-5 && (var - 4.0).abs() < 1e-5, "{mean}, {var}");
    layer.eval();
    let before = layer.state_dict();
    layer.forward(&Tensor::from_slice(&[1.0_f32], [1, 1])?)?;
    for (name, values) in layer.state_dict().iter() {
        assert!(before.get(name).is_some_and(|old| old.equal(values).unwrap_or(false)), "{name} changed");
    }
    Ok(())
}
