//! Quantised weights: their bytes and values against the package `gguf`, products against those of the dequantised weights,
//! models and files. The fixtures are written by `tools/gguf_fixtures.py` and `tools/nf4_fixtures.py`.

use cotangent::autograd::{self, GradOptions};
use cotangent::io::{gguf, npz};
use cotangent::models::*;
use cotangent::nn::{
    self, Embedding, Forward, Linear, LoraLinear, Module, Parameter, QuantFormat, QuantizedTensor, ReLU, Sequential,
};
use cotangent::optim::{AdamW, Optimizer};
use cotangent::settings::with_num_threads;
use cotangent::{DType, Generator, Result, Tensor, tensor};
use std::path::{Path, PathBuf};

type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}

fn message(result: Result<impl Sized>) -> String {
    result.map_or_else(|error| error.to_string(), |_| "no error".to_string())
}

fn randn(seed: u64, shape: [usize; 2]) -> Result<Tensor> {
    Generator::seed(seed).randn(shape)
}

/// The root of the mean square of the difference, relative to that of `b`.
fn error(a: &Tensor, b: &Tensor) -> Result<f64> {
    let wide = |x: &Tensor| x.detach().to_dtype(DType::F64);
    let size = |x: &Tensor| x.square()?.mean(..)?.sqrt()?.item::<f64>();
    Ok(size(&wide(a)?.sub(&wide(b)?)?)? / size(&wide(b)?)?)
}

/// The error of a format's values, relative to normal ones: from the distances of its codes.
fn error_of(format: QuantFormat) -> f64 {
    match format {
        QuantFormat::Q8_0 | QuantFormat::Int8 => 0.01,
        QuantFormat::Q6K => 0.025,
        QuantFormat::Q5K | QuantFormat::Q5_0 | QuantFormat::Q5_1 => 0.05,
        QuantFormat::Q3K => 0.2,
        QuantFormat::Q2K => 0.35,
        _ => 0.11,
    }
}

#[test]
fn values_are_quantised_to_the_bytes_of_the_gguf_package() -> Outcome {
    let expected = npz::load(fixture("io/quantize.npz"))?;
    let values = expected.get("values").ok_or("values")?;
    for format in [QuantFormat::Q4_0, QuantFormat::Q4_1, QuantFormat::Q5_0, QuantFormat::Q5_1, QuantFormat::Q8_0] {
        let wanted = expected.get(format.name()).ok_or(format.name())?;
        let got = QuantizedTensor::quantize(values, format)?;
        assert_eq!(got.blocks().to_vec::<u8>()?, wanted.to_vec::<u8>()?, "{format}");
    }
    Ok(())
}

#[test]
fn nf4_has_the_bytes_and_the_values_of_bitsandbytes() -> Outcome {
    let expected = npz::load(fixture("io/nf4.npz"))?;
    let get = |name: &'static str| expected.get(name).ok_or(name);
    let weight = QuantizedTensor::quantize(get("values")?, QuantFormat::Nf4)?;
    assert_eq!(weight.blocks().to_vec::<u8>()?, get("blocks")?.to_vec::<u8>()?);
    let weight = QuantizedTensor::from_blocks(get("blocks")?, QuantFormat::Nf4)?;
    assert!(weight.dequantize()?.equal(get("dequantized")?)?);
    Ok(())
}

#[test]
fn blocks_of_a_file_are_dequantised_as_by_the_gguf_package() -> Outcome {
    let (file, expected) = (gguf::open(fixture("io/quantized.gguf"))?, npz::load(fixture("io/quantized.npz"))?);
    for format in QuantFormat::ALL {
        let Some(wanted) = expected.get(format.name()) else { continue };
        let weight = file.quantized(format.name())?;
        assert_eq!((weight.format(), &weight.shape()[..]), (format, wanted.shape()));
        assert!(weight.dequantize()?.equal(wanted)?, "{format}");
    }
    assert!(message(file.quantized("BF16")).contains("must be a quantised matrix, got BF16"));
    Ok(())
}

