"""Talks to a language model in turns.

    python chat.py FOLDER                                        # with Hugging Face's files
    python chat.py MODEL.gguf --tokenizer FOLDER                 # the tokenizer of a GGUF file is not read
    python chat.py FOLDER --system "Be brief." --temperature 0.7 --device cuda --dtype bfloat16

It reads lines from the standard input. What the model has seen of the conversation is not computed again.
"""

from __future__ import annotations

import argparse
import sys
import time

import cotangent as ct

parser = argparse.ArgumentParser(description="Talks to a language model in turns")
parser.add_argument("model", help="the folder of a model, or a GGUF file")
parser.add_argument("--tokenizer", help="the folder of the tokenizer")
parser.add_argument("--system", help="the system message")
parser.add_argument("--dtype", help="the dtype of the weights, by default that of the file")
parser.add_argument("--device", help="cpu, or cuda:0")
parser.add_argument("--max-new-tokens", type=int, default=256)
parser.add_argument("--temperature", type=float, help="0 takes the most probable token; by default the published one")
parser.add_argument("--seed", type=int)


def main():
    options = parser.parse_args()
    model = ct.models.load(options.model, options.dtype, options.device, tokenizer=options.tokenizer)
    print(model, file=sys.stderr)
    messages = [{"role": "system", "content": options.system}] if options.system else []
    cache = ct.models.KeyValueCache()
    print("> ", end="", file=sys.stderr, flush=True)
    for line in sys.stdin:
        if line.strip():
            messages.append({"role": "user", "content": line.strip()})
            start, count, answer = time.perf_counter(), 0, ""
            for one in ct.generate(model, messages, max_new_tokens=options.max_new_tokens, temperature=options.temperature,
                                   seed=options.seed, cache=cache, stream=True, logprobs=True):
                print(one.text, end="", flush=True)
                answer, count = answer + one.text, count + 1
            seconds = time.perf_counter() - start
            print()
            print(f"[{count} tokens, {count / seconds:.1f} tokens/s]", file=sys.stderr)
            messages.append({"role": "assistant", "content": answer})
        print("> ", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
