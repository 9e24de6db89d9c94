//! Every kernel is compiled, for an older and a newer GPU, wherever the compiler is; no GPU is needed for that.

use super::elementwise::random;
use super::linalg::matmul;
use super::nn::{attention, optim, rows};
use super::{index, reduce};
use crate::backend::code::Code;
use crate::backend::cpu::runtime::convert::compute_dtype;
use crate::backend::cuda::elementwise::source::{Array, Line, Program, element, opening};
use crate::backend::cuda::runtime::call::KernelSource;
use crate::backend::cuda::runtime::compile::{compile, present};
use crate::ops::list;
use crate::optim::rules;
use crate::{DType, Result, autograd};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

const ARCHITECTURES: [u32; 2] = [80, 90];
const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// Codes of kernels by the number of their operands, and whether they are defined for integers.
type Codes = BTreeMap<(usize, bool), Vec<Code>>;

thread_local! {
    /// What elementwise operations of this thread have handed to the driver.
    static CODES: RefCell<Codes> = RefCell::default();
}

/// Remembers the code of a kernel.
pub(crate) fn remember(operands: usize, ints: bool, code: Code) {
    CODES.with_borrow_mut(|codes| {
        let known = codes.entry((operands, ints)).or_default();
        if !known.contains(&code) {
            known.push(code);
        }
    });
}

fn compiles(what: &str, source: &str, fused: bool) {
    for arch in ARCHITECTURES {
        let image = compile("test", source, arch, fused);
        assert!(image.is_ok(), "{what} for {arch}: {}", image.map(|_| ()).unwrap_err());
    }
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

#[test]
fn every_written_kernel_compiles() -> Result<()> {
    if !compiler() {
        return Ok(());
    }
    let all: Vec<KernelSource> =
        [reduce::sources(), rows::sources(), index::sources(), random::sources(), matmul::sources()]
            .into_iter()
            .flatten()
            .chain(attention::sources())
            .chain(rules().into_iter().flat_map(|(rule, slots)| optim::sources(rule, slots)))
            .collect();
    assert!(all.len() > 50, "only {} sources", all.len());
    // Most of the time of this test goes into the compiler, which takes one core.
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, std::num::NonZero::get) {
            scope.spawn(|| {
                while let Some(source) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    compiles(source.settings(), &source.text(), source.is_fused());
                }
            });
        }
    });
    Ok(())
}

#[test]
fn the_kernels_of_one_generation_compile() -> Result<()> {
    if !compiler() {
        return Ok(());
    }
    for source in attention::hopper_sources() {
        let image = compile("test", &source.text(), 90, source.is_fused());
        assert!(image.is_ok(), "{}: {}", source.settings(), image.map(|_| ()).unwrap_err());
    }
    Ok(())
}

/// Runs every sample of every operation, with its gradients, and compiles what their kernels become.
#[test]
fn every_elementwise_operation_compiles() -> Result<()> {
    if !compiler() {
        return Ok(());
    }
    CODES.take();
    for op in list() {
        for sample in (op.samples)()? {
            let leaf =
                |x: &crate::Tensor| if x.dtype().is_float() { x.detach().requires_grad_(true) } else { Ok(x.clone()) };
            let leaves = sample.inputs().iter().map(leaf).collect::<Result<Vec<_>>>()?;
            let y = sample.run(&leaves)?;
            if y.requires_grad() && y.numel() > 0 {
                let wanted: Vec<_> = leaves.iter().filter(|x| x.requires_grad()).collect();
                autograd::grad_with(&y.sum()?, &wanted, None, autograd::Backward::default())?;
            }
        }
    }
    let codes = CODES.take();
    assert!(codes.values().map(Vec::len).sum::<usize>() > 60, "too few kernels were met: {codes:?}");
    for ((operands, ints), codes) in codes {
        // Compute dtypes, and what their results are rounded to.
        const FLOATS: [(DType, DType); 3] =
            [(DType::F32, DType::F32), (DType::F64, DType::F64), (DType::F32, DType::BF16)];
        const INTS: [(DType, DType); 2] = [(DType::I64, DType::I64), (DType::U64, DType::U64)];
        for (compute, dtype) in FLOATS.into_iter().chain(INTS.into_iter().filter(|_| ints)) {
            let array = |rank| Array { dtype: compute, rank, packed: rank == Some(2) };
            let lines: Vec<Line> = codes.iter().map(|code| Line { code: code.clone(), dtype }).collect();
            let program = Program {
                compute,
                wide: false,
                pack: 2,
                reads: (0..operands).map(|k| array([None, Some(0), Some(2)][k % 3])).collect(),
                writes: (0..lines.len()).map(|k| (array(None), k)).collect(),
                lines,
            };
            let (kernel, _) = program.kernel();
            compiles(
                &format!("{operands} operands of {compute}, results of {dtype}"),
                &(opening(compute, false) + &kernel),
                false,
            );
        }
    }
    Ok(())
}

#[test]
fn every_cast_compiles() -> Result<()> {
    if !compiler() {
        return Ok(());
    }
    for from in DType::ALL {
        for wide in [false, true] {
            let program = Program {
                compute: compute_dtype(from),
                wide,
                pack: 4,
                reads: vec![
                    Array { dtype: from, rank: None, packed: false },
                    Array { dtype: from, rank: Some(3), packed: wide },
                ],
                lines: DType::ALL.iter().map(|&dtype| Line { code: element(0) + element(1), dtype }).collect(),
                writes: DType::ALL
                    .iter()
                    .enumerate()
                    .map(|(k, &dtype)| (Array { dtype, rank: Some(k % 3 + 1), packed: k % 2 == 0 }, k))
                    .collect(),
            };
            let (kernel, _) = program.kernel();
            compiles(&format!("casts of {from}"), &(opening(compute_dtype(from), wide) + &kernel), false);
        }
    }
    Ok(())
}

/// The dtypes that sources are tried with.
pub(super) const fn floats() -> [DType; 4] {
    FLOATS
}
