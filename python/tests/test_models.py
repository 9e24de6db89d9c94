"""Language models: texts of transformers, tokenizers, and what `generate` promises."""

import copy
import importlib.util
import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import cotangent as ct

np = pytest.importorskip("numpy")
ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "models"
SEEDS = range(6)
# Special tokens.
START, END = 256, 257


def case(name):
    return json.loads((FIXTURES / f"{name}.json").read_text())


def read(value):
    return ct.tensor(value["data"], dtype=ct.float64).reshape(value["shape"])


def write(folder, config, weights, **files):
    folder.mkdir(exist_ok=True)
    ct.io.save_safetensors(folder / "model.safetensors", weights)
    for name, value in ({"config": config} | files).items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def reference(tmp_path, name):
    """The folder of a model that tests/fixtures has, with logits and texts of transformers."""
    found = case(name)
    weights = {name: read(value) for name, value in found["state"].items()}
    return write(tmp_path / name, {"model_type": name, **found["config"]}, weights)


def llama(folder, seed=0, **sizes):
    """A model with random weights whose tokens are bytes. It has a tokenizer and a chat template."""
    sizes = {"vocab_size": 258, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2} | sizes
    draws = np.random.default_rng(seed)
    hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
    shapes = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (hidden, hidden), "self_attn.v_proj": (hidden, hidden),
              "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
              "mlp.down_proj": (hidden, inner), "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,)}
    names = {f"model.layers.{at}.{name}.weight": shape for at in range(sizes["num_hidden_layers"]) for name, shape in shapes.items()}
    names |= {"model.embed_tokens.weight": (sizes["vocab_size"], hidden), "model.norm.weight": (hidden,),
              "lm_head.weight": (sizes["vocab_size"], hidden)}
    weights = {name: ct.asarray(draws.normal(size=shape).astype(np.float32)) for name, shape in names.items()}
    write(folder, {"model_type": "llama", **sizes}, weights)
    tools = importlib.util.spec_from_file_location("check_generate", ROOT / "tools" / "check_generate.py")
    module = importlib.util.module_from_spec(tools)
    tools.loader.exec_module(module)
    module.write_tokenizer(folder)
    # With all bytes, and the special tokens after them.
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"] = {character: byte for byte, character in enumerate(module.characters())}
    for added, at in zip(tokenizer["added_tokens"], (START, END)):
        added["id"] = at
    tokenizer["post_processor"]["special_tokens"]["<s>"]["ids"] = [START]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return llama(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def model(folder):
    return ct.models.load(folder)


@pytest.fixture(scope="module")
def draft(tmp_path_factory):
    return ct.models.load(llama(tmp_path_factory.mktemp("models") / "draft", seed=1, num_hidden_layers=1))


def test_logits_are_those_of_transformers(tmp_path):
    for name in ("gpt2", "llama"):
        model, found = ct.models.load(reference(tmp_path, name)), case(name)
        tokens = read(found["inputs"]["tokens"]).to(ct.int64)
        logits = model(tokens)
        assert ct.allclose(logits, read(found["results"]["logits"]), rtol=1e-5, atol=1e-5)
        cache = ct.models.KeyValueCache()
        parts = [model(tokens[:, :2], cache), model(tokens[:, 2:], cache)]
        assert ct.allclose(ct.cat(parts, 1), logits, rtol=1e-5, atol=1e-5) and cache.tokens == tokens.tolist()
        assert model.model_type == name and model.vocab_size == 7 and model.dtype is ct.float64 and model.device == ct.device("cpu")
        assert repr(model).startswith(f"CausalLm({name}, ") and repr(model).endswith("parameters, float64, cpu)")


def test_texts_are_those_of_transformers(tmp_path):
    models, seen = {name: ct.models.load(reference(tmp_path, name)) for name in ("gpt2", "llama")}, 0
    for found in case("generate_texts"):
        if found["padding"]:
            continue
        options, ends = found["options"], found["options"].get("eos_token_id", [])
        given = ct.generate(models[found["model"]], ct.tensor(found["tokens"]), max_new_tokens=found["count"], logprobs=True, **options)
        steps = len(found["tokens"][0])
        want = [row[steps:] for row in found["text"]]
        lengths = [next((at + 1 for at, token in enumerate(row) if token in ends), len(row)) for row in want]
        assert [row[:length] for row, length in zip(given.tokens.tolist(), lengths)] == [row[:length] for row, length in zip(want, lengths)]
        seen += 1
        if options.get("num_beams", 1) > 1:
            continue
        for row, length in enumerate(lengths):
            assert ct.allclose(given.logprobs[row, :length], read(found["log_probs"])[row, :length], rtol=1e-5, atol=1e-5)
            assert (given.logprobs[row, length:] == 0).all()
        # A prompt that is a list gives a list, without the tokens after the end.
        for row, prompt in enumerate(found["tokens"]):
            one = ct.generate(models[found["model"]], prompt, max_new_tokens=found["count"], **options)
            assert one == want[row][:lengths[row]] == list(
                ct.generate(models[found["model"]], prompt, max_new_tokens=found["count"], stream=True, **options))
    assert seen >= 8


def test_gradients_are_those_of_transformers(tmp_path):
    for name in ("gpt2", "llama", "qwen3"):
        model, found = ct.models.load(reference(tmp_path, name)), case(name)
        logits = model(read(found["inputs"]["tokens"]).to(ct.int64))
        logits.backward(read(found["cotangents"]["logits"]))
        grads = {name.removeprefix("transformer."): read(value) for name, value in found["grads"].items()}
        assert dict(model.named_parameters()).keys() == grads.keys()
        for own, parameter in model.named_parameters():
            assert parameter.is_leaf and ct.allclose(parameter.grad, grads[own], rtol=1e-5, atol=1e-5), own
        with ct.no_grad():
            assert not model([[1, 2]]).requires_grad


def test_a_model_is_a_module(folder, tmp_path):
    model, tokens = ct.models.load(folder), ct.tensor([[START, *b"abcabcabc"]])
    assert isinstance(model, ct.nn.Module) and not model.training
    assert sum(parameter.numel() for parameter in model.parameters()) == model.num_parameters() == 5256
    before, prompt, cache = copy.deepcopy(model), [START, *b"abc"], ct.models.KeyValueCache()
    first = ct.generate(model, prompt, max_new_tokens=6)
    stream = ct.generate(model, prompt, max_new_tokens=6, stream=True)
    begun = next(stream)
    optimizer = ct.optim.AdamW(model.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        loss = ct.nn.functional.cross_entropy(model(tokens[:, :-1])[0], tokens[0, 1:])
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1 and ct.generate(model, "abc", max_new_tokens=6) == "abcabc"
    # A stream goes on with the values that it began with, and a copy has its own.
    assert [begun, *stream] == first == ct.generate(before, prompt, max_new_tokens=6)
    # What is saved is what is loaded, also by the crate.
    write(tmp_path / "trained", json.loads((folder / "config.json").read_text()), model.state_dict())
    again = ct.models.load(tmp_path / "trained")
    assert (again(tokens) == model(tokens)).all()
    before.load_state_dict(model.state_dict())
    assert (before(tokens) == model(tokens)).all()
    # Keys of other values are not used.
    first = ct.generate(before, prompt, max_new_tokens=6, cache=cache)
    with ct.no_grad():
        before.lm_head.weight.copy_(-before.lm_head.weight)
        before.model.embed_tokens.weight.mul_(2)
    second = ct.generate(before, prompt, max_new_tokens=6)
    assert ct.generate(before, prompt, max_new_tokens=6, cache=cache) == second != first
    assert ct.generate(model, prompt, max_new_tokens=6, cache=cache) == first
    with pytest.raises(ValueError, match="forward: the parameters must be those that the cache was computed with"):
        before([[1]], cache)
    half = before.to(ct.bfloat16)
    noisy = ct.models.load(reference(tmp_path, "gpt2"))
    assert (noisy([[1, 2]]) == noisy([[1, 2]])).all()
    ct.manual_seed(0)
    assert (noisy.train()([[1, 2, 3, 4]]) != noisy([[1, 2, 3, 4]])).any() and (noisy.eval()([[1]]) == noisy([[1]])).all()
    assert half is before and half.dtype is ct.bfloat16 and half(tokens).dtype is ct.bfloat16
    gguf = ct.models.load(FIXTURES / "llama_q8_0.gguf")
    assert {name.rpartition(".")[0].rpartition(".")[2] for name, _ in gguf.named_parameters()} >= {"norm", "input_layernorm"}
    assert gguf([[1, 2]]).requires_grad and gguf.num_parameters() > 20_000
    with pytest.raises(ValueError, match="a model with quantised weights cannot be moved or cast"):
        gguf.to(ct.float64)


def test_dtypes_and_files(folder, tmp_path):
    half = ct.models.load(str(folder), dtype=ct.bfloat16, device="cpu")
    assert half.dtype is ct.bfloat16 and half([[1]]).dtype is ct.bfloat16
    gguf = FIXTURES / "llama_q8_0.gguf"
    model = ct.models.load(gguf)
    assert model.model_type == "llama" and model.vocab_size == ct.io.load_gguf(gguf)["token_embd.weight"].shape[0]
    assert model([[3, 1]]).shape == (1, 2, model.vocab_size)
    assert len(model.generate([3, 1], max_new_tokens=4, eos_token_id=[])) == 4
    with pytest.raises(ValueError, match=r"generate: the model must have a tokenizer for texts, got a GGUF file"):
        model.generate("a")
    with pytest.raises(ValueError, match=r"CausalLm: the model must have a tokenizer"):
        model.tokenizer
    assert len(ct.models.load(gguf, tokenizer=folder).tokenizer) == 258
    with pytest.raises(ValueError, match="load: dtype must be None for a GGUF file"):
        ct.models.load(gguf, dtype=ct.float32)
    with pytest.raises(FileNotFoundError, match="load: path must be a folder or a GGUF file, but 'gpt2' does not exist: models are not"):
        ct.models.load("gpt2")
    with pytest.raises(ValueError, match="load: path must be a folder with config.json, or a GGUF file"):
        ct.models.load(folder / "config.json")
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(ValueError, match="model_type must be one of gpt2, llama"):
        ct.models.load(tmp_path)
    with pytest.raises(TypeError, match="load: tokenizer must be a data.Tokenizer or a path, got 3"):
        ct.models.load(folder, tokenizer=3)


def test_a_text_continues_a_text(model):
    tokens = model.tokenizer.encode("Hello")
    assert tokens == [START, *b"Hello"]
    found = ct.generate(model, "Hello", max_new_tokens=12)
    assert found == model.tokenizer.decode(ct.generate(model, tokens, max_new_tokens=12)) == model.generate("Hello", max_new_tokens=12)
    as_tensor = ct.generate(model, ct.tensor(tokens), max_new_tokens=12)
    assert as_tensor.dtype is ct.int64 and as_tensor.shape == (12,) and model.tokenizer.decode(as_tensor) == found
    rows = ct.generate(model, ct.tensor([tokens, tokens[::-1]]), max_new_tokens=12)
    assert rows.shape == (2, 12) and rows[0].tolist() == as_tensor.tolist()
    assert ct.generate(model, "Hello", max_new_tokens=0) == ""
    assert ct.generate(model, tokens, max_new_tokens=0) == [] and ct.generate(model, ct.tensor(tokens), max_new_tokens=0).shape == (0,)


def test_pieces_add_up_to_the_text(model):
    for seed in SEEDS:
        options = {"temperature": 1.5, "seed": seed, "max_new_tokens": 60}
        whole, stream = ct.generate(model, "Hello", **options), ct.generate(model, "Hello", stream=True, **options)
        pieces = list(stream)
        assert "".join(pieces) == whole and "" not in pieces and len(pieces) > 1
        scored = list(ct.generate(model, "Hello", stream=True, logprobs=True, **options))
        found = ct.generate(model, "Hello", logprobs=True, **options)
        assert "".join(one.text for one in scored) == found.text == whole
        assert [one.token for one in scored] == found.tokens and [one.logprob for one in scored] == found.logprobs
    # A character of several bytes comes as a whole.
    fixed = [*"é🦀x".encode()]
    row = ct.data.Tokenizer(model.tokenizer._folder)._own.stream([])
    assert [row.push(token)[0] for token in fixed] + [row.finish()] == ["", "é", "", "", "", "🦀", "x", ""]


def test_stop_strings_and_tokens(model):
    options = {"temperature": 1.0, "seed": 3, "max_new_tokens": 40}
    whole = ct.generate(model, [START, 72], logprobs=True, **options)
    text = model.tokenizer.decode(whole.tokens)
    stop = next(text[at:at + 2] for at in range(8, len(text)) if text[at:at + 2].isascii() and text.index(text[at:at + 2]) == at)
    before = text[:text.index(stop)]
    prompt = model.tokenizer.decode([72])
    given = ct.generate(model, prompt, logprobs=True, stop=stop, **options)
    assert given.text == before and given.finish_reason == "stop" and given.tokens == whole.tokens[:len(given.tokens)]
    assert model.tokenizer.decode(given.tokens) == before + stop
    assert ct.generate(model, prompt, stop=["no such text", stop], **options) == before
    assert "".join(ct.generate(model, prompt, stop=stop, stream=True, **options)) == before
    assert ct.generate(model, [START, 72], stop=stop, **options) == given.tokens
    # The published and the given end tokens, which have no text, and others, which have it.
    end = next(token for at, token in enumerate(whole.tokens) if at > 4 and 64 < token < 128 and whole.tokens.index(token) == at)
    at = whole.tokens.index(end)
    ended = ct.generate(model, prompt, logprobs=True, eos_token_id=end, **options)
    assert ended.tokens == whole.tokens[:at + 1] and ended.text == model.tokenizer.decode(whole.tokens[:at])
    assert ct.generate(model, prompt, stop_tokens=end, **options) == model.tokenizer.decode(ended.tokens)
    pair = whole.tokens[at - 1:at + 1]
    assert ct.generate(model, [START, 72], stop_tokens=[[0, 0], pair], **options) == ended.tokens
    by_pair = ct.generate(model, prompt, stop_tokens=[pair], logprobs=True, **options)
    assert by_pair.finish_reason == "stop" and by_pair.text == model.tokenizer.decode(ended.tokens)
    # No more than what is needed is computed.
    assert ct.generate(model, prompt, stop=stop, **options | {"max_new_tokens": 10**12}) == before
    # In a tensor, a sequence that has ended repeats its last token.
    prompts = [[START, 72], [START, 73]]
    rows = ct.generate(model, ct.tensor(prompts), max_new_tokens=12, presence_penalty=1e6).tolist()
    end = next(token for at, token in enumerate(rows[0]) if at > 3 and token not in rows[1])
    found = ct.generate(model, ct.tensor(prompts), max_new_tokens=12, presence_penalty=1e6, eos_token_id=end, logprobs=True)
    length = rows[0].index(end) + 1
    assert found.tokens.tolist() == [rows[0][:length] + [end] * (12 - length), rows[1]] and found.finish_reason == "length"
    assert (found.logprobs[0, length:] == 0).all() and (found.logprobs[0, :length] < 0).all()
    assert whole.finish_reason == "length" and len(whole.tokens) == 40


def test_published_options_are_the_defaults(folder, tmp_path):
    own = llama(tmp_path / "own")
    greedy = ct.generate(ct.models.load(own), [5, 6], max_new_tokens=8, logprobs=True)
    (own / "generation_config.json").write_text(json.dumps({"eos_token_id": greedy.tokens[2], "repetition_penalty": 1.0}))
    model = ct.models.load(own)
    at = greedy.tokens.index(greedy.tokens[2])
    assert ct.generate(model, [5, 6], max_new_tokens=8) == greedy.tokens[:at + 1]
    assert ct.generate(model, [5, 6], max_new_tokens=8, eos_token_id=[]) == greedy.tokens
    (own / "generation_config.json").write_text(json.dumps({"do_sample": True, "temperature": 2.0, "top_p": 0.9}))
    model = ct.models.load(own)
    drawn = {tuple(ct.generate(model, [5, 6], max_new_tokens=8, seed=seed)) for seed in SEEDS}
    assert len(drawn) > 1
    assert ct.generate(model, [5, 6], max_new_tokens=8, temperature=0) == greedy.tokens
    assert ct.generate(model, [5, 6], max_new_tokens=8, top_k=1) == greedy.tokens
    (own / "generation_config.json").write_text(json.dumps({"no_repeat_ngram_size": 3}))
    model = ct.models.load(own)
    assert model([[5]]).shape == (1, 1, 258)
    with pytest.raises(ValueError, match="generate: .*generation_config.json: no_repeat_ngram_size is not supported"):
        ct.generate(model, [5])


def test_draws(model):
    greedy = ct.generate(model, [START, 72], max_new_tokens=20)
    drawn = [ct.generate(model, [START, 72], max_new_tokens=20, temperature=1.0, seed=seed) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2] and greedy not in drawn
    for only_one in ({"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}):
        assert ct.generate(model, [START, 72], max_new_tokens=20, temperature=1.0, seed=0, **only_one) == greedy
    off = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    assert ct.generate(model, [START, 72], max_new_tokens=20, temperature=1.0, seed=0, **off) == drawn[0]
    assert ct.generate(model, [START, 72], max_new_tokens=20, **off) == greedy
    ct.manual_seed(7)
    first = ct.generate(model, [START, 72], max_new_tokens=20, temperature=1.0)
    ct.manual_seed(7)
    assert ct.generate(model, [START, 72], max_new_tokens=20, temperature=1.0) == first
    assert len(set(ct.generate(model, [START, 72], max_new_tokens=20, presence_penalty=1e6))) == 20
    assert len(set(ct.generate(model, [START, 72], max_new_tokens=20, frequency_penalty=1e6))) == 20
    assert 72 not in ct.generate(model, [START, 72], max_new_tokens=20, repetition_penalty=1e6)


def test_several_texts_of_a_prompt(model):
    options = {"temperature": 1.0, "seed": 4, "max_new_tokens": 15}
    texts = ct.generate(model, "Hello", n=3, **options)
    assert len(texts) == 3 == len(set(texts)) and texts == ct.generate(model, "Hello", n=3, **options)
    found = ct.generate(model, "Hello", n=3, logprobs=True, **options)
    assert [one.text for one in found] == texts and [len(one.logprobs) for one in found] == [15] * 3
    rows = ct.generate(model, ct.tensor([[START, 72], [START, 73]]), n=3, **options)
    assert rows.shape == (6, 15) and len({tuple(row) for row in rows.tolist()}) == 6
    # Each ends where its own stop string or token is.
    stop = found[1].text[6]
    ended = ct.generate(model, "Hello", n=3, stop=stop, **options)
    assert ended == [text.partition(stop)[0] for text in texts]
    end = found[2].tokens[5]
    ended = ct.generate(model, [START, *b"Hello"], n=3, eos_token_id=end, **options)
    for one, row in zip(found, ended):
        assert row == one.tokens[:one.tokens.index(end) + 1 if end in one.tokens else None]


def test_log_probabilities_are_those_of_the_logits(model):
    prompt = [START, 72, 73]
    found = ct.generate(model, prompt, max_new_tokens=6, temperature=0.7, seed=1, repetition_penalty=1.3, logprobs=True)
    logits = model([prompt + found.tokens])[0, len(prompt) - 1:-1]
    want = logits.log_softmax(-1).gather(1, ct.tensor(found.tokens).unsqueeze(1)).squeeze(1)
    assert found.text is None and found.finish_reason == "length"
    assert ct.allclose(ct.tensor(found.logprobs), want, rtol=1e-3, atol=1e-4)
    assert "finish_reason='length'" in repr(found)


def test_beams(model):
    scored = [ct.generate(model, [START, 72], max_new_tokens=6, num_beams=beams, logprobs=True) for beams in (1, 8)]
    assert sum(scored[1].logprobs) >= sum(scored[0].logprobs) and len(scored[1].tokens) == 6
    text = ct.generate(model, "H", max_new_tokens=6, num_beams=8)
    assert text == model.tokenizer.decode(scored[1].tokens)
    end = scored[1].tokens[2]
    ended = ct.generate(model, [START, 72], max_new_tokens=6, num_beams=8, length_penalty=-5.0, eos_token_id=end, logprobs=True)
    assert ended.tokens[-1] == end and ended.finish_reason == "stop" and ended.tokens.count(end) == 1
    prompts = ct.tensor([[START, 72], [START, 73]])
    both = ct.generate(model, prompts, max_new_tokens=6, num_beams=8, logprobs=True)
    assert both.tokens[0].tolist() == scored[1].tokens and both.finish_reason == "length"
    ends = [both.tokens[0, 2].item(), both.tokens[1, 4].item()]
    both = ct.generate(model, prompts, max_new_tokens=6, num_beams=8, length_penalty=-5.0, eos_token_id=ends, logprobs=True)
    assert both.finish_reason == "stop" and all(token in ends for token in both.tokens[:, -1].tolist())


def test_a_draft_changes_no_text(model, draft, tmp_path):
    prompt = [START, *b"Hello"]
    alone = ct.generate(model, prompt, max_new_tokens=30, logprobs=True)
    for other, count in ((draft, None), (draft, 1), (model, 7)):
        found = ct.generate(model, prompt, max_new_tokens=30, draft=other, num_draft_tokens=count, logprobs=True)
        assert found.tokens == alone.tokens and np.allclose(found.logprobs, alone.logprobs, rtol=1e-3, atol=1e-4)
    assert "".join(ct.generate(model, "Hello", max_new_tokens=30, draft=draft, stream=True)) == model.tokenizer.decode(alone.tokens)
    other = ct.models.load(llama(tmp_path / "other", vocab_size=300))
    with pytest.raises(ValueError, match="generate: the draft must have the vocabulary of the model, 258 tokens, got 300"):
        ct.generate(model, prompt, draft=other)
    end = alone.tokens[4]
    want = alone.tokens[:alone.tokens.index(end) + 1]
    assert ct.generate(model, prompt, max_new_tokens=30, draft=draft, eos_token_id=end) == want
    drawn = [ct.generate(model, prompt, max_new_tokens=30, draft=draft, temperature=1.0, seed=seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_cache_is_used_again(model, draft):
    cache = ct.models.KeyValueCache()
    assert len(cache) == 0 and cache.capacity is None and repr(cache) == "KeyValueCache(0 tokens)"
    prompt = [START, *b"Hello"]
    first = ct.generate(model, prompt, max_new_tokens=5, cache=cache)
    assert first == ct.generate(model, prompt, max_new_tokens=5)
    # All but the last token, which the model has not seen.
    assert cache.tokens == [(prompt + first)[:-1]] and len(cache) == len(prompt) + 4
    more = prompt + first + [*b"Again"]
    assert ct.generate(model, more, max_new_tokens=5, cache=cache) == ct.generate(model, more, max_new_tokens=5)
    # What is not shared is removed; the same prompt again computes its last token.
    for other in (prompt[:4] + [9, 9], prompt, prompt, [7]):
        assert ct.generate(model, other, max_new_tokens=5, cache=cache) == ct.generate(model, other, max_new_tokens=5)
        assert cache.tokens[0][:len(other)] == other
    cache.truncate(3)
    other = cache.copy()
    model([[1, 2]], other)
    assert len(cache) == 3 and len(other) == 5 and other.tokens[0][3:] == [1, 2]
    rows = ct.tensor([prompt, prompt[::-1]])
    both = ct.models.KeyValueCache(capacity=32)
    for _ in range(2):
        assert (ct.generate(model, rows, max_new_tokens=5, cache=both) == ct.generate(model, rows, max_new_tokens=5)).all()
    assert both.capacity == 32 and len(both) == 10
    with pytest.raises(ValueError, match="generate: the prompt must have as many sequences as the cache, 2, got 1"):
        ct.generate(model, prompt, cache=both)
    with pytest.raises(ValueError, match="generate: cache must be that of this model, got one of another"):
        ct.generate(draft, prompt, cache=cache)
    with pytest.raises(ValueError, match="forward: cache must be that of this model"):
        draft([[1]], cache)
    cache.truncate(0)
    assert len(ct.generate(draft, prompt, max_new_tokens=3, cache=cache)) == 3


def test_a_cache_after_a_failure(model):
    prompt = [START, *b"Hello"]
    cache = ct.models.KeyValueCache(capacity=8)
    with pytest.raises(ValueError, match="capacity of the cache must be at least 9 tokens, got 8"):
        ct.generate(model, prompt, max_new_tokens=5, cache=cache)
    assert cache.tokens[0][:6] == prompt and 6 <= len(cache) <= 8
    assert ct.generate(model, prompt, max_new_tokens=2, cache=cache) == ct.generate(model, prompt, max_new_tokens=2)
    before = cache.tokens
    for bad in ({"temperature": -1.0}, {"top_k": 3}):
        with pytest.raises(ValueError, match="temperature"):
            ct.generate(model, [9], cache=cache, **bad)
    assert cache.tokens == before


def test_a_stream_can_be_closed(model):
    prompt, cache = [START, *b"Hello"], ct.models.KeyValueCache()
    whole = ct.generate(model, prompt, max_new_tokens=10)
    stream = ct.generate(model, prompt, max_new_tokens=10, stream=True, cache=cache)
    assert list(itertools.islice(stream, 3)) == whole[:3]
    with pytest.raises(RuntimeError, match="generate: cache is in use by another call or generator"):
        ct.generate(model, prompt, cache=cache)
    with pytest.raises(RuntimeError, match="in use"):
        len(cache)
    assert repr(cache) == "KeyValueCache(in use)"
    stream.close()
    assert cache.tokens == [prompt + whole[:2]]
    assert list(stream) == [] and ct.generate(model, prompt, max_new_tokens=10, cache=cache) == whole
    # One that was never begun, and one that is dropped.
    stream = ct.generate(model, prompt, stream=True, cache=cache)
    del stream
    for token in ct.generate(model, prompt, stream=True, cache=cache):
        assert token == whole[0]
        break
    del token
    assert cache.tokens[0][:len(prompt)] == prompt


def test_streams_of_several_threads(model):
    want = [ct.generate(model, "Hello", temperature=1.0, seed=seed, max_new_tokens=40) for seed in SEEDS]
    found = {}

    def run(seed):
        found[seed] = "".join(ct.generate(model, "Hello", temperature=1.0, seed=seed, max_new_tokens=40, stream=True))

    threads = [threading.Thread(target=run, args=(seed,)) for seed in SEEDS]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert [found[seed] for seed in SEEDS] == want


def test_chats(model, folder):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    text = "<s>[system] Be brief.</s>[user] Hi</s>[assistant] "
    tokenizer = model.tokenizer
    assert tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False) == text
    tokens = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    assert tokens == tokenizer.encode(text, add_special_tokens=False) and tokens[0] == START and tokens.count(END) == 2
    assert tokenizer.apply_chat_template(messages, tokenize=False) == text.removesuffix("[assistant] ")
    # The end of a turn ends the answer, though no file publishes it but the tokenizer's.
    options = {"temperature": 1.0, "max_new_tokens": 400, "stop": "\0\0\0"}
    ended = 0
    for seed in SEEDS:
        found = ct.generate(model, messages, seed=seed, logprobs=True, **options)
        whole = ct.generate(model, tokens, seed=seed, **options)
        at = whole.index(END) + 1 if END in whole else len(whole)
        assert found.tokens == whole[:at] and found.text == tokenizer.decode(whole[:at])
        ended += found.finish_reason == "stop"
    assert ended > 0
    chat = ct.data.ChatTemplate.open(folder)
    assert chat.names == ["default"] and chat.special_token("eos_token") == "</s>" and chat.special_token("pad_token") is None
    assert chat.render(messages) == text and repr(chat) == "ChatTemplate(default)"
    assert chat.render([*messages, {"role": "assistant", "content": "Yes"}], continue_final_message=True) == text + "Yes"
    own = ct.data.ChatTemplate("{{ tools | tojson }}{{ mood }}{{ messages[0].content }}")
    assert own.render(messages, tools=[{"name": "add"}], mood="calm") == '[{"name": "add"}]calmBe brief.'
    with pytest.raises(ValueError, match="template must be one of default, got other"):
        chat.render(messages, template="other")
    with pytest.raises(TypeError, match="render: messages must be a list of dictionaries, got a value of type str"):
        chat.render("Hi")
    with pytest.raises(ValueError, match="render: messages must be JSON: Out of range float"):
        chat.render([{"role": "user", "content": float("nan")}])
    with pytest.raises(TypeError, match="render: messages must be JSON"):
        chat.render([{"role": "user", "content": b"Hi"}])
    with pytest.raises(ValueError, match="ChatTemplate: syntax error"):
        ct.data.ChatTemplate("{% for %}")


def test_tokenizers(folder, tmp_path):
    tokenizer = ct.data.Tokenizer(folder / "tokenizer.json")
    assert len(tokenizer) == 258 and repr(tokenizer) == "Tokenizer(258 tokens)" and tokenizer.token_id("</s>") == END
    assert tokenizer.token_id("no such token") is None
    text = "Hé 🦀"
    assert tokenizer.encode(text) == [START, *text.encode()] and tokenizer.encode(text, add_special_tokens=False) == [*text.encode()]
    for tokens in (tokenizer.encode(text), ct.tensor(tokenizer.encode(text)), np.array(tokenizer.encode(text))):
        assert tokenizer.decode(tokens) == text
    with pytest.raises(IndexError, match="decode: 999 is not a token id of the vocabulary of 258 tokens"):
        tokenizer.decode([999])
    with pytest.raises(TypeError, match="encode: text must be a str, got a value of type int"):
        tokenizer.encode(3)
    with pytest.raises(OSError, match="tokenizer.json"):
        ct.data.Tokenizer(tmp_path)
    with pytest.raises(ValueError, match="there must be a chat_template"):
        (tmp_path / "tokenizer.json").write_text((folder / "tokenizer.json").read_text())
        ct.data.Tokenizer(tmp_path).chat_template


@pytest.mark.parametrize("options, error, what", [
    ({"temperature": -1.0}, ValueError, "temperature must be finite and ≥ 0, got -1"),
    ({"temperature": "hot"}, TypeError, "temperature must be a number, got 'hot'"),
    ({"temperature": True}, TypeError, "temperature must be a number, got True"),
    ({"temperature": float("nan")}, ValueError, "temperature must be finite and ≥ 0, got NaN"),
    ({"top_k": 3}, ValueError, "temperature must be > 0 with top_k, got 0: top_k would have no effect"),
    ({"seed": 3}, ValueError, "temperature must be > 0 with seed, got 0: seed would have no effect"),
    ({"temperature": 1, "top_k": -1}, ValueError, "top_k must be ≥ 0, got -1"),
    ({"temperature": 1, "top_k": 1.5}, TypeError, "top_k must be an int, got 1.5"),
    ({"temperature": 1, "top_p": 1.5}, ValueError, "top_p must be > 0 and ≤ 1, got 1.5"),
    ({"temperature": 1, "min_p": -0.5}, ValueError, "min_p must be ≥ 0 and ≤ 1, got -0.5"),
    ({"temperature": 1, "seed": -1}, ValueError, "seed must be ≥ 0, got -1"),
    ({"temperature": 1, "seed": 2**64}, ValueError, "seed must be ≤ 18446744073709551615, got 18446744073709551616"),
    ({"repetition_penalty": 0}, ValueError, "repetition_penalty must be finite and > 0, got 0"),
    ({"presence_penalty": float("inf")}, ValueError, "presence_penalty must be finite, got inf"),
    ({"max_new_tokens": -1}, ValueError, "max_new_tokens must be ≥ 0, got -1"),
    ({"max_new_tokens": None}, TypeError, "max_new_tokens must be an int, got None"),
    ({"stop": 3}, TypeError, "stop must be a str or a list of them, got 3"),
    ({"stop": ["a", ""]}, ValueError, "strings in stop must have at least one character, got ''"),
    ({"stop_tokens": [[]]}, ValueError, "sequences in stop_tokens must have at least one token"),
    ({"stop_tokens": ["a"]}, TypeError, "stop_tokens must be an int, got 'a'"),
    ({"eos_token_id": -1}, ValueError, "eos_token_id must be ≥ 0, got -1"),
    ({"num_beams": 0}, ValueError, "num_beams must be ≥ 1, got 0"),
    ({"num_beams": 2, "temperature": 1.0}, ValueError, "temperature must be 0 with num_beams=2: a beam search draws nothing"),
    ({"num_beams": 2, "stream": True}, ValueError, "num_beams must be 1 with stream, got 2"),
    ({"num_beams": 2, "stop": "a"}, ValueError, "stop must be empty with num_beams=2, got ['a']: use stop_tokens"),
    ({"length_penalty": 2.0}, ValueError, "length_penalty must be 1 with num_beams=1, got 2: it would have no effect"),
    ({"n": 0}, ValueError, "n must be ≥ 1, got 0"),
    ({"n": 10**9}, ValueError, "n must be ≤ 65536, got 1000000000"),
    ({"n": 2}, ValueError, "temperature must be > 0 with n=2, got 0: all texts would be equal"),
    ({"n": 2, "temperature": 1.0, "stream": True}, ValueError, "n must be 1 with stream, got 2"),
    ({"n": 2, "num_beams": 2}, ValueError, "n must be 1 with num_beams=2, got 2"),
    ({"n": 2, "temperature": 1.0, "cache": ct.models.KeyValueCache()}, ValueError, "cache must be None with n=2"),
    ({"logprobs": 5}, TypeError, "logprobs must be a bool, got 5"),
    ({"stream": 1}, TypeError, "stream must be a bool, got 1"),
    ({"draft": "gpt2"}, TypeError, "draft must be a CausalLm, got 'gpt2'"),
    ({"num_draft_tokens": 3}, ValueError, "num_draft_tokens must be None without a draft, got 3"),
    ({"cache": []}, TypeError, "cache must be a KeyValueCache, got a value of type list"),
    ({"tokenizer": 3}, TypeError, "tokenizer must be a data.Tokenizer or a path, got 3"),
])
def test_options_that_are_refused(model, options, error, what):
    with pytest.raises(error) as raised:
        ct.generate(model, [START, 72], **options)
    assert str(raised.value).startswith("generate: " + what)


@pytest.mark.parametrize("prompt, error, what", [
    ([], ValueError, "prompt must have at least one token, got []"),
    (None, TypeError, "prompt must be a str, a list of tokens, a list of messages, or a tensor of tokens, got None"),
    (["a", "b"], TypeError, "prompt must be a str, a list of tokens, a list of messages, or a tensor of tokens, got a list of str"),
    ([1, 2.5], TypeError, "tokens of prompt must be an int, got 2.5"),
    ([-1], ValueError, "tokens of prompt must be ≥ 0, got -1"),
    (ct.ones(2), TypeError, "tokens must be integers, got float32"),
    (ct.ones(1, 1, 1, dtype=ct.int64), ValueError, "prompt must have shape [steps] or [batch, steps], got [1, 1, 1]"),
    (ct.zeros(1, 0, dtype=ct.int64), ValueError, "prompt must have at least one token, got shape [1, 0]"),
    ([258], ValueError, "tokens of prompt must be ≤ 257, got 258"),
    (ct.tensor([258]), IndexError, "embedding: index 258 at [0, 0] is out of range"),
])
def test_prompts_that_are_refused(model, prompt, error, what):
    with pytest.raises(error) as raised:
        ct.generate(model, prompt, max_new_tokens=2)
    assert str(raised.value).startswith("generate: " + what)


def test_what_does_not_fit_a_prompt_of_several_sequences(model, draft):
    both = ct.tensor([[START, 72], [START, 73]])
    for options, what in [({"stop": "a"}, "stop must be empty for a prompt of 2 sequences"),
                          ({"draft": draft}, "draft must be None for a prompt of 2 sequences")]:
        with pytest.raises(ValueError, match=f"generate: {what}"):
            ct.generate(model, both, **options)
    stream = ct.generate(model, both, max_new_tokens=4, stream=True, logprobs=True)
    steps = list(stream)
    assert [step.token.shape for step in steps] == [(2,)] * 4 == [step.logprob.shape for step in steps]
    want = ct.generate(model, both, max_new_tokens=4)
    assert (ct.stack([step.token for step in steps], 1) == want).all()
    with pytest.raises(TypeError, match="generate: model must be a CausalLm, which models.load makes, got 'gpt2'"):
        ct.generate("gpt2", "a")
    with pytest.raises(TypeError, match="models.load makes it"):
        ct.models.CausalLm("gpt2")
    with pytest.raises(TypeError, match="forward: cache must be a KeyValueCache, got 3"):
        model([[1]], 3)
    with pytest.raises(ValueError, match=r"forward: tokens must have shape \[batch, steps\], got \[1\]"):
        model([1])


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer")
def test_an_exception_in_the_middle_of_a_pass(tmp_path):
    model = ct.models.load(llama(tmp_path / "long", hidden_size=64, intermediate_size=256, num_hidden_layers=24))
    prompt = [START, *b"abc" * 300]
    want = ct.generate(model, prompt, max_new_tokens=3)

    def alarm(*_):
        raise TimeoutError("it takes long")

    before = signal.signal(signal.SIGALRM, alarm)
    caches = [ct.models.KeyValueCache() for _ in range(2)]
    ct.generate(model, prompt[:9], max_new_tokens=1, cache=caches[1])
    try:
        for cache in caches:
            signal.setitimer(signal.ITIMER_REAL, 0.03)
            with pytest.raises(TimeoutError, match="it takes long"):
                ct.generate(model, prompt, max_new_tokens=10**6, cache=cache)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    for cache in caches:
        assert ct.generate(model, prompt, max_new_tokens=3, cache=cache) == want


ENDLESS = """
    import signal, sys
    import cotangent as ct
    # A shell ignores it in what runs in the background, and a child inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    model, cache = ct.models.load(sys.argv[1]), ct.models.KeyValueCache()
    prompt, ways = [256, 72], {
        "whole": lambda: ct.generate(model, prompt, max_new_tokens=10**9, eos_token_id=[], cache=cache),
        "stream": lambda: [None for _ in ct.generate(model, "H", max_new_tokens=10**9, eos_token_id=[], stream=True, cache=cache)],
        "beams": lambda: ct.generate(model, prompt, max_new_tokens=10**5, eos_token_id=[], num_beams=2),
    }
    print("begun", flush=True)
    try:
        ways[sys.argv[2]]()
    except KeyboardInterrupt:
        print("interrupted", ct.generate(model, prompt, max_new_tokens=9, cache=cache) == ct.generate(model, prompt, max_new_tokens=9))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
@pytest.mark.parametrize("way", ["whole", "stream", "beams"])
def test_an_interrupt_ends_a_generation(folder, way):
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(ENDLESS), str(folder), way], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        assert process.stdout.readline() == "begun\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.7)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert out == "interrupted True\n", err


def test_the_example_talks_in_turns(folder):
    script = ROOT / "python" / "examples" / "chat.py"
    done = subprocess.run(
        [sys.executable, script, folder, "--system", "Be brief.", "--max-new-tokens", "6", "--temperature", "0"],
        input="Hello\n\nAgain\n", capture_output=True, text=True, timeout=120, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 0 and done.stderr.count("[6 tokens, ") == 2, done.stderr
    model, messages = ct.models.load(folder), [{"role": "system", "content": "Be brief."}]
    for line in ("Hello", "Again"):
        messages.append({"role": "user", "content": line})
        messages.append({"role": "assistant", "content": ct.generate(model, messages, max_new_tokens=6)})
    assert done.stdout == "".join(one["content"] + "\n" for one in messages[2::2])
