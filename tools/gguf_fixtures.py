"""Small models in GGUF files, and bytes of quantised values, for tests/nn/quantized.rs.

    python3 -m venv target/peers && target/peers/bin/pip install numpy torch transformers gguf
    target/peers/bin/python tools/gguf_fixtures.py

The files are written with the names, the order of rows and the metadata of llama.cpp's converter. The logits are those of transformers' model
with the dequantised weights. Where transformers reads the file itself, its logits must be the same.
"""

import tempfile
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures"
FOLDER = FIXTURES / "models"
KINDS = gguf.GGMLQuantizationType

NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "self_attn.qkv_proj": "attn_qkv", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}
GEMMA2 = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}


def published(name, family):
    layer, end = name.rsplit(".", 1)
    block = ""
    if layer.startswith("model.layers."):
        number, layer = layer.removeprefix("model.layers.").split(".", 1)
        block = f"blk.{number}."
    return f"{block}{((GEMMA2 if family == 'gemma2' else {}) | {k: v for k, v in NAMES.items() if family != 'gemma2' or k not in GEMMA2})[layer]}.{end}"


def interleaved(weight, heads):
    """Rows of queries and keys in the order of llama.cpp's `llama` architecture."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def write(name, family, kind, config_class, model_class, read_by_transformers=True, rope=None, **more):
    torch.manual_seed(1)
    sizes = dict(vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                 rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=0, pad_token_id=None, max_position_embeddings=64)
    config = config_class(**(sizes | more))
    model = model_class(config).eval()
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // heads
    writer = gguf.GGUFWriter(FOLDER / f"{name}.gguf", family)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(64)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(head)
    if family == "gemma2":
        writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
        writer.add_final_logit_softcapping(config.final_logit_softcapping)
    if family in ("gemma2", "phi3"):
        writer.add_sliding_window(config.sliding_window)
    if rope:
        # As in the converter: the divisors of the frequencies.
        factors = []
        for rate in config.rope_parameters["rope_theta"] ** -(np.arange(0, head, 2) / head):
            length = 2 * np.pi / rate
            smooth = np.clip((rope["original_max_position_embeddings"] / length - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"]), 0, 1)
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
        writer.add_tensor("rope_freqs.weight", np.array(factors, "f4"))
    state = model.state_dict()
    for key, value in state.items():
        if key == "lm_head.weight" and config.tie_word_embeddings:
            continue
        with torch.no_grad():
            torch.nn.init.normal_(value, 1.0 if "norm" in key and "gemma" not in family else 0.0, 0.3)
        values = value.numpy().copy()
        if family == "llama" and (".q_proj." in key or ".k_proj." in key):
            values = interleaved(values, heads if ".q_proj." in key else groups)
        if "norm" in key and "gemma" in family:
            values = values + 1
        if values.ndim == 1:
            writer.add_tensor(published(key, family), values)
            continue
        data = gguf.quantize(values, kind)
        writer.add_tensor(published(key, family), data, raw_dtype=kind)
        # Rows are quantised independently, so their order does not matter.
        with torch.no_grad():
            value.copy_(torch.from_numpy(gguf.dequantize(gguf.quantize(value.numpy(), kind), kind)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tokens = torch.randint(0, 40, (2, 12))
    with torch.no_grad():
        logits = model(tokens).logits
        if read_by_transformers:
            read = model_class.from_pretrained(FOLDER, gguf_file=f"{name}.gguf", dtype=torch.float32).eval()
            torch.testing.assert_close(read(tokens).logits, logits, rtol=1e-3, atol=1e-4)
    np.savez_compressed(FOLDER / f"{name}.npz", tokens=tokens.numpy(), logits=logits.numpy())
    print(name, (FOLDER / f"{name}.gguf").stat().st_size, "bytes; logits of size", logits.std().item())


def bytes_of_values():
    """Values and their bytes, where the package quantises."""
    rng = np.random.default_rng(3)
    values = rng.normal(0, 1, (8, 64)).astype("f4")
    values[1] *= 1e-3
    values[2, :32] = 0
    values[3] = np.abs(values[3])
    # Halfway between codes.
    values[4] = np.round(values[4] * 4) / 4
    out = {"values": values}
    for kind in [KINDS.Q4_0, KINDS.Q4_1, KINDS.Q5_0, KINDS.Q5_1, KINDS.Q8_0]:
        out[kind.name] = gguf.quantize(values, kind)
    np.savez_compressed(FIXTURES / "io" / "quantize.npz", **out)


if __name__ == "__main__":
    t = transformers
    bytes_of_values()
    write("llama_q8_0", "llama", KINDS.Q8_0, t.LlamaConfig, t.LlamaForCausalLM, tie_word_embeddings=False)
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    write("llama3_q4_0", "llama", KINDS.Q4_0, t.LlamaConfig, t.LlamaForCausalLM, read_by_transformers=False, rope=rope, rope_parameters=rope, tie_word_embeddings=True)
    write("qwen2_q5_0", "qwen2", KINDS.Q5_0, t.Qwen2Config, t.Qwen2ForCausalLM, tie_word_embeddings=True)
    write("qwen3_q4_1", "qwen3", KINDS.Q4_1, t.Qwen3Config, t.Qwen3ForCausalLM, read_by_transformers=False, tie_word_embeddings=True, head_dim=32)
    write("phi3_q5_1", "phi3", KINDS.Q5_1, t.Phi3Config, t.Phi3ForCausalLM, read_by_transformers=False, tie_word_embeddings=False, sliding_window=5)
    write("gemma2_q8_0", "gemma2", KINDS.Q8_0, t.Gemma2Config, t.Gemma2ForCausalLM, read_by_transformers=False, head_dim=32, sliding_window=4, query_pre_attn_scalar=32)
    write("gemma_q8_0", "gemma", KINDS.Q8_0, t.GemmaConfig, t.GemmaForCausalLM, read_by_transformers=False, head_dim=32)