#[test]
fn quantised_values_are_near_and_are_kept_by_quantising_again() -> Outcome {
    for format in QuantFormat::ALL {
        let values = randn(1, [6, 768])?;
        let weight = QuantizedTensor::quantize(&values, format)?;
        assert_eq!(weight.blocks().shape(), [6, format.row_bytes(768)?]);
        let near = weight.dequantize()?;
        let lost = error(&near, &values)?;
        assert!(lost < error_of(format), "{format} loses {lost}");
        assert!(lost > error_of(format) / 8.0, "{format} loses only {lost}");
        let again = QuantizedTensor::quantize(&near, format)?.dequantize()?;
        assert!(error(&again, &near)? < error_of(format) / 3.0, "{format}: {}", error(&again, &near)?);
        let zeros = QuantizedTensor::quantize(&Tensor::zeros([2, 768])?, format)?.dequantize()?;
        assert!(zeros.equal(&Tensor::zeros([2, 768])?)?, "{format}");
    }
    Ok(())
}

/// The few rows are quantised, too, with an error of at most half a step of 1/127 of the largest of 32: for normal numbers
/// half a percent of the size of the result.
#[test]
fn products_are_those_of_the_dequantised_weight() -> Outcome {
    for format in QuantFormat::ALL {
        for (rows, outputs, inputs) in
            [(1, 33, 256), (1, 70, 768), (3, 33, 1024), (16, 40, 512), (17, 40, 512), (40, 1100, 512), (130, 70, 1280)]
        {
            let weight = QuantizedTensor::quantize(&randn(2, [outputs, inputs])?, format)?;
            let x = randn(3, [rows, inputs])?;
            let bias = Generator::seed(4).randn([outputs])?;
            let dense = weight.dequantize()?;
            let few = rows <= 16 && format != QuantFormat::Nf4;
            let wanted = x.linear(&dense, Some(&bias))?;
            let got = weight.linear(&x, Some(&bias))?;
            assert_eq!(got.shape(), [rows, outputs]);
            let lost = error(&got, &wanted)?;
            let near = if few { 0.003..0.0065 } else { 0.0..1e-6 };
            println!("{format}: {rows} x {outputs} x {inputs}: {lost}");
            assert!(near.contains(&lost), "{format}: {rows} x {outputs} x {inputs}: {lost}");
            for dtype in [DType::BF16, DType::F16] {
                let half = weight.linear(&x.to_dtype(dtype)?, None)?;
                assert_eq!(half.dtype(), dtype);
                // bf16 has 8 bits: input, result and, on a unit for bf16, the weight are rounded to 0.2 %.
                assert!(error(&half, &x.linear(&dense, None)?)? < 0.007, "{format} in {dtype}");
            }
            let exact = weight.linear(&x.to_dtype(DType::F64)?, None)?;
            let wide = x.to_dtype(DType::F64)?.linear(&dense.to_dtype(DType::F64)?, None)?;
            assert!(exact.dtype() == DType::F64 && exact.allclose_with(&wide, (1e-12, 1e-12))?, "{format} in f64");
        }
    }
    Ok(())
}

/// The codes of such rows are exact, so that only the order of sums differs: every code of every position is seen.
#[test]
fn products_with_exact_rows_are_exact() -> Outcome {
    for format in QuantFormat::ALL {
        let inputs = 768;
        // In blocks of 32 the largest is 127: the scale is 1.
        let codes = (0..inputs).map(|i| if i % 32 == 5 { 127.0 } else { f32::from((i * 37 % 255) as u8) - 127.0 });
        let x = Tensor::from_vec(codes.collect::<Vec<f32>>(), [1, inputs])?;
        let weight = QuantizedTensor::quantize(&randn(5, [50, inputs])?, format)?;
        let got = weight.linear(&x, None)?;
        let wanted = x.to_dtype(DType::F64)?.linear(&weight.dequantize()?.to_dtype(DType::F64)?, None)?;
        assert!(error(&got, &wanted)? < 2e-6, "{format}: {}", error(&got, &wanted)?);
    }
    Ok(())
}

