//! Every kernel is compiled, for an older and a newer GPU, wherever the compiler is; no GPU is needed for that.

use super::elementwise::random;
use super::linalg::{decompose, few_rows, matmul};
use super::nn::{attention, cached, channels, conv, forward, lstm, optim, pool, rows, tokens};
use super::{index, reduce};
use crate::backend::cuda::elementwise::source::{Array, Compute, Input, Line, Program, opening};
use crate::backend::cuda::runtime::call::KernelSource;
use crate::backend::cuda::runtime::compile::{compile_with, present, version};
use crate::backend::spec::Formula;
use crate::ops::{Arg, list};
use crate::optim::rules;
use crate::{DType, Result, Tensor, autograd};
use std::cell::RefCell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The oldest generation that is supported. Tests on a GPU compile for the generation of that GPU.
const ARCHITECTURE: u32 = 80;
const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

thread_local! {
    /// The formulas that operations of this thread have computed.
    static FORMULAS: RefCell<Vec<&'static Formula>> = RefCell::default();
}

/// Remembers a formula, to be compiled.
pub(crate) fn remember(formula: &'static Formula) {
    FORMULAS.with_borrow_mut(|known| {
        if !known.iter().any(|other| std::ptr::eq(*other, formula)) {
            known.push(formula);
        }
    });
}

fn compiles(what: &str, source: &str, arch: u32, fused: bool) {
    // Whether it compiles does not depend on how well it is optimised, and optimising takes most of the time. Older compilers
    // do not know the option.
    let quick: &[&str] = if version() >= 13 { &["--Ofast-compile=max"] } else { &[] };
    let image = compile_with("test", source, arch, fused, quick);
    assert!(image.is_ok(), "{what} for {arch}: {}", image.map(|_| ()).unwrap_err());
}

/// Does something with each of many sources, on all cores: the compiler, which takes most of the time, uses one.
fn with_each<T: Sync>(all: &[T], f: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(|| {
                while let Some(source) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    f(source);
                }
            });
        }
    });
}

/// False, with a word about it, where there is no compiler; where `COTANGENT_WANT_NVRTC` is set, that is a failure.
fn compiler() -> bool {
    let found = present();
    assert!(found || std::env::var_os("COTANGENT_WANT_NVRTC").is_none(), "there is no libnvrtc on LD_LIBRARY_PATH");
    if !found {
        eprintln!("skipped: there is no libnvrtc");
    }
    found
}

#[cotangent_macros::unit_test]
fn every_written_kernel_compiles() -> Result<()> {
    if !compiler() {
        return Ok(());
    }
    let all: Vec<KernelSource> = [
        reduce::sources(),
        rows::sources(),
        index::sources(),
        random::sources(),
        matmul::sources(),
        few_rows::sources(),
        cached::sources(),
        tokens::sources(),
        forward::sources(),
        decompose::sources(),
    ]
    .into_iter()
    .flatten()
    .chain(attention::sources())
    .chain(conv::sources())
    .chain(channels::sources())
    .chain(lstm::sources())
    .chain(pool::sources())
    .chain(rules().into_iter().flat_map(|(rule, slots)| optim::sources(&rule, slots)))
    .collect();
    assert!(all.len() > 50, "only {} sources", all.len());
    with_each(&all, |source| {
        compiles(source.settings(), &source.text(), ARCHITECTURE, source.is_fused());
    });
    Ok(())
}

#[cotangent_macros::unit_test]
fn the_kernels_of_one_generation_compile() -> Result<()> {
    if !compiler() {
        return Ok(());
    }
    let all: Vec<KernelSource> = attention::hopper_sources().into_iter().chain(cached::hopper_sources()).collect();
    with_each(&all, |source| {
        compiles(source.settings(), &source.text(), 90, source.is_fused());
    });
    Ok(())
}

