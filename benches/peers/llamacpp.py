"""llama.cpp on a GGUF file, as the row `gguf` of the workloads: reads 512 tokens, writes 32 more, prints lines of JSON.

    pip install llama-cpp-python numpy
    python benches/peers/llamacpp.py FILE [--threads N]

`--make FILE` writes a model of the shape of the row `llama_05b` with random weights, in F16, and quantises it to the format of `--format`.

With EXTRA_BUFFERS=1 llama.cpp may pack the weights for AMX. Version 0.3.36 then dies on some virtual machines: `tileloadd` in
libggml-cpu.so raises an illegal instruction. The model runs in a process of its own, so that such a death is a line of JSON, too.
"""

import argparse
import ctypes
import json
import os
import signal
import statistics
import subprocess
import sys
import time

import llama_cpp
import numpy as np

PROMPT, WRITTEN, REPEATS = 512, 32, 4


def make(path, kind):
    import gguf

    rng = np.random.default_rng(0)
    size, hidden, layers, heads, groups, vocabulary = 896, 4864, 24, 14, 2, 151936
    head = size // heads
    plain = f"{path}.f16"
    writer = gguf.GGUFWriter(plain, "llama")
    writer.add_block_count(layers)
    writer.add_context_length(4096)
    writer.add_embedding_length(size)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(groups)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(head)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("no_vocab")
    shapes = {"token_embd": (vocabulary, size)}
    for n in range(layers):
        shapes |= {f"blk.{n}.{k}": v for k, v in {
            "attn_q": (size, size), "attn_k": (groups * head, size), "attn_v": (groups * head, size), "attn_output": (size, size),
            "ffn_gate": (hidden, size), "ffn_up": (hidden, size), "ffn_down": (size, hidden)}.items()}
        for k in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{n}.{k}.weight", np.ones(size, "f4"))
    writer.add_tensor("output_norm.weight", np.ones(size, "f4"))
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", (rng.standard_normal(shape, "f4") * np.float32(0.02)).astype("f2"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype = {"q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0, "q4_k": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M}[kind]
    assert llama_cpp.llama_model_quantize(plain.encode(), path.encode(), ctypes.byref(options)) == 0
    os.remove(plain)


def run(path, threads):
    model_options = llama_cpp.llama_model_default_params()
    model_options.n_gpu_layers = 0
    # Without it llama.cpp packs weights for AMX, which not every virtual machine permits.
    model_options.use_extra_bufts = os.environ.get("EXTRA_BUFFERS") == "1"
    model = llama_cpp.llama_model_load_from_file(path.encode(), model_options)
    options = llama_cpp.llama_context_default_params()
    options.n_ctx, options.n_batch, options.n_threads, options.n_threads_batch = 1024, PROMPT, threads, threads
    context = llama_cpp.llama_init_from_model(model, options)
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    tokens = np.random.default_rng(1).integers(0, vocabulary, PROMPT).astype("i4")
    reads, writes = [], []
    for _ in range(REPEATS):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        start = time.perf_counter()
        # The batch points at the array.
        array = (ctypes.c_int32 * PROMPT)(*tokens.tolist())
        batch = llama_cpp.llama_batch_get_one(array, PROMPT)
        assert llama_cpp.llama_decode(context, batch) == 0
        logits = llama_cpp.llama_get_logits(context)
        reads.append(time.perf_counter() - start)
        start = time.perf_counter()
        for _ in range(WRITTEN):
            token = int(np.argmax(np.ctypeslib.as_array(logits, shape=(vocabulary,))))
            array = (ctypes.c_int32 * 1)(token)
            batch = llama_cpp.llama_batch_get_one(array, 1)
            assert llama_cpp.llama_decode(context, batch) == 0
            logits = llama_cpp.llama_get_logits(context)
        writes.append(time.perf_counter() - start)
    for name, times, count in (("prefill_gguf", reads, PROMPT), ("decode_gguf", writes, WRITTEN)):
        median, best = statistics.median(times[1:]), min(times[1:])
        print(json.dumps({"lib": "llama.cpp", "name": name, "median_s": median, "tokens_per_s": count / median, "best_tokens_per_s": count / best}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--format", default="q8_0", choices=["q8_0", "q4_k"])
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.make:
        make(given.file, given.format)
    elif given.child:
        run(given.file, given.threads)
    else:
        code = subprocess.run([sys.executable, *sys.argv, "--child"], check=False).returncode
        if code:
            cause = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
            extra = os.environ.get("EXTRA_BUFFERS") == "1"
            print(json.dumps({"lib": "llama.cpp", "name": "gguf", "version": llama_cpp.__version__, "extra_buffers": extra, "error": cause}))
            sys.exit(1)
