//! Matrix products by cuBLASLt.
//!
//! It is column-major: its result is the transpose of ours, which is the product of the transposed operands in reverse order. So
//! nothing is transposed in memory: our second operand is passed first.

use crate::backend::cuda::elementwise::chain;
use crate::backend::cuda::linalg::few_rows;
use crate::backend::cuda::nn::rows::InOrder;
use crate::backend::cuda::runtime::call::{Arguments, Grid, KernelSource};
use crate::backend::cuda::runtime::gpu::{Gpu, gpu};
use crate::backend::cuda::runtime::stream::{self, STREAMS};
use crate::backend::spec::MatmulPrecision;
use crate::backend::{View, ViewMut};
use crate::error::bail;
use crate::error::err;
use crate::layout::{Layout, Shape, Walk};
use crate::storage::Storage;
use crate::{DType, Device, Error, Result, Scalar};
use cudarc::cublaslt::{result, sys};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The workspace of cuBLASLt in bytes, as its documentation recommends for this generation.
const WORKSPACE: usize = 32 << 20;

const INTEGERS: &[&str] = &[include_str!("integers.cu")];

/// The library's handle on a GPU, its workspace, and the algorithms it has chosen so far.
pub(crate) struct Blas {
    handle: sys::cublasLtHandle_t,
    /// Indexed by stream. A product may be several kernels that share the workspace, which no other stream may use meanwhile.
    workspaces: Mutex<[Option<Storage>; STREAMS]>,
    chosen: Mutex<HashMap<Product, sys::cublasLtMatmulAlgo_t>>,
}

// SAFETY: a handle of cuBLASLt may be used by several threads at once.
unsafe impl Send for Blas {}
// SAFETY: as above.
unsafe impl Sync for Blas {}

/// One operand: whether its columns are those of the matrix that the library sees, and their stride.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Side {
    transposed: bool,
    lead: i64,
    batch_step: i64,
}

/// The key by which an algorithm is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Product {
    m: usize,
    n: usize,
    k: usize,
    batch: usize,
    a: Side,
    b: Side,
    operands: DType,
    out: DType,
    precision: MatmulPrecision,
    biased: bool,
    /// Whether something is added to the product.
    adds: bool,
    /// The common alignment of the addresses of operands and result.
    alignment: u32,
}

/// `out = a · b`, plus `row` in every row. `a` is `[batch.., m, k]`, `b` `[batch.., k, n]`, of one dtype; `out` is contiguous,
/// of that dtype or of f32, and so is `row`.
///
/// # Errors
/// If the library is missing or refuses, or memory runs out.
pub(crate) fn matmul(
    op: &'static str,
    ordinal: usize,
    a: View<'_>,
    b: View<'_>,
    out: &mut ViewMut<'_>,
    row: Option<View<'_>>,
    precision: MatmulPrecision,
) -> Result<()> {
    let gpu = gpu(op, ordinal)?;
    let k = a.layout.shape()[a.layout.rank() - 1];
    if out.layout.numel() == 0 {
        return Ok(());
    }
    if k == 0 {
        let Some(row) = row else { return chain::fill(op, ordinal, out, Scalar::I64(0)) };
        let layout = row.layout.broadcast_to(out.layout.shape());
        return chain::copy(op, ordinal, View { layout: &layout, ..row }, out);
    }
    if !a.dtype.is_float() {
        return integers(op, gpu, a, b, out, row);
    }
    if few_rows::product(op, gpu, a, b, out, row)? {
        return Ok(());
    }
    products(op, gpu, [a, b], out, row, None, precision)
}

/// `residual + x · weightᵀ + bias` in half precision: `x` `[.., k]` and the residual are contiguous, the weight is `[n, k]`.
///
/// # Errors
/// As for [`matmul`].
pub(crate) fn add_product(
    op: &'static str,
    ordinal: usize,
    x: View<'_>,
    (weight, bias): (View<'_>, Option<View<'_>>),
    residual: View<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    let columns = weight.layout.transpose(op, 0, 1)?;
    let (n, k) = (columns.shape()[1], columns.shape()[0]);
    let rows = out.layout.numel() / n.max(1);
    let Some(lines) = x.layout.reshape(&[rows, k].as_slice().into()) else {
        bail!(Backend, op, "the rows of the input must be contiguous");
    };
    let (x, weight) = (View { layout: &lines, ..x }, View { layout: &columns, ..weight });
    products(op, gpu(op, ordinal)?, [x, weight], out, bias, Some(residual), MatmulPrecision::Full)
}

