"""Reference logits and gradients of small models with random weights, for tests/nn/models.rs.

    python3 -m venv target/peers && target/peers/bin/pip install torch torchvision transformers
    target/peers/bin/python tools/model_fixtures.py

Writes one JSON file for each model into tests/fixtures/models: the configuration, the weights under their published names, the
inputs, the results, and the gradients of a weighted sum of the results.
"""

import json
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from torch.overrides import TorchFunctionMode

sys.dont_write_bytecode = True
import reference_models
from fixture_cases.core import Draw, encode, encode_input

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "models"


def draw_weights(model, draw, training):
    """Draws weights that do not depend on the version of the libraries. Tied weights are drawn once."""
    model.to(torch.float64).train(training)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if "running" in name:
                buffer.copy_(draw.uniform(buffer.shape, 0.5, 1.5, decimals=2))
        for name, parameter in model.named_parameters():
            is_norm = parameter.dim() == 1 and "weight" in name
            low, high = (0.5, 1.5) if is_norm else (-0.4, 0.4)
            parameter.copy_(draw.uniform(parameter.shape, low, high, decimals=2))


def short(tensor):
    """As `encode`, with nine digits, for models with a tolerance of at least 1e-7."""
    out = encode(tensor)
    return out | {"data": [float(f"{v:.9g}") for v in tensor.detach().reshape(-1).tolist()]}


