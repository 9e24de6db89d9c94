"""Writes the files in tests/fixtures/io with the packages that define their formats, and their expected contents, for
tests/files/formats.rs and tests/nn/lora.rs.

    pip install numpy torch gguf transformers peft
    python tools/io_fixtures.py

Files of torch record the machine that wrote them; otherwise the output is deterministic.
"""

import collections
import io
import json
import pathlib
import zipfile

import gguf
import numpy as np
import peft
import torch
import transformers

FOLDER = pathlib.Path(__file__).parent.parent / "tests" / "fixtures" / "io"
KINDS = ["b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16"]


def numbers(kind, shape):
    """Small integers and half-integers, which are exact in every dtype."""
    values = np.arange(int(np.prod(shape)), dtype=np.float64).reshape(shape)
    if kind[0] == "f":
        values = values / 2 - 1
    if kind[0] == "c":
        values = values - 1j * (values + 1)
    if kind[0] == "b":
        values = values % 2 == 0
    return values.astype(kind)


def arrays():
    made = {}
    for kind in KINDS:
        made[f"plain.{kind}"] = numbers(kind, (2, 3))
        made[f"fortran.{kind}"] = np.asfortranarray(numbers(kind, (2, 3, 4)))
        made[f"big.{kind}"] = numbers(kind, (5,)).astype(np.dtype(kind).newbyteorder(">"))
        made[f"scalar.{kind}"] = numbers(kind, ())
        made[f"empty.{kind}"] = numbers(kind, (3, 0, 2))
    made["fortran.big"] = np.asfortranarray(numbers("f8", (3, 2))).astype(">f8", order="F")
    made["extreme.i8"] = np.array([-(2**63), 2**63 - 1], dtype="i8")
    made["extreme.u8"] = np.array([2**64 - 1], dtype="u8")
    return made


def described(array):
    """Dtype, shape and values in row-major order; a complex number has two values."""
    values = array.ravel()
    if array.dtype.kind == "c":
        values = np.stack([values.real, values.imag], -1).ravel()
    if array.dtype.kind == "b":
        values = values.astype("u1")
    name = {"b": "bool", "f": "f", "u": "u", "i": "i", "c": "c"}[array.dtype.kind]
    dtype = name if name == "bool" else f"{name}{array.dtype.itemsize * 8}"
    return {"dtype": dtype, "shape": list(array.shape), "values": values.tolist()}


def tensor(x):
    """As `described`, for a torch tensor."""
    x = x.detach().resolve_conj()
    dtype = {torch.bfloat16: "bf16"}.get(x.dtype) or described(torch.zeros(1, dtype=x.dtype).numpy())["dtype"]
    wide = x.float() if x.dtype == torch.bfloat16 else x
    return {**described(wide.contiguous().numpy()), "dtype": dtype}


def numpy_files(expected):
    made = arrays()
    np.savez(FOLDER / "arrays.npz", **made)
    np.savez_compressed(FOLDER / "compressed.npz", **made, zeros=np.zeros(100_000, dtype="f4"))
    expected["arrays.npz"] = {name: described(array) for name, array in made.items()}
    np.save(FOLDER / "row_major.npy", numbers("f4", (2, 3)))
    np.save(FOLDER / "vector.npy", numbers("i8", (4,)))
    np.save(FOLDER / "scalar.npy", numbers("f8", ()))
    np.save(FOLDER / "records.npy", np.zeros(2, dtype=[("a", "f4"), ("b", "i4")]))
    np.save(FOLDER / "text.npy", np.array(["a", "bc"]))
    np.save(FOLDER / "objects.npy", np.array([{"a": 1}, None], dtype=object))
    for version in [(2, 0), (3, 0)]:
        with open(FOLDER / f"version{version[0]}.npy", "wb") as file:
            np.lib.format.write_array(file, numbers("f4", (2, 3)), version=version)


class Stranger:
    def __reduce__(self):
        return (print, ("this pickle was run",))