/// Rows that are no whole groups of 256.
#[test]
fn rows_of_any_number_of_blocks_are_multiplied() -> Outcome {
    for format in QuantFormat::ALL {
        let block = format.block_elements();
        for blocks in [1, 2, 3, 7, 9, 11] {
            let inputs = block * blocks;
            let values = randn(6, [5, inputs])?;
            let weight = QuantizedTensor::quantize(&values, format)?;
            let lost = error(&weight.dequantize()?, &values)?;
            // Few values: the error is that of their largest. A block that is left out is an error of 0.3 or more.
            let most = if format == QuantFormat::Q2K { 0.45 } else { (1.5 * error_of(format)).min(0.25) };
            assert!(lost < most, "{format} of {inputs} loses {lost}");
            let x = Generator::seed(7).randn([2, 3, inputs])?;
            let (got, wanted) = (weight.linear(&x, None)?, x.linear(&weight.dequantize()?, None)?);
            assert_eq!(got.shape(), [2, 3, 5]);
            // One element is not quantised to within 2 % of another, but the error is that of its own scale.
            assert!(error(&got, &wanted)? < 0.03, "{format} of {inputs}: {}", error(&got, &wanted)?);
            // More rows than are multiplied as integers, both ways.
            let x = Generator::seed(7).randn([20, inputs])?.requires_grad_(true)?;
            let (got, wanted) = (weight.linear(&x, None)?, x.linear(&weight.dequantize()?, None)?);
            assert!(error(&got, &wanted)? < 1e-6, "20 rows, {format} of {inputs}: {}", error(&got, &wanted)?);
            got.sum(..)?.backward()?;
            let (got, wanted) = (x.grad().ok_or("x")?, weight.dequantize()?.sum(0)?.expand([20, inputs])?);
            assert!(error(&got, &wanted)? < 1e-5, "gradient, {format} of {inputs}: {}", error(&got, &wanted)?);
        }
    }
    Ok(())
}

#[test]
fn products_do_not_depend_on_the_number_of_threads() -> Outcome {
    for format in QuantFormat::ALL {
        let weight = QuantizedTensor::quantize(&randn(8, [700, 512])?, format)?;
        for rows in [1, 5, 20] {
            let x = randn(9, [rows, 512])?;
            let one = with_num_threads(1, || weight.linear(&x, None))??;
            assert!(with_num_threads(3, || weight.linear(&x, None))??.equal(&one)?, "{format}, {rows} rows");
            let same = with_num_threads(3, || weight.dequantize())??;
            assert!(with_num_threads(1, || weight.dequantize())??.equal(&same)?, "{format}");
        }
    }
    Ok(())
}

