"""Reference texts of transformers' `generate`, for tests/nn/generate.rs.

    python3 -m venv target/peers && target/peers/bin/pip install torch torchvision transformers
    target/peers/bin/python tools/generate_fixtures.py

Reads the models that tools/model_fixtures.py has written to tests/fixtures/models/gpt2.json and llama.json, and writes next to
them `generate_texts.json`, tokens that these models generate, and `generate_draws.json`, probabilities that given logits are
drawn with.
"""

import json
import sys
import warnings
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers.generation import logits_process

sys.dont_write_bytecode = True
from fixture_cases.core import Draw, encode, encode_input

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "models"


def load(name, config, model):
    case = json.loads((FOLDER / f"{name}.json").read_text())
    model = model(config(**case["config"], bos_token_id=None, eos_token_id=None, pad_token_id=None)).to(torch.float64).eval()
    state = {k: torch.tensor(v["data"], dtype=torch.float64).reshape(v["shape"]) for k, v in case["state"].items()}
    model.load_state_dict(state)
    return model


def text(name, model, prompt, count, padding=None, **options):
    """A text, the scores of its tokens, and our names of the options."""
    tokens = torch.tensor(prompt)
    mask = torch.ones_like(tokens)
    for row, number in enumerate(padding or []):
        mask[row, :number] = 0
    out = model.generate(
        tokens,
        attention_mask=mask,
        do_sample=False,
        max_new_tokens=count,
        output_logits=True,
        output_scores=True,
        return_dict_in_generate=True,
        # The tokens after the end are not compared.
        pad_token_id=0,
        **options,
    )
    case = {"model": name, "tokens": prompt, "count": count, "padding": padding or [], "options": options, "text": out.sequences.tolist()}
    if options.get("num_beams", 1) > 1:
        case["scores"] = out.sequences_scores.tolist()
    else:
        # Texts that depend on roundings would show nothing.
        for scores in out.scores:
            best = scores.topk(2, -1).values
            assert (best[:, 0] - best[:, 1]).min() > 1e-4, (name, options, best)
        new = out.sequences[:, tokens.shape[1] :]
        log_probs = torch.stack([logits.to(torch.float64).log_softmax(-1) for logits in out.logits], 1)
        case["log_probs"] = encode(log_probs.gather(2, new[:, :, None])[:, :, 0])
    return case


def texts():
    gpt2, llama = load("gpt2", GPT2Config, GPT2LMHeadModel), load("llama", LlamaConfig, LlamaForCausalLM)
    two, rows = [[1, 2], [3, 4]], [[1, 2, 5], [3, 4, 0], [6, 6, 1], [2, 0, 4]]
    padded = [[0, 0, 0, 5], [1, 2, 6, 4], [0, 3, 2, 1]]
    cases = [
        text("gpt2", gpt2, two, 4),
        text("gpt2", gpt2, two, 4, repetition_penalty=1.7),
        text("gpt2", gpt2, two, 4, num_beams=3),
        text("gpt2", gpt2, [[0, 0, 5], [1, 2, 6]], 3, padding=[2, 0]),
        text("llama", llama, rows, 12),
        text("llama", llama, rows, 12, repetition_penalty=2.2),
        text("llama", llama, rows, 12, repetition_penalty=0.7),
        text("llama", llama, padded, 8, padding=[3, 0, 1]),
        text("llama", llama, rows, 12, eos_token_id=[4]),
        text("llama", llama, rows, 12, eos_token_id=[4, 1], repetition_penalty=2.0),
    ]
    for beams in (2, 3, 5):
        cases.append(text("llama", llama, rows, 10, num_beams=beams))
    for end in ([3], [5], [1, 6], [0, 2, 4]):
        for penalty in (1.0, 0.0, 2.5, -1.0):
            cases.append(text("llama", llama, rows, 10, num_beams=3, eos_token_id=end, length_penalty=penalty))
    cases.append(text("llama", llama, rows, 10, num_beams=4, eos_token_id=[5], repetition_penalty=1.4))
    cases.append(text("llama", llama, padded, 8, padding=[3, 0, 1], num_beams=3, eos_token_id=[6]))
    return cases


def draws():
    logits = Draw("generate").distinct([8]).to(torch.float32)
    # Several tokens have a positive logit, and several a negative one.
    tokens = torch.tensor([[0, 3, 3, 5]])
    cases = []
    for repetition, temperature, top_k, top_p, min_p in (
        (1.0, 1.0, None, None, None),
        (1.0, 0.5, None, None, None),
        (1.0, 2.0, 3, None, None),
        (1.0, 1.0, None, 0.7, None),
        (1.0, 1.5, None, None, 0.3),
        (1.3, 1.0, None, None, None),
        (0.6, 1.4, None, None, None),
        (1.2, 1.5, 5, 0.8, None),
        (1.2, 1.5, 6, 0.95, 0.2),
        (1.0, 0.3, None, 1e-6, None),
        (1.0, 3.0, None, 1.0, 1.0),
    ):
        scores = logits[None].clone()
        for kind, value, unused in (
            ("RepetitionPenaltyLogitsProcessor", repetition, 1.0),
            ("TemperatureLogitsWarper", temperature, 1.0),
            ("TopKLogitsWarper", top_k, None),
            ("TopPLogitsWarper", top_p, None),
            ("MinPLogitsWarper", min_p, None),
        ):
            if value != unused:
                scores = getattr(logits_process, kind)(value)(tokens, scores)
        options = {"repetition_penalty": repetition, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        cases.append({"options": options, "probabilities": scores.softmax(-1)[0].tolist()})
    return {"logits": encode_input(logits), "tokens": tokens.tolist(), "cases": cases}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name, case in (("texts", texts()), ("draws", draws())):
        path = FOLDER / f"generate_{name}.json"
        path.write_text(json.dumps(case, separators=(",", ":")) + "\n")
        print(f"{path.name}: {path.stat().st_size} bytes")