/// Runs every sample of every operation, with its gradients, and compiles what their formulas become.
#[cotangent_macros::unit_test]
fn every_elementwise_operation_compiles() -> Result<()> {
    if !compiler() {
        return Ok(());
    }
    FORMULAS.take();
    for op in list() {
        for sample in op.samples()? {
            let leaf = |x: &Tensor| {
                if x.dtype().is_differentiable() { x.detach().requires_grad_(true) } else { Ok(x.clone()) }
            };
            let args = sample.bind(op)?.iter().map(|arg| arg.map_tensors(leaf)).collect::<Result<Vec<_>>>()?;
            let wanted: Vec<&Tensor> = args.iter().flat_map(Arg::tensors).filter(|x| x.requires_grad()).collect();
            for y in op.call(&args)?.iter().filter(|y| y.requires_grad() && y.numel() > 0) {
                let parts = if y.dtype().is_complex() { y.view_as_real()? } else { y.clone() };
                autograd::grad_with(&parts.sum(..)?, &wanted, autograd::GradOptions::new().retain_graph(true))?;
            }
        }
    }
    let formulas = FORMULAS.take();
    assert!(formulas.len() > 60, "only {} formulas were met", formulas.len());
    // Compute dtypes, and what their results are rounded to.
    const KINDS: [(DType, DType); 5] = [
        (DType::F32, DType::F32),
        (DType::F64, DType::F64),
        (DType::F32, DType::BF16),
        (DType::I64, DType::I64),
        (DType::U64, DType::U64),
    ];
    let mut sources = Vec::new();
    for (compute, dtype) in KINDS {
        // Derivatives are those of floats.
        let met =
            |f: &&Formula| f.has_kernel(compute) && (compute.is_float() || !f.name.to_string().ends_with("_backward"));
        let defined: Vec<&'static Formula> = formulas.iter().copied().filter(met).collect();
        assert!(!defined.is_empty(), "nothing is defined for {compute}");
        sources.extend(defined.chunks(24).map(|some| formulas_source(some, compute, dtype)));
    }
    // Nothing in a formula depends on the GPU.
    with_each(&sources, |(what, source)| compiles(what, source, ARCHITECTURE, false));
    Ok(())
}

/// One kernel of some formulas, and what they are.
fn formulas_source(some: &[&'static Formula], compute: DType, dtype: DType) -> (String, String) {
    let operands = some.iter().map(|formula| formula.inputs).max().unwrap_or(0);
    let array = |rank| Array { dtype: compute, rank, packed: rank == Some(2) };
    let line = |formula: &&'static Formula| Line {
        what: Compute::Formula { formula, inputs: (0..formula.inputs).map(Input::Element).collect(), first_param: 0 },
        dtype,
    };
    let program = Program {
        compute,
        wide: false,
        pack: 2,
        reads: (0..operands).map(|k| array([None, Some(0), Some(2)][k % 3])).collect(),
        walks: (0..operands).map(|k| if k % 3 == 2 { 2 } else { k }).collect(),
        writes: (0..some.len()).map(|k| (array(None), k)).collect(),
        lines: some.iter().map(line).collect(),
        params: 8,
    };
    let names: Vec<String> = some.iter().map(|formula| formula.name.to_string()).collect();
    let what = format!("{} of {compute}, results of {dtype}", names.join(", "));
    (what, opening(compute, false) + &program.kernel())
}

#[cotangent_macros::unit_test]
fn every_cast_compiles() -> Result<()> {
    if !compiler() {
        return Ok(());
    }
    static SUM: LazyLock<Formula> = LazyLock::new(|| Formula::new("sum", 2, 0, |x, _| x[0] + x[1]));
    for from in DType::REAL {
        for wide in [false, true] {
            let line = |&dtype: &DType| Line {
                what: Compute::Formula {
                    formula: &SUM,
                    inputs: [Input::Element(0), Input::Element(1)].into_iter().collect(),
                    first_param: 0,
                },
                dtype,
            };
            let program = Program {
                compute: from.compute_dtype(),
                wide,
                pack: 4,
                reads: vec![
                    Array { dtype: from, rank: None, packed: false },
                    Array { dtype: from, rank: Some(3), packed: wide },
                ],
                walks: vec![0, 1],
                lines: DType::REAL.iter().map(line).collect(),
                writes: DType::REAL
                    .iter()
                    .enumerate()
                    .map(|(k, &dtype)| (Array { dtype, rank: Some(k % 3 + 1), packed: k % 2 == 0 }, k))
                    .collect(),
                params: 0,
            };
            let source = opening(from.compute_dtype(), wide) + &program.kernel();
            compiles(&format!("casts of {from}"), &source, ARCHITECTURE, false);
        }
    }
    Ok(())
}

/// The dtypes that sources are tried with.
pub(super) const fn floats() -> [DType; 4] {
    FLOATS
}
