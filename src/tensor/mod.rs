//! The tensor handle: shared storage, a layout over it, a dtype and, where a gradient is required, a graph node.
//!
//! A handle is two thin pointers, to the values and to the node, so it is passed in two registers. With shape and strides in the
//! handle itself, small operations took 1.6 times as many instructions, most of them copies.

mod arguments;
pub(crate) mod batch;
mod create;
mod exchange;
mod index;
mod inplace;
mod mutate;
mod options;
pub(crate) mod print;
mod read;
mod views;

pub use arguments::Operand;
pub use create::NdArray;
pub use index::{Ellipsis, Index, IndexItem};
pub(crate) use index::{integers, put_index, true_indices, where_true};
pub use options::TensorOptions;
pub use read::CloseOptions;

use crate::autograd::NodeRef;
use crate::autograd::node;
use crate::backend::ViewMut;
use crate::error::{bail, err, named};
use crate::layout::Dim;
use crate::layout::{Layout, Shape, checked_bytes, resolve_dim};
use crate::memory::{Shared, Vacant};
use crate::storage::Storage;
use crate::tensor::batch::BatchDims;
use crate::{DType, Device, Result};

/// A multi-dimensional array of one dtype, on one device. Cloning is cheap.
///
/// Clones and views share memory until one of them is changed: the change works on a copy. So changing a tensor never affects
/// another one.
///
/// ```
/// use cotangent::Tensor;
/// let x = cotangent::tensor!([[1.0, 2.0], [3.0, 4.0]])?;
/// let y = x.matmul(&x.t()?)?;
/// assert_eq!(y.to_vec::<f32>()?, [5.0, 11.0, 11.0, 25.0]);
/// # Ok::<(), cotangent::Error>(())
/// ```
///
/// # Methods by subject
/// - **Creation**: [from Rust values](#from-rust-values), [creation](#creation),
///   [like another tensor](#creation-like-another-tensor),
///   [ranges and sequences](#ranges-and-sequences), [random numbers](#random-numbers),
///   [Poisson and binomial draws](#poisson-and-binomial-draws), [window functions](#window-functions).
/// - **Reading and conversion**: [shape, dtype and device](#shape-dtype-and-device), [reading](#reading),
///   [dtypes, devices and copies](#dtypes-devices-and-copies), [pinned memory](#pinned-memory),
///   [memory shared with other libraries](#memory-shared-with-other-libraries),
///   [conversion to ndarray](#conversion-to-ndarray) with the feature `ndarray`,
///   [deferred computation](#deferred-computation).
/// - **In place**: [changing in place](#changing-in-place), [operations in place](#operations-in-place).
/// - **Gradients**: [gradients](#gradients), [hooks](#hooks).
/// - **Elementwise**: [arithmetic](#arithmetic),
///   [division, remainders and number theory](#division-remainders-and-number-theory),
///   [sign, roots and powers of one tensor](#sign-roots-and-powers-of-one-tensor),
///   [exponentials and logarithms](#exponentials-and-logarithms),
///   [trigonometric and hyperbolic functions](#trigonometric-and-hyperbolic-functions), [rounding](#rounding),
///   [clamping](#clamping), [comparison and choice](#comparison-and-choice),
///   [tests of values and logic](#tests-of-values-and-logic), [bitwise operations](#bitwise-operations),
///   [complex numbers](#complex-numbers), [special functions](#special-functions).
/// - **Reductions**: [reductions](#reductions), [products](#products), [minimum and maximum](#minimum-and-maximum),
///   [cumulative operations](#cumulative-operations), [statistics](#statistics),
///   [medians and quantiles](#medians-and-quantiles), [histograms](#histograms), [covariance](#covariance),
///   [differences and integrals](#differences-and-integrals), [norms and distances](#norms-and-distances).
/// - **Shape**: [reshaping](#reshaping), [permuting and expanding](#permuting-and-expanding),
///   [concatenation](#concatenation), [stacking](#stacking), [slicing and splitting](#slicing-and-splitting),
///   [splitting into arrays](#splitting-into-arrays), [repeating and tiling](#repeating-and-tiling),
///   [padding](#padding), [diagonals](#diagonals), [strided views](#strided-views).
/// - **Indexing**: [indexing](#indexing), [take and put](#take-and-put),
///   [searching and selecting](#searching-and-selecting), [scattering](#scattering), [sorting](#sorting),
///   [top-k and order statistics](#top-k-and-order-statistics), [unique values and sets](#unique-values-and-sets).
/// - **Linear algebra**: [matrix products](#matrix-products),
///   [dot and batched matrix products](#dot-and-batched-matrix-products),
///   [einsum and tensor contractions](#einsum-and-tensor-contractions), [vector products](#vector-products),
///   [determinants](#determinants), [linear equations](#linear-equations), [matrix functions](#matrix-functions),
///   [eigenvalues and singular values](#eigenvalues-and-singular-values), [low-rank decompositions](#low-rank-decompositions),
///   [Cholesky factorizations](#cholesky-factorizations), [LU factorizations](#lu-factorizations),
///   [QR factorizations](#qr-factorizations).
/// - **Neural networks**: [activations](#activations), [rectified activations](#rectified-activations),
///   [softmax](#softmax), [convolutions](#convolutions), [pooling](#pooling), [adaptive pooling](#adaptive-pooling),
///   [power-average, unpooling and fractional pooling](#power-average-unpooling-and-fractional-pooling),
///   [unfold and fold](#unfold-and-fold), [resizing](#resizing), [grid sampling](#grid-sampling),
///   [pixel and channel shuffling](#pixel-and-channel-shuffling), [layer normalization](#layer-normalization),
///   [batch, group and instance normalization](#batch-group-and-instance-normalization), [dropout](#dropout),
///   [embeddings](#embeddings), [attention](#attention), [rotary position embeddings](#rotary-position-embeddings),
///   [recurrent networks](#recurrent-networks), [pairwise distances](#pairwise-distances).
/// - **Losses**: [elementwise losses](#elementwise-losses), [cross entropy losses](#cross-entropy-losses),
///   [linear layer with cross entropy](#linear-layer-with-cross-entropy), [margin losses](#margin-losses),
///   [multi-class margin losses](#multi-class-margin-losses), [losses of distributions](#losses-of-distributions),
///   [sequence losses](#sequence-losses).
/// - **Signals**: [short-time Fourier transforms](#short-time-fourier-transforms).
///
/// Methods have the names of `torch.Tensor` and `torch`. Most decompositions, Fourier transforms, special functions and symmetric
/// windows are functions of the modules [`linalg`](crate::linalg), [`fft`](crate::fft), [`special`](crate::special) and
/// [`signal::windows`](crate::signal::windows).
#[derive(Clone)]
pub struct Tensor {
    // Behind a pointer so that handles are small: they are moved, saved and returned far more often than created.
    data: Shared<Data>,
    node: Option<NodeRef>,
}