/// `out = a · b`, plus `row` in every row, plus `addend`, which is contiguous.
fn products(
    op: &'static str,
    gpu: &'static Gpu,
    [a, b]: [View<'_>; 2],
    out: &mut ViewMut<'_>,
    row: Option<View<'_>>,
    addend: Option<View<'_>>,
    precision: MatmulPrecision,
) -> Result<()> {
    let rank = a.layout.rank();
    let (m, k, n) = (a.layout.shape()[rank - 2], a.layout.shape()[rank - 1], b.layout.shape()[rank - 1]);
    // With one matrix on the right, the rows of a batch are one matrix: the result then has more dimensions than the operands.
    let lead: Shape = a.layout.shape()[..rank - 2].into();
    let (a, b) = (Matrices::new(op, gpu.ordinal, a)?, Matrices::new(op, gpu.ordinal, b)?);
    let out_batch = Layout::contiguous(lead.clone());
    // Products with constant strides of each operand are one call.
    let walk = Walk::new(&lead, [&a.batch, &b.batch, &out_batch]);
    let [step_a, step_b, _] = walk.inner();
    let side = |matrices: &Matrices<'_>, step: isize| Side { batch_step: step as i64, ..matrices.side };
    let mut outcome = Ok(());
    walk.runs(0, walk.numel(), |[at_a, at_b, at_out], batch| {
        let problem = Product {
            m,
            n,
            k,
            batch,
            a: side(&a, step_a),
            b: side(&b, step_b),
            operands: a.dtype,
            out: out.dtype,
            precision,
            biased: row.is_some(),
            adds: addend.is_some(),
            alignment: 1,
        };
        let address = |first: *const u8, at: isize, dtype: DType| first.wrapping_offset(at * dtype.size() as isize);
        if outcome.is_ok() {
            let addresses = [
                address(a.start, at_a, a.dtype),
                address(b.start, at_b, b.dtype),
                address(out.first().cast_const(), at_out * (m * n) as isize, out.dtype),
            ];
            let addend = addend.map(|addend| address(addend.first(), at_out * (m * n) as isize, addend.dtype));
            let others = [row.map(|row| row.first()), addend].into_iter().flatten();
            let bits = addresses.into_iter().chain(others).fold(256, |bits, at| bits | at.addr());
            let alignment = 1 << bits.trailing_zeros();
            outcome = Product { alignment, ..problem }.run(op, gpu, addresses, row.map(|row| row.first()), addend);
        }
    });
    outcome
}

/// Sources of every kind, to be compiled by a test.
#[cfg(feature = "samples")]
pub(crate) fn sources() -> Vec<KernelSource> {
    [DType::I64, DType::U64].map(|dtype| KernelSource::new(INTEGERS, dtype, false)).into()
}

/// Products of integers, which wrap around. The library does not support them.
fn integers(
    op: &'static str,
    gpu: &Gpu,
    a: View<'_>,
    b: View<'_>,
    out: &mut ViewMut<'_>,
    row: Option<View<'_>>,
) -> Result<()> {
    let rank = a.layout.rank();
    let (m, k, n) = (a.layout.shape()[rank - 2], a.layout.shape()[rank - 1], b.layout.shape()[rank - 1]);
    let (a, b) = (InOrder::new(op, gpu.ordinal, a)?, InOrder::new(op, gpu.ordinal, b)?);
    let numel = out.layout.numel();
    let function = KernelSource::new(INTEGERS, out.dtype, false).function(op, gpu, "multiply")?;
    let arguments = Arguments::new()
        .at(a.first)
        .at(b.first)
        .at_or_null(row.map(|row| row.first()))
        .at(out.first().cast_const())
        .size(numel)
        .size(m)
        .size(k)
        .size(n);
    // SAFETY: all operands are contiguous (L2), and have the given sizes.
    unsafe { arguments.launch(op, gpu, function, Grid::over(numel, 256, 256)) }
}

/// An operand whose matrices the library can read in place.
struct Matrices<'a> {
    start: *const u8,
    dtype: DType,
    side: Side,
    /// The positions of the matrices.
    batch: Layout,
    /// The copy, if one was needed.
    _copy: Option<Storage>,
    _borrow: std::marker::PhantomData<&'a ()>,
}

