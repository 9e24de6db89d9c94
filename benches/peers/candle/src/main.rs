//! Times the workloads of `benches/README.md` in candle, with a line of JSON for each. Its matrix products on the CPU
//! do not support bf16, so the bf16 workloads are missing.

#[path = "../../../workloads/timing.rs"]
mod timing;

use candle_core::{D, DType, Device, Module, Result, Shape, Tensor, Var};
use candle_nn::{
    AdamW, Embedding, Linear, Optimizer, SGD, VarBuilder, VarMap, embedding, linear, linear_no_bias, loss, ops,
};
use std::hint::black_box;
use std::process::ExitCode;
use timing::{Timer, memory_mib};

const CPU: &Device = &Device::Cpu;

const WORKLOADS: &[(&str, fn(&Timer) -> Result<()>)] = &[
    ("overhead", overhead),
    ("overhead_fwd_nograd", overhead_fwd_nograd),
    ("mlp_small", mlp_small),
    ("mlp_large", mlp_large),
    ("matmul_64", |timer| matmul(timer, "matmul_64", 64, 200)),
    ("matmul_256", |timer| matmul(timer, "matmul_256", 256, 10)),
    ("matmul_1024", |timer| matmul(timer, "matmul_1024", 1024, 1)),
    ("matmul_2048", |timer| matmul(timer, "matmul_2048", 2048, 1)),
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
    timing::run(&Timer::new("candle", "RAYON_NUM_THREADS"), WORKLOADS)
}

fn normal(shape: impl Into<Shape>) -> Result<Tensor> {
    Tensor::randn(0_f32, 1.0, shape, CPU)
}

fn leaf(shape: impl Into<Shape>) -> Result<Var> {
    Var::from_tensor(&normal(shape)?)
}

/// `count` classes below `below`, in an irregular order.
fn classes(count: usize, below: usize) -> Result<Tensor> {
    Tensor::from_iter((0..count).map(|i| (i * 2_654_435_761 % below) as u32), CPU)
}

fn bytes(arrays: usize, elements: usize) -> f64 {
    (arrays * elements * size_of::<f32>()) as f64
}

fn chain(x: &Tensor, [c, b]: &[Tensor; 2]) -> Result<Tensor> {
    let mut x = x.clone();
    for _ in 0..500 {
        x = ((x * c)? + b)?;
    }
    Ok(x)
}

fn constants() -> Result<[Tensor; 2]> {
    Ok([Tensor::full(0.999_f32, 1, CPU)?, Tensor::full(0.001_f32, 1, CPU)?])
}

fn overhead(timer: &Timer) -> Result<()> {
    let (x, constants) = (leaf(1)?, constants()?);
    timer.time("overhead", || chain(&x, &constants)?.backward())?.ns_each("ns_per_op", 1000.0).print();
    Ok(())
}

fn overhead_fwd_nograd(timer: &Timer) -> Result<()> {
    let (x, constants) = (normal(1)?, constants()?);
    timer.time("overhead_fwd_nograd", || chain(&x, &constants))?.ns_each("ns_per_op", 1000.0).print();
    Ok(())
}

struct Mlp([Linear; 3]);

impl Mlp {
    fn new(sizes: [usize; 4], builder: &VarBuilder) -> Result<Mlp> {
        let layer = |i: usize| linear(sizes[i], sizes[i + 1], builder.pp(i));
        Ok(Mlp([layer(0)?, layer(1)?, layer(2)?]))
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [first, second, third] = &self.0;
        third.forward(&second.forward(&first.forward(x)?.relu()?)?.relu()?)
    }
}

fn parameters() -> (VarMap, VarBuilder<'static>) {
    let map = VarMap::new();
    let builder = VarBuilder::from_varmap(&map, DType::F32, CPU);
    (map, builder)
}

fn mlp_small(timer: &Timer) -> Result<()> {
    let (map, builder) = parameters();
    let model = Mlp::new([784, 128, 64, 10], &builder)?;
    let mut optimizer = SGD::new(map.all_vars(), 0.01)?;
    let (x, y) = (normal((32, 784))?, classes(32, 10)?);
    let step = || optimizer.backward_step(&loss::cross_entropy(&model.forward(&x)?, &y)?);
    timer.time("mlp_small", step)?.print();
    Ok(())
}

