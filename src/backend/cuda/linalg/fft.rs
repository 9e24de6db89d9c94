//! Unscaled Fourier transforms of the last dimensions, by cuFFT.

use crate::backend::cuda::elementwise::chain;
use crate::backend::cuda::nn::rows::InOrder;
use crate::backend::cuda::runtime::gpu::{Gpu, gpu};
use crate::backend::{View, ViewMut};
use crate::error::{bail, err};
use crate::layout::Layout;
use crate::storage::Storage;
use crate::{DType, Device, Error, Result, Scalar};
use cudarc::cufft::{result, sys};
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

/// The directions of cuFFT.
const FORWARD: c_int = -1;
const INVERSE: c_int = 1;

/// The most dimensions that cuFFT transforms at once.
const MOST_DIMS: usize = 3;

/// The most plans that are cached. Each has its own memory on the GPU.
const MOST_PLANS: usize = 64;

/// The key of a plan. A plan belongs to one stream, since two streams must not use its memory at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct PlanKey {
    ordinal: usize,
    stream: usize,
    kind: Kind,
    double: bool,
    lengths: [c_int; MOST_DIMS],
    batch: c_int,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Complex,
    RealToComplex,
    ComplexToReal,
}

impl Kind {
    fn cufft(self, double: bool) -> sys::cufftType {
        match (self, double) {
            (Kind::Complex, false) => sys::cufftType::CUFFT_C2C,
            (Kind::Complex, true) => sys::cufftType::CUFFT_Z2Z,
            (Kind::RealToComplex, false) => sys::cufftType::CUFFT_R2C,
            (Kind::RealToComplex, true) => sys::cufftType::CUFFT_D2Z,
            (Kind::ComplexToReal, false) => sys::cufftType::CUFFT_C2R,
            (Kind::ComplexToReal, true) => sys::cufftType::CUFFT_Z2D,
        }
    }
}

/// Calls `run` with the plan for `rows` transforms of these lengths.
fn with_plan(
    op: &'static str,
    gpu: &Gpu,
    kind: Kind,
    (dtype, lengths, rows): (DType, &[usize], usize),
    run: impl FnOnce(sys::cufftHandle) -> std::result::Result<(), result::CufftError>,
) -> Result<()> {
    static PLANS: Mutex<Option<HashMap<PlanKey, sys::cufftHandle>>> = Mutex::new(None);
    let failed = |what: &str, e: result::CufftError| -> Error { err!(Backend, op, "cuFFT, {what}: {e}") };
    let sizes: std::result::Result<Vec<c_int>, _> = lengths.iter().map(|&n| c_int::try_from(n)).collect();
    let (Ok(mut sizes), Ok(batch), 1..=MOST_DIMS) = (sizes, c_int::try_from(rows), lengths.len()) else {
        bail!(Backend, op, "{rows} transforms of lengths {lengths:?} are too large for cuFFT");
    };
    // A length of 0 marks an unused dimension.
    let mut known = [0; MOST_DIMS];
    known[..sizes.len()].copy_from_slice(&sizes);
    // SAFETY: this only looks for the library.
    if !unsafe { sys::is_culib_present() } {
        bail!(Backend, op, "libcufft was not found: install CUDA, or set LD_LIBRARY_PATH");
    }
    let double = dtype == DType::F64;
    let key = PlanKey { ordinal: gpu.ordinal, stream: gpu.stream().addr(), kind, double, lengths: known, batch };
    let mut plans = PLANS.lock().unwrap_or_else(PoisonError::into_inner);
    let plans = plans.get_or_insert_default();
    let plan = match plans.get(&key) {
        Some(plan) => *plan,
        None => {
            if plans.len() >= MOST_PLANS {
                gpu.synchronize_all(op)?;
                for (_, plan) in plans.drain() {
                    // SAFETY: the plan was made below and is no longer in the table. An error cannot be handled.
                    let _ = unsafe { result::destroy(plan) };
                }
            }
            let (none, dims) = (std::ptr::null_mut(), sizes.len() as c_int);
            // SAFETY: there are `dims` sizes; transforms are contiguous, which is what no embedding means.
            let made = unsafe {
                result::plan_many(dims, sizes.as_mut_ptr(), none, 1, 0, none, 1, 0, kind.cufft(double), batch)
            };
            let plan = made.map_err(|e| failed("planning", e))?;
            // SAFETY: the plan and the stream are valid.
            unsafe { result::set_stream(plan, gpu.stream().cast()) }.map_err(|e| failed("choosing a stream", e))?;
            plans.insert(key, plan);
            plan
        }
    };
    run(plan).map_err(|e| failed("transforming", e))
}

