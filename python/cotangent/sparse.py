"""Sparse tensors: PyTorch's ``torch.sparse``.

    >>> import cotangent as ct
    >>> a = ct.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], [3.0, 4.0, 5.0], (2, 3))
    >>> a @ ct.ones(3, 1)
    tensor([[3.],
            [9.]])
    >>> a.to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 5.]])

There are two layouts. ``sparse_coo`` stores the indices of each element, and ``sparse_csr``, for matrices, the start of each row.
A sparse tensor consists of dense tensors of indices and values, and its functions use their operations, on the CPU and on
GPUs. It is a separate class, not a ``Tensor``: unsupported operations are errors.

Gradients flow to dense operands and to the values. The gradient of a sparse tensor is dense if it is computed through
``to_dense``, else it is that of its ``values()``.
"""

from __future__ import annotations

import math

from . import _cotangent as _c
from ._core import text as _text
from ._cotangent import Tensor
from ._core.creation import as_tensor
from ._core.hints import sparse_coo, sparse_csr
from ._core.size import Size

_ops = _c._functions
__all__ = ["SparseTensor", "addmm", "mm", "softmax", "log_softmax", "sparse_coo_tensor", "sparse_csr_tensor", "spmm", "sum"]


def _rows(sizes):
    """The row-major strides of a shape."""
    return [math.prod(sizes[at + 1:]) for at in range(len(sizes))]