fn mlp_large(timer: &Timer) -> Result<()> {
    let (map, builder) = parameters();
    let model = Mlp::new([1024, 4096, 4096, 1024], &builder)?;
    let mut optimizer = AdamW::new_lr(map.all_vars(), 1e-3)?;
    let (x, y) = (normal((256, 1024))?, normal((256, 1024))?);
    let step = || optimizer.backward_step(&loss::mse(&model.forward(&x)?, &y)?);
    timer.time("mlp_large", step)?.print();
    Ok(())
}

fn matmul(timer: &Timer, name: &str, n: usize, products: usize) -> Result<()> {
    let (a, b) = (normal((n, n))?, normal((n, n))?);
    let step = || (0..products).try_for_each(|_| a.matmul(&b).map(|product| drop(black_box(product))));
    timer.time(name, step)?.per_ns("gflops", (2 * n * n * n * products) as f64).print();
    Ok(())
}

fn matmul_fb(timer: &Timer) -> Result<()> {
    let (a, b) = (leaf((1024, 1024))?, leaf((1024, 1024))?);
    let step = || a.matmul(&b)?.sum_all()?.backward();
    timer.time("matmul_1024_fb", step)?.per_ns("gflops", 6.0 * 1024_f64.powi(3)).print();
    Ok(())
}

fn elementwise(timer: &Timer) -> Result<()> {
    let (a, b, c) = (leaf((2048, 2048))?, leaf((2048, 2048))?, leaf((2048, 2048))?);
    let step = || a.mul(&b)?.add(&c)?.tanh()?.mul(&a)?.sum_all()?.backward();
    timer.time("elementwise", step)?.per_ns("gb_per_s", bytes(9, a.elem_count())).print();
    Ok(())
}

fn bias_add(timer: &Timer) -> Result<()> {
    let (x, b) = (leaf((4096, 1024))?, leaf(1024)?);
    let step = || x.broadcast_add(&b)?.relu()?.sum_all()?.backward();
    timer.time("bias_add", step)?.per_ns("gb_per_s", bytes(3, x.elem_count())).print();
    Ok(())
}

fn xent(timer: &Timer) -> Result<()> {
    let (x, y) = (leaf((512, 50_257))?, classes(512, 50_257)?);
    let step = || loss::cross_entropy(&x, &y)?.backward();
    timer.time("xent", step)?.per_ns("gb_per_s", bytes(3, x.elem_count())).print();
    Ok(())
}

/// The layer norm with a derivative: the fused one returns no gradient for its input.
struct Norm {
    weight: Tensor,
    bias: Tensor,
}

impl Norm {
    fn new(width: usize, builder: VarBuilder) -> Result<Norm> {
        let weight = builder.get_with_hints(width, "weight", candle_nn::Init::Const(1.0))?;
        let bias = builder.get_with_hints(width, "bias", candle_nn::Init::Const(0.0))?;
        Ok(Norm { weight, bias })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ops::layer_norm_slow(x, &self.weight, &self.bias, 1e-5)
    }
}

fn layernorm(timer: &Timer) -> Result<()> {
    let (_map, builder) = parameters();
    let norm = Norm::new(768, builder)?;
    let (x, factors) = (leaf((4096, 768))?, normal((4096, 768))?);
    let step = || norm.forward(&x)?.mul(&factors)?.sum_all()?.backward();
    timer.time("layernorm", step)?.per_ns("gb_per_s", bytes(5, x.elem_count())).print();
    Ok(())
}

/// The causal mask: minus infinity for later positions.
fn future(time: usize) -> Result<Tensor> {
    let mask = (0..time).flat_map(|row| (0..time).map(move |at| if at > row { f32::NEG_INFINITY } else { 0.0 }));
    Tensor::from_iter(mask, CPU)?.reshape((time, time))
}

/// Unfused attention: the fused softmax and attention have no derivatives.
fn causal_attention(q: &Tensor, k: &Tensor, v: &Tensor, future: &Tensor) -> Result<Tensor> {
    let scale = 1.0 / (q.dim(D::Minus1)? as f64).sqrt();
    let scores = (q.matmul(&k.t()?.contiguous()?)? * scale)?;
    ops::softmax(&scores.broadcast_add(future)?, D::Minus1)?.matmul(v)
}

fn attention(timer: &Timer) -> Result<()> {
    let shape = (4, 8, 512, 64);
    let (q, k, v, future) = (leaf(shape)?, leaf(shape)?, leaf(shape)?, future(512)?);
    let step = || causal_attention(&q, &k, &v, &future)?.sum_all()?.backward();
    timer.time("attention", step)?.print();
    Ok(())
}

