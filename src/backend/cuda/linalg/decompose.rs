//! Factorizations by cuSOLVER, and triangular systems by cuBLAS, one matrix of a batch after the other.
//!
//! Both count in columns, as do the matrices here: a tensor of shape `[batch.., columns, rows]` in row-major order.

use crate::backend::cuda::elementwise::chain;
use crate::backend::cuda::runtime::capture;
use crate::backend::cuda::runtime::gpu::{Gpu, gpu};
use crate::backend::{View, ViewMut};
use crate::error::{bail, err};
use crate::layout::Layout;
use crate::storage::Storage;
use crate::{DType, Device, Error, Result, Scalar, Shape};
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

/// Calls the function for `f32` or the one for `f64`, with `$T` as the type.
macro_rules! real {
    ($op:expr, $dtype:expr, $T:ident, $($name:ident = $single:path | $double:path),+ => $body:expr) => {
        match $dtype {
            DType::F32 => {
                type $T = f32;
                $(let $name = $single;)+
                $body
            }
            DType::F64 => {
                type $T = f64;
                $(let $name = $double;)+
                $body
            }
            dtype => bail!(Backend, $op, "there is no kernel for {dtype}"),
        }
    };
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

/// As the CPU's [`lu`](crate::backend::cpu::linalg::decompose::lu).
pub(crate) fn lu(
    op: &'static str,
    ordinal: usize,
    a: &mut ViewMut<'_>,
    pivots: &mut ViewMut<'_>,
    info: &mut ViewMut<'_>,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let (count, n, m) = sizes(op, a.layout.shape())?;
    chain::fill(op, ordinal, info, Scalar::I64(0))?;
    if count == 0 || m == 0 || n == 0 {
        return Ok(());
    }
    let handles = gpu.handles(op)?;
    real!(op, a.dtype, T,
        size = solver::cusolverDnSgetrf_bufferSize | solver::cusolverDnDgetrf_bufferSize,
        run = solver::cusolverDnSgetrf | solver::cusolverDnDgetrf => {
        let (a, p, i) = (a.first().cast::<T>(), pivots.first().cast::<c_int>(), info.first().cast::<c_int>());
        let mut len = 0;
        // SAFETY: the matrices lie one after the other, and so do their pivots and numbers; so below.
        solved(op, "sizing", unsafe { size(handles.solver, m, n, a, m, &raw mut len) })?;
        let space = room::<T>(op, gpu, len)?;
        for at in 0..count {
            let a = a.wrapping_add(at * m as usize * n as usize);
            let p = p.wrapping_add(at * m.min(n) as usize);
            // SAFETY: as above.
            let status = unsafe { run(handles.solver, m, n, a, m, start(&space), p, i.wrapping_add(at)) };
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
    real!(op, b.dtype, T, run = solver::cusolverDnSgetrs | solver::cusolverDnDgetrs => {
        let info = room::<c_int>(op, gpu, 1)?;
        for at in 0..count {
            let a = a.first().cast::<T>().wrapping_add(at * n as usize * n as usize);
            let p = pivots.first().cast::<c_int>().wrapping_add(at * n as usize);
            let b = b.first().cast::<T>().wrapping_add(at * n as usize * columns as usize);
            // SAFETY: the matrices lie one after the other, and so do their pivots and right-hand sides.
            let status = unsafe { run(handles.solver, which, n, columns, a, n, p, b, n, start(&info)) };
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
    real!(op, a.dtype, T,
        size = solver::cusolverDnSpotrf_bufferSize | solver::cusolverDnDpotrf_bufferSize,
        run = solver::cusolverDnSpotrf | solver::cusolverDnDpotrf => {
        let (a, i) = (a.first().cast::<T>(), info.first().cast::<c_int>());
        let mut len = 0;
        // SAFETY: the matrices lie one after the other, and so do their numbers; so below.
        solved(op, "sizing", unsafe { size(handles.solver, lower, n, a, n, &raw mut len) })?;
        let space = room::<T>(op, gpu, len)?;
        for at in 0..count {
            let a = a.wrapping_add(at * n as usize * n as usize);
            // SAFETY: as above.
            let status = unsafe { run(handles.solver, lower, n, a, n, start(&space), len, i.wrapping_add(at)) };
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
    real!(op, b.dtype, T, run = blas::cublasStrsm_v2 | blas::cublasDtrsm_v2 => {
        let one: T = 1.0;
        for at in 0..count {
            let a = a.first().cast::<T>().wrapping_add(at * n as usize * n as usize);
            let b = b.first().cast::<T>().wrapping_add(at * n as usize * columns as usize);
            // SAFETY: the matrices lie one after the other, and so do their right-hand sides; the factor is read at once.
            let status =
                unsafe { run(handles.blas, side, fill, turn, diagonal, n, columns, &raw const one, a, n, b, n) };
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
    real!(op, a.dtype, T,
        size = solver::cusolverDnSgeqrf_bufferSize | solver::cusolverDnDgeqrf_bufferSize,
        run = solver::cusolverDnSgeqrf | solver::cusolverDnDgeqrf => {
        let (a, t) = (a.first().cast::<T>(), taus.first().cast::<T>());
        let mut len = 0;
        // SAFETY: the matrices lie one after the other, and so do their factors; so below.
        solved(op, "sizing", unsafe { size(handles.solver, m, n, a, m, &raw mut len) })?;
        let (space, info) = (room::<T>(op, gpu, len)?, room::<c_int>(op, gpu, 1)?);
        for at in 0..count {
            let a = a.wrapping_add(at * m as usize * n as usize);
            let t = t.wrapping_add(at * m.min(n) as usize);
            // SAFETY: as above.
            let status = unsafe { run(handles.solver, m, n, a, m, t, start(&space), len, start(&info)) };
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
    chain::copy(op, ordinal, View { layout: &from, ..a }, &mut q.part(&to))?;
    let handles = gpu.handles(op)?;
    let reflections = k as c_int;
    real!(op, q.dtype, T,
        size = solver::cusolverDnSorgqr_bufferSize | solver::cusolverDnDorgqr_bufferSize,
        run = solver::cusolverDnSorgqr | solver::cusolverDnDorgqr => {
        let (q, t) = (q.first().cast::<T>(), taus.first().cast::<T>());
        let mut len = 0;
        // SAFETY: the matrices lie one after the other, and so do their factors; so below.
        solved(op, "sizing", unsafe { size(handles.solver, m, columns, reflections, q, m, t, &raw mut len) })?;
        let (space, info) = (room::<T>(op, gpu, len)?, room::<c_int>(op, gpu, 1)?);
        for at in 0..count {
            let q = q.wrapping_add(at * m as usize * columns as usize);
            let t = t.wrapping_add(at * k);
            // SAFETY: as above.
            let status = unsafe {
                run(handles.solver, m, columns, reflections, q, m, t, start(&space), len, start(&info))
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
    real!(op, a.dtype, T,
        size = solver::cusolverDnSsyevd_bufferSize | solver::cusolverDnDsyevd_bufferSize,
        run = solver::cusolverDnSsyevd | solver::cusolverDnDsyevd => {
        let (a, w) = (a.first().cast::<T>(), values.first().cast::<T>());
        let mut len = 0;
        // SAFETY: the matrices lie one after the other, and so do their values and numbers; so below.
        solved(op, "sizing", unsafe { size(handles.solver, mode, lower, n, a, n, w, &raw mut len) })?;
        let space = room::<T>(op, gpu, len)?;
        for at in 0..count {
            let a = a.wrapping_add(at * n as usize * n as usize);
            let w = w.wrapping_add(at * n as usize);
            let i = start::<c_int>(&info).wrapping_add(at);
            // SAFETY: as above.
            let status = unsafe { run(handles.solver, mode, lower, n, a, n, w, start(&space), len, i) };
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
    let square = Layout::contiguous([count, n as usize, n as usize].into());
    let mut rows = Storage::new(op, Device::Cuda(ordinal), square.numel() * a.dtype.size())?;
    let to_rows = rows.get_mut().ok_or_else(|| err!(Backend, op, "shared memory cannot be written to"))?;
    let columns = u.as_ref().map(|u| sizes(op, u.layout.shape()).map(|(_, columns, _)| columns)).transpose()?;
    let [job_u, job_v] = match columns {
        Some(columns) if columns > n => *b"AA",
        Some(_) => *b"SS",
        None => *b"NN",
    }
    .map(|job| job as c_schar);
    real!(op, a.dtype, T,
        size = solver::cusolverDnSgesvd_bufferSize | solver::cusolverDnDgesvd_bufferSize,
        run = solver::cusolverDnSgesvd | solver::cusolverDnDgesvd => {
        let (a, s) = (a.first().cast::<T>(), values.first().cast::<T>());
        let u = u.map_or(null_mut(), |u| u.first().cast::<T>());
        let mut len = 0;
        // SAFETY: the matrices lie one after the other, and so do their values, vectors and numbers; so below.
        solved(op, "sizing", unsafe { size(handles.solver, m, n, &raw mut len) })?;
        let space = room::<T>(op, gpu, len)?;
        for at in 0..count {
            let a = a.wrapping_add(at * m as usize * n as usize);
            let s = s.wrapping_add(at * n as usize);
            let u = u.wrapping_add(at * m as usize * columns.unwrap_or(0) as usize);
            let v = to_rows.cast::<T>().wrapping_add(at * n as usize * n as usize);
            let i = start::<c_int>(&info).wrapping_add(at);
            // SAFETY: as above.
            let status = unsafe {
                run(handles.solver, job_u, job_v, m, n, a, m, s, u, m, v, n, start(&space), len, null_mut(), i)
            };
            solved(op, "finding singular values", status)?;
        }
    });
    drop(handles);
    if numbers(op, gpu, &info, count)?.iter().any(|&number| number != 0) {
        bail!(Value, op, "the singular values of a matrix of {m} by {n} did not converge");
    }
    if let Some(v) = v {
        let turned = square.transpose(op, -2, -1)?;
        let Some(turned) = turned.reshape(v.layout.shape()).or_else(|| same_batch(&turned, v.layout)) else {
            bail!(Backend, op, "there is no room for the right vectors");
        };
        chain::copy(op, ordinal, View { storage: &rows, layout: &turned, dtype: v.dtype }, v)?;
    }
    Ok(())
}

/// Transposed matrices in a batch of another shape, of as many.
fn same_batch(turned: &Layout, like: &Layout) -> Option<Layout> {
    let shape = like.shape();
    let rank = shape.len();
    let mut strides = crate::layout::contiguous_strides(shape);
    strides.swap(rank - 2, rank - 1);
    like.as_strided("linalg_svd", shape.clone(), &strides, turned.offset(), shape.numel()).ok()
}

/// Ones on the diagonals, and zeros elsewhere.
fn identity(op: &'static str, ordinal: usize, to: &mut ViewMut<'_>) -> Result<()> {
    chain::fill(op, ordinal, to, Scalar::I64(0))?;
    let shape = to.layout.shape();
    let rank = shape.len();
    let (n, m) = (shape[rank - 2], shape[rank - 1]);
    let lead: Shape = shape[..rank - 2].iter().copied().chain([n.min(m)]).collect();
    let mut strides: Vec<isize> = to.layout.strides()[..rank - 2].to_vec();
    strides.push(to.layout.strides()[rank - 2] + to.layout.strides()[rank - 1]);
    let end = to.layout.offset() + shape.numel();
    let diagonal = to.layout.as_strided(op, lead, &strides, to.layout.offset(), end)?;
    chain::fill(op, ordinal, &mut to.part(&diagonal), Scalar::I64(1))
}
