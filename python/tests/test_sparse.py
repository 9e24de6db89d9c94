"""Sparse tensors. habits/sparse.txt has PyTorch's answers."""

import copy
import pickle

import pytest

import cotangent as ct
from cotangent import sparse

DEVICES = ["cpu"] + (["cuda"] if ct.cuda.is_available() else [])


def example(device="cpu", dtype=ct.float64, layout="coo"):
    """A matrix with an index that is there twice, and its dense form."""
    values = ct.tensor([3.0, -4.0, 5.0, 1.5, 2.0], dtype=dtype, device=device)
    a = ct.sparse_coo_tensor([[0, 1, 1, 3, 1], [2, 0, 2, 1, 0]], values, (4, 3))
    dense = ct.tensor([[0.0, 0.0, 3.0], [-2.0, 0.0, 5.0], [0.0, 0.0, 0.0], [0.0, 1.5, 0.0]], dtype=dtype, device=device)
    return (a if layout == "coo" else a.to_sparse_csr()), dense


@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.parametrize("device", DEVICES)
def test_products_and_sums_are_those_of_the_dense_form(device, layout):
    a, dense = example(device, layout=layout)
    assert a.device.type == device and a.to_dense().equal(dense) and a.to("cpu").to_dense().equal(dense.cpu())
    x, v = ct.arange(6.0, dtype=ct.float64, device=device).reshape(3, 2), ct.arange(3.0, dtype=ct.float64, device=device)
    left = ct.arange(8.0, dtype=ct.float64, device=device).reshape(2, 4)
    for found, wanted in [
        (a @ x, dense @ x), (a @ v, dense @ v), (left @ a, left @ dense), (left[0] @ a, left[0] @ dense),
        (ct.mm(a, x), dense @ x), (ct.matmul(left, a), left @ dense), (sparse.mm(a, x), dense @ x), (a.t() @ left.t(), dense.T @ left.T),
        ((a + a).to_dense(), dense * 2), ((a - a * 0.5).to_dense(), dense * 0.5), ((-a).to_dense(), -dense),
        (a + dense, dense * 2), (dense - a, dense * 0), ((a * dense).to_dense(), dense * dense), (a.abs().to_dense(), dense.abs()),
        (sparse.sum(a), dense.sum()), (a.t().to_dense(), dense.T), (a.clone().detach().to_dense(), dense),
        (ct.addmm(left.t(), a, x, beta=2), left.t() * 2 + dense @ x), (a.to_sparse_csr().to_sparse().to_dense(), dense),
        (dense.to_sparse().to_dense(), dense), (dense.to_sparse_csr().to_dense(), dense),
    ]:
        assert type(found) is ct.Tensor and ct.allclose(found, wanted) and found.device.type == device


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_gradients_of_values_and_dense_operands(layout):
    places = ct.tensor([[0, 1, 1, 3, 1], [2, 0, 2, 1, 0]])

    def product(values, x):
        a = ct.sparse_coo_tensor(places, values, (4, 3))
        a = a if layout == "coo" else a.to_sparse_csr()
        return (a * 2 + a) @ x + (x.t() @ a.t()).t()

    values = ct.tensor([3.0, -4.0, 5.0, 1.5, 2.0], dtype=ct.float64, requires_grad=True)
    x = ct.arange(6.0, dtype=ct.float64).reshape(3, 2).requires_grad_()
    assert ct.autograd.gradcheck(product, (values, x)) and ct.autograd.gradgradcheck(product, (values, x))
    for f in (lambda v: ct.sparse_coo_tensor(places, v, (4, 3)).to_dense(),
              lambda v: sparse.softmax(ct.sparse_coo_tensor(places, v, (4, 3)), 1).to_dense(),
              lambda v: sparse.log_softmax(ct.sparse_coo_tensor(places, v, (4, 3)), 1).values(),
              lambda v: sparse.sum(ct.sparse_coo_tensor(places, v, (4, 3)), 0).to_dense()):
        assert ct.autograd.gradcheck(f, (values,))