/// The values of a tensor, without a graph.
struct Data {
    storage: Storage,
    layout: Layout,
    dtype: DType,
    /// Whether this is a view of another tensor's values.
    view: bool,
    /// The examples, inside of a `vmap`.
    batch: Option<Box<BatchDims>>,
}

/// # Shape, dtype and device
impl Tensor {
    /// The size of every dimension.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3])?.shape(), [2, 3]);
    /// assert_eq!(Tensor::full((), 7.0)?.shape(), [0; 0]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[inline]
    pub fn shape(&self) -> &[usize] {
        self.data.layout.shape()
    }

    /// The steps, in elements, from one index of a dimension to the next.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::zeros([2, 3])?;
    /// assert_eq!(x.strides(), [3, 1]);
    /// assert_eq!(x.t()?.strides(), [1, 3]);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "stride")]
    pub fn strides(&self) -> &[isize] {
        self.data.layout.strides()
    }

    /// The position of the first element in the storage.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3])?.select(0, 1)?.offset(), 3);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "storage_offset")]
    pub fn offset(&self) -> usize {
        self.data.layout.offset()
    }

    /// The number of dimensions.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3])?.rank(), 2);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "dim")]
    #[doc(alias = "ndim")]
    #[doc(alias = "ndimension")]
    pub fn rank(&self) -> usize {
        self.data.layout.rank()
    }

    /// The number of elements.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3])?.numel(), 6);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "nelement")]
    #[doc(alias = "size")]
    #[doc(alias = "len")]
    #[inline]
    pub fn numel(&self) -> usize {
        self.data.layout.numel()
    }

    /// The size of one dimension; negative dimensions count from the last.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// assert_eq!(Tensor::zeros([2, 3])?.size(-1)?, 3);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the dimension is out of range.
    #[track_caller]
    pub fn size(&self, dim: impl Into<Dim>) -> Result<usize> {
        named("size", resolve_dim("size", dim.into().0, self.rank()).map(|dim| self.shape()[dim]))
    }

