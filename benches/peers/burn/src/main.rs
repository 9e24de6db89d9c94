//! Times the workloads of `benches/README.md` in Burn, on its Flex backend, with a line of JSON for each. Burn has no
//! mixed precision, so the bf16 workloads are missing.

#[path = "../../../workloads/timing.rs"]
mod timing;

use burn::module::{Module, Param, ParamId};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer, SgdConfig};
use burn::tensor::activation::{gelu, relu};
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use std::hint::black_box;
use std::process::ExitCode;
use timing::{Row, Timer, memory_mib};

type Result<T> = std::result::Result<T, String>;

const WORKLOADS: &[(&str, fn(&Context) -> Result<()>)] = &[
    ("overhead", overhead),
    ("overhead_fwd_nograd", overhead_fwd_nograd),
    ("mlp_small", mlp_small),
    ("mlp_large", mlp_large),
    ("matmul_64", |context| matmul(context, "matmul_64", 64, 200)),
    ("matmul_256", |context| matmul(context, "matmul_256", 256, 10)),
    ("matmul_1024", |context| matmul(context, "matmul_1024", 1024, 1)),
    ("matmul_2048", |context| matmul(context, "matmul_2048", 2048, 1)),
    ("matmul_1024_fb", matmul_fb),
    ("elementwise", elementwise),
    ("bias_add", bias_add),
    ("xent", xent),
    ("layernorm", layernorm),
    ("attention", attention),
    ("gpt_tiny", gpt_tiny),
    ("adamw", adamw),
];

fn main() -> ExitCode {
    let plain = Device::flex();
    let context =
        Context { timer: Timer::new("burn", "RAYON_NUM_THREADS"), recording: plain.clone().autodiff(), plain };
    timing::run(&context, WORKLOADS)
}

struct Context {
    timer: Timer,
    /// The device without gradients.
    plain: Device,
    /// The device that records gradients.
    recording: Device,
}

impl Context {
    fn time<T>(&self, workload: &str, mut step: impl FnMut() -> T) -> Result<Row> {
        self.timer.time(workload, || {
            let value = step();
            self.plain.sync().map_err(|error| format!("{error:?}"))?;
            Ok(value)
        })
    }

    /// Times training steps: loss, gradients, optimiser.
    fn train<M: Module>(
        &self,
        workload: &str,
        model: M,
        (mut optimizer, rate): (ModuleOptimizer, f64),
        loss: impl Fn(&M) -> Tensor<1>,
    ) -> Result<Row> {
        // A step consumes the model and returns a new one.
        let mut model = Some(model);
        self.time(workload, || {
            model = model.take().map(|model| {
                let gradients = GradientsParams::from_grads(loss(&model).backward(), &model);
                optimizer.step(rate, model, gradients)
            });
        })
    }

    fn normal<const D: usize>(&self, shape: [usize; D]) -> Tensor<D> {
        Tensor::random(shape, Distribution::Normal(0.0, 1.0), &self.recording)
    }

    fn leaf<const D: usize>(&self, shape: [usize; D]) -> Tensor<D> {
        self.normal(shape).require_grad()
    }

    /// `count` classes below `below`, in an irregular order.
    fn classes(&self, count: usize, below: usize) -> Tensor<1, Int> {
        let classes: Vec<i32> = (0..count).map(|i| (i * 2_654_435_761 % below) as i32).collect();
        Tensor::from_data(TensorData::new(classes, [count]), &self.recording)
    }
}

fn adamw_optimizer() -> ModuleOptimizer {
    AdamWConfig::new().with_epsilon(1e-8).with_weight_decay(0.01).init()
}

fn bytes(arrays: usize, elements: usize) -> f64 {
    (arrays * elements * size_of::<f32>()) as f64
}

fn chain([x, c, b]: &[Tensor<1>; 3]) -> Tensor<1> {
    let mut x = x.clone();
    for _ in 0..500 {
        x = x * c.clone() + b.clone();
    }
    x
}

fn chain_inputs(device: &Device) -> [Tensor<1>; 3] {
    [1.0, 0.999, 0.001].map(|value| Tensor::full([1], value, device))
}

fn overhead(context: &Context) -> Result<()> {
    let [x, c, b] = chain_inputs(&context.recording);
    let inputs = [x.require_grad(), c, b];
    context.time("overhead", || chain(&inputs).backward())?.ns_each("ns_per_op", 1000.0).print();
    Ok(())
}