def torch_files(expected):
    torch.manual_seed(0)
    base = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    dtypes = [torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32]
    dtypes += [torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128]
    model = collections.OrderedDict((f"x.{dtype}".replace("torch.", ""), torch.tensor([1, 0, 3]).to(dtype)) for dtype in dtypes)
    model["whole"] = base
    model["part"] = base[1, 1:, ::2]
    model["transposed"] = base.transpose(0, 2)
    model["expanded"] = torch.tensor([1.5]).expand(3, 2)
    model["tied"] = model["whole"]
    model["empty"] = torch.zeros(2, 0)
    model["scalar"] = torch.tensor(2.5)
    model["parameter"] = torch.nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.bfloat16))
    model._metadata = {"": {"version": 1}}
    marked = torch.tensor([1.0, 2.0])
    marked.note = "kept by nobody"
    values = {"epoch": 3, "lr": 0.1, "name": "ünï", "size": base.shape, "list": [1, (2, None), True], "dtype": torch.float16,
              "large": 2**40, "negative": -5, "device": torch.device("cpu"), "set": {7}, "bytes": b"abc", "nothing": {}}
    saved = {"model": model, "losses": [torch.tensor([0.5]), 0.25], "marked": marked, 7: torch.tensor(1), **values}
    torch.save(saved, FOLDER / "model.pt")
    torch.save(saved, FOLDER / "protocol5.pt", pickle_protocol=5)
    flat = {f"model.{name}": x for name, x in model.items()}
    flat |= {"losses.0": saved["losses"][0], "marked": marked, "7": saved[7]}
    expected["model.pt"] = {name: tensor(x) for name, x in flat.items()}
    torch.save(base, FOLDER / "tensor.pt")
    expected["tensor.pt"] = {"tensor": tensor(base)}
    layer = torch.nn.Linear(2, 3)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch.save({"model": layer.state_dict(), "optimizer": optimizer.state_dict()}, FOLDER / "training.pt")
    flat = {f"model.{name}": x for name, x in layer.state_dict().items()}
    for at, state in optimizer.state_dict()["state"].items():
        flat |= {f"optimizer.state.{at}.{name}": x for name, x in state.items()}
    expected["training.pt"] = {name: tensor(x) for name, x in flat.items()}
    # Unsupported files.
    torch.save({"x": base}, FOLDER / "old.pt", _use_new_zipfile_serialization=False)
    torch.save(layer, FOLDER / "whole_model.pt")
    torch.save({"x": Stranger()}, FOLDER / "stranger.pt")
    torch.save({"x": torch.tensor([1 + 2j]).conj()}, FOLDER / "conjugate.pt")
    # Big-endian numbers.
    written = io.BytesIO()
    torch.save({"x": torch.tensor([1.5, -2.0]), "z": torch.tensor([1 + 2j])}, written)
    with zipfile.ZipFile(written) as old, zipfile.ZipFile(FOLDER / "big_endian.pt", "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            data = old.read(entry)
            if "/data/" in entry.filename:
                data = np.frombuffer(data, "<f4").astype(">f4").tobytes()
            new.writestr(entry.filename, b"big" if entry.filename.endswith("byteorder") else data)
    expected["big_endian.pt"] = {"x": tensor(torch.tensor([1.5, -2.0])), "z": tensor(torch.tensor([1 + 2j]))}


def random_blocks(kind, rows, blocks, rng):
    """Blocks of a format with random bits and finite scales."""
    halves = {"Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}[kind.name]
    size = gguf.GGML_QUANT_SIZES[kind][1]
    data = rng.integers(0, 256, (rows * blocks, size), dtype=np.uint8)
    for at in halves:
        data[:, at : at + 2] = rng.normal(0, 0.1, (rows * blocks, 1)).astype("<f2").view(np.uint8)
    return data.reshape(rows, blocks * size)


def gguf_files():
    rng = np.random.default_rng(0)
    kinds = gguf.GGMLQuantizationType
    writer = gguf.GGUFWriter(FOLDER / "quantized.gguf", "llama")
    writer.add_name("tiny")
    writer.add_context_length(2048)
    writer.add_float32("llama.rope.freq_base", 10000.0)
    writer.add_bool("yes", True)
    writer.add_int64("negative", -(2**40))
    writer.add_uint64("large", 2**64 - 1)
    writer.add_array("tokens", ["<s>", "ünï", ""])
    writer.add_array("scores", [0.5, -1.0])
    expected = {}
    values = rng.normal(0, 1, (2, 512)).astype("f4")
    for kind in [kinds.Q4_0, kinds.Q4_1, kinds.Q5_0, kinds.Q5_1, kinds.Q8_0]:
        data = gguf.quantize(values, kind)
        writer.add_tensor(kind.name, data, raw_dtype=kind)
        expected[kind.name] = gguf.dequantize(data, kind)
    for kind in [kinds.Q2_K, kinds.Q3_K, kinds.Q4_K, kinds.Q5_K, kinds.Q6_K]:
        data = random_blocks(kind, 2, 2, rng)
        writer.add_tensor(kind.name, data, raw_dtype=kind)
        expected[kind.name] = gguf.dequantize(data, kind)
    writer.add_tensor("BF16", gguf.quantize(values, kinds.BF16), raw_dtype=kinds.BF16)
    expected["BF16"] = gguf.dequantize(gguf.quantize(values, kinds.BF16), kinds.BF16)
    for kind in ["f2", "f4", "f8", "i1", "i2", "i4", "i8"]:
        writer.add_tensor(kind, numbers(kind, (3, 2)))
        expected[kind] = numbers(kind, (3, 2))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    np.savez_compressed(FOLDER / "quantized.npz", **expected)


def peft_files():
    """Tiny models with PEFT adapters: weights in the published format, adapters, tokens, logits, and the gradients of the sum
    of squared logits with respect to the adapters."""
    models = {
        "gpt2": (transformers.GPT2Config(vocab_size=24, n_positions=8, n_embd=8, n_layer=2, n_head=2), transformers.GPT2LMHeadModel, ["c_attn", "c_fc"]),
        "llama": (transformers.LlamaConfig(vocab_size=24, hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
                                           num_key_value_heads=1), transformers.LlamaForCausalLM, ["q_proj", "v_proj", "down_proj"]),
    }
    for name, (config, kind, targets) in models.items():
        torch.manual_seed(1)
        folder = FOLDER / f"peft_{name}"
        model = kind(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter) * 0.3)
        model.save_pretrained(folder, max_shard_size="2KB")
        adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, lora_alpha=6, target_modules=targets, fan_in_fan_out=name == "gpt2"))
        with torch.no_grad():
            for parameter in adapted.parameters():
                if parameter.requires_grad:
                    parameter.copy_(torch.randn_like(parameter) * 0.3)
        tokens = torch.tensor([[1, 5, 9, 2], [23, 0, 7, 7]])
        logits = adapted(tokens).logits
        logits.square().sum().backward()
        adapted.save_pretrained(folder)
        found = {"tokens": tokens.numpy(), "logits": logits.detach().numpy()}
        for key, parameter in adapted.named_parameters():
            if parameter.requires_grad:
                found[key.replace(".default", "")] = parameter.grad.numpy()
        np.savez_compressed(folder / "expected.npz", **found)
        for extra in ["README.md", "generation_config.json"]:
            (folder / extra).unlink(missing_ok=True)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    expected = {}
    numpy_files(expected)
    torch_files(expected)
    gguf_files()
    peft_files()
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
