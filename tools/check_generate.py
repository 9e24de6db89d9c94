#!/usr/bin/env python3
"""Runs the example `generate` with a model over bytes, and checks what it prints.

    python3 tools/check_generate.py PROGRAM MODEL FOLDER

MODEL is the folder of a model whose tokens are bytes. FOLDER gets a copy of it, with a tokenizer and a chat template.
It needs no packages.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys


def characters():
    """The printable character that stands for each byte in tokenizers of bytes."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def write_tokenizer(folder):
    """A tokenizer whose token of a byte is the byte, and a chat template."""
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": 2, "content": "<s>", **added}, {"id": 3, "content": "</s>", **added}],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [2], "tokens": ["<s>"]}},
        },
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            # Bytes that never occur in a text make room for the special tokens.
            "vocab": {character: byte for byte, character in enumerate(characters()) if byte not in (2, 3)},
            "merges": [],
        },
    }
    template = (
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{{ eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant] {% endif %}"
    )
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": template}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def main():
    program, model, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(model, folder)
    write_tokenizer(folder)

    def run(*arguments, stdin="", fails=False):
        done = subprocess.run([program, *map(str, arguments)], input=stdin.encode(), capture_output=True)
        assert (done.returncode != 0) == fails, (arguments, done.stderr.decode())
        return done.stdout.decode(), done.stderr.decode()

    def counts(log):
        """The tokens of each prompt that were computed, and those of each answer."""
        return [tuple(map(int, found)) for found in re.findall(r"prompt: (\d+) tokens.*answer: (\d+) tokens", log)]

    text, log = run(folder, "The ", "--max-tokens", 40, "--temperature", 0)
    assert len(text) > 20 and text.endswith("\n") and counts(log) == [(5, 40)], (text, log)
    assert "llama: 0.00 B parameters, f32, loaded in" in log, log
    # The model itself as the draft proposes what it would choose.
    drafted, log = run(folder, "The ", "--max-tokens", 40, "--draft", folder)
    assert drafted == text and "32 of 32 proposed tokens were kept" in log, (drafted, log)
    stop = text[4:8]
    stopped, _ = run(folder, "The ", "--max-tokens", 40, "--stop", stop)
    assert stopped == text[: text.index(stop)] + "\n", (stopped, text)
    drawn = ["--temperature", 0.9, "--top-k", 90, "--top-p", 0.99, "--min-p", 0.001, "--max-tokens", 30]
    first, second, other = (run(folder, "The ", *drawn, "--seed", seed)[0] for seed in [1, 1, 2])
    assert first == second != other, (first, second, other)
    _, log = run(folder, "The ", "--max-tokens", 5, "--dtype", "bf16")
    assert "parameters, bf16, loaded" in log, log
    # Two turns: the second one computes what is new, and the last token of the answer before.
    chat = "<s>[system] Be brief.</s>[user] Hello</s>[assistant] "
    more = "</s>[user] Again</s>[assistant] "
    length = len(re.sub("</?s>", "_", chat))
    text, log = run(folder, "--chat", "--system", "Be brief.", "--max-tokens", 8, stdin="Hello\n\nAgain\n")
    assert counts(log) == [(length, 8), (len(re.sub("</?s>", "_", more)) + 1, 8)], (text, log)
    once, log = run(folder, "Hello", "--chat", "--system", "Be brief.", "--max-tokens", 8)
    assert text.startswith(once) and counts(log) == [(length, 8)], (text, once, log)
    # The published options are the defaults.
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ord(once[0])}))
    assert run(folder, "Hello", "--chat", "--system", "Be brief.")[0] == "\n"
    for arguments, what in [
        ([], "The first argument must be the folder of a model"),
        ([folder], "there must be a prompt, or --chat"),
        ([folder, "x", "--dtype", "int8"], "--dtype must be bf16, f16, f32 or f64, got int8"),
        ([folder, "x", "--device", "tpu"], "--device must be cpu, cuda or cuda:N, got tpu"),
        ([folder, "x", "--device", "cuda:99"], "--device cuda:99 is not available"),
        ([folder, "x", "--top-k", "3"], "temperature must be > 0 with top_k, got 0"),
        ([folder, "x", "--max-tokens", "many"], "--max-tokens must be a number of tokens, got many"),
        ([folder, "x", "--what"], "unknown option --what"),
        ([folder / "nothing", "x"], "nothing/tokenizer.json"),
    ]:
        _, log = run(*arguments, fails=True)
        assert what in log and "panicked" not in log, (arguments, log)
    (folder / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    _, log = run(folder, "x", fails=True)
    assert "model_type must be one of gpt2, llama" in log and "got mamba" in log, log
    print("the example generate works")


if __name__ == "__main__":
    main()
