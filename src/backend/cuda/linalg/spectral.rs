//! Eigenvalues and singular values by cuSOLVER: a batch of symmetric or of small matrices at once, others sequentially. Matrices
//! are column-major, as in [`decompose`](super::decompose).

use super::decompose::{numbers, room, scalar, sizes, solved, start};
use crate::backend::ViewMut;
use crate::backend::cuda::elementwise::chain;
use crate::backend::cuda::runtime::gpu::{Gpu, gpu};
use crate::backend::spec::SMALL_SVD;
use crate::error::{bail, err};
use crate::storage::Storage;
use crate::{Complex, DType, Device, Result, Scalar, Shape};
use cudarc::cublas::sys as blas;
use cudarc::cusolver::sys as solver;
use std::ffi::{c_int, c_schar};
use std::ptr::null_mut;

/// Fails with a message about `what` if a call has written a number other than 0 for a matrix.
fn converged(op: &'static str, gpu: &Gpu, info: &Storage, count: usize, what: &str) -> Result<()> {
    if numbers(op, gpu, info, count)?.iter().any(|&number| number != 0) {
        bail!(Value, op, "the {what} did not converge");
    }
    Ok(())
}

/// Memory for the `info` number of each matrix.
fn room_for_info(op: &'static str, gpu: &Gpu, count: usize) -> Result<Storage> {
    room::<c_int>(op, gpu, c_int::try_from(count).unwrap_or(c_int::MAX))
}

/// The data type of cuSOLVER for a dtype.
fn data_type(op: &'static str, dtype: DType) -> Result<solver::cudaDataType> {
    Ok(match dtype {
        DType::F32 => solver::cudaDataType::CUDA_R_32F,
        DType::F64 => solver::cudaDataType::CUDA_R_64F,
        DType::C64 => solver::cudaDataType::CUDA_C_32F,
        DType::C128 => solver::cudaDataType::CUDA_C_64F,
        dtype => bail!(Backend, op, "there is no kernel for {dtype}"),
    })
}

/// Whether vectors are computed, too.
fn mode(vectors: bool) -> solver::cusolverEigMode_t {
    match vectors {
        true => solver::cusolverEigMode_t::CUSOLVER_EIG_MODE_VECTOR,
        false => solver::cusolverEigMode_t::CUSOLVER_EIG_MODE_NOVECTOR,
    }
}

/// The largest workspace for several matrices at once, in bytes: 16 of 1024 rows need half of it.
const MOST_WORKSPACE: usize = 512 << 20;

/// The number of matrices of a batch that are processed at once. Few large ones, such as two of 512 rows, are much faster
/// sequentially.
fn at_once(count: usize, n: c_int) -> usize {
    if n <= 256 || count >= 8 { count } else { 1 }
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
    let (of_a, of_w) = (data_type(op, a.dtype)?, data_type(op, values.dtype)?);
    let handles = gpu.handles(op)?;
    let params = Params::new(op)?;
    let lower = solver::cublasFillMode_t::CUBLAS_FILL_MODE_LOWER;
    let mode = mode(vectors);
    let (side, info) = (i64::from(n), room_for_info(op, gpu, count)?);
    let (first, w) = (a.first(), values.first());
    // The sizes in bytes of the workspaces on the GPU and on the CPU for `together` matrices at once.
    let workspaces = |together: usize| -> Result<(usize, usize)> {
        let (mut device, mut host) = (0, 0);
        // SAFETY: the matrices are contiguous, as are their values; the pointers are to local variables.
        let status = unsafe {
            solver::cusolverDnXsyevBatched_bufferSize(
                handles.solver,
                params.0,
                mode,
                lower,
                side,
                of_a,
                first.cast(),
                side,
                of_w,
                w.cast(),
                of_a,
                &raw mut device,
                &raw mut host,
                together as i64,
            )
        };
        solved(op, "sizing", status)?;
        Ok((device, host))
    };
    let mut together = at_once(count, n);
    let (mut device, mut host) = workspaces(together)?;
    if device > MOST_WORKSPACE && together > 1 {
        together = together.div_ceil(device.div_ceil(MOST_WORKSPACE));
        (device, host) = workspaces(together)?;
    }
    let space = Storage::new(op, Device::Cuda(ordinal), device.max(1))?;
    let mut near = crate::memory::scratch::filled(op, 0_u8, host.max(1))?;
    let (matrix, line) = (n as usize * n as usize * a.dtype.size(), n as usize * values.dtype.size());
    for at in (0..count).step_by(together) {
        let number = together.min(count - at) as i64;
        let (a, w) = (first.wrapping_add(at * matrix), w.wrapping_add(at * line));
        let i = start::<c_int>(&info).wrapping_add(at);
        // SAFETY: as above; this many matrices are left, each with a number; the workspaces are for at least as many.
        let status = unsafe {
            solver::cusolverDnXsyevBatched(
                handles.solver,
                params.0,
                mode,
                lower,
                side,
                of_a,
                a.cast(),
                side,
                of_w,
                w.cast(),
                of_a,
                start(&space),
                device,
                near.as_mut_ptr().cast(),
                host,
                i,
                number,
            )
        };
        solved(op, "finding eigenvalues", status)?;
    }
    drop(handles);
    converged(op, gpu, &info, count, &format!("eigenvalues of a matrix of size {n}"))
}

