"""Files: every format there and back, NumPy's by NumPy itself, and what is not to be trusted."""

import io
import json
import pickle
import struct

import numpy as np
import pytest

import cotangent as ct

DTYPES = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64".split()


def same(a, b):
    if isinstance(a, ct.Tensor):
        return isinstance(b, ct.Tensor) and a.dtype is b.dtype and a.shape == b.shape and bool((a == b).all())
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or a != a)


def everything():
    return {name: ct.arange(6).reshape(2, 3).to(getattr(ct, name)) for name in DTYPES + ["bfloat16"]}


def test_safetensors_there_and_back(tmp_path):
    path, tensors = tmp_path / "all.safetensors", everything()
    tensors["view"] = tensors["float32"].T
    ct.io.save_safetensors(path, tensors, {"format": "pt"})
    assert set(ct.io.load_safetensors(path)) == set(tensors)
    for name, tensor in ct.io.load_safetensors(path).items():
        assert same(tensor, tensors[name].contiguous()), name
    assert ct.io.load_metadata(path) == {"format": "pt"}
    assert list(ct.io.load_safetensors(path, names=["int8"])) == ["int8"]
    half = ct.io.load_safetensors(path, dtype=ct.float16)
    assert half["float64"].dtype is ct.float16 and half["int8"].dtype is ct.int8
    with pytest.raises(ValueError, match="nothere"):
        ct.io.load_safetensors(path, names=["nothere"])
    # The header is the one that everybody reads.
    raw = path.read_bytes()
    header = json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])
    assert header["float32"]["shape"] == [2, 3] and header["float32"]["dtype"] == "F32"


def test_shards(tmp_path):
    tensors = {f"layer.{at}": ct.full((100,), float(at)) for at in range(7)}
    ct.io.save_sharded(tmp_path / "model", tensors, max_shard_bytes=1000)
    assert len(list((tmp_path / "model").glob("*.safetensors"))) > 2
    for found in (ct.io.load_safetensors(tmp_path / "model"), ct.load(tmp_path / "model")):
        assert set(found) == set(tensors) and all(same(found[name], tensors[name]) for name in tensors)


@pytest.mark.parametrize("name", DTYPES + ["complex64", "complex128"])
def test_numpy_reads_and_writes_the_same_files(name, tmp_path):
    array = np.arange(6).reshape(2, 3).astype(name)
    path = tmp_path / "a.npy"
    np.save(path, array)
    assert ct.io.load_npy(path).dtype.name == name
    np.testing.assert_array_equal(np.asarray(ct.load(path)), array)
    ct.io.save_npy(path, ct.tensor(array).T)
    np.testing.assert_array_equal(np.load(path), array.T)
    for compressed in (False, True):
        path = tmp_path / "a.npz"
        ct.io.save_npz(path, {"a": ct.tensor(array), "b.c": ct.ones(2)}, compressed)
        with np.load(path) as found:
            np.testing.assert_array_equal(found["a"], array)
            assert set(found) == {"a", "b.c"}
        (np.savez_compressed if compressed else np.savez)(path, x=array)
        np.testing.assert_array_equal(np.asarray(ct.io.load_npz(path)["x"]), array)
        np.testing.assert_array_equal(np.asarray(ct.load(path)["x"]), array)


NESTED = {"model": {"w": ct.arange(3.0), "b": [ct.ones(2, dtype=ct.int64), (1, 2.5, "text", None, True)]}, 3: float("nan"),
          "inf": float("-inf"), "z": 1 + 2j, "big": 2**80, "bytes": b"\x00\xff", "dtype": ct.float16, "empty": [{}, [], ()]}


def test_nested_containers(tmp_path):
    path = tmp_path / "run.ct"
    ct.save(NESTED, path)
    assert same(ct.load(path), NESTED)
    buffer = io.BytesIO()
    ct.save(NESTED, buffer)
    buffer.seek(0)
    assert same(ct.load(buffer, map_location="cpu", weights_only=True), NESTED)
    for value in (ct.ones(3), [ct.ones(1)], 5, "a", None, {}):
        ct.save(value, path)
        assert same(ct.load(path), value)