def test_a_sparse_leaf_has_a_sparse_gradient():
    a = ct.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2), requires_grad=True)
    (a @ ct.tensor([[1.0], [3.0]])).sum().backward()
    assert a.requires_grad and a.is_leaf and isinstance(a.grad, sparse.SparseTensor)
    assert a.grad.to_dense().tolist() == [[0, 3], [1, 0]]


def test_rows_without_values_and_no_values_at_all():
    empty = ct.sparse_coo_tensor((3, 2))
    assert (empty @ ct.ones(2, 2)).tolist() == [[0, 0]] * 3 and (empty + empty).to_dense().sum().item() == 0
    assert empty.to_sparse_csr().crow_indices().tolist() == [0, 0, 0, 0]
    assert ct.zeros(2, 2).to_sparse()._nnz() == 0
    assert (ct.sparse_csr_tensor([0, 0, 1, 1], [1], [2.0], (3, 2)) @ ct.ones(2)).tolist() == [0, 2, 0]


def test_copies_and_files_of_objects():
    a, dense = example()
    for other in (copy.deepcopy(a), pickle.loads(pickle.dumps(a)), copy.copy(a)):
        assert other.to_dense().equal(dense) and other.shape == a.shape


def test_a_graph_network_learns_with_a_sparse_matrix():
    ct.manual_seed(0)
    edges = ct.tensor([[0, 1, 1, 2, 3, 4, 4, 5, 0, 1, 2, 3, 4, 5], [1, 0, 2, 1, 4, 3, 5, 4, 0, 1, 2, 3, 4, 5]])
    degree = ct.zeros(6).index_add(0, edges[0], ct.ones(14))
    matrix = ct.sparse_coo_tensor(edges, degree[edges[0]].rsqrt() * degree[edges[1]].rsqrt(), (6, 6)).coalesce()
    features, labels = ct.eye(6), ct.tensor([0, 0, 0, 1, 1, 1])
    first, second = ct.nn.Linear(6, 8, bias=False), ct.nn.Linear(8, 2, bias=False)
    optimizer = ct.optim.Adam([*first.parameters(), *second.parameters()], lr=0.1)
    for _ in range(60):
        out = ct.spmm(matrix, second(ct.relu(ct.spmm(matrix, first(features)))))
        loss = ct.nn.functional.cross_entropy(out[[0, 5]], labels[[0, 5]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert out.argmax(1).tolist() == labels.tolist()


def test_what_cannot_be_is_refused_in_words():
    a, dense = example()
    with pytest.raises(RuntimeError, match="the tensor must be coalesced"):
        a.indices()
    with pytest.raises(RuntimeError, match="crow_indices: the layout must be cotangent.sparse_csr, got cotangent.sparse_coo"):
        a.crow_indices()
    for call in (lambda: a[0], lambda: bool(a), lambda: a.view(2, 6), lambda: ct.exp(a), lambda: ct.relu(a)[0],
                 lambda: a.sin(), lambda: a @ a, lambda: a * a, lambda: a / dense):
        with pytest.raises((NotImplementedError, TypeError), match="dense|sparse|number"):
            call()
    with pytest.raises(RuntimeError, match=r"cannot multiply \[4, 3\] by \[2, 2\]"):
        a @ ct.ones(2, 2, dtype=ct.float64)
    with pytest.raises(RuntimeError, match="operands must have the same dtype"):
        a @ ct.ones(3, 2)
    with pytest.raises(RuntimeError, match="must have the same shape"):
        a + a.t()
    with pytest.raises(RuntimeError, match="indices must be from 0 to 2, got 0 to 5"):
        ct.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,))
    with pytest.raises(RuntimeError, match="there must be a value for each of 2 indices"):
        ct.sparse_coo_tensor([[0, 1]], [1.0], (3,))
    with pytest.raises(RuntimeError, match="indices must be integers"):
        ct.sparse_coo_tensor([[0.5, 1]], [1.0, 1.0], (3,))
    with pytest.raises(RuntimeError, match="crow_indices must increase from 0 to 2"):
        ct.sparse_csr_tensor([0, 2, 1], [0, 1], [1.0, 1.0], (2, 2))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        a.nothing