/// As the CPU's [`c2c`](crate::backend::cpu::linalg::fft::c2c).
///
/// # Errors
/// If the library is missing or refuses.
pub(crate) fn c2c(
    op: &'static str,
    ordinal: usize,
    x: View<'_>,
    lengths: &[usize],
    inner: usize,
    forward: bool,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    if inner != 1 {
        bail!(
            Backend,
            op,
            "transformed dimensions must be last on a GPU, got {inner} elements after lengths {lengths:?}"
        );
    }
    let (gpu, rows) = (gpu(op, ordinal)?, out.layout.numel() / (2 * lengths.iter().product::<usize>()));
    if rows == 0 {
        return Ok(());
    }
    let (from, dtype) = (InOrder::new(op, ordinal, x)?, out.dtype);
    let (from, to) = (from.first.cast_mut(), out.first());
    let direction = if forward { FORWARD } else { INVERSE };
    with_plan(op, gpu, Kind::Complex, (dtype, lengths, rows), |plan| {
        // SAFETY: both have `rows` rows of pairs. The input is only read: the output is another buffer.
        unsafe {
            match dtype {
                DType::F64 => result::exec_z2z(plan, from.cast(), to.cast(), direction),
                _ => result::exec_c2c(plan, from.cast(), to.cast(), direction),
            }
        }
    })
}

/// As the CPU's [`r2c`](crate::backend::cpu::linalg::fft::r2c).
///
/// # Errors
/// If the library is missing or refuses.
pub(crate) fn r2c(op: &'static str, ordinal: usize, x: View<'_>, n: usize, out: &mut ViewMut<'_>) -> Result<()> {
    let (gpu, rows) = (gpu(op, ordinal)?, x.layout.numel() / n);
    if rows == 0 {
        return Ok(());
    }
    let (from, dtype) = (InOrder::new(op, ordinal, x)?, out.dtype);
    let (from, to) = (from.first.cast_mut(), out.first());
    with_plan(op, gpu, Kind::RealToComplex, (dtype, &[n], rows), |plan| {
        // SAFETY: there are `rows` rows of `n` numbers, and of `n / 2 + 1` pairs.
        unsafe {
            match dtype {
                DType::F64 => result::exec_d2z(plan, from.cast(), to.cast()),
                _ => result::exec_r2c(plan, from.cast(), to.cast()),
            }
        }
    })
}

/// As the CPU's [`c2r`](crate::backend::cpu::linalg::fft::c2r).
///
/// # Errors
/// If the library is missing or refuses, or memory runs out.
pub(crate) fn c2r(op: &'static str, ordinal: usize, x: View<'_>, n: usize, out: &mut ViewMut<'_>) -> Result<()> {
    let (gpu, rows, half) = (gpu(op, ordinal)?, out.layout.numel() / n, n / 2 + 1);
    if rows == 0 {
        return Ok(());
    }
    let dtype = out.dtype;
    // cuFFT overwrites its input, and does not specify how it treats imaginary parts that should be 0.
    let layout = Layout::contiguous([rows, half, 2].into());
    let mut copy = Storage::new(op, Device::Cuda(ordinal), layout.numel() * dtype.size())?;
    let flat = x.layout.reshape(layout.shape()).unwrap_or_else(|| layout.clone());
    chain::copy(op, ordinal, View { layout: &flat, ..x }, &mut ViewMut::new(op, &mut copy, &layout, dtype)?)?;
    for at in [Some(0), n.is_multiple_of(2).then_some(n / 2)].into_iter().flatten() {
        let imaginary = layout.select(op, 1, at as isize)?.select(op, 1, 1)?;
        chain::fill(op, ordinal, &mut ViewMut::new(op, &mut copy, &imaginary, dtype)?, Scalar::F64(0.0))?;
    }
    let from = ViewMut::new(op, &mut copy, &layout, dtype)?.first();
    let to = out.first();
    with_plan(op, gpu, Kind::ComplexToReal, (dtype, &[n], rows), |plan| {
        // SAFETY: there are `rows` rows of `n / 2 + 1` pairs, which are a copy, and of `n` numbers.
        unsafe {
            match dtype {
                DType::F64 => result::exec_z2d(plan, from.cast(), to.cast()),
                _ => result::exec_c2r(plan, from.cast(), to.cast()),
            }
        }
    })
}