#[test]
fn gradients_are_those_of_the_dequantised_weight() -> Outcome {
    for format in [QuantFormat::Q4K, QuantFormat::Q8_0, QuantFormat::Nf4] {
        let weight = QuantizedTensor::quantize(&randn(10, [1100, 512])?, format)?;
        let dense = weight.dequantize()?;
        for rows in [2, 30] {
            let x = randn(11, [rows, 512])?.requires_grad_(true)?;
            let bias = Generator::seed(12).randn([1100])?.requires_grad_(true)?;
            let factors = randn(13, [rows, 1100])?;
            weight.linear(&x, Some(&bias))?.mul(&factors)?.sum(..)?.backward()?;
            let wanted = factors.matmul(&dense)?;
            assert!(error(&x.grad().ok_or("x")?, &wanted)? < 1e-5, "{format}, {rows} rows");
            assert!(error(&bias.grad().ok_or("bias")?, &factors.sum(0)?)? < 1e-5);
        }
        // The second derivative of a cubic function of the output.
        let x = Generator::seed(14).randn_with([3, 512], DType::F64)?.requires_grad_(true)?;
        let dense = dense.to_dtype(DType::F64)?;
        let of = |y: Result<Tensor>| -> Outcome<Tensor> {
            let options = GradOptions::new().create_graph(true);
            let first = autograd::grad_with(&y?.pow(3.0)?.mean(..)?, &[&x], options)?;
            let first = first.into_iter().next().flatten().ok_or("a gradient")?;
            let second = autograd::grad(&first.square()?.sum(..)?, &[&x])?;
            Ok(second.into_iter().next().flatten().ok_or("a gradient")?)
        };
        assert!(error(&of(weight.linear(&x, None))?, &of(x.linear(&dense, None))?)? < 1e-9, "{format}");
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Outcome {
    let quantize = |x: &Tensor| message(QuantizedTensor::quantize(x, QuantFormat::Q8_0));
    assert!(quantize(&Tensor::ones([2, 33])?).contains("must be a multiple of 32 for Q8_0, got 33"));
    assert!(quantize(&Tensor::ones([32])?).contains("must be a matrix, got shape [32]"));
    assert!(quantize(&Tensor::ones_with([2, 32], DType::I64)?).contains("must be floating point, got i64"));
    for bad in [f32::NAN, f32::INFINITY, 1e30] {
        for format in QuantFormat::ALL {
            let x = Tensor::full([3, 256], bad)?;
            let refused = message(QuantizedTensor::quantize(&x, format));
            // Scales in f32 have room for all numbers.
            let fits = bad == 1e30 && matches!(format, QuantFormat::Int8 | QuantFormat::Nf4);
            assert_eq!(
                fits,
                !refused.contains("values must be finite and within the range"),
                "{bad} {format}: {refused}"
            );
        }
    }
    let blocks = |shape: [usize; 2], dtype| Tensor::zeros_with(shape, dtype);
    let refused = message(QuantizedTensor::from_blocks(&blocks([2, 35], DType::U8)?, QuantFormat::Q8_0));
    assert!(refused.contains("rows must be whole blocks of Q8_0, got 35 bytes"), "{refused}");
    let refused = message(QuantizedTensor::from_blocks(&blocks([2, 34], DType::I8)?, QuantFormat::Q8_0));
    assert!(refused.contains("must be a matrix of u8, got i8"), "{refused}");
    let weight = QuantizedTensor::quantize(&Tensor::ones([2, 32])?, QuantFormat::Q8_0)?;
    let refused = message(weight.linear(&Tensor::ones([3, 31])?, None));
    assert!(refused.starts_with("quantized_linear: input, weight and bias must have shapes"), "{refused}");
    assert!(refused.contains("[3, 31], [2, 32]"), "{refused}");
    assert!(message(weight.linear(&Tensor::ones_with([3, 32], DType::I32)?, None)).contains("must be floating point"));
    assert!(message(weight.embedding(&tensor!([2])?)).contains('2'));
    Ok(())
}

#[test]
fn infinities_and_nan_of_the_input_reach_the_result() -> Outcome {
    let weight = QuantizedTensor::quantize(&Tensor::ones([2, 64])?, QuantFormat::Q4_0)?;
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut values = vec![1.0_f32; 128];
        values[70] = bad;
        let y = weight.linear(&Tensor::from_vec(values, [2, 64])?, None)?.to_vec::<f32>()?;
        assert!(y[..2].iter().all(|y| y.is_finite()) && y[2..].iter().all(|y| !y.is_finite()), "{y:?}");
    }
    Ok(())
}

fn small_model() -> Result<Sequential> {
    cotangent::with_generator(&mut Generator::seed(15), || {
        Ok(Sequential::new().add(Embedding::new(10, 64)?).add(Linear::new(64, 96)?).add(ReLU).add(Linear::new(96, 5)?))
    })
}

#[test]
fn a_model_is_quantised_by_name_saved_and_loaded() -> Outcome {
    let tokens = tensor!([[1, 2, 9]])?;
    let mut model = small_model()?;
    let before = model.forward(&tokens)?;
    assert!(message(nn::quantize(&mut model, |_, _| Some(QuantFormat::Q4K))).contains("multiple of 256"));
    assert!(model.forward(&tokens)?.equal(&before)?, "nothing was changed");
    let choose = |name: &str, weight: &Parameter| {
        assert!(["0", "1", "3"].contains(&name) && weight.rank() == 2, "{name}");
        (name != "3").then_some(QuantFormat::Q8_0)
    };
    assert_eq!(nn::quantize(&mut model, choose)?, 2);
    assert_eq!(nn::quantize(&mut model, |name, _| (name != "3").then_some(QuantFormat::Q4_0))?, 0, "already quantised");
    let after = model.forward(&tokens)?;
    assert!(error(&after, &before)? < 0.02);
    assert_eq!(model.num_parameters(), small_model()?.num_parameters());
    assert!(model.summary().contains("quantized") && model.summary().contains("[96, 64]"), "{}", model.summary());
    let names: Vec<String> = model.state_dict().names().map(str::to_string).collect();
    assert_eq!(names, ["0.weight.Q8_0", "1.weight.Q8_0", "1.bias", "3.weight", "3.bias"]);
    let path = std::env::temp_dir().join(format!("cotangent-quantized-{}.safetensors", std::process::id()));
    nn::save(&model, &path)?;
    let mut other = cotangent::with_generator(&mut Generator::seed(16), small_model)?;
    other.parameters_mut().into_iter().try_for_each(|mut p| p.update(|values| values.mul_(0.5)))?;
    let refused = message(nn::load(&mut other, &path));
    assert!(refused.contains("missing 1.weight") && refused.contains("unexpected 1.weight.Q8_0"), "{refused}");
    nn::quantize(&mut other, choose)?;
    nn::load(&mut other, &path)?;
    std::fs::remove_file(path)?;
    assert!(other.forward(&tokens)?.equal(&after)?);
    assert!(model.deep_clone()?.forward(&tokens)?.equal(&after)?);
    // The weights stay as they are, and frozen.
    model.to_dtype(DType::BF16)?;
    assert_eq!(model.state_dict().get("1.weight.Q8_0").map(Tensor::dtype), Some(DType::U8));
    assert!(message(other.requires_grad_(true)).contains("a quantized weight cannot be trained, got one of Q8_0"));
    assert_eq!(nn::dequantize(&mut other)?, 2);
    assert!(error(&other.forward(&tokens)?, &after)? < 0.02);
    Ok(())
}

#[test]
fn tied_weights_stay_tied() -> Outcome {
    let (table, mut head) = (Embedding::new(20, 32)?, Linear::new(32, 20)?);
    head.weight = table.weight.tie();
    let mut model = Sequential::new().add(table).add(head);
    let before = model.forward(&tensor!([3])?)?;
    assert_eq!(nn::quantize(&mut model, |_, _| Some(QuantFormat::Q8_0))?, 1);
    assert!(error(&model.forward(&tensor!([3])?)?, &before)? < 0.02);
    assert_eq!(model.parameters().len(), 2);
    // A file has the weight under both names.
    let path = std::env::temp_dir().join(format!("cotangent-quantized-tied-{}.safetensors", std::process::id()));
    nn::save(&model, &path)?;
    let (after, copy) = (model.forward(&tensor!([3])?)?, &mut model.deep_clone()?);
    copy.parameters_mut().into_iter().take(1).try_for_each(|mut weight| weight.update(|blocks| blocks.zero_()))?;
    assert!(!copy.forward(&tensor!([3])?)?.equal(&after)?);
    nn::load(copy, &path)?;
    std::fs::remove_file(path)?;
    assert!(copy.forward(&tensor!([3])?)?.equal(&after)?);
    let outside = model.parameters()[0].tie();
    assert!(message(nn::dequantize(&mut model)).contains("outside"));
    drop(outside);
    assert_eq!(nn::dequantize(&mut model)?, 1);
    Ok(())
}

/// Layers of a program, two of them with names of this library's.
mod own {
    use super::*;

    /// Multiplies the rows by matrices of factors.
    #[derive(Module)]
    pub struct Linear {
        pub weight: Parameter,
    }

    #[derive(Module)]
    pub struct Embedding {
        pub weight: Parameter,
    }

    /// Two products, one after the other, with weights that may be quantised.
    #[derive(Module)]
    pub struct Twice {
        #[module(quantizable)]
        pub weight: Parameter,
        #[module(quantizable, rename = "second")]
        pub other: Parameter,
    }

    impl Forward for Twice {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            let product = |x: &Tensor, weight: &Parameter| match weight.quantized() {
                Some(weight) => weight.linear(x, None),
                None => x.linear(weight, None),
            };
            product(&product(x, &self.weight)?, &self.other)
        }
    }
}