def record(name, config, model, inputs, results, tolerance=None, training=False, published=lambda name: name, parts=None):
    """Writes a case. `results` returns the tensors to compare. For a model in training, its buffers are compared, too.
    `published` maps names of the model in memory to names in files. `parts` splits a gradient whose parameter our model has in
    parts: it returns the names and gradients of those."""
    draw = Draw(f"models/{name}")
    draw_weights(model, draw, training)
    write = short if tolerance else encode
    parts = parts or (lambda name, grad: {published(name): grad})
    # The published files of ResNets have no counts of batches.
    counted = not name.startswith("resnet")
    state = {published(k): encode_input(v) for k, v in model.state_dict().items() if counted or v.is_floating_point()}
    found = results(model, inputs)
    weights = {k: draw.uniform(v.shape, decimals=2) for k, v in found.items()}
    sum((v * weights[k]).sum() for k, v in found.items()).backward()
    # Only one of two tied names has a gradient.
    grads = {n: write(g) for k, p in model.named_parameters() if p.grad is not None for n, g in parts(k, p.grad).items()}
    case = {"config": config, "state": state, "inputs": {k: encode_input(v) for k, v in inputs.items()}}
    case["results"] = {k: encode(v) for k, v in found.items()}
    case["cotangents"] = {k: encode_input(v) for k, v in weights.items()}
    case["grads"] = grads
    if training:
        case["buffers"] = {k: write(v) for k, v in model.named_buffers() if v.is_floating_point()}
    if tolerance:
        case |= {"rtol": tolerance, "atol": tolerance}
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(case, separators=(",", ":")) + "\n")
    print(f"{path.name}: {path.stat().st_size} bytes")


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = {"vocab_size": 7, "n_positions": 6, "n_embd": 4, "n_layer": 2, "n_head": 2}
    tokens = Draw("gpt2").integers([2, 5], 0, 7)
    record("gpt2", config, GPT2LMHeadModel(GPT2Config(**config, bos_token_id=0, eos_token_id=0)), {"tokens": tokens}, lambda m, x: {"logits": m(x["tokens"]).logits})


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    base = {"vocab_size": 7, "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5}
    tokens = Draw("llama").integers([2, 5], 0, 7)
    for name, more in (("llama", {}), ("llama_tied", {"tie_word_embeddings": True, "num_key_value_heads": 4, "head_dim": 4})):
        config = base | more
        model = LlamaForCausalLM(LlamaConfig(**config, bos_token_id=0, eos_token_id=0))
        # The reference rounds norms and positions to f32 for all dtypes.
        record(name, config, model, {"tokens": tokens}, lambda m, x: {"logits": m(x["tokens"]).logits}, tolerance=2e-6)


class InF64(TorchFunctionMode):
    """Computes in f64 what a reference computes in f32 for all dtypes: norms, positions and softmax."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        def wide(x):
            return torch.float64 if x is torch.float32 else x

        if function is torch.Tensor.float:
            function = torch.Tensor.double
        return function(*map(wide, args), **{k: wide(v) for k, v in (kwargs or {}).items()})


def decoders():
    """The families of decoders in the style of Llama."""
    import transformers

    base = {"vocab_size": 7, "hidden_size": 8, "intermediate_size": 6, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
    # Of the three frequencies the first is kept, the second interpolated and the third divided.
    rope = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    new_rope = {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1000.0, **rope}}
    old_rope = {"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}}

    def phi3_parts(name, grad):
        rows = {"qkv_proj": {"q_proj": 8, "k_proj": 4, "v_proj": 4}, "gate_up_proj": {"gate_proj": 6, "up_proj": 6}}
        for joint, own in rows.items():
            if joint in name:
                return {name.replace(joint, part): g for part, g in zip(own, grad.split(list(own.values())))}
        return {name: grad}

    for name, kind, more in (
        ("llama3", "Llama", new_rope | {"head_dim": 6, "attention_bias": True, "mlp_bias": True, "max_position_embeddings": 512}),
        ("llama_linear", "Llama", old_rope),
        ("qwen2", "Qwen2", {"num_attention_heads": 4, "num_key_value_heads": 2, "use_sliding_window": True, "sliding_window": 2, "max_window_layers": 1}),
        ("qwen3", "Qwen3", {"head_dim": 6, "tie_word_embeddings": True, "sliding_window": 2}),
        ("mistral", "Mistral", {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "sliding_window": 3}),
        ("phi3", "Phi3", {"sliding_window": 3}),
        ("gemma", "Gemma", {"hidden_act": "gelu", "head_dim": 6}),
        ("gemma2", "Gemma2", {"sliding_window": 2, "head_dim": 6, "query_pre_attn_scalar": 3, "attn_logit_softcapping": 0.75, "final_logit_softcapping": 1.5}),
    ):
        config = {"model_type": kind.lower()} | base | more
        # The reference changes the dictionaries that it is given.
        given = json.loads(json.dumps(config))
        del given["model_type"]
        tokens = Draw(name).integers([2, 5], 0, 7)
        torch.set_default_dtype(torch.float64)
        with InF64():
            model = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**given))
            record(name, config, model, {"tokens": tokens}, lambda m, x: {"logits": m(x["tokens"]).logits}, tolerance=1e-7, parts=phi3_parts if kind == "Phi3" else None)
        torch.set_default_dtype(torch.float32)


def bert():
    from transformers import BertConfig, BertModel

    config = {"vocab_size": 7, "hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 6, "max_position_embeddings": 6}
    draw = Draw("bert")
    inputs = {"tokens": draw.integers([2, 5], 0, 7), "mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]), "types": draw.integers([2, 5], 0, 2)}

    def results(model, x):
        out = model(x["tokens"], attention_mask=x["mask"], token_type_ids=x["types"])
        # The outputs of padding are not compared.
        return {"hidden": out.last_hidden_state * x["mask"].unsqueeze(-1), "pooled": out.pooler_output}

    record("bert", config, BertModel(BertConfig(**config)), inputs, results)


def resnet():
    from torchvision.models import resnet as reference

    class Narrow(reference.ResNet):
        """The reference with 2 instead of 64 channels in the first stage."""

        inplanes = property(lambda self: self.__dict__["channels"], lambda self, n: self.__dict__.update(channels=2 if n == 64 and "channels" not in self.__dict__ else n))

        def _make_layer(self, block, planes, *args, **kwargs):
            return super()._make_layer(block, planes // 32, *args, **kwargs)

    images = Draw("resnet").uniform([3, 3, 20, 20], decimals=1)
    bottleneck = {"groups": 2, "width_per_group": 32}
    for name, block, layers, more in (("resnet_basic", "BasicBlock", [2, 1, 1, 1], {}), ("resnet_bottleneck", "Bottleneck", [1, 2, 1, 1], bottleneck)):
        kind = getattr(reference, block)
        model = Narrow(kind, layers, num_classes=3, **more)
        model.fc = torch.nn.Linear(16 * kind.expansion, 3)
        config = {"block": block, "layers": layers, "num_classes": 3, "width": 2, **more}
        record(name, config, model, {"images": images}, lambda m, x: {"logits": m(x["images"])}, tolerance=1e-7, training=block == "BasicBlock")
    names = {}
    for name in ("resnet18", "resnet34", "resnet50", "resnet101", "resnext50_32x4d", "wide_resnet50_2"):
        with torch.device("meta"):
            state = getattr(reference, name)().state_dict()
        names[name] = {k: list(v.shape) for k, v in state.items()}
    (FOLDER / "resnet_names.json").write_text(json.dumps(names, separators=(",", ":")) + "\n")


def vit():
    from safetensors import safe_open
    from transformers import ViTConfig, ViTForImageClassification

    config = {"hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 6, "image_size": 6, "patch_size": 2, "id2label": {str(i): str(i) for i in range(3)}}
    model = ViTForImageClassification(ViTConfig(**config))

    def published(name):
        for own, other in (("vit.layers.", "vit.encoder.layer."), ("o_proj", "output.dense"), ("mlp.fc1", "intermediate.dense"), ("mlp.fc2", "output.dense")):
            name = name.replace(own, other)
        for own, other in (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value")):
            name = name.replace(own, f"attention.{other}")
        return name

    # The library renames weights when it reads and writes files.
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        with safe_open(f"{folder}/model.safetensors", "pt") as file:
            assert set(file.keys()) == {published(name) for name in model.state_dict()}
    images = Draw("vit").uniform([2, 3, 6, 6], decimals=2)
    record("vit", config, model, {"images": images}, lambda m, x: {"logits": m(x["images"]).logits}, published=published)


def unet():
    images = Draw("unet").uniform([2, 3, 8, 12], decimals=2)
    config = {"in_channels": 3, "out_channels": 2, "channels": [2, 4, 6]}
    record("unet", config, reference_models.UNet(**config), {"images": images}, lambda m, x: {"images": m(x["images"])}, tolerance=1e-7, training=True)


def ddpm():
    draw = Draw("ddpm")
    shape = [3, 1, 4, 4]
    inputs = {"images": draw.uniform(shape, -1, 1, decimals=2), "noise": draw.uniform(shape, decimals=2), "t": torch.tensor([0, 4, 9])}
    unet = {"in_channels": 1, "out_channels": 1, "channels": [4, 6], "groups": 2, "time_size": 6}
    for schedule, clip in (("linear", True), ("cosine", False)):
        config = {"unet": unet, "steps": 10, "schedule": schedule, "clip": clip}

        def results(m, x):
            steps = {f"step_{t}": m.step(x["images"], t, x["noise"], clip) for t in (0, 5, 9)}
            return {"loss": m.loss(x["images"], x["t"], x["noise"])} | steps

        record(f"ddpm_{schedule}", config, reference_models.Ddpm(unet, 10, schedule), inputs, results)


def vae():
    draw = Draw("vae")
    config = {"input_size": 6, "hidden_size": 5, "latent_size": 2}
    inputs = {"x": draw.uniform([3, 6], 0, 1), "noise": draw.uniform([3, 2])}

    def results(m, x):
        logits, loss = m(x["x"], x["noise"])
        return {"logits": logits, "loss": loss}

    record("vae", config, reference_models.Vae(**config), inputs, results)


def lstm_lm():
    for name, tied in (("lstm_lm", False), ("lstm_lm_tied", True)):
        config = {"vocab_size": 7, "embedding_size": 4 if tied else 3, "hidden_size": 4, "num_layers": 2, "tie_weights": tied}
        draw = Draw(name)
        inputs = {"tokens": draw.integers([2, 5], 0, 7), "h": draw.uniform([2, 2, 4]), "c": draw.uniform([2, 2, 4])}

        def results(m, x):
            return dict(zip(("logits", "h", "c"), m(x["tokens"], x["h"], x["c"])))

        record(name, config, reference_models.LstmLm(**config), inputs, results)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for make in (gpt2, llama, decoders, bert, resnet, vit, unet, ddpm, vae, lstm_lm):
        make()
