//! Single operations, most of them forward and backward.

use crate::timing::Timer;
use cotangent::autograd::no_grad;
use cotangent::{
    Result, Tensor,
    options::{AttentionOptions, LayerNormOptions},
};

/// The bytes of `arrays` arrays of `elements` numbers: the minimum memory traffic.
fn bytes(arrays: usize, elements: usize) -> f64 {
    (arrays * elements * size_of::<f32>()) as f64
}

fn leaf<const N: usize>(shape: [usize; N]) -> Result<Tensor> {
    Tensor::randn(shape)?.requires_grad_(true)
}

/// Runs the forward and backward pass of a scalar function of `leaves`, after resetting their gradients.
fn forward_backward<const N: usize>(leaves: [&Tensor; N], f: impl Fn([&Tensor; N]) -> Result<Tensor>) -> Result<()> {
    leaves.iter().for_each(|leaf| leaf.zero_grad());
    f(leaves)?.backward()
}

/// `x = x * c + b`, 500 times: 1000 operations.
fn chain([x, c, b]: [&Tensor; 3]) -> Result<Tensor> {
    let mut x = x.clone();
    for _ in 0..500 {
        x = x.mul(c)?.add(b)?;
    }
    Ok(x)
}

fn chain_inputs() -> Result<[Tensor; 3]> {
    Ok([leaf([1])?, Tensor::full([1], 0.999)?, Tensor::full([1], 0.001)?])
}

pub fn overhead(timer: &Timer) -> Result<()> {
    let [x, c, b] = chain_inputs()?;
    let step = || {
        x.zero_grad();
        chain([&x, &c, &b])?.backward()
    };
    timer.time("overhead", step)?.ns_each("ns_per_op", 1000.0).print();
    Ok(())
}

pub fn overhead_fwd_nograd(timer: &Timer) -> Result<()> {
    let [x, c, b] = chain_inputs()?;
    let step = || no_grad(|| chain([&x, &c, &b]));
    timer.time("overhead_fwd_nograd", step)?.ns_each("ns_per_op", 1000.0).print();
    Ok(())
}

/// `products` products of two `n × n` matrices in one step, so that it is long enough to time.
pub fn matmul(timer: &Timer, name: &str, n: usize, products: usize) -> Result<()> {
    let (a, b) = (Tensor::randn([n, n])?, Tensor::randn([n, n])?);
    let step = || (0..products).try_for_each(|_| a.matmul(&b).map(|product| drop(std::hint::black_box(product))));
    let flop = (2 * n * n * n * products) as f64;
    timer.time(name, step)?.per_ns("gflops", flop).value("products", products as f64).print();
    Ok(())
}

pub fn matmul_fb(timer: &Timer) -> Result<()> {
    let n = 1024;
    let (a, b) = (leaf([n, n])?, leaf([n, n])?);
    let step = || forward_backward([&a, &b], |[a, b]| a.matmul(b)?.sum(..));
    timer.time("matmul_1024_fb", step)?.per_ns("gflops", (6 * n * n * n) as f64).print();
    Ok(())
}

pub fn elementwise(timer: &Timer) -> Result<()> {
    let shape = [2048, 2048];
    let (a, b, c) = (leaf(shape)?, leaf(shape)?, leaf(shape)?);
    let step = || forward_backward([&a, &b, &c], |[a, b, c]| a.mul(b)?.add(c)?.tanh()?.mul(a)?.sum(..));
    // Forward reads three arrays; backward reads three and writes three gradients.
    timer.time("elementwise", step)?.per_ns("gb_per_s", bytes(9, a.numel())).print();
    Ok(())
}

pub fn bias_add(timer: &Timer) -> Result<()> {
    let (x, b) = (leaf([4096, 1024])?, leaf([1024])?);
    let step = || forward_backward([&x, &b], |[x, b]| x.add(b)?.relu()?.sum(..));
    // Reads x twice, and writes its gradient.
    timer.time("bias_add", step)?.per_ns("gb_per_s", bytes(3, x.numel())).print();
    Ok(())
}

pub fn xent(timer: &Timer) -> Result<()> {
    let (rows, classes) = (512, 50_257);
    let (x, y) = (leaf([rows, classes])?, Tensor::randint(0, classes as i64, [rows])?);
    let step = || forward_backward([&x], |[x]| x.cross_entropy(&y));
    // Reads the logits twice, and writes their gradient.
    timer.time("xent", step)?.per_ns("gb_per_s", bytes(3, x.numel())).print();
    Ok(())
}

pub fn layernorm(timer: &Timer) -> Result<()> {
    let (rows, width) = (4096, 768);
    let x = leaf([rows, width])?;
    let weight = Tensor::ones([width])?.requires_grad_(true)?;
    let bias = Tensor::zeros([width])?.requires_grad_(true)?;
    // A plain sum of normalised rows would have no gradient.
    let factors = Tensor::randn([rows, width])?;
    let step = || {
        forward_backward([&x, &weight, &bias], |[x, weight, bias]| {
            x.layer_norm_with([width], LayerNormOptions::new().weight(weight).bias(bias))?.mul(&factors)?.sum(..)
        })
    };
    // Reads x and the factors twice, and writes the gradient of x.
    timer.time("layernorm", step)?.per_ns("gb_per_s", bytes(5, x.numel())).print();
    Ok(())
}

pub fn attention(timer: &Timer) -> Result<()> {
    let shape = [4, 8, 512, 64];
    let (q, k, v) = (leaf(shape)?, leaf(shape)?, leaf(shape)?);
    let causal = AttentionOptions::new().is_causal(true);
    let step = || {
        forward_backward([&q, &k, &v], |[q, k, v]| q.scaled_dot_product_attention_with(k, v, causal.clone())?.sum(..))
    };
    timer.time("attention", step)?.print();
    Ok(())
}

/// The memory bandwidth: a copy of 1 GiB by all threads, counting reads and writes.
pub fn limits(timer: &Timer) -> Result<()> {
    let elements = 1_usize << 28;
    let source = vec![1_f32; elements];
    let mut target = vec![2_f32; elements];
    let share = elements.div_ceil(cotangent::settings::num_threads());
    let step = || -> Result<()> {
        std::thread::scope(|scope| {
            for (to, from) in target.chunks_mut(share).zip(source.chunks(share)) {
                scope.spawn(|| to.copy_from_slice(from));
            }
        });
        Ok(())
    };
    timer.time("limit_copy", step)?.per_ns("gb_per_s", bytes(2, elements)).print();
    Ok(())
}