#[test]
fn only_weights_that_are_marked_are_quantised() -> Outcome {
    #[derive(Module)]
    struct Model {
        scale: own::Linear,
        table: own::Embedding,
        twice: own::Twice,
        head: Linear,
    }
    let weight = |seed: u64| Parameter::new(randn(seed, [64, 64])?);
    let (scale, table) = (own::Linear { weight: weight(30)? }, own::Embedding { weight: weight(31)? });
    let twice = own::Twice { weight: weight(32)?, other: weight(33)? };
    let mut model = Model { scale, table, twice, head: Linear::new(64, 64)? };
    let x = randn(34, [3, 64])?;
    let before = model.twice.forward(&x)?;
    let names = std::cell::RefCell::new(Vec::new());
    let count = nn::quantize(&mut model, |name, _| {
        names.borrow_mut().push(name.to_string());
        Some(QuantFormat::Q8_0)
    })?;
    assert_eq!((count, names.into_inner()), (3, ["twice", "twice.second", "head"].map(str::to_string).to_vec()));
    assert!(model.scale.weight.quantized().is_none() && model.table.weight.quantized().is_none());
    let names: Vec<String> = model.state_dict().names().map(str::to_string).collect();
    assert_eq!(
        names,
        ["scale.weight", "table.weight", "twice.weight.Q8_0", "twice.second.Q8_0", "head.weight.Q8_0", "head.bias"]
    );
    assert!(error(&model.twice.forward(&x)?, &before)? < 0.02);
    assert_eq!(nn::dequantize(&mut model)?, 3);
    assert!(error(&model.twice.forward(&x)?, &before)? < 0.02);
    // A weight that is also used in another way stays as it is.
    model.scale.weight = model.head.weight.tie();
    let refused = message(nn::quantize(&mut model, |_, _| Some(QuantFormat::Q8_0)));
    assert!(refused.contains("head.weight is tied to scale.weight, which does not compute"), "{refused}");
    assert!(model.parameters().iter().all(|weight| weight.quantized().is_none()));
    assert_eq!(nn::quantize(&mut model, |name, _| (name != "head").then_some(QuantFormat::Q8_0))?, 2);
    Ok(())
}