def test_map_location_in_all_its_forms(tmp_path):
    path = tmp_path / "one.ct"
    ct.save({"w": ct.ones(2)}, path)
    for place in (None, "cpu", ct.device("cpu"), {"cuda:0": "cpu"}, lambda storage, place: storage,
                  lambda storage, place: storage.cpu(), lambda storage, place: None):
        assert ct.load(path, map_location=place)["w"].device == ct.device("cpu")
    # Not a device that there is, so that nothing of it is ignored.
    for place in ("cuda:99", {"cpu": "cuda:99"}, lambda storage, place: storage.cuda(99)):
        with pytest.raises((RuntimeError, ValueError), match="cuda"):
            ct.load(path, map_location=place)
    with pytest.raises(TypeError, match="map_location must return a storage or None, got an object of type int"):
        ct.load(path, map_location=lambda storage, place: 3)


def test_tensors_that_are_one_stay_one_and_leaves_stay_leaves(tmp_path):
    w = ct.ones(2, requires_grad=True)
    ct.save({"a": w, "b": [w, w.detach()]}, tmp_path / "x")
    found = ct.load(tmp_path / "x")
    assert found["a"] is found["b"][0] and found["a"].requires_grad and not found["b"][1].requires_grad


def test_names_that_meet(tmp_path):
    value = {"a": {"b": ct.ones(1)}, "a.b": ct.zeros(1), "": ct.full((1,), 2.0)}
    ct.save(value, tmp_path / "x")
    assert same(ct.load(tmp_path / "x"), value)


def test_a_flat_dictionary_is_plain_safetensors(tmp_path):
    ct.save({"w": ct.ones(2)}, tmp_path / "x")
    assert ct.io.load_metadata(tmp_path / "x") == {} and ct.io.load_safetensors(tmp_path / "x")["w"].tolist() == [1, 1]
    ct.save({"b": ct.ones(2), "a": ct.zeros(1, dtype=ct.int64), "c": ct.ones(1)}, tmp_path / "y")
    assert sorted(ct.io.load_safetensors(tmp_path / "y")) == ["a", "b", "c"] and list(ct.load(tmp_path / "y")) == ["b", "a", "c"]


def test_pytorchs_files(tmp_path):
    tensors = {name: tensor for name, tensor in everything().items() if name not in ("uint16", "uint32", "uint64")}
    ct.save(tensors, tmp_path / "model.pt")
    assert (tmp_path / "model.pt").read_bytes()[:2] == b"PK"
    assert same(ct.load(tmp_path / "model.pt"), tensors) and same(ct.io.load_pytorch(tmp_path / "model.pt"), tensors)
    fixtures = __import__("pathlib").Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "io"
    found = ct.load(fixtures / "training.pt")
    assert found["optimizer"]["param_groups"][0]["lr"] == 0.01
    flat = ct.io.load_pytorch(fixtures / "training.pt")
    nested = lambda x: [x] if isinstance(x, ct.Tensor) else [y for one in (x.values() if isinstance(x, dict) else x if isinstance(
        x, (list, tuple)) else []) for y in nested(one)]
    assert sorted(str(x.tolist()) for x in nested(found)) == sorted(str(x.tolist()) for x in flat.values()) and len(flat) > 2
    assert ct.io.load_pytorch_values(fixtures / "training.pt")["optimizer"]["param_groups"][0]["lr"] == 0.01


def test_nothing_is_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "harm"), "w"))

    with pytest.raises(TypeError, match="of type Evil"):
        ct.save({"a": Evil()}, tmp_path / "x")
    import zipfile

    with zipfile.ZipFile(tmp_path / "x.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"a": Evil()}, protocol=2))
        archive.writestr("archive/version", "3\n")
    with pytest.raises(ValueError):
        ct.load(tmp_path / "x.pt")
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError):
        ct.load(tmp_path / "plain.pkl")
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("tree", ["", "[]", "{}", '{"tensor": "none"}', '{"dict": 3}', '{"eval": "1"}', '{"list": [[]]}',
                                  '{"dict": [[{"list": []}, {"value": 1}]]}', '{"list":[' * 3000 + "]}" * 3000])