impl<'a> Matrices<'a> {
    fn new(op: &'static str, ordinal: usize, view: View<'a>) -> Result<Matrices<'a>> {
        let rank = view.layout.rank();
        let (sizes, steps) = (&view.layout.shape()[rank - 2..], &view.layout.strides()[rank - 2..]);
        let side = |transposed: bool, lead: isize, least: usize| {
            (lead >= least.max(1) as isize).then_some(Side { transposed, lead: lead as i64, batch_step: 0 })
        };
        // The stride of a dimension of size 1 is irrelevant.
        let [rows, columns] = [sizes[0], sizes[1]];
        let row_step = if rows == 1 { columns as isize } else { steps[0] };
        let column_step = if columns == 1 { rows as isize } else { steps[1] };
        let found = if columns == 1 || steps[1] == 1 { side(false, row_step, columns) } else { None };
        let found = found.or_else(|| if rows == 1 || steps[0] == 1 { side(true, column_step, rows) } else { None });
        let Some(side) = found else {
            let layout = Layout::contiguous(view.layout.shape().clone());
            let bytes = layout.numel() * view.dtype.size();
            let mut copy = Storage::new(op, Device::Cuda(ordinal), bytes)?;
            chain::copy(op, ordinal, view, &mut ViewMut::new(op, &mut copy, &layout, view.dtype)?)?;
            let whole = View { storage: &copy, layout: &layout, dtype: view.dtype };
            let Matrices { start, dtype, side, batch, .. } = Matrices::new(op, ordinal, whole)?;
            return Ok(Matrices { start, dtype, side, batch, _copy: Some(copy), _borrow: std::marker::PhantomData });
        };
        let mut batch = view.layout.clone();
        for _ in 0..2 {
            batch = batch.select(op, -1, 0)?;
        }
        Ok(Matrices {
            start: view.ptr(),
            dtype: view.dtype,
            side,
            batch,
            _copy: None,
            _borrow: std::marker::PhantomData,
        })
    }
}

fn data_type(dtype: DType) -> sys::cudaDataType {
    match dtype {
        DType::F64 => sys::cudaDataType::CUDA_R_64F,
        DType::F16 => sys::cudaDataType::CUDA_R_16F,
        DType::BF16 => sys::cudaDataType::CUDA_R_16BF,
        _ => sys::cudaDataType::CUDA_R_32F,
    }
}

fn failed(op: &'static str, what: &str, error: result::CublasError) -> Error {
    err!(Backend, op, "{what}: {error}")
}

/// Descriptors of the library, which are destroyed on drop.
struct Description {
    product: sys::cublasLtMatmulDesc_t,
    a: sys::cublasLtMatrixLayout_t,
    b: sys::cublasLtMatrixLayout_t,
    out: sys::cublasLtMatrixLayout_t,
}

impl Drop for Description {
    fn drop(&mut self) {
        // SAFETY: all four were made by the library and are destroyed once.
        unsafe {
            let _ = result::destroy_matmul_desc(self.product);
            for layout in [self.a, self.b, self.out] {
                let _ = result::destroy_matrix_layout(layout);
            }
        }
    }
}

