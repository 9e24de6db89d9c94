"""Memory shared with NumPy and others: no values change unexpectedly."""

import ctypes
import gc

import numpy as np
import pytest

import cotangent as ct

NAMES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
         "complex64", "complex128"]


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_goes_both_ways(name):
    a = np.array([[0, 1, 2], [3, 4, 5]]).astype(name)
    for array in (a, a.T, a[:, ::-1], a[::2], a[:0], np.asarray(a[0, 0])):
        for make in (ct.tensor, ct.asarray, ct.from_dlpack, ct.from_numpy):
            x = make(array)
            assert x.dtype.name == name and x.shape == array.shape
            np.testing.assert_array_equal(np.asarray(x), array)
        for back in (np.asarray(x), np.from_dlpack(x), np.array(x), np.asarray(memoryview(x)), x.numpy()):
            # `long long` is equal to int64 where it is as long, but PyTorch does not take its arrays.
            assert back.dtype == array.dtype and back.dtype.char == np.dtype(name).char
            np.testing.assert_array_equal(back, array)


def test_numpy_shares_our_memory_read_only_and_keeps_its_values():
    x = ct.arange(6).reshape(2, 3).clone()
    for array in (x.numpy(), np.from_dlpack(x, copy=False), x.__array__(copy=False)):
        assert array.ctypes.data == x.data_ptr() and not array.flags.writeable
    array = x.numpy()
    x += 100
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]] and x[0, 0].item() == 100
    del x
    gc.collect()
    assert array.sum() == 15
    y = ct.arange(3)
    with pytest.raises(ValueError, match="read-only"):
        y.numpy()[0] = 1
    assert bytes(ct.tensor([1, 2], dtype=ct.uint8)) == b"\1\2"


def test_other_libraries_get_memory_that_they_may_write():
    w = ct.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = ct.ones(3)
    loss = (w * y).sum()
    for array in (np.asarray(y), np.array(y), np.from_dlpack(y), np.asarray(memoryview(y)), np.asarray(y, dtype=np.float64)):
        assert array.flags.writeable
        array += 100
    memoryview(y)[0] = 7
    loss.backward()
    assert y.tolist() == [1, 1, 1] and w.grad.tolist() == [1, 1, 1]
    turned = np.asarray(ct.arange(6).reshape(2, 3).T)
    assert turned.tolist() == [[0, 3], [1, 4], [2, 5]] and turned.flags.writeable


def as_pytorch_does(x, **options):
    """What `torch.from_dlpack` does: it asks for a version that can say that memory is read-only, and does not look."""
    capsule = x.__dlpack__(max_version=(1, 0), **options)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    managed = ctypes.cast(get(capsule, b"dltensor_versioned"), ctypes.POINTER(ctypes.c_uint64))
    # Version, context, deleter, flags; then the data, the device, the rank and the dtype, shape and strides.
    rank = managed[6] & 0xFFFFFFFF
    strides = ctypes.cast(managed[8], ctypes.POINTER(ctypes.c_int64))
    return capsule, managed[3], managed[4], [strides[k] for k in range(rank)]


def test_a_consumer_of_dlpack_that_does_not_heed_flags_changes_nothing():
    w = ct.tensor([1.0, 2.0], requires_grad=True)
    y = ct.ones(2)
    loss = (w * y).sum()
    capsule, flags, address, _ = as_pytorch_does(y)
    (ctypes.c_float * 2).from_address(address)[:] = [100.0, 100.0]
    loss.backward()
    assert w.grad.tolist() == [1, 1] and y.tolist() == [1, 1] and flags == 2
    assert as_pytorch_does(y, copy=False)[1:3] == (1, y.data_ptr())
    # Nor are there strides that it does not know.
    x = ct.arange(6.0).reshape(2, 3)
    for part in (x.flip(0), x[::-1], x.T, x[:, 1:]):
        kept, _, address, strides = as_pytorch_does(part)
        assert strides == [part.shape[1], 1]
        assert list((ctypes.c_float * part.numel()).from_address(address)) == part.flatten().tolist()


def test_we_share_numpys_memory_and_never_write_it():
    a = np.arange(6.0)
    x = ct.from_dlpack(a)
    assert x.data_ptr() == a.ctypes.data
    x += 1
    x[0] = 50
    assert a.tolist() == [0, 1, 2, 3, 4, 5] and x.tolist() == [50, 2, 3, 4, 5, 6]
    y = ct.asarray(a, copy=False)
    assert y.data_ptr() == a.ctypes.data
    del a
    gc.collect()
    assert y.sum().item() == 15
    b = np.arange(3.0)
    z = ct.asarray(b)
    b[0] = 9
    assert z.tolist() == [0, 1, 2]
    locked = np.arange(3.0)
    locked.flags.writeable = False
    assert ct.from_dlpack(locked).tolist() == [0, 1, 2]