fn overhead_fwd_nograd(context: &Context) -> Result<()> {
    let inputs = chain_inputs(&context.plain);
    context.time("overhead_fwd_nograd", || chain(&inputs))?.ns_each("ns_per_op", 1000.0).print();
    Ok(())
}

#[derive(Module, Debug)]
struct Mlp {
    first: Linear,
    second: Linear,
    third: Linear,
}

impl Mlp {
    fn new(sizes: [usize; 4], device: &Device) -> Mlp {
        let layer = |i: usize| LinearConfig::new(sizes[i], sizes[i + 1]).init(device);
        Mlp { first: layer(0), second: layer(1), third: layer(2) }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.third.forward(relu(self.second.forward(relu(self.first.forward(x)))))
    }
}

fn mlp_small(context: &Context) -> Result<()> {
    let model = Mlp::new([784, 128, 64, 10], &context.recording);
    let (x, y) = (context.normal([32, 784]), context.classes(32, 10));
    let entropy = CrossEntropyLossConfig::new().init(&context.recording);
    let loss = |model: &Mlp| entropy.forward(model.forward(x.clone()), y.clone());
    context.train("mlp_small", model, (SgdConfig::new().init(), 0.01), loss)?.print();
    Ok(())
}

fn mlp_large(context: &Context) -> Result<()> {
    let model = Mlp::new([1024, 4096, 4096, 1024], &context.recording);
    let (x, y) = (context.normal([256, 1024]), context.normal([256, 1024]));
    let loss = |model: &Mlp| (model.forward(x.clone()) - y.clone()).square().mean();
    context.train("mlp_large", model, (adamw_optimizer(), 1e-3), loss)?.print();
    Ok(())
}

fn matmul(context: &Context, name: &str, n: usize, products: usize) -> Result<()> {
    let [a, b] = [(); 2].map(|()| Tensor::<2>::random([n, n], Distribution::Normal(0.0, 1.0), &context.plain));
    let step = || (0..products).for_each(|_| drop(black_box(a.clone().matmul(b.clone()))));
    context.time(name, step)?.per_ns("gflops", (2 * n * n * n * products) as f64).print();
    Ok(())
}

fn matmul_fb(context: &Context) -> Result<()> {
    let (a, b) = (context.leaf([1024, 1024]), context.leaf([1024, 1024]));
    let step = || a.clone().matmul(b.clone()).sum().backward();
    context.time("matmul_1024_fb", step)?.per_ns("gflops", 6.0 * 1024_f64.powi(3)).print();
    Ok(())
}

fn elementwise(context: &Context) -> Result<()> {
    let [a, b, c] = [(); 3].map(|()| context.leaf([2048, 2048]));
    let step = || ((a.clone() * b.clone() + c.clone()).tanh() * a.clone()).sum().backward();
    context.time("elementwise", step)?.per_ns("gb_per_s", bytes(9, 2048 * 2048)).print();
    Ok(())
}

fn bias_add(context: &Context) -> Result<()> {
    let (x, b) = (context.leaf([4096, 1024]), context.leaf([1, 1024]));
    let step = || relu(x.clone() + b.clone()).sum().backward();
    context.time("bias_add", step)?.per_ns("gb_per_s", bytes(3, 4096 * 1024)).print();
    Ok(())
}

fn xent(context: &Context) -> Result<()> {
    let (x, y) = (context.leaf([512, 50_257]), context.classes(512, 50_257));
    let entropy = CrossEntropyLossConfig::new().init(&context.recording);
    let step = || entropy.forward(x.clone(), y.clone()).backward();
    context.time("xent", step)?.per_ns("gb_per_s", bytes(3, 512 * 50_257)).print();
    Ok(())
}

fn layernorm(context: &Context) -> Result<()> {
    let (x, factors) = (context.leaf([4096, 768]), context.normal([4096, 768]));
    let norm = LayerNormConfig::new(768).init(&context.recording);
    let step = || (norm.forward(x.clone()) * factors.clone()).sum().backward();
    context.time("layernorm", step)?.per_ns("gb_per_s", bytes(5, 4096 * 768)).print();
    Ok(())
}

fn causal_attention(q: Tensor<4>, k: Tensor<4>, v: Tensor<4>) -> Tensor<4> {
    let causal = AttentionModuleOptions { scale: None, softcap: None, is_causal: true };
    burn::tensor::module::attention(q, k, v, None, None, causal)
}