#[test]
fn layers_that_read_the_weight_itself_compute_or_refuse() -> Outcome {
    let quantized = || -> Result<Linear> {
        let mut layer = cotangent::with_generator(&mut Generator::seed(35), || Linear::new(64, 32))?;
        nn::quantize(&mut layer, |_, _| Some(QuantFormat::Q8_0))?;
        Ok(layer)
    };
    for refused in [message(nn::WeightNorm::new(quantized()?)), message(nn::SpectralNorm::new(quantized()?))] {
        assert!(refused.contains("Norm: the layer's weight must not be quantized, got Q8_0"), "{refused}");
    }
    let mut wrapped = nn::WeightNorm::new(Linear::new(64, 32)?)?;
    assert_eq!(nn::quantize(&mut wrapped, |_, _| Some(QuantFormat::Q8_0))?, 0, "norm and direction are trained");
    let mut bag = nn::EmbeddingBag::new(10, 64)?;
    assert_eq!(nn::quantize(&mut bag, |_, _| Some(QuantFormat::Q8_0))?, 0);
    bag.weight = Parameter::from_quantized(QuantizedTensor::quantize(&bag.weight, QuantFormat::Q8_0)?);
    let refused = message(bag.forward(&tensor!([[1, 2]])?));
    assert!(refused.starts_with("EmbeddingBag: the weight must not be quantized, got Q8_0"), "{refused}");
    // A product with the bytes of any format has another shape.
    let refused = message(Tensor::ones([5, 64])?.linear(&quantized()?.weight, None));
    assert!(refused.starts_with("linear: ") && refused.contains("[32, 68]"), "{refused}");
    // The embedding of time has as many waves as the layer has inputs.
    let config =
        UNetConfig { channels: vec![4, 8], norm: UNetNorm::Group(2), time_size: Some(64), ..UNetConfig::default() };
    let mut model = cotangent::with_generator(&mut Generator::seed(36), || UNet::new(&config))?;
    let (x, t) = (Generator::seed(37).randn([2, 3, 8, 8])?, tensor!([3, 500])?);
    let before = model.forward_at(&x, &t)?;
    assert_eq!(nn::quantize(&mut model, |name, _| name.starts_with("time.").then_some(QuantFormat::Q8_0))?, 2);
    assert!(error(&model.forward_at(&x, &t)?, &before)? < 0.02);
    model.to_dtype(DType::BF16)?;
    let half = model.forward_at(&x.to_dtype(DType::BF16)?, &t)?;
    assert!(half.dtype() == DType::BF16 && error(&half, &before)? < 0.05, "{}", error(&half, &before)?);
    Ok(())
}