const VOCABULARY: usize = 65;
const TIME: usize = 256;
const WIDTH: usize = 384;
const HEADS: usize = 6;
const LAYERS: usize = 6;

struct Gpt {
    tokens: Embedding,
    positions: Embedding,
    blocks: Vec<Block>,
    norm: Norm,
    head: Linear,
}

struct Block {
    norm1: Norm,
    qkv: Linear,
    out: Linear,
    norm2: Norm,
    up: Linear,
    down: Linear,
}

impl Gpt {
    fn new(builder: &VarBuilder) -> Result<Gpt> {
        Ok(Gpt {
            tokens: embedding(VOCABULARY, WIDTH, builder.pp("tokens"))?,
            positions: embedding(TIME, WIDTH, builder.pp("positions"))?,
            blocks: (0..LAYERS).map(|i| Block::new(&builder.pp(i))).collect::<Result<_>>()?,
            norm: Norm::new(WIDTH, builder.pp("norm"))?,
            head: linear_no_bias(WIDTH, VOCABULARY, builder.pp("head"))?,
        })
    }

    fn forward(&self, tokens: &Tensor, future: &Tensor) -> Result<Tensor> {
        let mut x = self.tokens.forward(tokens)?.broadcast_add(self.positions.embeddings())?;
        for block in &self.blocks {
            x = block.forward(&x, future)?;
        }
        self.head.forward(&self.norm.forward(&x)?)
    }
}

impl Block {
    fn new(builder: &VarBuilder) -> Result<Block> {
        Ok(Block {
            norm1: Norm::new(WIDTH, builder.pp("norm1"))?,
            qkv: linear_no_bias(WIDTH, 3 * WIDTH, builder.pp("qkv"))?,
            out: linear_no_bias(WIDTH, WIDTH, builder.pp("out"))?,
            norm2: Norm::new(WIDTH, builder.pp("norm2"))?,
            up: linear_no_bias(WIDTH, 4 * WIDTH, builder.pp("up"))?,
            down: linear_no_bias(4 * WIDTH, WIDTH, builder.pp("down"))?,
        })
    }

    fn forward(&self, x: &Tensor, future: &Tensor) -> Result<Tensor> {
        let batch = x.dim(0)?;
        let qkv = self.qkv.forward(&self.norm1.forward(x)?)?.chunk(3, D::Minus1)?;
        let split = |part: &Tensor| part.reshape((batch, TIME, HEADS, WIDTH / HEADS))?.transpose(1, 2)?.contiguous();
        let mixed = causal_attention(&split(&qkv[0])?, &split(&qkv[1])?, &split(&qkv[2])?, future)?;
        let mixed = mixed.transpose(1, 2)?.reshape((batch, TIME, WIDTH))?;
        let x = x.add(&self.out.forward(&mixed)?)?;
        let hidden = self.up.forward(&self.norm2.forward(&x)?)?.gelu_erf()?;
        x.add(&self.down.forward(&hidden)?)
    }
}

fn gpt_tiny(timer: &Timer) -> Result<()> {
    let before = memory_mib("VmRSS");
    let (map, builder) = parameters();
    let model = Gpt::new(&builder)?;
    let mut optimizer = AdamW::new_lr(map.all_vars(), 1e-3)?;
    let tokens = 8 * TIME;
    let (x, y) = (classes(tokens, VOCABULARY)?.reshape((8, TIME))?, classes(tokens, VOCABULARY)?);
    let future = future(TIME)?;
    let step = || {
        let logits = model.forward(&x, &future)?.reshape((tokens, VOCABULARY))?;
        optimizer.backward_step(&loss::cross_entropy(&logits, &y)?)
    };
    timer.time("gpt_tiny", step)?.per_second("tokens_per_s", tokens as f64).memory(before).print();
    Ok(())
}

fn adamw(timer: &Timer) -> Result<()> {
    let (count, size) = (100, 100_000);
    let parameters = (0..count).map(|_| leaf(size)).collect::<Result<Vec<_>>>()?;
    // Only a backward pass creates a store of gradients; the gradient of sum(p * g) is g.
    let mut total = Tensor::zeros((), DType::F32, CPU)?;
    for parameter in &parameters {
        total = total.add(&parameter.mul(&normal(size)?)?.sum_all()?)?;
    }
    let gradients = total.backward()?;
    let mut optimizer = AdamW::new_lr(parameters, 1e-4)?;
    let step = || optimizer.step(&gradients);
    timer.time("adamw", step)?.per_ns("gb_per_s", bytes(7, count * size)).print();
    Ok(())
}