    /// The sizes of all `N` dimensions, as an array.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let [rows, columns] = Tensor::zeros([2, 3])?.dims()?;
    /// assert_eq!((rows, columns), (2, 3));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the rank is not `N`.
    #[track_caller]
    pub fn dims<const N: usize>(&self) -> Result<[usize; N]> {
        let sizes = <[usize; N]>::try_from(self.shape());
        let wrong = |_| err!(Shape, "dims", "expected {N} dimensions, got {} in shape {:?}", self.rank(), self.shape());
        named("dims", sizes.map_err(wrong))
    }

    /// The type of the elements.
    ///
    /// ```
    /// # use cotangent::{DType, tensor};
    /// assert_eq!(tensor!([1.0])?.dtype(), DType::F32);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "type")]
    #[inline]
    pub fn dtype(&self) -> DType {
        self.data.dtype
    }

    /// The device that holds the elements.
    ///
    /// ```
    /// # use cotangent::{Device, tensor};
    /// assert_eq!(tensor!([1.0])?.device(), Device::Cpu);
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "is_cuda")]
    #[inline]
    pub fn device(&self) -> Device {
        self.data.storage.device()
    }

    /// Whether the elements are contiguous in row-major order.
    ///
    /// ```
    /// # use cotangent::Tensor;
    /// let x = Tensor::zeros([2, 3])?;
    /// assert!(x.is_contiguous() && !x.t()?.is_contiguous());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn is_contiguous(&self) -> bool {
        self.data.layout.is_contiguous()
    }

    /// Whether two tensors share memory, as a view and its base do.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([1.0, 2.0])?;
    /// assert!(x.shares_memory(&x.reshape([2, 1])?) && !x.shares_memory(&x.add(1)?));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    pub fn shares_memory(&self, other: &Tensor) -> bool {
        self.data.storage.ptr_eq(&other.data.storage)
    }

    /// Whether two handles refer to the same elements of the same storage. Equal values are not enough.
    ///
    /// ```
    /// # use cotangent::{Tensor, tensor};
    /// let x = tensor!([1.0, 2.0])?;
    /// assert!(x.is_same(&x.clone()) && !x.is_same(&x.deep_clone()?));
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    #[doc(alias = "is_set_to")]
    pub fn is_same(&self, other: &Tensor) -> bool {
        self.data.storage.ptr_eq(&other.data.storage)
            && self.data.layout == other.data.layout
            && self.data.dtype == other.data.dtype
    }
}

/// # Deferred computation
impl Tensor {
    /// Computes the values now. Elementwise operations on large tensors are deferred until the result is needed, so that a chain
    /// of them goes through memory once. This only affects when they are computed. Call this to time an operation, or to prepare
    /// tensors on one thread for another.
    ///
    /// ```
    /// use cotangent::Tensor;
    /// let x = Tensor::ones([1 << 20])?;
    /// let start = std::time::Instant::now();
    /// x.exp()?.mul(&x)?.compute()?;
    /// println!("{:?}", start.elapsed());
    /// # Ok::<(), cotangent::Error>(())
    /// ```
    ///
    /// # Errors
    /// If memory runs out. The values can still be computed later.
    #[doc(alias = "realize")]
    #[inline]
    #[track_caller]
    pub fn compute(&self) -> Result<()> {
        named("compute", self.data.storage.materialize())
    }
}

impl AsRef<Tensor> for Tensor {
    fn as_ref(&self) -> &Tensor {
        self
    }
}

// For the rest of the crate: building and reading tensors.
impl Tensor {
    #[inline]
    pub(crate) fn layout(&self) -> &Layout {
        &self.data.layout
    }

    #[inline]
    pub(crate) fn storage(&self) -> &Storage {
        &self.data.storage
    }

    /// The node, barriers included.
    #[inline]
    pub(crate) fn node(&self) -> Option<&NodeRef> {
        self.node.as_ref()
    }

    /// The node, if a gradient is required.
    #[inline]
    pub(crate) fn grad_node(&self) -> Option<&NodeRef> {
        self.node.as_ref().filter(|node| node.kind != node::NodeKind::Barrier)
    }

    /// The same values without a node.
    #[inline]
    pub(crate) fn without_node(&self) -> Tensor {
        Tensor { data: self.data.clone(), node: None }
    }

    #[inline]
    pub(crate) fn with_node(mut self, node: Option<NodeRef>) -> Tensor {
        self.node = node;
        self
    }

    /// A new contiguous tensor with undefined contents, which the caller must fill.
    pub(crate) fn empty(op: &'static str, shape: Shape, dtype: DType, device: Device) -> Result<Tensor> {
        let bytes = checked_bytes(op, &shape, dtype.size())?;
        Ok(Tensor::from_parts(Storage::new(op, device, bytes)?, Layout::contiguous(shape), dtype))
    }