class SparseTensor:
    """A sparse tensor: elements that are not stored are 0.

    ``sparse_coo_tensor``, ``sparse_csr_tensor`` and ``Tensor.to_sparse`` create one.
    """

    __slots__ = ("_places", "_elements", "_shape", "_coalesced", "_starts", "__weakref__")
    is_sparse_csr = property(lambda self: self._starts is not None)
    is_sparse = property(lambda self: self._starts is None)
    is_quantized = is_mps = is_meta = is_nested = False
    __array_priority__ = 1001

    def __init__(self, places, elements, shape, coalesced=False, starts=None):
        # Indices, with a row for each sparse dimension, and values; for CSR also the starts of rows.
        self._places, self._elements, self._shape = places, elements, Size(shape)
        # A single value is always coalesced.
        self._coalesced, self._starts = coalesced or elements.shape[0] < 2, starts

    def _with(self, elements, shape=None):
        """The same indices with other values."""
        return SparseTensor(self._places, elements, self._shape if shape is None else shape, self._coalesced, self._starts)

    # Properties.

    @property
    def shape(self):
        """The sizes of the dimensions."""
        return self._shape

    def size(self, dim=None):
        """The sizes of the dimensions, or that of one."""
        return self._shape if dim is None else self._shape[dim]

    def dim(self):
        """The number of dimensions."""
        return len(self._shape)

    ndim = property(dim)
    ndimension = dim

    def numel(self):
        """The number of elements, stored or not."""
        return math.prod(self._shape)

    nelement = numel

    def sparse_dim(self):
        """The number of sparse dimensions."""
        return self._places.shape[0]

    def dense_dim(self):
        """The number of dense dimensions."""
        return len(self._shape) - self.sparse_dim()

    def _nnz(self):
        """The number of stored values."""
        return self._elements.shape[0]

    dtype = property(lambda self: self._elements.dtype)
    device = property(lambda self: self._elements.device)
    is_cuda = property(lambda self: self._elements.is_cuda)
    requires_grad = property(lambda self: self._elements.requires_grad)
    is_leaf = property(lambda self: self._elements.is_leaf)
    grad_fn = property(lambda self: self._elements.grad_fn)

    @property
    def layout(self):
        """``sparse_coo`` or ``sparse_csr``."""
        return sparse_coo if self._starts is None else sparse_csr

    @property
    def grad(self):
        """The gradient of the values as a sparse tensor, or None."""
        found = self._elements.grad
        return None if found is None else self._with(found)

    def is_coalesced(self):
        """Whether the indices are unique and in row-major order."""
        return self._coalesced

    def is_floating_point(self):
        """Whether the values are real floating-point numbers."""
        return self._elements.is_floating_point()

    def is_complex(self):
        """Whether the values are complex numbers."""
        return self._elements.is_complex()

    def _parts(self, name, csr):
        if csr != (self._starts is not None):
            raise RuntimeError(f"{name}: the layout must be {sparse_csr if csr else sparse_coo}, got {self.layout}")
        if not csr and not self._coalesced:
            raise RuntimeError(f"{name}: the tensor must be coalesced: call coalesce() first")

    def indices(self):
        """The indices of the values, a row for each sparse dimension."""
        self._parts("indices", False)
        return self._places

    def values(self):
        """The stored values."""
        if self._starts is None:
            self._parts("values", False)
        return self._elements

    def _indices(self):
        """The indices, coalesced or not."""
        return self._places

    def _values(self):
        """The values, coalesced or not."""
        return self._elements

    def crow_indices(self):
        """The start of each row among the values, and the end of the last."""
        self._parts("crow_indices", True)
        return self._starts

    def col_indices(self):
        """The column of each value."""
        self._parts("col_indices", True)
        return self._places[1]

    # Conversions.

    def coalesce(self):
        """Sums values with the same indices, and sorts the indices in row-major order."""
        if self._coalesced:
            return self
        sizes = self._shape[:self.sparse_dim()]
        flat = _ops["zeros"]((self._nnz(),), dtype=_c.int64, device=self.device)
        for row, step in zip(self._places, _rows(sizes)):
            flat = flat + row * step
        kept, where = _unique(flat)
        zeros = _ops["zeros"]((kept.shape[0], *self._elements.shape[1:]), dtype=self.dtype, device=self.device)
        places = [(kept // step) % size for step, size in zip(_rows(sizes), sizes)]
        places = _ops["stack"](places) if places else self._places[:, :kept.shape[0]]
        return SparseTensor(places, zeros.index_add(0, where, self._elements), self._shape, True)

    def to_dense(self, dtype=None):
        """The dense tensor."""
        count = self.sparse_dim()
        sizes, inner = self._shape[:count], self._shape[count:]
        flat = _ops["zeros"]((self._nnz(),), dtype=_c.int64, device=self.device)
        for row, step in zip(self._places, _rows(sizes)):
            flat = flat + row * step
        zeros = _ops["zeros"]((math.prod(sizes), *inner), dtype=self.dtype, device=self.device)
        found = zeros.index_add(0, flat, self._elements).reshape(tuple(self._shape))
        return found if dtype is None else found.to(dtype)

    def to_sparse(self, sparse_dim=None, *, layout=None):
        """The tensor in the layout ``sparse_coo``, or ``layout``."""
        if layout is sparse_csr:
            return self.to_sparse_csr()
        return self if self._starts is None else SparseTensor(self._places, self._elements, self._shape, True)

    to_sparse_coo = to_sparse

    def to_sparse_csr(self):
        """The matrix in the layout ``sparse_csr``."""
        if self._starts is not None:
            return self
        _matrix("to_sparse_csr", self)
        own = self.coalesce()
        starts = _starts(own._places[0], self._shape[0])
        return SparseTensor(own._places, own._elements, self._shape, True, starts)

    def to(self, *args, **kwargs):
        """The tensor with another dtype, on another device, or both."""
        elements = self._elements.to(*args, **kwargs)
        if elements is self._elements:
            return self
        move = lambda x: None if x is None else x.to(elements.device)
        return SparseTensor(move(self._places), elements, self._shape, self._coalesced, move(self._starts))

    def cpu(self):
        """The tensor on the CPU."""
        return self.to("cpu")

    def cuda(self, device=None, non_blocking=False):
        """The tensor on a GPU."""
        return self.to("cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)

    def float(self):
        """The tensor as float32."""
        return self.to(_c.float32)

    def double(self):
        """The tensor as float64."""
        return self.to(_c.float64)

    def half(self):
        """The tensor as float16."""
        return self.to(_c.float16)

    def clone(self):
        """A tensor with a copy of the values."""
        return self._with(self._elements.clone())

    def detach(self):
        """The tensor, detached from the graph."""
        return self._with(self._elements.detach())

    def requires_grad_(self, requires_grad=True):
        """Sets whether the values require gradients."""
        if requires_grad and self._elements._base is not None:
            self._elements = self._elements.clone()
        self._elements.requires_grad_(requires_grad)
        return self

    def t(self):
        """The transposed matrix, in the same layout."""
        _matrix("t", self)
        made = SparseTensor(self._places.flip(0), self._elements, self._shape[::-1])
        return made if self._starts is None else made.to_sparse_csr()

    def transpose(self, dim0, dim1):
        """The tensor with two sparse dimensions transposed."""
        count, rank = self.sparse_dim(), self.dim()
        a, b = (dim + rank if dim < 0 else dim for dim in (dim0, dim1))
        if not (0 <= a < count and 0 <= b < count):
            raise IndexError(f"transpose: dimensions must be among the {count} sparse dimensions, got {dim0} and {dim1}")
        if a == b:
            return self
        if self._starts is not None:
            return self.t()
        order, shape = list(range(count)), list(self._shape)
        order[a], order[b], shape[a], shape[b] = b, a, shape[b], shape[a]
        order = _c._tensor(order, dtype=_c.int64, device=self.device)
        return SparseTensor(self._places.index_select(0, order), self._elements, shape)

    T = property(t)
    mT = property(t)

    # Arithmetic.

    def _map(self, f):
        """Applies a function with f(0) = 0 to each value."""
        own = self if self._starts is not None else self.coalesce()
        return own._with(f(own._elements))

    def __neg__(self):
        return self._with(-self._elements)

    def neg(self):
        """The negative of each element."""
        return -self

    def add(self, other, *, alpha=1):
        """The sum of two sparse tensors of the same shape; with a dense tensor, the sum is dense."""
        if isinstance(other, Tensor):
            return self.to_dense() + (other if alpha == 1 else other * alpha)
        if not isinstance(other, SparseTensor):
            raise TypeError(f"add: other must be a sparse or dense tensor, got a value of type {type(other).__name__}")
        if self._shape != other._shape or self.sparse_dim() != other.sparse_dim():
            raise RuntimeError(f"add: sparse tensors must have the same shape, got {list(self._shape)} and {list(other._shape)}")
        if self.layout is not other.layout:
            raise RuntimeError(f"add: sparse tensors must have the same layout, got {self.layout} and {other.layout}")
        dtype = _c.promote_types(self.dtype, other.dtype)
        theirs = other._elements if alpha == 1 else other._elements * alpha
        made = SparseTensor(_ops["cat"]([self._places, other._places], 1),
                            _ops["cat"]([self._elements.to(dtype), theirs.to(dtype)], 0), self._shape).coalesce()
        return made if self._starts is None else made.to_sparse_csr()

    def __add__(self, other):
        return self.add(other) if isinstance(other, (SparseTensor, Tensor)) else NotImplemented

    __radd__ = __add__

    def sub(self, other, *, alpha=1):
        """The difference of two sparse tensors of the same shape."""
        return self.add(other, alpha=-alpha)

    def __sub__(self, other):
        return self.sub(other) if isinstance(other, (SparseTensor, Tensor)) else NotImplemented

    def __rsub__(self, other):
        return other - self.to_dense() if isinstance(other, Tensor) else NotImplemented

    def mul(self, other):
        """The elementwise product with a number or a dense tensor, at the stored values."""
        if isinstance(other, SparseTensor):
            raise NotImplementedError("mul: other must be a number or a dense tensor, got a sparse tensor")
        if isinstance(other, Tensor) and other.ndim:
            own = self if self._starts is not None else self.coalesce()
            if self.dense_dim():
                raise NotImplementedError(f"mul: the tensor must have no dense dimensions, got {self.dense_dim()}")
            picked = other.expand(tuple(self._shape))[tuple(own._places.unbind(0))]
            return own._with(own._elements * picked)
        return self._with(self._elements * other)

    def __mul__(self, other):
        return self.mul(other) if isinstance(other, (int, float, complex, Tensor, SparseTensor)) else NotImplemented

    __rmul__ = __mul__

    def div(self, other):
        """Divides each element by a number."""
        if isinstance(other, SparseTensor) or (isinstance(other, Tensor) and other.ndim):
            raise NotImplementedError("div: the divisor must be a number, got a tensor")
        return self._with(self._elements / other)

    def __truediv__(self, other):
        return self.div(other) if isinstance(other, (int, float, complex, Tensor)) else NotImplemented

    def matmul(self, other):
        """The product with a dense matrix or vector."""
        return mm(self, other) if getattr(other, "ndim", 2) != 1 else mv(self, other)

    def __matmul__(self, other):
        return self.matmul(other) if isinstance(other, (Tensor, SparseTensor)) else NotImplemented

    def __rmatmul__(self, other):
        return _dense_by_sparse(other, self) if isinstance(other, Tensor) else NotImplemented

    def mm(self, mat2):
        """The product with a dense matrix."""
        return mm(self, mat2)

    def mv(self, vec):
        """The product with a dense vector."""
        return mv(self, vec)

    def sum(self, dim=None, dtype=None):
        """The sum of all elements; along dimensions the result is sparse."""
        if dim is None:
            return self._elements.sum(dtype=dtype)
        return sum(self, dim, dtype)

    def abs(self):
        """The absolute value of each element."""
        return self._map(Tensor.abs)

    def sqrt(self):
        """The square root of each element."""
        return self._map(Tensor.sqrt)

    def relu(self):
        """The ReLU of each element."""
        return self._map(Tensor.relu)

    def pow(self, exponent):
        """The power of each element, with a positive exponent."""
        if not exponent > 0:
            raise ValueError(f"pow: exponent must be positive, got {exponent}")
        return self._map(lambda x: x.pow(exponent))

    __pow__ = pow

    def backward(self, gradient=None, retain_graph=None, create_graph=False):
        """Runs the backward pass from a sparse gradient with the same indices."""
        self._elements.backward(gradient._elements if isinstance(gradient, SparseTensor) else gradient, retain_graph, create_graph)

    # Other methods.

    def __repr__(self):
        kinds = [("indices", self._places)] if self._starts is None else [("crow_indices", self._starts), ("col_indices", self._places[1])]
        lines = [f"{name}={_shown(x, name)}" for name, x in [*kinds, ("values", self._elements.detach())]]
        last = [f"size={tuple(self._shape)}", f"nnz={self._nnz()}"]
        if self.device.type != "cpu":
            last.insert(0, f"device='{self.device}'")
        if self.dtype not in (_c.get_default_dtype(), _c.int64, _c.bool):
            last.append(f"dtype={self.dtype!r}")
        last.append(f"layout={self.layout!r}")
        if self.grad_fn is not None:
            last.append(f"grad_fn=<{self.grad_fn.name()}>")
        elif self.requires_grad:
            last.append("requires_grad=True")
        return "tensor(" + (",\n" + " " * 7).join([*lines, ", ".join(last)]) + ")"

    def __len__(self):
        return self._shape[0]

    def __getattr__(self, name):
        if name.startswith("__") or not hasattr(Tensor, name):
            raise AttributeError(f"'SparseTensor' object has no attribute {name!r}")
        raise NotImplementedError(f"{name}: the tensor must be dense, got layout {self.layout}: call to_dense() first")

    def __getitem__(self, key):
        raise NotImplementedError("indexing: the tensor must be dense, got a sparse one: call to_dense() first")

    def __bool__(self):
        raise NotImplementedError("bool: the tensor must be dense, got a sparse one: call to_dense() first")

    def __reduce__(self):
        return SparseTensor, (self._places, self._elements, tuple(self._shape), self._coalesced, self._starts)

    def __deepcopy__(self, memo):
        import copy

        return self._with(copy.deepcopy(self._elements, memo))

    @staticmethod
    def _operation(name, args, kwargs):
        """Dispatches an operation that was called with a sparse argument."""
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](*args, **kwargs)
        own = SparseTensor.__dict__.get(name) if args and isinstance(args[0], SparseTensor) else None
        if callable(own):
            return own(*args, **kwargs)
        raise NotImplementedError(f"{name}: tensors must be dense, got a sparse one: call to_dense() first")


def _shown(x, name):
    """Indices or values as text, without dtype and device."""
    if x.numel() == 0:
        return f"tensor([], size={tuple(x.shape)})"
    start = "tensor("
    return start + _text._elements(x.cpu(), len(start)).replace("\n", "\n" + " " * (len(name) + 8)) + ")"


def _unique(flat):
    """The sorted unique indices, and the inverse indices."""
    if flat.shape[0] == 0:
        return flat, flat
    kept, where = _ops["unique"](flat, return_inverse=True)[:2]
    return kept, where


def _starts(rows, count):
    """The start of each row, from the sorted row indices of the values."""
    edges = _ops["arange"](0, count + 1, 1, device=rows.device)
    if rows.shape[0] == 0:
        return _ops["zeros_like"](edges)
    return _ops["searchsorted"](rows.contiguous(), edges).to(_c.int64)


def _matrix(name, x):
    if x.sparse_dim() != 2 or x.dense_dim():
        raise RuntimeError(f"{name}: the sparse tensor must be a matrix, got shape {list(x.shape)} with {x.sparse_dim()} sparse dimensions")


def _whole(name, what, x, device):
    x = as_tensor(x, device=device)
    if x.numel() == 0:
        x = x.to(_c.int64)
    if x.is_floating_point() or x.is_complex() or x.dtype is _c.bool:
        raise RuntimeError(f"{name}: {what} must be integers, got {x.dtype}")
    return x.detach().to(_c.int64)


def _values_of(values, dtype, device, requires_grad):
    values = as_tensor(values, dtype=dtype, device=device)
    if requires_grad:
        values = values.detach().clone().requires_grad_()
    return values


def _inside(name, what, x, size):
    if x.numel() and not bool(((x >= 0) & (x < size)).all()):
        raise RuntimeError(f"{name}: {what} must be from 0 to {size - 1}, got {x.min().item()} to {x.max().item()}")


def sparse_coo_tensor(indices=None, values=None, size=None, *, dtype=None, device=None, requires_grad=False, check_invariants=None,
                      is_coalesced=None):
    """A sparse tensor in COO layout. ``indices`` has a row for each sparse dimension and a column for each value.

    Values with the same indices are summed. By default ``size`` is the smallest that fits the indices. Further dimensions of
    the values are dense dimensions.
    """
    if size is None and values is None and indices is not None:
        indices, size = None, indices
    if indices is None:
        if size is None:
            raise TypeError("sparse_coo_tensor: size must be given without indices")
        places = _ops["zeros"]((len(size), 0), dtype=_c.int64, device=device)
        dtype = _c.get_default_dtype() if dtype is None else dtype
        return SparseTensor(places, _ops["zeros"]((0,), dtype=dtype, device=device), size, True)
    values = _values_of(values, dtype, device, requires_grad)
    places = _whole("sparse_coo_tensor", "indices", indices, values.device)
    if places.ndim != 2 and places.numel() == 0:
        places = places.reshape((len(size) if size is not None else 1, 0))
    if places.ndim != 2:
        raise RuntimeError(f"sparse_coo_tensor: indices must have 2 dimensions, got {places.ndim}")
    if values.ndim < 1 or values.shape[0] != places.shape[1]:
        raise RuntimeError(f"sparse_coo_tensor: there must be a value for each of {places.shape[1]} indices, got values of shape "
                           f"{list(values.shape)}")
    count = places.shape[0]
    if size is None:
        least = places.max(1).values + 1 if places.shape[1] else _ops["zeros"]((count,), dtype=_c.int64)
        size = [*least.tolist(), *values.shape[1:]]
    size = tuple(int(one) for one in size)
    if len(size) != count + values.ndim - 1 or tuple(size[count:]) != tuple(values.shape[1:]):
        raise RuntimeError(f"sparse_coo_tensor: size must have {count} sparse dimensions, then {list(values.shape[1:])}, "
                           f"got {list(size)}")
    for row, one in zip(places, size):
        _inside("sparse_coo_tensor", "indices", row, one)
    return SparseTensor(places, values, size, bool(is_coalesced))


def _legacy(dtype):
    def make(indices=None, values=None, size=None):
        return sparse_coo_tensor(indices, values, size, dtype=dtype)

    make.__doc__ = f"A sparse tensor of {dtype.name}: PyTorch's legacy constructor."
    return make


FloatTensor, DoubleTensor, HalfTensor = map(_legacy, (_c.float32, _c.float64, _c.float16))
LongTensor, IntTensor = map(_legacy, (_c.int64, _c.int32))


def sparse_csr_tensor(crow_indices, col_indices, values, size=None, *, dtype=None, device=None, requires_grad=False,
                      check_invariants=None):
    """A sparse matrix in CSR layout, from the starts of the rows, and the column indices and values."""
    values = _values_of(values, dtype, device, requires_grad)
    starts = _whole("sparse_csr_tensor", "crow_indices", crow_indices, values.device)
    columns = _whole("sparse_csr_tensor", "col_indices", col_indices, values.device)
    if (starts.ndim, columns.ndim, values.ndim) != (1, 1, 1):
        raise NotImplementedError("sparse_csr_tensor: crow_indices, col_indices and values must have 1 dimension, got "
                                  f"{starts.ndim}, {columns.ndim} and {values.ndim}: batches of sparse matrices are not supported")
    count = starts.shape[0] - 1
    if count < 0 or columns.shape != values.shape:
        raise RuntimeError(f"sparse_csr_tensor: col_indices must have the shape of values, got {list(columns.shape)} and "
                           f"{list(values.shape)}")
    if size is None:
        size = (count, int(columns.max()) + 1 if columns.numel() else 0)
    if len(size) != 2 or size[0] != count:
        raise RuntimeError(f"sparse_csr_tensor: size must be ({count}, columns), got {list(size)}")
    each = starts[1:] - starts[:-1]
    if int(starts[0]) != 0 or int(starts[-1]) != columns.shape[0] or bool((each < 0).any()):
        raise RuntimeError(f"sparse_csr_tensor: crow_indices must increase from 0 to {columns.shape[0]}, got {starts.tolist()}")
    _inside("sparse_csr_tensor", "col_indices", columns, size[1])
    rows = _c._functions["repeat_interleave"](_ops["arange"](0, count, 1, device=values.device), each) if count else starts[:0]
    return SparseTensor(_ops["stack"]([rows, columns]), values, size, True, starts)


def _operands(name, a, b, rank):
    if not isinstance(a, SparseTensor) or not isinstance(b, Tensor):
        kinds = " and ".join(type(x).__name__ for x in (a, b))
        raise NotImplementedError(f"{name}: operands must be a sparse matrix and a dense tensor, got {kinds}")
    _matrix(name, a)
    if b.ndim != rank or b.shape[0] != a.shape[1]:
        raise RuntimeError(f"{name}: cannot multiply {list(a.shape)} by {list(b.shape)}")
    if a.dtype != b.dtype:
        raise RuntimeError(f"{name}: operands must have the same dtype, got {a.dtype} and {b.dtype}")


def mm(mat1, mat2, reduce=None):
    """The matrix product of a sparse and a dense matrix, in either order."""
    if reduce not in (None, "sum"):
        raise NotImplementedError(f"sparse.mm: reduce must be 'sum', got {reduce!r}")
    if isinstance(mat1, Tensor) and isinstance(mat2, SparseTensor):
        return _dense_by_sparse(mat1, mat2)
    _operands("sparse.mm", mat1, mat2, 2)
    rows, columns = mat1._places.unbind(0)
    terms = mat1._elements.unsqueeze(1) * mat2.index_select(0, columns)
    zeros = _ops["zeros"]((mat1.shape[0], mat2.shape[1]), dtype=terms.dtype, device=terms.device)
    return zeros.index_add(0, rows, terms)


spmm = mm


def mv(mat, vec):
    """The product of a sparse matrix and a dense vector."""
    _operands("mv", mat, vec, 1)
    rows, columns = mat._places.unbind(0)
    terms = mat._elements * vec.index_select(0, columns)
    return _ops["zeros"]((mat.shape[0],), dtype=terms.dtype, device=terms.device).index_add(0, rows, terms)


def _dense_by_sparse(a, b):
    """The product of a dense vector or matrix and a sparse matrix, computed as a transposed product."""
    _matrix("sparse.mm", b)
    flipped = SparseTensor(b._places.flip(0), b._elements, b._shape[::-1])
    return mv(flipped, a) if a.ndim == 1 else mm(flipped, a.t()).t()


def matmul(input, other):  # noqa: A002
    """The product of a sparse and a dense operand."""
    return input @ other


def addmm(mat, mat1, mat2, *, beta=1.0, alpha=1.0):
    """``beta * mat + alpha * (mat1 @ mat2)``, with a sparse ``mat1``, and dense ``mat`` and ``mat2``."""
    product = mm(mat1, mat2)
    if isinstance(mat, SparseTensor):
        mat = mat.to_dense()
    return (mat if beta == 1 else mat * beta) + (product if alpha == 1 else product * alpha)


def sum(input, dim=None, dtype=None):  # noqa: A001
    """The sum of all elements, or along dimensions: sparse, unless no sparse dimension is left."""
    if not isinstance(input, SparseTensor):
        raise TypeError(f"sparse.sum: input must be a sparse tensor, got a value of type {type(input).__name__}")
    if dim is None:
        return input._elements.sum(dtype=dtype)
    rank, count = input.dim(), input.sparse_dim()
    dims = {one + rank if one < 0 else one for one in ((dim,) if isinstance(dim, int) else dim)}
    if not all(0 <= one < rank for one in dims):
        raise IndexError(f"sparse.sum: dim must be from {-rank} to {rank - 1}, got {dim}")
    elements = input._elements if dtype is None else input._elements.to(dtype)
    inner = [one - count + 1 for one in dims if one >= count]
    elements = elements.sum(inner) if inner else elements
    kept = [one for one in range(count) if one not in dims]
    shape = [size for at, size in enumerate(input.shape) if at not in dims]
    if not kept:
        return elements.sum(0)
    places = input._places.index_select(0, _c._tensor(kept, dtype=_c.int64, device=input.device))
    return SparseTensor(places, elements, shape).coalesce()


def _by_row(name, input, dim, dtype):  # noqa: A002
    _matrix(name, input)
    if dim not in (1, -1):
        raise NotImplementedError(f"{name}: dim must be 1 (columns), got {dim}")
    own = input if input._starts is not None else input.coalesce()
    own = own if dtype is None else own.to(dtype)
    rows, values = own._places[0], own._elements
    lowest = _ops["full"]((own.shape[0],), -math.inf, dtype=values.dtype, device=values.device)
    top = lowest.scatter_reduce(0, rows, values.detach(), "amax")
    shifted = values - top.index_select(0, rows)
    zeros = _ops["zeros"]((own.shape[0],), dtype=values.dtype, device=values.device)
    return own, rows, shifted, zeros.index_add(0, rows, shifted.exp())


def softmax(input, dim, *, dtype=None):  # noqa: A002
    """The softmax of each row of a sparse matrix: elements that are not stored count as -inf."""
    own, rows, shifted, total = _by_row("sparse.softmax", input, dim, dtype)
    return own._with(shifted.exp() / total.index_select(0, rows))


def log_softmax(input, dim, *, dtype=None):  # noqa: A002
    """The logarithm of ``softmax``."""
    own, rows, shifted, total = _by_row("sparse.log_softmax", input, dim, dtype)
    return own._with(shifted - total.log().index_select(0, rows))


# Operations with sparse arguments that are not methods.
_FUNCTIONS = {
    "mm": mm, "matmul": matmul, "mv": mv, "addmm": lambda input, mat1, mat2, **given: addmm(input, mat1, mat2, **given),  # noqa: A006
    "add": lambda input, other, **given: input.add(other, **given) if isinstance(input, SparseTensor) else other + input,
    "mul": lambda input, other: other * input,
}


def _to_sparse(self, sparse_dim=None, *, layout=None, blocksize=None, dense_dim=None):
    """The nonzero elements as a sparse tensor; dimensions after the first ``sparse_dim`` are dense."""
    if layout is sparse_csr:
        return _to_sparse_csr(self)
    if layout not in (None, sparse_coo) or blocksize is not None or dense_dim is not None:
        raise NotImplementedError(f"to_sparse: layout must be {sparse_coo} or {sparse_csr}, got {layout}")
    count = self.ndim if sparse_dim is None else sparse_dim
    if not 1 <= count <= self.ndim:
        raise ValueError(f"to_sparse: sparse_dim must be from 1 to {self.ndim}, got {sparse_dim}")
    kept = self.detach() != 0
    if count < self.ndim:
        kept = kept.flatten(count).any(-1)
    places = kept.nonzero()
    return SparseTensor(places.t().contiguous(), self[tuple(places.unbind(1))], self.shape, True)


def _to_sparse_csr(self, dense_dim=None):
    """The nonzero elements of a matrix in CSR layout."""
    if self.ndim != 2:
        raise NotImplementedError(f"to_sparse_csr: the tensor must be a matrix, got shape {list(self.shape)}")
    return _to_sparse(self).to_sparse_csr()