/// QLoRA: adapters on top of frozen weights of NF4.
#[test]
fn adapters_are_trained_on_top_of_quantised_weights() -> Outcome {
    let config =
        Gpt2Config { vocab_size: 30, n_positions: 32, n_embd: 64, n_layer: 1, n_head: 2, ..Gpt2Config::default() };
    let mut model = cotangent::with_generator(&mut Generator::seed(17), || Gpt2::new(&config))?;
    model.eval();
    let tokens = Generator::seed(18).randint(0, 30, [2, 24])?;
    let logits = model.forward(&tokens)?;
    // The embeddings are in f32; the layers of GPT-2 have transposed weights.
    let linear = |name: &str, _: &Parameter| name.contains(".c_").then_some(QuantFormat::Nf4);
    assert_eq!(nn::quantize(&mut model, linear)?, 4);
    let before = model.forward(&tokens)?;
    assert!(error(&before, &logits)? < 0.15, "{}", error(&before, &logits)?);
    let lora = LoraConfig { r: 4, ..LoraConfig::new(["c_attn", "c_fc"]) };
    assert_eq!(cotangent::with_generator(&mut Generator::seed(19), || add_lora(&mut model, &lora))?, 2);
    assert!(model.forward(&tokens)?.equal(&before)?);
    let blocks = model.state_dict();
    let mut optimizer = AdamW::new(1e-2);
    let loss = |model: &Gpt2| model.forward(&tokens)?.flatten(0, 1)?.cross_entropy(&tokens.flatten(0, 1)?);
    let first = loss(&model)?.item::<f32>()?;
    for _ in 0..20 {
        loss(&model)?.backward()?;
        optimizer.step(&mut model)?;
        model.zero_grad();
    }
    let last = loss(&model)?.item::<f32>()?;
    assert!(last < first - 0.1, "{first} {last}");
    for (name, values) in blocks.iter().filter(|(name, _)| name.ends_with("NF4")) {
        assert!(model.state_dict().get(name).is_some_and(|new| new.equal(values).is_ok_and(|same| same)), "{name}");
    }
    let refused = message(merge_lora(&mut model));
    assert!(refused.contains("must not be quantized, got NF4"), "{refused}");
    let before = model.forward(&tokens)?;
    assert_eq!(nn::dequantize(&mut model)?, 4);
    merge_lora(&mut model)?;
    assert!(error(&model.forward(&tokens)?, &before)? < 1e-4);
    Ok(())
}

#[test]
fn a_layer_with_a_quantised_weight_takes_an_adapter() -> Outcome {
    let mut layer = LoraLinear::from_linear(Linear::new(64, 32)?);
    nn::quantize(&mut layer, |_, _| Some(QuantFormat::Q4_0))?;
    layer.attach(2, 4.0, 0.0)?;
    let (a, b) = layer.adapter().ok_or("an adapter")?;
    assert_eq!((a.shape(), b.shape(), a.dtype()), (&[2, 64][..], &[32, 2][..], DType::F32));
    layer.forward(&Tensor::ones([4, 64])?)?.sum(..)?.backward()?;
    let trained: Vec<String> =
        layer.named_parameters().into_iter().filter(|(_, p)| p.grad().is_some()).map(|(n, _)| n).collect();
    assert_eq!(trained, ["lora_A.weight", "lora_B.weight"]);
    assert!(message(layer.merge()).contains("dequantize"));
    Ok(())
}

/// The loss of a model that was trained in f32, in each format.
#[test]
fn the_loss_of_a_trained_model_stays() -> Outcome {
    let mut model = cotangent::with_generator(&mut Generator::seed(20), || -> Result<Sequential> {
        Ok(Sequential::new().add(Linear::new(256, 256)?).add(ReLU).add(Linear::new(256, 8)?))
    })?;
    let (centres, classes) = (randn(21, [8, 256])?.mul(0.12)?, Generator::seed(22).randint(0, 8, [512])?);
    let x = classes.embedding(&centres)?.add(&randn(23, [512, 256])?)?;
    let mut optimizer = AdamW::new(1e-3);
    for _ in 0..25 {
        model.forward(&x)?.cross_entropy(&classes)?.backward()?;
        optimizer.step(&mut model)?;
        model.zero_grad();
    }
    let loss = |model: &Sequential| -> Result<f64> {
        // Few rows at a time, as in decoding.
        let mut sum = 0.0;
        for first in (0..512).step_by(16) {
            let y = model.forward(&x.narrow(0, first, 16)?)?;
            sum += y.cross_entropy(&classes.narrow(0, first, 16)?)?.item::<f64>()?;
        }
        Ok(sum / 32.0)
    };
    let dense = loss(&model)?;
    assert!((0.05..1.2).contains(&dense), "{dense}");
    for format in QuantFormat::ALL {
        let mut copy = model.deep_clone()?;
        nn::quantize(&mut copy, |_, _| Some(format))?;
        let change = (loss(&copy)? / dense - 1.0).abs();
        let most = match format {
            QuantFormat::Q8_0 | QuantFormat::Int8 => 0.005,
            QuantFormat::Q6K => 0.01,
            QuantFormat::Q2K => 0.2,
            QuantFormat::Q3K => 0.1,
            _ => 0.05,
        };
        println!("{format}: {dense} changes by {change}");
        assert!(change < most, "{format}: {dense} changes by {change}");
    }
    Ok(())
}