def test_trees_that_make_no_sense(tree, tmp_path):
    ct.io.save_safetensors(tmp_path / "x", {"a": ct.ones(1)}, {"cotangent.tree": tree})
    with pytest.raises(ValueError):
        ct.load(tmp_path / "x")


def test_errors_name_the_file(tmp_path):
    with pytest.raises(OSError, match="nothere"):
        ct.load(tmp_path / "nothere")
    (tmp_path / "short").write_bytes(b"abc")
    with pytest.raises(ValueError, match="short"):
        ct.load(tmp_path / "short")
    loop: list = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested"):
        ct.save(loop, tmp_path / "x")


class Counter:
    def __init__(self, start):
        self.w, self.n = ct.full((2,), float(start)), start

    def state_dict(self):
        return {"w": self.w, "n": self.n}

    def load_state_dict(self, state):
        if state["n"] < 0:
            raise ValueError("a negative count")
        self.w.copy_(state["w"])
        self.n = state["n"]


def test_checkpoints(tmp_path):
    a, b = Counter(1), Counter(2)
    run = ct.io.Checkpoint(epoch=3, rate=0.1)
    run.add("a", a)
    run.add("b", {"w": ct.zeros(2), "n": -1})
    run.save(tmp_path / "run.ckpt")
    found = ct.io.Checkpoint.load(tmp_path / "run.ckpt")
    assert found.values == {"epoch": 3, "rate": 0.1} and list(found.parts) == ["a", "b"]
    other = Counter(7)
    found.restore(a=other)
    assert other.n == 1 and other.w.tolist() == [1, 1]
    other = Counter(7)
    with pytest.raises(ValueError, match="negative"):
        found.restore(a=other, b=b)
    assert other.n == 7 and other.w.tolist() == [7, 7] and b.n == 2
    with pytest.raises(ValueError, match="no part named c"):
        found.restore(c=other)


def test_a_folder_keeps_the_last_and_the_best(tmp_path):
    folder = ct.io.Checkpoints(tmp_path / "run", keep_last=1, keep_best=1, metric="loss")
    assert folder.last() is None
    for step, loss in [(100, 0.5), (200, 0.2), (300, 0.3), (400, 0.4)]:
        checkpoint = ct.io.Checkpoint(loss=loss)
        checkpoint.add("model", {"w": ct.ones(2)})
        folder.save(step, checkpoint)
    assert folder.steps() == [200, 400] and folder.best()[0] == 200
    step, path = folder.last()
    assert step == 400 and ct.io.Checkpoint.load(path).values["loss"] == 0.4
    with pytest.raises(ValueError, match="mode must be"):
        ct.io.Checkpoints(tmp_path, metric="loss", mode="best")


def test_a_file_of_pytorchs_runs_nothing(tmp_path, monkeypatch):
    import pickle
    import zipfile

    class Evil:
        def __reduce__(self):
            return __import__("os").system, ("touch " + str(tmp_path / "ran"),)

    with zipfile.ZipFile(tmp_path / "evil.pt", "w") as archive:
        archive.writestr("evil/data.pkl", pickle.dumps({"a": Evil()}, protocol=2))
        archive.writestr("evil/version", "3")
    with pytest.raises((ValueError, RuntimeError)):
        ct.load(tmp_path / "evil.pt")
    from cotangent._core import pickled as _pickled

    # Containers that stand for more than any memory has: the tensors come, and a warning.
    ct.save({"w": ct.ones(2)}, tmp_path / "many.pt")
    monkeypatch.setattr(_pickled, "_MOST", 0)
    with pytest.warns(UserWarning, match="many.pt cannot be rebuilt"):
        assert ct.load(tmp_path / "many.pt")["w"].tolist() == [1.0, 1.0]
    assert isinstance(_pickled.structure(tmp_path / "evil.pt")["a"], _pickled._Mark) and not (tmp_path / "ran").exists()
