//! Factorizations by cuSOLVER, and triangular systems by cuBLAS. A batch of small matrices is one call if the libraries support
//! it; others are processed sequentially.
//!
//! Both are column-major, as are the matrices here: a tensor of shape `[batch.., columns, rows]` in row-major order.

pub(crate) use super::spectral::{eig, eigh, svd};
use crate::backend::cuda::elementwise::chain;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::capture;
use crate::backend::cuda::runtime::gpu::{Gpu, gpu};
use crate::backend::{View, ViewMut};
use crate::error::{bail, err};
use crate::storage::Storage;
use crate::{Complex, DType, Device, Error, Result, Scalar, Shape};
use cudarc::cublas::sys as blas;
use cudarc::cusolver::sys as solver;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The libraries' handles on a GPU. Each takes one call at a time.
pub(super) struct Handles {
    pub(super) solver: solver::cusolverDnHandle_t,
    pub(super) blas: blas::cublasHandle_t,
}

// SAFETY: a handle may be used by any thread, one at a time, which the lock around it ensures.
unsafe impl Send for Handles {}

impl Gpu {
    /// The handles for a decomposition whose results the CPU reads, which cannot be recorded.
    pub(super) fn handles(&self, op: &'static str) -> Result<MutexGuard<'static, Handles>> {
        capture::refuse(op, self.ordinal, "decompositions are looked at by the CPU")?;
        self.libraries(op)
    }

    /// The handles, which work for this thread's stream until the guard is dropped.
    fn libraries(&self, op: &'static str) -> Result<MutexGuard<'static, Handles>> {
        static HANDLES: [OnceLock<std::result::Result<Mutex<Handles>, String>>; 16] = [const { OnceLock::new() }; 16];
        let made = HANDLES[self.ordinal].get_or_init(|| open(op).map(Mutex::new).map_err(|e| e.message()));
        let handles = made.as_ref().map_err(|e| err!(Backend, op, "{e}"))?;
        let handles = handles.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the handles and the stream are valid.
        unsafe {
            solved(op, "choosing a stream", solver::cusolverDnSetStream(handles.solver, self.stream().cast()))?;
            let set = blas::cublasSetStream_v2(handles.blas, self.stream().cast());
            set.result().map_err(|e| err!(Backend, op, "choosing a stream: {e:?}"))?;
        }
        Ok(handles)
    }
}

fn open(op: &'static str) -> Result<Handles> {
    // SAFETY: this only looks for the libraries.
    let present = unsafe { solver::is_culib_present() && blas::is_culib_present() };
    if !present {
        bail!(Backend, op, "libcusolver or libcublas was not found: install CUDA, or set LD_LIBRARY_PATH");
    }
    let solver = cudarc::cusolver::result::dn_create().map_err(|e| err!(Backend, op, "starting cuSOLVER: {e:?}"))?;
    let blas = cudarc::cublas::result::create_handle().map_err(|e| err!(Backend, op, "starting cuBLAS: {e:?}"))?;
    Ok(Handles { solver, blas })
}

pub(super) fn solved(op: &'static str, what: &str, status: solver::cusolverStatus_t) -> Result<()> {
    status.result().map_err(|e| -> Error { err!(Backend, op, "{what}: {e:?}") })
}

/// Calls the function for the dtype, with `$T` as the type of elements and `$R` as that of their parts.
macro_rules! scalar {
    ($op:expr, $dtype:expr, $T:ident of $R:ident,
        $($name:ident = $single:path | $double:path | $complex:path | $wide:path),+ => $body:expr) => {
        match $dtype {
            DType::F32 => scalar!(@with $T = f32, $R = f32, $($name = $single),+ => $body),
            DType::F64 => scalar!(@with $T = f64, $R = f64, $($name = $double),+ => $body),
            DType::C64 => scalar!(@with $T = Complex<f32>, $R = f32, $($name = $complex),+ => $body),
            DType::C128 => scalar!(@with $T = Complex<f64>, $R = f64, $($name = $wide),+ => $body),
            dtype => bail!(Backend, $op, "there is no kernel for {dtype}"),
        }
    };
    (@with $T:ident = $type:ty, $R:ident = $part:ty, $($name:ident = $call:path),+ => $body:expr) => {{
        type $T = $type;
        #[allow(dead_code)]
        type $R = $part;
        $(let $name = $call;)+
        $body
    }};
}
pub(super) use scalar;

/// The numbers of matrices, columns and rows.
pub(super) fn sizes(op: &'static str, shape: &Shape) -> Result<(usize, c_int, c_int)> {
    let [lead @ .., columns, rows] = &shape[..] else {
        bail!(Backend, op, "expected at least 2 dimensions, got shape {shape:?}")
    };
    let (Ok(n), Ok(m)) = (c_int::try_from(*columns), c_int::try_from(*rows)) else {
        bail!(Backend, op, "matrices of {rows} by {columns} are too large for cuSOLVER");
    };
    Ok((lead.iter().product(), n, m))
}

/// Memory on the GPU for `len` elements.
pub(super) fn room<T>(op: &'static str, gpu: &Gpu, len: c_int) -> Result<Storage> {
    Storage::new(op, Device::Cuda(gpu.ordinal), len.max(1) as usize * size_of::<T>())
}

pub(super) fn start<T>(storage: &Storage) -> *mut T {
    storage.as_ptr().cast_mut().cast()
}

/// The largest side of matrices that are processed as a batch. Each larger one has work for the whole GPU.
const SMALL: c_int = 512;
/// The most rows that the blocks of our own LU factorization can have.
const MOST_ROWS: c_int = 256;

/// The number of matrices, if they are processed as a batch.
fn together(count: usize, n: c_int) -> Option<c_int> {
    c_int::try_from(count).ok().filter(|&count| count > 1 && n <= SMALL)
}

/// The source of one of our own factorizations of real matrices. Each takes a second or two to compile.
fn factor_source(dtype: DType, cholesky: bool) -> Option<KernelSource> {
    const FILES: &[&str] = &[include_str!("factor.cu")];
    let source = || KernelSource::new(FILES, dtype, false).set("CHOLESKY", u8::from(cholesky)).fused();
    dtype.is_float().then(source)
}

/// The addresses, on the GPU, of `count` matrices from `first` on, `step` elements apart.
fn addresses<T>(op: &'static str, gpu: &Gpu, first: *mut T, step: usize, count: usize) -> Result<Storage> {
    let to = Storage::new(op, Device::Cuda(gpu.ordinal), count * size_of::<*mut T>())?;
    let arguments =
        Arguments::new().at(to.as_ptr()).at(first.cast_const().cast()).size(step * size_of::<T>()).size(count);
    let function = addresses_source().function(op, gpu, "addresses")?;
    // SAFETY: there is memory for `count` addresses.
    unsafe { arguments.launch(op, gpu, function, Grid::over(count, 256, 256))? };
    Ok(to)
}

fn addresses_source() -> KernelSource {
    const FILES: &[&str] = &[include_str!("addresses.cu")];
    KernelSource::new(FILES, DType::I64, true)
}

fn done(op: &'static str, what: &str, status: blas::cublasStatus_t) -> Result<()> {
    status.result().map_err(|e| err!(Backend, op, "{what}: {e:?}"))
}

/// Sources of every kind, to be compiled by a test.
#[cfg(feature = "samples")]
pub(crate) fn sources() -> Vec<KernelSource> {
    let kinds = [(DType::F32, false), (DType::F32, true), (DType::F64, false), (DType::F64, true)];
    let own = kinds.into_iter().filter_map(|(dtype, cholesky)| factor_source(dtype, cholesky));
    own.chain([addresses_source()]).collect()
}

/// The `info` numbers that a call has written for each matrix.
pub(super) fn numbers(op: &'static str, gpu: &Gpu, info: &Storage, count: usize) -> Result<Vec<c_int>> {
    let mut bytes = crate::memory::scratch::filled(op, 0_u8, count * size_of::<c_int>())?;
    // SAFETY: there are as many bytes.
    unsafe { gpu.download(op, info.as_ptr(), &mut bytes)? };
    let number = |bytes: &[u8]| c_int::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    Ok(bytes.chunks_exact(size_of::<c_int>()).map(number).collect())
}

/// As the CPU's [`lu`](crate::backend::cpu::linalg::decompose::lu), except that `pivots` are not written without exchanges.
pub(crate) fn lu(
    op: &'static str,
    ordinal: usize,
    a: &mut ViewMut<'_>,
    pivots: &mut ViewMut<'_>,
    info: &mut ViewMut<'_>,
    exchanges: bool,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (count, n, m) = sizes(op, a.layout.shape())?;
    chain::fill(op, ordinal, info, Scalar::I64(0))?;
    if count == 0 || m == 0 || n == 0 {
        return Ok(());
    }
    if let Some(source) =
        factor_source(a.dtype, false).filter(|_| together(count, n).is_some() && m == n && n <= MOST_ROWS)
    {
        let pivots = exchanges.then(|| pivots.first().cast_const());
        let arguments = Arguments::new().at(a.first().cast_const()).size(n as usize).at_or_null(pivots);
        let arguments = arguments.at(info.first().cast_const());
        // SAFETY: the matrices are contiguous, as are their pivots and numbers.
        return unsafe { arguments.launch(op, gpu, source.function(op, gpu, "lu")?, Grid::over(count, 1, 256)) };
    }
    let handles = gpu.handles(op)?;
    scalar!(op, a.dtype, T of R,
        size = solver::cusolverDnSgetrf_bufferSize | solver::cusolverDnDgetrf_bufferSize | solver::cusolverDnCgetrf_bufferSize | solver::cusolverDnZgetrf_bufferSize,
        run = solver::cusolverDnSgetrf | solver::cusolverDnDgetrf | solver::cusolverDnCgetrf | solver::cusolverDnZgetrf,
        run_all = blas::cublasSgetrfBatched | blas::cublasDgetrfBatched | blas::cublasCgetrfBatched | blas::cublasZgetrfBatched => {
        let (a, p, i) = (a.first().cast::<T>(), pivots.first().cast::<c_int>(), info.first().cast::<c_int>());
        if let Some(all) = together(count, n).filter(|_| m == n) {
            let each = addresses(op, gpu, a, n as usize * n as usize, count)?;
            let p = if exchanges { p } else { null_mut() };
            // SAFETY: the matrices are contiguous, as are their pivots and numbers.
            let status = unsafe { run_all(handles.blas, n, start(&each), n, p, i, all) };
            return done(op, "factoring", status);
        }
        let mut len = 0;
        // SAFETY: the matrices are contiguous, as are their pivots and numbers; so below.
        solved(op, "sizing", unsafe { size(handles.solver, m, n, a.cast(), m, &raw mut len) })?;
        let space = room::<T>(op, gpu, len)?;
        for at in 0..count {
            let a = a.wrapping_add(at * m as usize * n as usize);
            let p = if exchanges { p.wrapping_add(at * m.min(n) as usize) } else { null_mut() };
            // SAFETY: as above.
            let status = unsafe { run(handles.solver, m, n, a.cast(), m, start(&space), p, i.wrapping_add(at)) };
            solved(op, "factoring", status)?;
        }
        Ok(())
    })
}

/// As the CPU's [`lu_solve`](crate::backend::cpu::linalg::decompose::lu_solve).
pub(crate) fn lu_solve(
    op: &'static str,
    ordinal: usize,
    a: View<'_>,
    pivots: View<'_>,
    transposed: bool,
    b: &mut ViewMut<'_>,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (count, columns, n) = sizes(op, b.layout.shape())?;
    if count == 0 || columns == 0 || n == 0 {
        return Ok(());
    }
    let handles = gpu.handles(op)?;
    let which =
        if transposed { solver::cublasOperation_t::CUBLAS_OP_T } else { solver::cublasOperation_t::CUBLAS_OP_N };
    scalar!(op, b.dtype, T of R,
        run = solver::cusolverDnSgetrs | solver::cusolverDnDgetrs | solver::cusolverDnCgetrs | solver::cusolverDnZgetrs,
        run_all = blas::cublasSgetrsBatched | blas::cublasDgetrsBatched | blas::cublasCgetrsBatched | blas::cublasZgetrsBatched => {
        if let Some(all) = together(count, n) {
            let (a, b) = (a.first().cast::<T>().cast_mut(), b.first().cast::<T>());
            let from = addresses(op, gpu, a, n as usize * n as usize, count)?;
            let to = addresses(op, gpu, b, n as usize * columns as usize, count)?;
            let which = match transposed {
                true => blas::cublasOperation_t::CUBLAS_OP_T,
                false => blas::cublasOperation_t::CUBLAS_OP_N,
            };
            let (p, mut wrong) = (pivots.first().cast::<c_int>(), 0);
            // SAFETY: the matrices are contiguous, as are their pivots and right-hand sides. The number is the CPU's.
            let status = unsafe {
                run_all(handles.blas, which, n, columns, start(&from), n, p, start(&to), n, &raw mut wrong, all)
            };
            return done(op, "solving", status);
        }
        let info = room::<c_int>(op, gpu, 1)?;
        for at in 0..count {
            let a = a.first().cast::<T>().wrapping_add(at * n as usize * n as usize);
            let p = pivots.first().cast::<c_int>().wrapping_add(at * n as usize);
            let b = b.first().cast::<T>().wrapping_add(at * n as usize * columns as usize);
            // SAFETY: the matrices are contiguous, as are their pivots and right-hand sides.
            let status = unsafe { run(handles.solver, which, n, columns, a.cast(), n, p, b.cast(), n, start(&info)) };
            solved(op, "solving", status)?;
        }
        Ok(())
    })
}

/// As the CPU's [`cholesky`](crate::backend::cpu::linalg::decompose::cholesky).
pub(crate) fn cholesky(op: &'static str, ordinal: usize, a: &mut ViewMut<'_>, info: &mut ViewMut<'_>) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (count, n, _) = sizes(op, a.layout.shape())?;
    chain::fill(op, ordinal, info, Scalar::I64(0))?;
    if count == 0 || n == 0 {
        return Ok(());
    }
    if let Some(source) = factor_source(a.dtype, true).filter(|_| together(count, n).is_some()) {
        let arguments = Arguments::new().at(a.first().cast_const()).size(n as usize).at(info.first().cast_const());
        // SAFETY: the matrices are contiguous, as are their numbers.
        return unsafe { arguments.launch(op, gpu, source.function(op, gpu, "cholesky")?, Grid::over(count, 1, 256)) };
    }
    let handles = gpu.handles(op)?;
    let lower = solver::cublasFillMode_t::CUBLAS_FILL_MODE_LOWER;
    scalar!(op, a.dtype, T of R,
        size = solver::cusolverDnSpotrf_bufferSize | solver::cusolverDnDpotrf_bufferSize | solver::cusolverDnCpotrf_bufferSize | solver::cusolverDnZpotrf_bufferSize,
        run = solver::cusolverDnSpotrf | solver::cusolverDnDpotrf | solver::cusolverDnCpotrf | solver::cusolverDnZpotrf,
        run_all = solver::cusolverDnSpotrfBatched | solver::cusolverDnDpotrfBatched
            | solver::cusolverDnCpotrfBatched | solver::cusolverDnZpotrfBatched => {
        let (a, i) = (a.first().cast::<T>(), info.first().cast::<c_int>());
        if let Some(all) = together(count, n) {
            let each = addresses(op, gpu, a, n as usize * n as usize, count)?;
            // SAFETY: the matrices are contiguous, as are their numbers.
            return solved(op, "factoring", unsafe { run_all(handles.solver, lower, n, start(&each), n, i, all) });
        }
        let mut len = 0;
        // SAFETY: the matrices are contiguous, as are their numbers; so below.
        solved(op, "sizing", unsafe { size(handles.solver, lower, n, a.cast(), n, &raw mut len) })?;
        let space = room::<T>(op, gpu, len)?;
        for at in 0..count {
            let a = a.wrapping_add(at * n as usize * n as usize);
            // SAFETY: as above.
            let status = unsafe { run(handles.solver, lower, n, a.cast(), n, start(&space), len, i.wrapping_add(at)) };
            solved(op, "factoring", status)?;
        }
        Ok(())
    })
}

/// As the CPU's [`ldl`](crate::backend::cpu::linalg::decompose::ldl). cuSOLVER supports only symmetric matrices.
pub(crate) fn ldl(
    op: &'static str,
    ordinal: usize,
    a: &mut ViewMut<'_>,
    pivots: &mut ViewMut<'_>,
    info: &mut ViewMut<'_>,
    hermitian: bool,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (count, n, _) = sizes(op, a.layout.shape())?;
    if hermitian && a.dtype.is_complex() {
        bail!(Device, op, "there is no kernel for Hermitian matrices of {} on cuda:{ordinal}", a.dtype);
    }
    chain::fill(op, ordinal, info, Scalar::I64(0))?;
    if count == 0 || n == 0 {
        return Ok(());
    }
    let handles = gpu.handles(op)?;
    let lower = solver::cublasFillMode_t::CUBLAS_FILL_MODE_LOWER;
    scalar!(op, a.dtype, T of R,
        size = solver::cusolverDnSsytrf_bufferSize | solver::cusolverDnDsytrf_bufferSize
            | solver::cusolverDnCsytrf_bufferSize | solver::cusolverDnZsytrf_bufferSize,
        run = solver::cusolverDnSsytrf | solver::cusolverDnDsytrf | solver::cusolverDnCsytrf | solver::cusolverDnZsytrf => {
        let (a, p, i) = (a.first().cast::<T>(), pivots.first().cast::<c_int>(), info.first().cast::<c_int>());
        let mut len = 0;
        // SAFETY: the matrices are contiguous, as are their pivots and numbers; so below.
        solved(op, "sizing", unsafe { size(handles.solver, n, a.cast(), n, &raw mut len) })?;
        let space = room::<T>(op, gpu, len)?;
        for at in 0..count {
            let a = a.wrapping_add(at * n as usize * n as usize);
            let (p, i) = (p.wrapping_add(at * n as usize), i.wrapping_add(at));
            // SAFETY: as above.
            let status = unsafe { run(handles.solver, lower, n, a.cast(), n, p, start(&space), len, i) };
            solved(op, "factoring", status)?;
        }
        Ok(())
    })
}

/// As the CPU's [`solve_triangular`](crate::backend::cpu::linalg::decompose::solve_triangular).
pub(crate) fn solve_triangular(
    op: &'static str,
    ordinal: usize,
    a: View<'_>,
    by_rows: bool,
    upper: bool,
    unit: bool,
    b: &mut ViewMut<'_>,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (count, columns, n) = sizes(op, b.layout.shape())?;
    if count == 0 || columns == 0 || n == 0 {
        return Ok(());
    }
    let handles = gpu.libraries(op)?;
    // A row-major matrix is its transpose in column-major order, with the other triangle.
    let side = blas::cublasSideMode_t::CUBLAS_SIDE_LEFT;
    let fill = match upper != by_rows {
        true => blas::cublasFillMode_t::CUBLAS_FILL_MODE_UPPER,
        false => blas::cublasFillMode_t::CUBLAS_FILL_MODE_LOWER,
    };
    let turn = if by_rows { blas::cublasOperation_t::CUBLAS_OP_T } else { blas::cublasOperation_t::CUBLAS_OP_N };
    let diagonal = match unit {
        true => blas::cublasDiagType_t::CUBLAS_DIAG_UNIT,
        false => blas::cublasDiagType_t::CUBLAS_DIAG_NON_UNIT,
    };
    scalar!(op, b.dtype, T of R,
        run = blas::cublasStrsm_v2 | blas::cublasDtrsm_v2 | blas::cublasCtrsm_v2 | blas::cublasZtrsm_v2,
        run_all = blas::cublasStrsmBatched | blas::cublasDtrsmBatched | blas::cublasCtrsmBatched | blas::cublasZtrsmBatched => {
        // A real factor is the first part of a complex one.
        let one: [R; 2] = [1.0, 0.0];
        let one = (&raw const one).cast();
        if let Some(all) = together(count, n) {
            let (a, b) = (a.first().cast::<T>().cast_mut(), b.first().cast::<T>());
            let from = addresses(op, gpu, a, n as usize * n as usize, count)?;
            let to = addresses(op, gpu, b, n as usize * columns as usize, count)?;
            // SAFETY: the matrices are contiguous, as are their right-hand sides; the factor is read at once.
            let status = unsafe {
                run_all(handles.blas, side, fill, turn, diagonal, n, columns, one, start(&from), n, start(&to), n, all)
            };
            return done(op, "solving", status);
        }
        for at in 0..count {
            let a = a.first().cast::<T>().wrapping_add(at * n as usize * n as usize);
            let b = b.first().cast::<T>().wrapping_add(at * n as usize * columns as usize);
            // SAFETY: the matrices are contiguous, as are their right-hand sides; the factor is read at once.
            let status =
                unsafe { run(handles.blas, side, fill, turn, diagonal, n, columns, one, a.cast(), n, b.cast(), n) };
            done(op, "solving", status)?;
        }
        Ok(())
    })
}

/// As the CPU's [`qr`](crate::backend::cpu::linalg::decompose::qr).
pub(crate) fn qr(op: &'static str, ordinal: usize, a: &mut ViewMut<'_>, taus: &mut ViewMut<'_>) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (count, n, m) = sizes(op, a.layout.shape())?;
    if count == 0 || m == 0 || n == 0 {
        return Ok(());
    }
    let handles = gpu.handles(op)?;
    scalar!(op, a.dtype, T of R,
        size = solver::cusolverDnSgeqrf_bufferSize | solver::cusolverDnDgeqrf_bufferSize | solver::cusolverDnCgeqrf_bufferSize | solver::cusolverDnZgeqrf_bufferSize,
        run = solver::cusolverDnSgeqrf | solver::cusolverDnDgeqrf | solver::cusolverDnCgeqrf | solver::cusolverDnZgeqrf => {
        let (a, t) = (a.first().cast::<T>(), taus.first().cast::<T>());
        let mut len = 0;
        // SAFETY: the matrices are contiguous, as are their factors; so below.
        solved(op, "sizing", unsafe { size(handles.solver, m, n, a.cast(), m, &raw mut len) })?;
        let (space, info) = (room::<T>(op, gpu, len)?, room::<c_int>(op, gpu, 1)?);
        for at in 0..count {
            let a = a.wrapping_add(at * m as usize * n as usize);
            let t = t.wrapping_add(at * m.min(n) as usize);
            // SAFETY: as above.
            let status = unsafe { run(handles.solver, m, n, a.cast(), m, t.cast(), start(&space), len, start(&info)) };
            solved(op, "factoring", status)?;
        }
        Ok(())
    })
}

/// As the CPU's [`qr_q`](crate::backend::cpu::linalg::decompose::qr_q).
pub(crate) fn qr_q(op: &'static str, ordinal: usize, a: View<'_>, taus: View<'_>, q: &mut ViewMut<'_>) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (count, columns, m) = sizes(op, q.layout.shape())?;
    let k = taus.layout.shape().last().copied().unwrap_or(0);
    if count == 0 || columns == 0 || m == 0 {
        return Ok(());
    }
    // The Householder vectors, in place of the columns that are computed from them.
    let (from, to) = (a.layout.narrow(op, -2, 0, k)?, q.layout.narrow(op, -2, 0, k)?);
    copy(op, ordinal, View { layout: &from, ..a }, &mut q.part(&to))?;
    let handles = gpu.handles(op)?;
    let reflections = k as c_int;
    scalar!(op, q.dtype, T of R,
        size = solver::cusolverDnSorgqr_bufferSize | solver::cusolverDnDorgqr_bufferSize | solver::cusolverDnCungqr_bufferSize | solver::cusolverDnZungqr_bufferSize,
        run = solver::cusolverDnSorgqr | solver::cusolverDnDorgqr | solver::cusolverDnCungqr | solver::cusolverDnZungqr => {
        let (q, t) = (q.first().cast::<T>(), taus.first().cast::<T>());
        let mut len = 0;
        // SAFETY: the matrices are contiguous, as are their factors; so below.
        solved(op, "sizing", unsafe { size(handles.solver, m, columns, reflections, q.cast(), m, t.cast(), &raw mut len) })?;
        let (space, info) = (room::<T>(op, gpu, len)?, room::<c_int>(op, gpu, 1)?);
        for at in 0..count {
            let q = q.wrapping_add(at * m as usize * columns as usize);
            let t = t.wrapping_add(at * k);
            // SAFETY: as above.
            let status = unsafe {
                run(handles.solver, m, columns, reflections, q.cast(), m, t.cast(), start(&space), len, start(&info))
            };
            solved(op, "multiplying reflections", status)?;
        }
        Ok(())
    })
}

/// Copies elements; complex ones as their parts.
fn copy(op: &'static str, ordinal: usize, from: View<'_>, to: &mut ViewMut<'_>) -> Result<()> {
    if !to.dtype.is_complex() {
        return chain::copy(op, ordinal, from, to);
    }
    let (from_parts, to_parts, dtype) = (from.layout.pairs(), to.layout.pairs(), to.dtype.to_real());
    let mut to = to.part(&to_parts);
    to.dtype = dtype;
    chain::copy(op, ordinal, View { layout: &from_parts, dtype, ..from }, &mut to)
}
