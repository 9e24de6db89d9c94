//! Single operations that are not part of a training step, one row each, on any device. `workloads` and `gpu` run them,
//! and `benches/peers/breadth.py` has the same rows in PyTorch.

use cotangent::{Device, Generator, Result, Tensor, fft, linalg, settings::with_deterministic_algorithms};
use std::hint::black_box;

/// One operation: its name, its minimum work, and a function that creates the inputs and returns the step to time.
pub struct Row {
    pub name: &'static str,
    pub work: Work,
    pub make: fn(Device) -> Result<Step>,
}

pub type Step = Box<dyn FnMut() -> Result<()>>;

/// The minimum work: bytes that are read and written once, or floating-point operations. For singular values and
/// eigenvalues it counts only the reduction to a band and the back-transformation.
pub enum Work {
    Bytes(f64),
    Flops(f64),
}
use Work::{Bytes, Flops};

const M: usize = 1 << 20;
const MF: f64 = M as f64;
/// `Σ n³` of the three sets of matrices.
const CUBES_256: f64 = 16.0 * 256.0 * 256.0 * 256.0;
const CUBES_1024: f64 = 1024.0 * 1024.0 * 1024.0;
const CUBES_16: f64 = 1000.0 * 16.0 * 16.0 * 16.0;

pub const ROWS: &[Row] = &[
    row("sort_1M", Bytes(16.0 * MF), |on| of(normal(on, &[M])?, |x| x.sort(0))),
    row("sort_4096x1024", Bytes(64.0 * MF), |on| of(normal(on, &[4096, 1024])?, |x| x.sort(1))),
    row("argsort_1M", Bytes(12.0 * MF), |on| of(normal(on, &[M])?, |x| x.argsort(0))),
    row("argsort_4096x1024", Bytes(48.0 * MF), |on| of(normal(on, &[4096, 1024])?, |x| x.argsort(1))),
    row("topk_32_of_4096x50257", Bytes(4.0 * 4096.0 * 50257.0), |on| {
        of(normal(on, &[4096, 50257])?, |x| x.topk(32, 1))
    }),
    row("cumsum_16M", Bytes(128.0 * MF), |on| of(normal(on, &[16 * M])?, |x| x.cumsum(0))),
    row("cumsum_4096x4096_rows", Bytes(128.0 * MF), |on| of(normal(on, &[4096, 4096])?, |x| x.cumsum(1))),
    row("cumsum_4096x4096_columns", Bytes(128.0 * MF), |on| of(normal(on, &[4096, 4096])?, |x| x.cumsum(0))),
    row("gather_1M", Bytes(16.0 * MF), |on| of(indexed(on)?, |[x, at, _]| x.gather(0, at))),
    row("scatter_add_1M", Bytes(20.0 * MF), |on| of(indexed(on)?, |[x, at, y]| x.scatter_add(0, at, y))),
    // By default our results are deterministic. These two rows correspond to PyTorch without and with deterministic
    // algorithms.
    row("scatter_add_1M_any_order", Bytes(20.0 * MF), |on| {
        of(indexed(on)?, |[x, at, y]| with_deterministic_algorithms(false, || x.scatter_add(0, at, y)))
    }),
    row("scatter_add_1M_deterministic", Bytes(20.0 * MF), |on| of(indexed(on)?, |[x, at, y]| x.scatter_add(0, at, y))),
    // Magnitudes as varied as those of gradients: 8 % are below 1e-5 of the largest.
    row("scatter_add_1M_cubes", Bytes(20.0 * MF), |on| {
        let [x, at, y] = indexed(on)?;
        of([x, at, y.pow(3.0)?], |[x, at, y]| x.scatter_add(0, at, y))
    }),
    row("index_put_1M", Bytes(20.0 * MF), |on| of(indexed(on)?, |[x, at, y]| x.index_put(at, y))),
    row("unique_1M", Bytes(16.0 * MF), |on| of(integers(on, M as i64, &[M])?, |x| x.unique())),
    row("einsum_bqhd_bkhd_bhqk", Flops(2.0 * 96.0 * 256.0 * 256.0 * 64.0), |on| {
        let both = [normal(on, &[8, 256, 12, 64])?, normal(on, &[8, 256, 12, 64])?];
        of(both, |both| Tensor::einsum("bqhd,bkhd->bhqk", both))
    }),
    row("solve_16x256", Flops(2.0 / 3.0 * CUBES_256 + 16.0 * 2.0 * 256.0 * 256.0 * 32.0), |on| {
        of([regular(on, 16, 256)?, normal(on, &[16, 256, 32])?], |[a, b]| linalg::solve(a, b))
    }),
    row("solve_1x1024", Flops(2.0 / 3.0 * CUBES_1024 + 2.0 * 1024.0 * 1024.0 * 32.0), |on| {
        of([regular(on, 1, 1024)?, normal(on, &[1, 1024, 32])?], |[a, b]| linalg::solve(a, b))
    }),
    row("solve_1000x16", Flops(2.0 / 3.0 * CUBES_16 + 1000.0 * 2.0 * 16.0 * 16.0 * 32.0), |on| {
        of([regular(on, 1000, 16)?, normal(on, &[1000, 16, 32])?], |[a, b]| linalg::solve(a, b))
    }),
    row("cholesky_16x256", Flops(CUBES_256 / 3.0), |on| of(positive(on, 16, 256)?, |x| linalg::cholesky(x))),
    row("cholesky_1x1024", Flops(CUBES_1024 / 3.0), |on| of(positive(on, 1, 1024)?, |x| linalg::cholesky(x))),
    row("cholesky_1000x16", Flops(CUBES_16 / 3.0), |on| of(positive(on, 1000, 16)?, |x| linalg::cholesky(x))),
    row("svd_16x256", Flops(20.0 / 3.0 * CUBES_256), |on| of(normal(on, &[16, 256, 256])?, |x| linalg::svd(x))),
    row("svd_1x1024", Flops(20.0 / 3.0 * CUBES_1024), |on| of(normal(on, &[1, 1024, 1024])?, |x| linalg::svd(x))),
    row("svd_1000x16", Flops(20.0 / 3.0 * CUBES_16), |on| of(normal(on, &[1000, 16, 16])?, |x| linalg::svd(x))),
    row("eigh_16x256", Flops(10.0 / 3.0 * CUBES_256), |on| of(symmetric(on, 16, 256)?, |x| linalg::eigh(x))),
    row("eigh_1x1024", Flops(10.0 / 3.0 * CUBES_1024), |on| of(symmetric(on, 1, 1024)?, |x| linalg::eigh(x))),
    row("eigh_1000x16", Flops(10.0 / 3.0 * CUBES_16), |on| of(symmetric(on, 1000, 16)?, |x| linalg::eigh(x))),
    row("fft_1M", Flops(5.0 * MF * 20.0), |on| of(complex(on, &[M])?, |x| fft::fft(x))),
    row("fft_1024x1024", Flops(5.0 * MF * 10.0), |on| of(complex(on, &[1024, 1024])?, |x| fft::fft(x))),
    row("fft2_1024x1024", Flops(5.0 * MF * 20.0), |on| of(complex(on, &[1024, 1024])?, |x| fft::fft2(x))),
    row("rfft_1M", Flops(2.5 * MF * 20.0), |on| of(normal(on, &[M])?, |x| fft::rfft(x))),
    row("median_1M", Bytes(4.0 * MF), |on| of(normal(on, &[M])?, |x| x.median(..))),
    row("quantile_1M", Bytes(4.0 * MF), |on| of(normal(on, &[M])?, |x| x.quantile(0.3, ..))),
    row("nonzero_16M", Bytes(80.0 * MF), |on| of(normal(on, &[16 * M])?.gt(0)?, |mask| mask.nonzero())),
    row("masked_select_16M", Bytes(112.0 * MF), |on| {
        let x = normal(on, &[16 * M])?;
        of([x.gt(0)?, x], |[mask, x]| x.masked_select(mask))
    }),
];

