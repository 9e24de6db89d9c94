//! Factorizations by cuSOLVER, and triangular systems by cuBLAS, one matrix of a batch after the other.
//!
//! Both count in columns, as do the matrices here: a tensor of shape `[batch.., columns, rows]` in row-major order.

use crate::backend::cuda::elementwise::chain;
use crate::backend::cuda::runtime::capture;
use crate::backend::cuda::runtime::gpu::{Gpu, gpu};
use crate::backend::{View, ViewMut};
use crate::error::{bail, err};
use crate::storage::Storage;
use crate::{Complex, DType, Device, Error, Result, Scalar, Shape};
use cudarc::cublas::sys as blas;
use cudarc::cusolver::sys as solver;
use std::ffi::{c_int, c_schar};
use std::ptr::null_mut;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The libraries' handles on a GPU. Each takes one call at a time.
struct Handles {
    solver: solver::cusolverDnHandle_t,
    blas: blas::cublasHandle_t,
}

// SAFETY: a handle may be used by any thread, one at a time, which the lock around it sees to.
unsafe impl Send for Handles {}

impl Gpu {
    /// The handles for a decomposition, whose results the CPU looks at: that cannot be recorded.
    fn handles(&self, op: &'static str) -> Result<MutexGuard<'static, Handles>> {
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
    // SAFETY: only looks for the libraries.
    let present = unsafe { solver::is_culib_present() && blas::is_culib_present() };
    if !present {
        bail!(Backend, op, "libcusolver or libcublas was not found: install CUDA, or set LD_LIBRARY_PATH");
    }
    let solver = cudarc::cusolver::result::dn_create().map_err(|e| err!(Backend, op, "starting cuSOLVER: {e:?}"))?;
    let blas = cudarc::cublas::result::create_handle().map_err(|e| err!(Backend, op, "starting cuBLAS: {e:?}"))?;
    Ok(Handles { solver, blas })
}

fn solved(op: &'static str, what: &str, status: solver::cusolverStatus_t) -> Result<()> {
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

/// How many matrices there are, and how many columns and rows they have.
fn sizes(op: &'static str, shape: &Shape) -> Result<(usize, c_int, c_int)> {
    let [lead @ .., columns, rows] = &shape[..] else { bail!(Backend, op, "{shape:?} has no matrices") };
    let (Ok(n), Ok(m)) = (c_int::try_from(*columns), c_int::try_from(*rows)) else {
        bail!(Backend, op, "matrices of {rows} by {columns} are too large");
    };
    Ok((lead.iter().product(), n, m))
}

/// Memory on the GPU for `len` elements.
fn room<T>(op: &'static str, gpu: &Gpu, len: c_int) -> Result<Storage> {
    Storage::new(op, Device::Cuda(gpu.ordinal), len.max(1) as usize * size_of::<T>())
}

fn start<T>(storage: &Storage) -> *mut T {
    storage.as_ptr().cast_mut().cast()
}

/// The numbers that a call has left for each matrix.
fn numbers(op: &'static str, gpu: &Gpu, info: &Storage, count: usize) -> Result<Vec<c_int>> {
    let mut bytes = crate::backend::cpu::runtime::scratch::filled(op, 0_u8, count * size_of::<c_int>())?;
    // SAFETY: there are as many bytes.
    unsafe { gpu.download(op, info.as_ptr(), &mut bytes)? };
    let number = |bytes: &[u8]| c_int::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    Ok(bytes.chunks_exact(size_of::<c_int>()).map(number).collect())
}

/// As the CPU's [`lu`](crate::backend::cpu::linalg::decompose::lu), but for `pivots`, which are not written without exchanges.
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
    let handles = gpu.handles(op)?;
    scalar!(op, a.dtype, T of R,
        size = solver::cusolverDnSgetrf_bufferSize | solver::cusolverDnDgetrf_bufferSize | solver::cusolverDnCgetrf_bufferSize | solver::cusolverDnZgetrf_bufferSize,
        run = solver::cusolverDnSgetrf | solver::cusolverDnDgetrf | solver::cusolverDnCgetrf | solver::cusolverDnZgetrf => {
        let (a, p, i) = (a.first().cast::<T>(), pivots.first().cast::<c_int>(), info.first().cast::<c_int>());
        let mut len = 0;
        // SAFETY: the matrices lie one after the other, and so do their pivots and numbers; so below.
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
    scalar!(op, b.dtype, T of R, run = solver::cusolverDnSgetrs | solver::cusolverDnDgetrs | solver::cusolverDnCgetrs | solver::cusolverDnZgetrs => {
        let info = room::<c_int>(op, gpu, 1)?;
        for at in 0..count {
            let a = a.first().cast::<T>().wrapping_add(at * n as usize * n as usize);
            let p = pivots.first().cast::<c_int>().wrapping_add(at * n as usize);
            let b = b.first().cast::<T>().wrapping_add(at * n as usize * columns as usize);
            // SAFETY: the matrices lie one after the other, and so do their pivots and right-hand sides.
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
    let handles = gpu.handles(op)?;
    let lower = solver::cublasFillMode_t::CUBLAS_FILL_MODE_LOWER;
    scalar!(op, a.dtype, T of R,
        size = solver::cusolverDnSpotrf_bufferSize | solver::cusolverDnDpotrf_bufferSize | solver::cusolverDnCpotrf_bufferSize | solver::cusolverDnZpotrf_bufferSize,
        run = solver::cusolverDnSpotrf | solver::cusolverDnDpotrf | solver::cusolverDnCpotrf | solver::cusolverDnZpotrf => {
        let (a, i) = (a.first().cast::<T>(), info.first().cast::<c_int>());
        let mut len = 0;
        // SAFETY: the matrices lie one after the other, and so do their numbers; so below.
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

/// As the CPU's [`ldl`](crate::backend::cpu::linalg::decompose::ldl). cuSOLVER has it for symmetric matrices alone.
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
        // SAFETY: the matrices lie one after the other, and so do their pivots and numbers; so below.
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
    // Read by columns, a matrix that lies by rows is its transpose, with the other triangle.
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
    scalar!(op, b.dtype, T of R, run = blas::cublasStrsm_v2 | blas::cublasDtrsm_v2 | blas::cublasCtrsm_v2 | blas::cublasZtrsm_v2 => {
        // A real factor is the first part of a complex one.
        let one: [R; 2] = [1.0, 0.0];
        let one = (&raw const one).cast();
        for at in 0..count {
            let a = a.first().cast::<T>().wrapping_add(at * n as usize * n as usize);
            let b = b.first().cast::<T>().wrapping_add(at * n as usize * columns as usize);
            // SAFETY: the matrices lie one after the other, and so do their right-hand sides; the factor is read at once.
            let status =
                unsafe { run(handles.blas, side, fill, turn, diagonal, n, columns, one, a.cast(), n, b.cast(), n) };
            status.result().map_err(|e| err!(Backend, op, "solving: {e:?}"))?;
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
        // SAFETY: the matrices lie one after the other, and so do their factors; so below.
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
    // The vectors of the reflections, in place of the columns that are made of them.
    let (from, to) = (a.layout.narrow(op, -2, 0, k)?, q.layout.narrow(op, -2, 0, k)?);
    copy(op, ordinal, View { layout: &from, ..a }, &mut q.part(&to))?;
    let handles = gpu.handles(op)?;
    let reflections = k as c_int;
    scalar!(op, q.dtype, T of R,
        size = solver::cusolverDnSorgqr_bufferSize | solver::cusolverDnDorgqr_bufferSize | solver::cusolverDnCungqr_bufferSize | solver::cusolverDnZungqr_bufferSize,
        run = solver::cusolverDnSorgqr | solver::cusolverDnDorgqr | solver::cusolverDnCungqr | solver::cusolverDnZungqr => {
        let (q, t) = (q.first().cast::<T>(), taus.first().cast::<T>());
        let mut len = 0;
        // SAFETY: the matrices lie one after the other, and so do their factors; so below.
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

/// As the CPU's [`eigh`](crate::backend::cpu::linalg::decompose::eigh).
pub(crate) fn eigh(
    op: &'static str,
    ordinal: usize,
    a: &mut ViewMut<'_>,
    values: &mut ViewMut<'_>,
    vectors: bool,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (count, n, _) = sizes(op, a.layout.shape())?;
    if count == 0 || n == 0 {
        return Ok(());
    }
    let handles = gpu.handles(op)?;
    let lower = solver::cublasFillMode_t::CUBLAS_FILL_MODE_LOWER;
    let mode = match vectors {
        true => solver::cusolverEigMode_t::CUSOLVER_EIG_MODE_VECTOR,
        false => solver::cusolverEigMode_t::CUSOLVER_EIG_MODE_NOVECTOR,
    };
    let info = room::<c_int>(op, gpu, c_int::try_from(count).unwrap_or(c_int::MAX))?;
    scalar!(op, a.dtype, T of R,
        size = solver::cusolverDnSsyevd_bufferSize | solver::cusolverDnDsyevd_bufferSize | solver::cusolverDnCheevd_bufferSize | solver::cusolverDnZheevd_bufferSize,
        run = solver::cusolverDnSsyevd | solver::cusolverDnDsyevd | solver::cusolverDnCheevd | solver::cusolverDnZheevd => {
        let (a, w) = (a.first().cast::<T>(), values.first().cast::<R>());
        let mut len = 0;
        // SAFETY: the matrices lie one after the other, and so do their values and numbers; so below.
        solved(op, "sizing", unsafe { size(handles.solver, mode, lower, n, a.cast(), n, w, &raw mut len) })?;
        let space = room::<T>(op, gpu, len)?;
        for at in 0..count {
            let a = a.wrapping_add(at * n as usize * n as usize);
            let w = w.wrapping_add(at * n as usize);
            let i = start::<c_int>(&info).wrapping_add(at);
            // SAFETY: as above.
            let status = unsafe { run(handles.solver, mode, lower, n, a.cast(), n, w, start(&space), len, i) };
            solved(op, "finding eigenvalues", status)?;
        }
    });
    drop(handles);
    if numbers(op, gpu, &info, count)?.iter().any(|&number| number != 0) {
        bail!(Value, op, "the eigenvalues of a matrix of size {n} did not converge");
    }
    Ok(())
}

/// As the CPU's [`svd`](crate::backend::cpu::linalg::decompose::svd).
pub(crate) fn svd(
    op: &'static str,
    ordinal: usize,
    a: &mut ViewMut<'_>,
    values: &mut ViewMut<'_>,
    u: Option<&mut ViewMut<'_>>,
    v: Option<&mut ViewMut<'_>>,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (count, n, m) = sizes(op, a.layout.shape())?;
    if count == 0 || m == 0 {
        return Ok(());
    }
    if n == 0 {
        // All left vectors of nothing are those of the identity.
        let Some(u) = u else { return Ok(()) };
        return identity(op, ordinal, u);
    }
    let handles = gpu.handles(op)?;
    let info = room::<c_int>(op, gpu, c_int::try_from(count).unwrap_or(c_int::MAX))?;
    // The library gives the right vectors as rows.
    let rows = Storage::new(op, Device::Cuda(ordinal), count * n as usize * n as usize * a.dtype.size())?;
    let columns = u.as_ref().map(|u| sizes(op, u.layout.shape()).map(|(_, columns, _)| columns)).transpose()?;
    let [job_u, job_v] = match columns {
        Some(columns) if columns > n => *b"AA",
        Some(_) => *b"SS",
        None => *b"NN",
    }
    .map(|job| job as c_schar);
    scalar!(op, a.dtype, T of R,
        size = solver::cusolverDnSgesvd_bufferSize | solver::cusolverDnDgesvd_bufferSize | solver::cusolverDnCgesvd_bufferSize | solver::cusolverDnZgesvd_bufferSize,
        run = solver::cusolverDnSgesvd | solver::cusolverDnDgesvd | solver::cusolverDnCgesvd | solver::cusolverDnZgesvd,
        turn = blas::cublasSgeam | blas::cublasDgeam | blas::cublasCgeam | blas::cublasZgeam => {
        let (one, zero): ([R; 2], [R; 2]) = ([1.0, 0.0], [0.0, 0.0]);
        let (one, zero) = ((&raw const one).cast(), (&raw const zero).cast());
        let own = v.map(|v| v.first().cast::<T>());
        let (a, s) = (a.first().cast::<T>(), values.first().cast::<R>());
        let u = u.map_or(null_mut(), |u| u.first().cast::<T>());
        let mut len = 0;
        // SAFETY: the matrices lie one after the other, and so do their values, vectors and numbers; so below.
        solved(op, "sizing", unsafe { size(handles.solver, m, n, &raw mut len) })?;
        let space = room::<T>(op, gpu, len)?;
        for at in 0..count {
            let a = a.wrapping_add(at * m as usize * n as usize);
            let s = s.wrapping_add(at * n as usize);
            let u = u.wrapping_add(at * m as usize * columns.unwrap_or(0) as usize);
            let v = start::<T>(&rows).wrapping_add(at * n as usize * n as usize);
            let i = start::<c_int>(&info).wrapping_add(at);
            // SAFETY: as above.
            let status = unsafe {
                run(
                    handles.solver, job_u, job_v, m, n, a.cast(), m, s, u.cast(), m, v.cast(), n, start(&space), len,
                    null_mut(), i,
                )
            };
            solved(op, "finding singular values", status)?;
            if let Some(own) = own {
                let (plain, turned) = (blas::cublasOperation_t::CUBLAS_OP_N, blas::cublasOperation_t::CUBLAS_OP_C);
                let to = own.wrapping_add(at * n as usize * n as usize).cast();
                // SAFETY: as above; the factors are read at once.
                let status =
                    unsafe { turn(handles.blas, turned, plain, n, n, one, v.cast(), n, zero, to, n, to, n) };
                status.result().map_err(|e| err!(Backend, op, "transposing: {e:?}"))?;
            }
        }
    });
    drop(handles);
    if numbers(op, gpu, &info, count)?.iter().any(|&number| number != 0) {
        bail!(Value, op, "the singular values of a matrix of {m} by {n} did not converge");
    }
    Ok(())
}

/// As the CPU's [`eig`](crate::backend::cpu::linalg::decompose::eig).
pub(crate) fn eig(
    op: &'static str,
    ordinal: usize,
    a: &mut ViewMut<'_>,
    values: &mut ViewMut<'_>,
    vectors: Option<&mut ViewMut<'_>>,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (count, n, _) = sizes(op, a.layout.shape())?;
    if count == 0 || n == 0 {
        return Ok(());
    }
    let handles = gpu.handles(op)?;
    let data = |dtype: DType| match dtype {
        DType::F32 => Ok(solver::cudaDataType::CUDA_R_32F),
        DType::F64 => Ok(solver::cudaDataType::CUDA_R_64F),
        DType::C64 => Ok(solver::cudaDataType::CUDA_C_32F),
        DType::C128 => Ok(solver::cudaDataType::CUDA_C_64F),
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    };
    let (of_a, of_w) = (data(a.dtype)?, data(values.dtype)?);
    let none = solver::cusolverEigMode_t::CUSOLVER_EIG_MODE_NOVECTOR;
    let mode = if vectors.is_some() { solver::cusolverEigMode_t::CUSOLVER_EIG_MODE_VECTOR } else { none };
    let info = room::<c_int>(op, gpu, c_int::try_from(count).unwrap_or(c_int::MAX))?;
    let (a_size, w_size) = (a.dtype.size(), values.dtype.size());
    let (first, w, side) = (a.first(), values.first(), i64::from(n));
    let v = vectors.map_or(null_mut(), |v| v.first());
    let params = Params::new(op)?;
    let (mut device, mut host) = (0, 0);
    // SAFETY: the matrices lie one after the other, and so do their values, vectors and numbers; so below.
    let status = unsafe {
        solver::cusolverDnXgeev_bufferSize(
            handles.solver,
            params.0,
            none,
            mode,
            side,
            of_a,
            first.cast(),
            side,
            of_w,
            w.cast(),
            of_a,
            null_mut(),
            side,
            of_a,
            v.cast(),
            side,
            of_a,
            &raw mut device,
            &raw mut host,
        )
    };
    solved(op, "sizing", status)?;
    let space = Storage::new(op, Device::Cuda(ordinal), device.max(1))?;
    let mut near = crate::backend::cpu::runtime::scratch::filled(op, 0_u8, host.max(1))?;
    let square = n as usize * n as usize * a_size;
    for at in 0..count {
        let (a, w) = (first.wrapping_add(at * square), w.wrapping_add(at * n as usize * w_size));
        let v = if v.is_null() { v } else { v.wrapping_add(at * square) };
        let i = start::<c_int>(&info).wrapping_add(at);
        // SAFETY: as above.
        let status = unsafe {
            solver::cusolverDnXgeev(
                handles.solver,
                params.0,
                none,
                mode,
                side,
                of_a,
                a.cast(),
                side,
                of_w,
                w.cast(),
                of_a,
                null_mut(),
                side,
                of_a,
                v.cast(),
                side,
                of_a,
                start(&space),
                device,
                near.as_mut_ptr().cast(),
                host,
                i,
            )
        };
        solved(op, "finding eigenvalues", status)?;
    }
    drop(handles);
    if numbers(op, gpu, &info, count)?.iter().any(|&number| number != 0) {
        bail!(Value, op, "the eigenvalues of a matrix of size {n} did not converge");
    }
    Ok(())
}

/// What the newer functions of cuSOLVER want to be given.
struct Params(solver::cusolverDnParams_t);

impl Params {
    fn new(op: &'static str) -> Result<Params> {
        let mut params = null_mut();
        // SAFETY: writes to the pointer.
        solved(op, "making parameters", unsafe { solver::cusolverDnCreateParams(&raw mut params) })?;
        Ok(Params(params))
    }
}

impl Drop for Params {
    fn drop(&mut self) {
        // SAFETY: these are the parameters that were made. An error would say nothing of use.
        let _ = unsafe { solver::cusolverDnDestroyParams(self.0) };
    }
}

/// Elements as they are, complex ones as their parts.
fn copy(op: &'static str, ordinal: usize, from: View<'_>, to: &mut ViewMut<'_>) -> Result<()> {
    if !to.dtype.is_complex() {
        return chain::copy(op, ordinal, from, to);
    }
    let (from_parts, to_parts, dtype) = (from.layout.pairs(), to.layout.pairs(), to.dtype.to_real());
    let mut to = to.part(&to_parts);
    to.dtype = dtype;
    chain::copy(op, ordinal, View { layout: &from_parts, dtype, ..from }, &mut to)
}

/// Ones on the diagonals, and zeros elsewhere.
fn identity(op: &'static str, ordinal: usize, to: &mut ViewMut<'_>) -> Result<()> {
    let shape = to.layout.shape();
    let rank = shape.len();
    let (n, m) = (shape[rank - 2], shape[rank - 1]);
    let lead: Shape = shape[..rank - 2].iter().copied().chain([n.min(m)]).collect();
    let mut strides: Vec<isize> = to.layout.strides()[..rank - 2].to_vec();
    strides.push(to.layout.strides()[rank - 2] + to.layout.strides()[rank - 1]);
    let end = to.layout.offset() + shape.numel();
    let diagonal = to.layout.as_strided(op, lead, &strides, to.layout.offset(), end)?;
    let complex = to.dtype.is_complex();
    let (all, ones) = match complex {
        false => (to.layout.clone(), diagonal),
        true => (to.layout.pairs(), diagonal.pairs().narrow(op, -1, 0, 1)?),
    };
    let dtype = to.dtype.to_real();
    for (layout, value) in [(all, 0), (ones, 1)] {
        let mut part = to.part(&layout);
        part.dtype = dtype;
        chain::fill(op, ordinal, &mut part, Scalar::I64(value))?;
    }
    Ok(())
}