def test_capsules():
    x = ct.ones(2)
    assert "dltensor_versioned" in repr(x.__dlpack__(max_version=(1, 0))) and '"dltensor"' in repr(x.__dlpack__())
    assert x.__dlpack_device__() == (1, 0)
    capsule = x.__dlpack__(max_version=(1, 1))
    y = ct.from_dlpack(capsule)
    assert y.data_ptr() != x.data_ptr() and ct.from_dlpack(x).data_ptr() == x.data_ptr()
    shared = x.__dlpack__(max_version=(1, 1), copy=False)
    assert ct.from_dlpack(shared).data_ptr() == x.data_ptr()
    with pytest.raises(BufferError, match="used"):
        ct.from_dlpack(capsule)
    copied = ct.from_dlpack(x.__dlpack__(copy=True, max_version=(1, 0)))
    assert copied.data_ptr() != x.data_ptr()
    assert ct.from_dlpack(x.__dlpack__()).data_ptr() != x.data_ptr()
    with pytest.raises(BufferError):
        x.__dlpack__(copy=False)
    with pytest.raises(BufferError, match="gradient"):
        x.clone().requires_grad_().__dlpack__()
    with pytest.raises(BufferError):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError):
        x.__dlpack__(stream=3)
    assert ct.from_dlpack(x.__dlpack__(dl_device=(1, 0), max_version=(1, 0))).tolist() == [1, 1]
    for bad in (3, "x", None, object()):
        with pytest.raises((TypeError, AttributeError, BufferError)):
            ct.from_dlpack(bad)


def test_what_numpy_cannot_hold_and_what_we_cannot():
    with pytest.raises(TypeError, match="bfloat16"):
        np.asarray(ct.ones(2, dtype=ct.bfloat16))
    with pytest.raises((TypeError, ValueError)):
        ct.asarray(np.array(["a"]))
    with pytest.raises((TypeError, ValueError)):
        ct.asarray(np.array([None, 1]))
    assert ct.asarray(np.arange(3, dtype=">i4")).tolist() == [0, 1, 2]
    assert ct.tensor(np.float32(1.5)).item() == 1.5 and (ct.ones(1) * np.float64(2)).item() == 2
    with pytest.raises(ValueError, match="copy"):
        ct.asarray([1, 2], copy=False)
    with pytest.raises(ValueError, match="copy"):
        ct.asarray(ct.ones(2), dtype=ct.float64, copy=False)


def test_numpys_functions_of_tensors_are_ours():
    x, a = ct.ones(2, dtype=ct.float64), np.arange(2.0)
    for found in (x + a, a + x, np.add(a, x)):
        assert isinstance(found, ct.Tensor) and found.tolist() == [1, 2]
    assert (a - x).tolist() == [-1, 0] and (a @ x).item() == 1 and (a < x).tolist() == [True, False]
    assert isinstance(np.sin(x), ct.Tensor) and (np.float64(2.0) * x).tolist() == [2, 2]
    assert np.exp(x.clone().requires_grad_()).requires_grad
    with pytest.raises(TypeError):
        np.add(a, x, out=np.zeros(2))


def test_the_other_librarys_memory_is_given_back_without_a_deadlock():
    import threading
    import weakref

    a = np.arange(100000.0)
    x = ct.from_dlpack(a)
    gone = weakref.ref(a)
    del a
    # The last handle goes inside of a change, while the interpreter is released and others wait for the variable.
    threads = [threading.Thread(target=lambda: [x.add_(1), x.sum().item()]) for _ in range(4)]
    [t.start() for t in threads]
    [t.join(timeout=60) for t in threads]
    assert not any(t.is_alive() for t in threads) and x[0].item() == 4
    ct.zeros(1)
    gc.collect()
    assert gone() is None


def test_memory_is_given_back():
    before = ct.memory_stats()["current"]
    for _ in range(20):
        x = ct.zeros(1 << 16)
        np.asarray(x), x.__dlpack__(), np.from_dlpack(x), memoryview(x).tobytes()
    del x
    gc.collect()
    assert ct.memory_stats()["current"] <= before + (1 << 18)


def test_lists_keep_the_dtype_of_numpy_scalars_arrays_and_tensors():
    for given, dtype in [
        ([np.float64(0.1)], ct.float64), ([np.float16(1)], ct.float16), ([[np.int16(1)], [np.int16(2)]], ct.int16),
        ([np.int32(1), 2], ct.int64), ([np.float32(1), 2.0], ct.float32), ([1.0, np.float64(2)], ct.float64),
        ([np.bool_(True)], ct.bool), ([True, np.int32(1)], ct.int32), ([np.complex128(1j), 1.0], ct.complex128),
        ([np.uint64(2**64 - 1)], ct.uint64), ([np.array([0.1, 0.2]), [1.0, 2.0]], ct.float64), ([np.array(0.1)], ct.float64),
        ([ct.tensor(0.1, dtype=ct.float64), 1], ct.float64), ([ct.tensor([1], dtype=ct.int8), ct.tensor([2], dtype=ct.int8)], ct.int8),
        ([0.1], ct.float32), ([], ct.float32), ([1, 2.5], ct.float32), ([1j], ct.complex64),
    ]:
        made = ct.tensor(given)
        assert made.dtype is dtype and ct.asarray(given).dtype is dtype, given
    assert ct.tensor([np.float64(0.1)]).item() == 0.1 and ct.tensor([np.uint64(2**64 - 1)]).item() == 2**64 - 1
    assert ct.tensor([np.float64(0.1)], dtype=ct.int32).dtype is ct.int32
    with pytest.raises(ValueError, match="must have the same shape"):
        ct.tensor([np.array([1.0, 2.0]), [1.0]])


def test_numbers_as_tensors_keep_their_kind():
    assert ct.full((2,), ct.tensor(2 + 1j)).tolist() == [2 + 1j, 2 + 1j]
    assert ct.full((1,), ct.tensor(2**64 - 1, dtype=ct.uint64), dtype=ct.uint64).tolist() == [2**64 - 1]


def test_views_as_types_of_python():
    assert ct.zeros(4).view(float).dtype is ct.float64 and ct.zeros(4).view(float).shape == (2,)
    assert ct.zeros(2, dtype=ct.complex64).view(dtype=int).dtype is ct.int64