const FILES: [&str; 7] =
    ["llama_q8_0", "llama3_q4_0", "qwen2_q5_0", "qwen3_q4_1", "phi3_q5_1", "gemma_q8_0", "gemma2_q8_0"];

#[test]
fn models_of_gguf_files_are_those_of_transformers() -> Outcome {
    for name in FILES {
        let expected = npz::load(fixture(&format!("models/{name}.npz")))?;
        let (tokens, wanted) = (expected.get("tokens").ok_or("tokens")?, expected.get("logits").ok_or("logits")?);
        let model = Llama::from_gguf(fixture(&format!("models/{name}.gguf")))?;
        assert!(model.state_dict().names().any(|name| name.contains(".weight.Q")), "{name}");
        // 24 rows are multiplied as floats.
        let logits = model.forward(tokens)?;
        assert!(error(&logits, wanted)? < 1e-5, "{name}: {}", error(&logits, wanted)?);
        // One token at a time, in integers: an error of 0.5 % in each product of four or seven in a row.
        let mut cache = KeyValueCache::new();
        let steps: Vec<Tensor> =
            (0..12).map(|at| model.forward_cached(&tokens.narrow(1, at, 1)?, &mut cache)).collect::<Result<_>>()?;
        let steps = Tensor::cat(&steps, 1)?;
        assert!(error(&steps, wanted)? < 0.05, "{name}: {}", error(&steps, wanted)?);
    }
    Ok(())
}

#[test]
fn files_of_other_models_are_refused() -> Outcome {
    let refused = message(Llama::from_gguf(fixture("io/quantized.gguf")));
    assert!(refused.starts_with("from_gguf: ") && refused.contains("token_embd.weight must be a matrix"), "{refused}");
    let bytes = std::fs::read(fixture("models/llama_q8_0.gguf"))?;
    let path = std::env::temp_dir().join(format!("cotangent-gguf-{}.gguf", std::process::id()));
    let change = |from: &str, to: &str| -> Outcome<String> {
        assert_eq!(from.len(), to.len());
        let at = bytes.windows(from.len()).position(|part| part == from.as_bytes()).ok_or("not in the file")?;
        let mut bytes = bytes.clone();
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        std::fs::write(&path, bytes)?;
        Ok(message(Llama::from_gguf(&path)))
    };
    for (from, to, part) in [
        ("llama", "mamba", "general.architecture must be one of llama"),
        ("llama.block_count", "llama.block_cound", "llama.block_count is missing"),
        ("blk.1.ffn_up.weight", "blk.1.ffn_ap.weight", "the file has no tensor for model.layers.1.mlp.up_proj.weight"),
        ("output_norm.weight", "output_narm.weight", "model.norm.weight"),
    ] {
        let refused = change(from, to)?;
        assert!(refused.contains(part), "{refused}");
    }
    // With one block of two, the tensors of the other are left over. The value follows the key and four bytes for its type.
    let (mut fewer, key) = (bytes.clone(), b"llama.block_count");
    let at = bytes.windows(key.len()).position(|part| part == key).ok_or("not in the file")? + key.len() + 4;
    assert_eq!(fewer[at..at + 4], [2, 0, 0, 0]);
    fewer[at] = 1;
    std::fs::write(&path, fewer)?;
    let refused = message(Llama::from_gguf(&path));
    assert!(refused.contains("the model has no parameters for blk.1."), "{refused}");
    std::fs::remove_file(&path)?;
    Ok(())
}