const fn row(name: &'static str, work: Work, make: fn(Device) -> Result<Step>) -> Row {
    Row { name, work, make }
}

/// The step that applies a function to inputs computed in advance, and computes all its results.
fn of<I: Inputs + 'static, R: Inputs>(inputs: I, f: impl Fn(&I) -> Result<R> + 'static) -> Result<Step> {
    inputs.compute()?;
    Ok(Box::new(move || black_box(f(&inputs)?).compute()))
}

/// One tensor or several.
pub trait Inputs {
    fn compute(&self) -> Result<()>;
}

impl Inputs for Tensor {
    fn compute(&self) -> Result<()> {
        Tensor::compute(self)
    }
}

impl<const N: usize> Inputs for [Tensor; N] {
    fn compute(&self) -> Result<()> {
        self.iter().try_for_each(Inputs::compute)
    }
}

impl Inputs for (Tensor, Tensor) {
    fn compute(&self) -> Result<()> {
        Inputs::compute(&self.0).and_then(|()| Inputs::compute(&self.1))
    }
}

impl Inputs for (Tensor, Tensor, Tensor) {
    fn compute(&self) -> Result<()> {
        Inputs::compute(&self.0).and_then(|()| Inputs::compute(&self.1)).and_then(|()| Inputs::compute(&self.2))
    }
}

fn normal(on: Device, shape: &[usize]) -> Result<Tensor> {
    Generator::seed(1).randn_with(shape, on)
}

fn integers(on: Device, below: i64, shape: &[usize]) -> Result<Tensor> {
    Generator::seed(2).randint(0, below, shape)?.to_device(on)
}

/// A million numbers, a million random indices into them, and a million other numbers.
fn indexed(on: Device) -> Result<[Tensor; 3]> {
    Ok([normal(on, &[M])?, integers(on, M as i64, &[M])?, normal(on, &[M])?])
}

fn complex(on: Device, shape: &[usize]) -> Result<Tensor> {
    let parts = [shape, &[2]].concat();
    normal(on, &parts)?.view_as_complex()
}

fn identity(on: Device, n: usize) -> Result<Tensor> {
    Tensor::eye(n)?.to_device(on)
}

/// Non-singular matrices.
fn regular(on: Device, batch: usize, n: usize) -> Result<Tensor> {
    normal(on, &[batch, n, n])?.add(&identity(on, n)?.mul(n as f64)?)
}

fn symmetric(on: Device, batch: usize, n: usize) -> Result<Tensor> {
    let x = normal(on, &[batch, n, n])?;
    x.add(&x.transpose(-1, -2)?)
}

fn positive(on: Device, batch: usize, n: usize) -> Result<Tensor> {
    symmetric(on, batch, n)?.add(&identity(on, n)?.mul(4.0 * n as f64)?)
}