    /// A new contiguous tensor whose elements `fill` writes.
    #[inline]
    #[allow(clippy::needless_pass_by_value)] // Most callers have created the shape for this call.
    pub(crate) fn build(
        op: &'static str,
        shape: Shape,
        dtype: DType,
        device: Device,
        fill: impl FnOnce(&mut ViewMut<'_>) -> Result<()>,
    ) -> Result<Tensor> {
        Tensor::build_shaped(op, &shape, dtype, device, fill)
    }

    /// As [`build`](Self::build), with another tensor's shape, which is copied directly into place.
    #[inline]
    pub(crate) fn build_shaped(
        op: &'static str,
        shape: &Shape,
        dtype: DType,
        device: Device,
        fill: impl FnOnce(&mut ViewMut<'_>) -> Result<()>,
    ) -> Result<Tensor> {
        let mut tensor = Tensor::empty_real(op, shape, dtype, device)?;
        fill(&mut tensor.own_view_mut(op)?)?;
        Ok(tensor)
    }

    /// As [`empty`](Self::empty), with another tensor's shape and a real dtype.
    fn empty_real(op: &'static str, shape: &Shape, dtype: DType, device: Device) -> Result<Tensor> {
        if dtype.is_complex() {
            bail!(DType, op, "not defined for {dtype}");
        }
        let storage = Storage::new(op, device, checked_bytes(op, shape, dtype.size())?)?;
        let block = Vacant::new();
        let data = block.fill(Data { storage, layout: Layout::shaped(shape), dtype, view: false, batch: None });
        Ok(Tensor { data, node: None })
    }

    /// As [`build`](Self::build), in channels-last order if `channels_last`.
    pub(crate) fn build_ordered(
        op: &'static str,
        shape: Shape,
        channels_last: bool,
        dtype: DType,
        device: Device,
        fill: impl FnOnce(&mut ViewMut<'_>) -> Result<()>,
    ) -> Result<Tensor> {
        if !channels_last {
            return Tensor::build(op, shape, dtype, device, fill);
        }
        let storage = Storage::new(op, device, checked_bytes(op, &shape, dtype.size())?)?;
        let mut tensor = Tensor::from_parts(storage, Layout::channels_last(&shape), dtype);
        fill(&mut tensor.own_view_mut(op)?)?;
        Ok(tensor)
    }

    /// A tensor over a storage whose layout was checked against it (L2).
    #[inline]
    pub(crate) fn from_parts(storage: Storage, layout: Layout, dtype: DType) -> Tensor {
        Tensor { data: Shared::new(Data { storage, layout, dtype, view: false, batch: None }), node: None }
    }

    /// The same bytes as elements of another dtype, under a layout that was derived from this one's for that dtype (L2).
    pub(crate) fn reinterpreted(&self, layout: Layout, dtype: DType) -> Tensor {
        let mut batch = self.data.batch.clone();
        let (from, to) = (self.dtype().size() as isize, dtype.size() as isize);
        batch
            .iter_mut()
            .flat_map(|dims| dims.iter_mut())
            .for_each(|dim| dim.stride = dim.stride.saturating_mul(from) / to);
        let data = Data { storage: self.data.storage.clone(), layout, dtype, view: true, batch };
        Tensor { data: Shared::new(data), node: None }
    }

    /// A view of this tensor's values under another layout, which must be derived from this one's (L2).
    pub(crate) fn with_layout(&self, layout: Layout) -> Tensor {
        let batch = self.data.batch.clone();
        let data = Data { storage: self.data.storage.clone(), layout, dtype: self.data.dtype, view: true, batch };
        Tensor { data: Shared::new(data), node: None }
    }

    /// As [`with_layout`](Self::with_layout), with layout and batch dimensions that were derived together from this tensor's (L2).
    pub(crate) fn with_batch(&self, layout: Layout, dims: BatchDims) -> Tensor {
        let batch = if dims.is_empty() { None } else { Some(Box::new(dims)) };
        let data = Data { storage: self.data.storage.clone(), layout, dtype: self.data.dtype, view: true, batch };
        Tensor { data: Shared::new(data), node: None }
    }

    /// The dimensions of the examples, if it is batched.
    #[inline]
    pub(crate) fn batch_dims(&self) -> Option<&BatchDims> {
        self.data.batch.as_deref()
    }

    #[inline]
    pub(crate) fn is_batched(&self) -> bool {
        self.data.batch.is_some()
    }

    /// Whether this is a view that shares memory with another tensor, so that a change would go to a copy.
    #[inline]
    pub(crate) fn is_shared_view(&self) -> bool {
        self.data.view && self.data.storage.handles() > 1
    }
}