impl Product {
    fn describe(&self, op: &'static str, row: Option<*const u8>) -> Result<Description> {
        use sys::cublasComputeType_t as Compute;
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        let (compute, scale) = match (self.operands, self.precision) {
            (DType::F64, _) => (Compute::CUBLAS_COMPUTE_64F, DType::F64),
            (DType::F32, MatmulPrecision::Tf32) => (Compute::CUBLAS_COMPUTE_32F_FAST_TF32, DType::F32),
            _ => (Compute::CUBLAS_COMPUTE_32F, DType::F32),
        };
        let e = |error| failed(op, "describing the product", error);
        let product = result::create_matmul_desc(compute, data_type(scale)).map_err(e)?;
        // In the library's order `b` comes first, and both are transposed.
        let (first, second) = (self.layout(op, self.operands, self.n, self.k, self.b)?, {
            self.layout(op, self.operands, self.k, self.m, self.a)?
        });
        let out = Side { transposed: false, lead: self.n as i64, batch_step: (self.m * self.n) as i64 };
        let out = self.layout(op, self.out, self.n, self.m, out)?;
        let description = Description { product, a: first, b: second, out };
        let set = |attribute, value: *const c_void, size: usize| {
            // SAFETY: the description is valid, and the value has the size that the attribute wants.
            unsafe { result::set_matmul_desc_attribute(product, attribute, value, size) }.map_err(e)
        };
        let [first, second] = [self.b.transposed, self.a.transposed].map(i32::from);
        set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, (&raw const first).cast(), size_of::<i32>())?;
        set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, (&raw const second).cast(), size_of::<i32>())?;
        if let Some(row) = row {
            let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS;
            set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, (&raw const epilogue).cast(), size_of_val(&epilogue))?;
            set(Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, (&raw const row).cast(), size_of_val(&row))?;
        }
        Ok(description)
    }

    /// A matrix that the library sees as `rows` x `columns`, unless it is transposed.
    fn layout(
        &self,
        op: &'static str,
        dtype: DType,
        rows: usize,
        columns: usize,
        side: Side,
    ) -> Result<sys::cublasLtMatrixLayout_t> {
        use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
        let e = |error| failed(op, "describing an operand", error);
        let (rows, columns) = if side.transposed { (columns, rows) } else { (rows, columns) };
        let layout =
            result::create_matrix_layout(data_type(dtype), rows as u64, columns as u64, side.lead).map_err(e)?;
        let count = self.batch as i32;
        // SAFETY: the layout is valid, and the values have the sizes that the attributes want.
        unsafe {
            let attribute = Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT;
            result::set_matrix_layout_attribute(layout, attribute, (&raw const count).cast(), size_of::<i32>())
                .map_err(e)?;
            let attribute = Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET;
            let step = side.batch_step;
            result::set_matrix_layout_attribute(layout, attribute, (&raw const step).cast(), size_of::<i64>())
                .map_err(e)?;
        }
        Ok(layout)
    }

    fn run(
        &self,
        op: &'static str,
        gpu: &'static Gpu,
        [a, b, out]: [*const u8; 3],
        row: Option<*const u8>,
        addend: Option<*const u8>,
    ) -> Result<()> {
        let blas = gpu.blas(op)?;
        let description = self.describe(op, row)?;
        let algorithm = self.algorithm(op, blas, &description)?;
        // One and zero, in the type that the sums are scaled in.
        let (single, double) = ([1.0_f32, 0.0], [1.0_f64, 0.0]);
        let at = usize::from(addend.is_none());
        let [alpha, beta]: [*const c_void; 2] = if self.operands == DType::F64 {
            [(&raw const double[0]).cast(), (&raw const double[at]).cast()]
        } else {
            [(&raw const single[0]).cast(), (&raw const single[at]).cast()]
        };
        let mut workspaces = blas.workspaces.lock().unwrap_or_else(PoisonError::into_inner);
        let workspace = match &mut workspaces[usize::from(stream::current(gpu.ordinal))] {
            Some(workspace) => workspace,
            none => none.insert(Storage::new(op, Device::Cuda(gpu.ordinal), WORKSPACE)?),
        };
        // SAFETY: the descriptions give the positions of the elements of operands and result, all inside their storages (L2); the
        // workspace is as large as the algorithm was promised, and only work of this stream uses it, sequentially.
        unsafe {
            result::matmul(
                blas.handle,
                description.product,
                alpha,
                beta,
                b.cast(),
                description.a,
                a.cast(),
                description.b,
                addend.unwrap_or(out).cast(),
                description.out,
                out.cast_mut().cast(),
                description.out,
                &raw const algorithm,
                workspace.as_ptr().cast_mut().cast(),
                WORKSPACE,
                gpu.stream().cast(),
            )
        }
        .map_err(|e| failed(op, "multiplying", e))
    }

    /// The algorithm that the library recommends, requested once for every problem.
    fn algorithm(&self, op: &'static str, blas: &Blas, of: &Description) -> Result<sys::cublasLtMatmulAlgo_t> {
        let mut chosen = blas.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(algorithm) = chosen.get(self) {
            return Ok(*algorithm);
        }
        let e = |error| failed(op, "choosing an algorithm", error);
        let preference = result::create_matmul_pref().map_err(e)?;
        let attribute = sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        // SAFETY: all descriptions are valid; the value has the size that the attribute wants.
        let found = unsafe {
            let size = WORKSPACE;
            use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
            let set = |attribute, value: *const c_void, size| {
                result::set_matmul_pref_attribute(preference, attribute, value, size)
            };
            set(attribute, (&raw const size).cast(), size_of::<usize>())
                .and_then(|()| {
                    let alignments = [
                        Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                        Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                        Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                        Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
                    ];
                    let value = (&raw const self.alignment).cast();
                    alignments.into_iter().try_for_each(|attribute| set(attribute, value, size_of::<u32>()))
                })
                .and_then(|()| {
                    result::get_matmul_algo_heuristic(blas.handle, of.product, of.a, of.b, of.out, of.out, preference)
                })
        };
        // SAFETY: made above, and destroyed once.
        let _ = unsafe { result::destroy_matmul_pref(preference) };
        let algorithm = found.map_err(e)?.algo;
        chosen.insert(*self, algorithm);
        Ok(algorithm)
    }
}

impl Gpu {
    fn blas(&self, op: &'static str) -> Result<&Blas> {
        static HANDLES: [OnceLock<std::result::Result<Blas, String>>; 16] = [const { OnceLock::new() }; 16];
        let made = HANDLES[self.ordinal].get_or_init(|| self.open_blas(op).map_err(|e| e.to_string()));
        made.as_ref().map_err(|e| err!(Backend, op, "{e}"))
    }

    fn open_blas(&self, op: &'static str) -> Result<Blas> {
        // SAFETY: this only looks for the library.
        if !unsafe { sys::is_culib_present() } {
            return Err(err!(Backend, op, "libcublasLt was not found: install CUDA, or set LD_LIBRARY_PATH"));
        }
        let handle = result::create_handle().map_err(|e| failed(op, "starting cuBLASLt", e))?;
        Ok(Blas { handle, workspaces: Mutex::default(), chosen: Mutex::default() })
    }
}