/// The settings of Jacobi rotations.
struct Rotations(solver::gesvdjInfo_t);

impl Rotations {
    fn new(op: &'static str) -> Result<Rotations> {
        let mut settings = null_mut();
        // SAFETY: the pointer is to a local variable.
        solved(op, "setting out", unsafe { solver::cusolverDnCreateGesvdjInfo(&raw mut settings) })?;
        Ok(Rotations(settings))
    }
}

impl Drop for Rotations {
    fn drop(&mut self) {
        // SAFETY: they were created, and are not used elsewhere. An error cannot be handled.
        unsafe { solver::cusolverDnDestroyGesvdjInfo(self.0) };
    }
}

/// The largest side of matrices that cuSOLVER processes as a batch.
const TINY: c_int = SMALL_SVD as c_int;
/// The most matrices that are processed at once, as the library's workspace size is an `i32`.
const MOST_TINY: usize = 1 << 14;

/// [`svd`] of many small matrices, by Jacobi rotations.
fn svd_together(
    op: &'static str,
    gpu: &Gpu,
    a: &mut ViewMut<'_>,
    values: &mut ViewMut<'_>,
    u: Option<&mut ViewMut<'_>>,
    v: Option<&mut ViewMut<'_>>,
) -> Result<()> {
    let (count, n, m) = sizes(op, a.layout.shape())?;
    let [rows, columns] = [m, n].map(|side| side as usize);
    let together = count.min(MOST_TINY);
    let handles = gpu.handles(op)?;
    let settings = Rotations::new(op)?;
    let info = room_for_info(op, gpu, count)?;
    let wanted = u.as_ref().map_or(Ok(0), |u| sizes(op, u.layout.shape()).map(|(_, wanted, _)| wanted as usize))?;
    let mode = mode(u.is_some() || v.is_some());
    // The library computes all left vectors. If fewer or none are requested, it writes to other memory.
    let [all_u, all_v] = [rows, columns].map(|side| together * side * side * a.dtype.size());
    let all_u = Storage::new(op, Device::Cuda(gpu.ordinal), if wanted == rows { 1 } else { all_u })?;
    let all_v = Storage::new(op, Device::Cuda(gpu.ordinal), if v.is_some() { 1 } else { all_v })?;
    scalar!(op, a.dtype, T of R,
        size = solver::cusolverDnSgesvdjBatched_bufferSize | solver::cusolverDnDgesvdjBatched_bufferSize | solver::cusolverDnCgesvdjBatched_bufferSize | solver::cusolverDnZgesvdjBatched_bufferSize,
        run = solver::cusolverDnSgesvdjBatched | solver::cusolverDnDgesvdjBatched | solver::cusolverDnCgesvdjBatched | solver::cusolverDnZgesvdjBatched,
        copy = blas::cublasSgeam | blas::cublasDgeam | blas::cublasCgeam | blas::cublasZgeam => {
        let (one, zero): ([R; 2], [R; 2]) = ([1.0, 0.0], [0.0, 0.0]);
        let (one, zero) = ((&raw const one).cast(), (&raw const zero).cast());
        let (a, s) = (a.first().cast::<T>(), values.first().cast::<R>());
        let own_u = u.map(|u| u.first().cast::<T>());
        let own_v = v.map(|v| v.first().cast::<T>());
        let u_at = |at: usize| own_u.filter(|_| wanted == rows).map_or(start(&all_u), |u| u.wrapping_add(at * rows * rows));
        let v_at = |at: usize| own_v.map_or(start(&all_v), |v| v.wrapping_add(at * columns * columns));
        let mut len = 0;
        // SAFETY: the matrices are contiguous, as are their values, vectors and numbers; so below.
        let status = unsafe {
            size(
                handles.solver, mode, m, n, a.cast(), m, s, u_at(0).cast(), m, v_at(0).cast(), n, &raw mut len, settings.0,
                together as c_int,
            )
        };
        solved(op, "sizing", status)?;
        let space = room::<T>(op, gpu, len)?;
        for at in (0..count).step_by(together) {
            let number = together.min(count - at) as c_int;
            let (u, v) = (u_at(at), v_at(at));
            let (a, s) = (a.wrapping_add(at * rows * columns), s.wrapping_add(at * columns));
            let i = start::<c_int>(&info).wrapping_add(at);
            // SAFETY: as above; this many matrices are left.
            let status = unsafe {
                run(
                    handles.solver, mode, m, n, a.cast(), m, s, u.cast(), m, v.cast(), n, start(&space), len, i, settings.0,
                    number,
                )
            };
            solved(op, "finding singular values", status)?;
            if let Some(own) = own_u.filter(|_| wanted != rows) {
                let plain = blas::cublasOperation_t::CUBLAS_OP_N;
                let to = own.wrapping_add(at * rows * wanted).cast();
                let (from, part, whole) = (u.cast(), (rows * wanted) as c_int, (rows * rows) as c_int);
                // SAFETY: as above; the first vectors of a matrix are a column here, and the factors are read at once.
                let status = unsafe {
                    copy(handles.blas, plain, plain, part, number, one, from, whole, zero, to, part, to, part)
                };
                status.result().map_err(|e| err!(Backend, op, "copying: {e:?}"))?;
            }
        }
    });
    drop(handles);
    converged(op, gpu, &info, count, &format!("singular values of a matrix of {m} by {n}"))
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
        // All left vectors of an empty matrix are those of the identity.
        let Some(u) = u else { return Ok(()) };
        return identity(op, ordinal, u);
    }
    if count > 1 && m <= TINY && n <= TINY {
        return svd_together(op, gpu, a, values, u, v);
    }
    let handles = gpu.handles(op)?;
    let info = room_for_info(op, gpu, count)?;
    // The library returns the right vectors as rows.
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
        // SAFETY: the matrices are contiguous, as are their values, vectors and numbers; so below.
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
    converged(op, gpu, &info, count, &format!("singular values of a matrix of {m} by {n}"))
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
    let (of_a, of_w) = (data_type(op, a.dtype)?, data_type(op, values.dtype)?);
    let (none, mode) = (mode(false), mode(vectors.is_some()));
    let info = room_for_info(op, gpu, count)?;
    let (a_size, w_size) = (a.dtype.size(), values.dtype.size());
    let (first, w, side) = (a.first(), values.first(), i64::from(n));
    let v = vectors.map_or(null_mut(), |v| v.first());
    let params = Params::new(op)?;
    let (mut device, mut host) = (0, 0);
    // SAFETY: the matrices are contiguous, as are their values, vectors and numbers; so below.
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
    let mut near = crate::memory::scratch::filled(op, 0_u8, host.max(1))?;
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
    converged(op, gpu, &info, count, &format!("eigenvalues of a matrix of size {n}"))
}

/// The parameters of the newer functions of cuSOLVER.
struct Params(solver::cusolverDnParams_t);

impl Params {
    fn new(op: &'static str) -> Result<Params> {
        let mut params = null_mut();
        // SAFETY: this only writes to the pointer.
        solved(op, "making parameters", unsafe { solver::cusolverDnCreateParams(&raw mut params) })?;
        Ok(Params(params))
    }
}

impl Drop for Params {
    fn drop(&mut self) {
        // SAFETY: these are the parameters that were created. An error would not be useful.
        let _ = unsafe { solver::cusolverDnDestroyParams(self.0) };
    }
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
