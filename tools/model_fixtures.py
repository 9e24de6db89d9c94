"""Reference logits and gradients of small models with random weights, for tests/models.rs.

    python3 -m venv target/peers && target/peers/bin/pip install torch torchvision transformers
    target/peers/bin/python tools/model_fixtures.py

Writes one JSON file for each model into tests/fixtures/models: the configuration, the weights under their published names, the
inputs, the results, and the gradients of a weighted sum of the results.
"""

import json
import sys
import warnings
from pathlib import Path

import torch

sys.dont_write_bytecode = True
from fixture_cases.core import Draw, encode, encode_input

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "models"


def draw_weights(model, draw):
    """The same numbers for every version of the libraries. Tied ones are drawn once."""
    model.to(torch.float64).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = parameter.dim() == 1 and "weight" in name
            low, high = (0.5, 1.5) if is_norm else (-0.4, 0.4)
            parameter.copy_(draw.uniform(parameter.shape, low, high, decimals=2))


def record(name, config, model, inputs, results, tolerance=None):
    """`results` gives the tensors that are compared."""
    draw = Draw(f"models/{name}")
    draw_weights(model, draw)
    found = results(model, inputs)
    weights = {k: draw.uniform(v.shape, decimals=2) for k, v in found.items()}
    sum((v * weights[k]).sum() for k, v in found.items()).backward()
    # One of two tied names has the gradient.
    grads = {k: encode(p.grad) for k, p in model.named_parameters() if p.grad is not None}
    state = {k: encode_input(v) for k, v in model.state_dict().items() if v.is_floating_point()}
    case = {"config": config, "state": state, "inputs": {k: encode(v) for k, v in inputs.items()}}
    case["results"] = {k: encode(v) for k, v in found.items()}
    case["cotangents"] = {k: encode_input(v) for k, v in weights.items()}
    case["grads"] = grads
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
        # The reference rounds norms and positions to f32, whatever the dtype.
        record(name, config, model, {"tokens": tokens}, lambda m, x: {"logits": m(x["tokens"]).logits}, tolerance=2e-6)


def bert():
    from transformers import BertConfig, BertModel

    config = {"vocab_size": 7, "hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 6, "max_position_embeddings": 6}
    draw = Draw("bert")
    inputs = {"tokens": draw.integers([2, 5], 0, 7), "mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]), "types": draw.integers([2, 5], 0, 2)}

    def results(model, x):
        out = model(x["tokens"], attention_mask=x["mask"], token_type_ids=x["types"])
        # What padding gives is nobody's concern.
        return {"hidden": out.last_hidden_state * x["mask"].unsqueeze(-1), "pooled": out.pooler_output}

    record("bert", config, BertModel(BertConfig(**config)), inputs, results)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for make in (gpt2, llama, bert):
        make()