fn attention(context: &Context) -> Result<()> {
    let [q, k, v] = [(); 3].map(|()| context.leaf([4, 8, 512, 64]));
    let step = || causal_attention(q.clone(), k.clone(), v.clone()).sum().backward();
    context.time("attention", step)?.print();
    Ok(())
}

const VOCABULARY: usize = 65;
const TIME: usize = 256;
const WIDTH: usize = 384;
const HEADS: usize = 6;
const LAYERS: usize = 6;

#[derive(Module, Debug)]
struct Gpt {
    tokens: Embedding,
    positions: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

#[derive(Module, Debug)]
struct Block {
    norm1: LayerNorm,
    qkv: Linear,
    out: Linear,
    norm2: LayerNorm,
    up: Linear,
    down: Linear,
}

fn without_bias(inputs: usize, outputs: usize, device: &Device) -> Linear {
    LinearConfig::new(inputs, outputs).with_bias(false).init(device)
}

impl Gpt {
    fn new(device: &Device) -> Gpt {
        Gpt {
            tokens: EmbeddingConfig::new(VOCABULARY, WIDTH).init(device),
            positions: EmbeddingConfig::new(TIME, WIDTH).init(device),
            blocks: (0..LAYERS).map(|_| Block::new(device)).collect(),
            norm: LayerNormConfig::new(WIDTH).init(device),
            head: without_bias(WIDTH, VOCABULARY, device),
        }
    }

    fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        let positions = self.positions.weight.val().reshape([1, TIME, WIDTH]);
        let mut x = self.tokens.forward(tokens) + positions;
        for block in &self.blocks {
            x = block.forward(x);
        }
        self.head.forward(self.norm.forward(x))
    }
}

impl Block {
    fn new(device: &Device) -> Block {
        Block {
            norm1: LayerNormConfig::new(WIDTH).init(device),
            qkv: without_bias(WIDTH, 3 * WIDTH, device),
            out: without_bias(WIDTH, WIDTH, device),
            norm2: LayerNormConfig::new(WIDTH).init(device),
            up: without_bias(WIDTH, 4 * WIDTH, device),
            down: without_bias(4 * WIDTH, WIDTH, device),
        }
    }

    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let batch = x.dims()[0];
        let qkv = self.qkv.forward(self.norm1.forward(x.clone())).chunk(3, 2);
        let split = |i: usize| qkv[i].clone().reshape([batch, TIME, HEADS, WIDTH / HEADS]).swap_dims(1, 2);
        let mixed = causal_attention(split(0), split(1), split(2));
        let x = x + self.out.forward(mixed.swap_dims(1, 2).reshape([batch, TIME, WIDTH]));
        let hidden = gelu(self.up.forward(self.norm2.forward(x.clone())));
        x + self.down.forward(hidden)
    }
}

fn gpt_tiny(context: &Context) -> Result<()> {
    let before = memory_mib("VmRSS");
    let tokens = 8 * TIME;
    let model = Gpt::new(&context.recording);
    let (x, y) = (context.classes(tokens, VOCABULARY).reshape([8, TIME]), context.classes(tokens, VOCABULARY));
    let entropy = CrossEntropyLossConfig::new().init(&context.recording);
    let loss = |model: &Gpt| entropy.forward(model.forward(x.clone()).reshape([tokens, VOCABULARY]), y.clone());
    let row = context.train("gpt_tiny", model, (adamw_optimizer(), 1e-3), loss)?;
    row.per_second("tokens_per_s", tokens as f64).memory(before).print();
    Ok(())
}

#[derive(Module, Debug)]
struct Parameters {
    tensors: Vec<Param<Tensor<1>>>,
}

fn adamw(context: &Context) -> Result<()> {
    let (count, size) = (100, 100_000);
    let parameter = || Param::initialized(ParamId::new(), context.leaf([size]));
    let mut model = Some(Parameters { tensors: (0..count).map(|_| parameter()).collect() });
    let gradient = || Tensor::<1>::random([size], Distribution::Normal(0.0, 1.0), &context.plain);
    let gradients: Vec<Tensor<1>> = (0..count).map(|_| gradient()).collect();
    let mut optimizer = adamw_optimizer();
    let step = || {
        model = model.take().map(|model| {
            let mut store = GradientsParams::new();
            for (parameter, gradient) in model.tensors.iter().zip(&gradients) {
                store.register(parameter.id, gradient.clone());
            }
            optimizer.step(1e-4, model, store)
        });
    };
    context.time("adamw", step)?.per_ns("gb_per_s", bytes(7, count * size)).print();
    Ok(())
}
