"""Language models from files, and text generation.

    >>> import cotangent as ct
    >>> model = ct.models.load("folder", dtype=ct.bfloat16)  # doctest: +SKIP
    >>> for piece in ct.generate(model, "The meaning of life is", temperature=0.8, stream=True):  # doctest: +SKIP
    ...     print(piece, end="", flush=True)

The folder has Hugging Face's files ``config.json``, ``model.safetensors`` or its shards, and for text ``tokenizer.json``. The
families are GPT-2, Llama, Mistral, Qwen 2 and 3, Phi-3, and Gemma 1 and 2. Llama-like models also come from GGUF files.
"""

from __future__ import annotations

import collections.abc
import numbers
import operator
import os
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import _cotangent as _c
from ._cotangent import KeyValueCache, Tensor
from ._core.creation import tensor as _tensor
from ._core.tokenizers import Tokenizer as _Tokenizer
from .nn.module import Module as _Module
from .nn.parameter import Parameter as _Parameter

if _TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from . import DeviceLike, DTypeLike, device, dtype


def load(path: Any, dtype: DTypeLike | None = None, device: DeviceLike | None = None, *, tokenizer: Any = None) -> CausalLm:
    """Loads a language model from a folder with Hugging Face's files, or from a GGUF file.

    The weights are cast to ``dtype``; by default they keep that of the file. Those of a GGUF file keep their formats. Its
    tokenizer is not read: ``tokenizer`` is a ``data.Tokenizer``, or the path of one.
    """
    path = os.fspath(path)
    if os.path.isdir(path):
        tokenizer = _Later(path) if tokenizer is None else _given_tokenizer("load", tokenizer)
        return CausalLm(*_c._CausalLm.load(path, dtype, device), tokenizer)
    if not os.path.exists(path):
        raise FileNotFoundError(f"load: path must be a folder or a GGUF file, but {path!r} does not exist: models are not downloaded")
    with open(path, "rb") as file:
        if file.read(4) != b"GGUF":
            raise ValueError(f"load: path must be a folder with config.json, or a GGUF file, got {path!r}")
    if dtype is not None:
        raise ValueError(f"load: dtype must be None for a GGUF file, whose weights keep their formats, got {dtype}")
    tokenizer = None if tokenizer is None else _given_tokenizer("load", tokenizer)
    return CausalLm(*_c._CausalLm.load_gguf(path, device), tokenizer)


class _Later:
    """The folder of a tokenizer that is read when it is needed."""

    def __init__(self, folder):
        self.folder = folder


def _given_tokenizer(function, tokenizer):
    if isinstance(tokenizer, _Tokenizer):
        return tokenizer
    if isinstance(tokenizer, (str, os.PathLike)):
        return _Tokenizer(tokenizer)
    raise TypeError(f"{function}: tokenizer must be a data.Tokenizer or a path, got {_shown(tokenizer)}")


class CausalLm(_Module):
    """A language model, which ``load`` makes, in evaluation mode.

    It is a module: it can be trained, its parameters have the names of the published weights, and a state dict is a dictionary of
    them. Quantised weights are no parameters, and stay as they are.
    """

    def __init__(self, own, values=(), tokenizer=None):
        if not isinstance(own, _c._CausalLm):
            raise TypeError(f"CausalLm: models.load makes it, got {_shown(own)}")
        super().__init__()
        self._own, self._tokenizer = own, tokenizer
        # The module and the name of each parameter.
        self._places: list = []
        values = list(values)
        while values:
            # One copy at a time.
            name, value = values.pop(0)
            *path, last = name.split(".")
            part: _Module = self
            for step in path:
                if step not in part._modules:
                    part.add_module(step, _Module())
                part = part._modules[step]
            part.register_parameter(last, _Parameter(value))
            self._places.append((part, last))
        self.eval()

    def _now(self):
        """The model, its parameters, and whether it is in training mode."""
        return self._own, [part._parameters[name] for part, name in self._places], self.training

    def _apply(self, fn):
        if self._own.quantized():
            raise ValueError("CausalLm: a model with quantised weights cannot be moved or cast: load(path, device=..)")
        return super()._apply(fn)

    @property
    def model_type(self) -> str:
        """The family, such as ``"llama"``."""
        return self._own.model_type()

    @property
    def vocab_size(self) -> int:
        """The number of tokens that the model knows, which may be more than its tokenizer has."""
        return self._own.vocab_size()

    @property
    def dtype(self) -> dtype:
        """The dtype of the weights; of a quantised model, that of the others."""
        return next(self.parameters()).dtype

    @property
    def device(self) -> device:
        """The device of the weights."""
        return next(self.parameters()).device

    def num_parameters(self) -> int:
        """The number of elements of all parameters and quantised weights."""
        return sum(parameter.numel() for parameter in self.parameters()) + self._own.quantized()

    @property
    def tokenizer(self) -> Any:
        """The ``data.Tokenizer`` of the folder."""
        return self._text("CausalLm")

    def _text(self, function):
        if self._tokenizer is None:
            raise ValueError(f"{function}: the model must have a tokenizer for texts, got a GGUF file: load(path, tokenizer=..)")
        if isinstance(self._tokenizer, _Later):
            self._tokenizer = _Tokenizer(self._tokenizer.folder)
        return self._tokenizer

    def forward(self, tokens: Any, cache: KeyValueCache | None = None) -> Tensor:
        """The logits ``[batch, steps, vocabulary]`` of tokens ``[batch, steps]``, which follow those of a ``KeyValueCache``."""
        if isinstance(tokens, (list, tuple)):
            tokens = _tensor(tokens, device=self.device)
        if cache is not None and not isinstance(cache, KeyValueCache):
            raise TypeError(f"forward: cache must be a KeyValueCache, got {_shown(cache)}")
        return _c._logits(self._now(), tokens, cache)

    def __call__(self, tokens: Any, cache: KeyValueCache | None = None) -> Tensor:
        """``forward``, with hooks."""
        return super().__call__(tokens, cache)

    def generate(self, prompt: str | Sequence[Any] | Tensor, **options: Any) -> Any:
        """``generate`` with this model."""
        return generate(self, prompt, **options)

    def __repr__(self):
        count = self.num_parameters()
        size = next((f"{count / 10**power:.3g} {unit}" for power, unit in ((9, "B"), (6, "M"), (3, "K")) if count >= 10**power), count)
        return f"CausalLm({self.model_type}, {size} parameters, {self.dtype.name}, {self.device})"


class Generated:
    """A generated text with its log-probabilities: the result of ``generate`` with ``logprobs``.

    ``tokens`` and ``logprobs`` are lists; for a tensor as the prompt they are tensors. A log-probability is that of the model's own
    distribution, before penalties, temperature and other options change it. ``text`` is None for a prompt of tokens.
    ``finish_reason`` is ``"stop"``, or ``"length"`` after ``max_new_tokens``.
    """

    def __init__(self, text, tokens, logprobs, finish_reason):
        self.text, self.tokens, self.logprobs, self.finish_reason = text, tokens, logprobs, finish_reason

    def __repr__(self):
        return (f"Generated(text={self.text!r}, tokens={self.tokens!r}, logprobs={self.logprobs!r}, "
                f"finish_reason={self.finish_reason!r})")


class GeneratedToken:
    """A token of a stream with ``logprobs``: the text that is known after it, which may be empty, and its log-probability."""

    def __init__(self, text, token, logprob):
        self.text, self.token, self.logprob = text, token, logprob

    def __repr__(self):
        return f"GeneratedToken(text={self.text!r}, token={self.token!r}, logprob={self.logprob!r})"


# The arguments of `generate`


def _shown(value):
    if value is None or isinstance(value, (str, bool, numbers.Number)):
        return repr(value)
    return f"a value of type {type(value).__name__}"


def _number(name, value):
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"generate: {name} must be a number, got {_shown(value)}")
    return float(value)


def _integer(name, value, least, most=2**63 - 1):
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"generate: {name} must be an int, got {_shown(value)}")
    value = operator.index(value)
    if not least <= value <= most:
        bound = f"≥ {least}" if value < least else f"≤ {most}"
        raise ValueError(f"generate: {name} must be {bound}, got {value}")
    return value


def _flag(name, value):
    if not isinstance(value, bool):
        raise TypeError(f"generate: {name} must be a bool, got {_shown(value)}")
    return value


def _texts(name, value):
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"generate: {name} must be a str or a list of them, got {_shown(value)}")
    if "" in texts:
        raise ValueError(f"generate: strings in {name} must have at least one character, got ''")
    return list(texts)


def _tokens(name, value):
    if isinstance(value, (list, tuple)):
        return [_integer(name, one, 0) for one in value]
    return [_integer(name, value, 0)]


def _sequences(name, value):
    """Tokens or sequences of tokens, as sequences."""
    if not isinstance(value, (list, tuple)):
        value = [value]
    found = [_tokens(name, one) for one in value]
    if [] in found:
        raise ValueError(f"generate: sequences in {name} must have at least one token, got []")
    return found


def _prompt(model, prompt, tokenizer):
    """The tokens ``[batch, steps]`` of a prompt, whether it is a text, and the token that ends a turn."""
    if isinstance(prompt, Tensor):
        if prompt.ndim not in (1, 2):
            raise ValueError(f"generate: prompt must have shape [steps] or [batch, steps], got {list(prompt.shape)}")
        if prompt.numel() == 0:
            raise ValueError(f"generate: prompt must have at least one token, got shape {list(prompt.shape)}")
        return prompt.reshape(-1, prompt.shape[-1]), False, None
    end_of_turn = None
    if isinstance(prompt, str):
        ids = tokenizer().encode(prompt)
    elif isinstance(prompt, (list, tuple)) and prompt and all(isinstance(one, collections.abc.Mapping) for one in prompt):
        template = tokenizer().chat_template
        ids = tokenizer()._own.encode(template._rendered("generate", prompt, None, None, None, True, False, {}), False)
        # Some folders name it only here.
        end_of_turn = tokenizer().token_id(template.special_token("eos_token") or "")
    elif isinstance(prompt, (list, tuple)) and not any(isinstance(one, (str, list, tuple, Tensor)) for one in prompt):
        ids = [_integer("tokens of prompt", one, 0, model.vocab_size - 1) for one in prompt]
    else:
        kinds = "a str, a list of tokens, a list of messages, or a tensor of tokens"
        given = f"a list of {type(prompt[0]).__name__}" if isinstance(prompt, (list, tuple)) else _shown(prompt)
        raise TypeError(f"generate: prompt must be {kinds}, got {given}")
    if not ids:
        raise ValueError(f"generate: prompt must have at least one token, got {'none' if isinstance(prompt, str) else prompt}")
    is_text = isinstance(prompt, str) or isinstance(prompt[0], collections.abc.Mapping)
    return _tensor([ids], dtype=_c.int64, device=model.device), is_text, end_of_turn


class _Row:
    """A sequence that is generated: its tokens, and its text if there is one."""

    def __init__(self, request, tokenizer):
        self.request = request
        self.tokens: list = []
        self.logprobs: list = []
        self.text = ""
        self.finish_reason = None
        self.stream = None if tokenizer is None else tokenizer._own.stream(request.stop)

    def add(self, token, logprob, ends, is_last):
        """Takes a token, and returns the text that is known after it."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        is_end = token in ends
        piece, is_stopped = ("", False) if is_end or self.stream is None else self.stream.push(token)
        if is_end or is_stopped or any(self.tokens[-len(stop):] == stop for stop in self.request.options["stop_tokens"]):
            self.finish_reason = "stop"
        elif is_last:
            self.finish_reason = "length"
        if self.finish_reason and self.stream is not None:
            piece += self.stream.finish()
        self.text += piece
        return piece


class _Request:
    """A call of ``generate`` whose arguments are checked."""

    def __init__(self, model, prompt, count, options, stop, logprobs, draft, num_draft_tokens, cache, tokenizer, stream):
        if not isinstance(model, CausalLm):
            raise TypeError(f"generate: model must be a CausalLm, which models.load makes, got {_shown(model)}")
        self.model, self.count, self.options = model, _integer("max_new_tokens", count, 0), options
        self.stop, self.logprobs, self.is_stream = _texts("stop", stop), _flag("logprobs", logprobs), _flag("stream", stream)
        tokenizer = None if tokenizer is None else _given_tokenizer("generate", tokenizer)
        text = lambda: tokenizer or model._text("generate")  # noqa: E731
        self.tokens, self.is_text, options["end_of_turn"] = _prompt(model, prompt, text)
        self.tokenizer = text() if self.is_text or self.stop else None
        self.shape = prompt.ndim if isinstance(prompt, Tensor) else None
        self.beams = _c._num_beams(model._own, options["num_beams"])
        self.check(draft, num_draft_tokens, cache)
        self.cache, self.draft = cache, None
        if draft is not None:
            self.draft = (draft._now(), 4 if num_draft_tokens is None else _integer("num_draft_tokens", num_draft_tokens, 1), self.count)

    def check(self, draft, num_draft_tokens, cache):
        """Refuses options that do not fit together."""
        n, rows = self.options["n"], self.tokens.shape[0]

        def refuse(what):
            raise ValueError(f"generate: {what}")

        if draft is not None and not isinstance(draft, CausalLm):
            raise TypeError(f"generate: draft must be a CausalLm, got {_shown(draft)}")
        if cache is not None and not isinstance(cache, KeyValueCache):
            raise TypeError(f"generate: cache must be a KeyValueCache, got {_shown(cache)}")
        if num_draft_tokens is not None and draft is None:
            refuse(f"num_draft_tokens must be None without a draft, got {num_draft_tokens}")
        if self.beams > 1 and n > 1:
            refuse(f"n must be 1 with num_beams={self.beams}, got {n}: a beam search returns the best text")
        if self.beams > 1 and self.is_stream:
            refuse(f"num_beams must be 1 with stream, got {self.beams}: a beam search knows its text only at its end")
        if self.beams > 1 and self.stop:
            refuse(f"stop must be empty with num_beams={self.beams}, got {self.stop}: use stop_tokens")
        if n > 1 and self.is_stream:
            refuse(f"n must be 1 with stream, got {n}")
        if self.stop and rows > 1:
            refuse(f"stop must be empty for a prompt of {rows} sequences, got {self.stop}: use stop_tokens")
        if self.shape is not None and self.stop and n > 1:
            refuse(f"stop must be empty for a tensor with n={n}, got {self.stop}: use stop_tokens")
        for name, value in (("cache", cache), ("draft", draft)):
            if value is not None and self.beams > 1:
                refuse(f"{name} must be None with num_beams={self.beams}")
            if value is not None and n > 1:
                refuse(f"{name} must be None with n={n}")
        if draft is not None and cache is not None:
            refuse("cache must be None with a draft")
        if draft is not None and rows > 1:
            refuse(f"draft must be None for a prompt of {rows} sequences")

    def begin(self):
        return _c._Generation(self.model._now(), self.tokens, self.options, self.cache, self.draft)

    def rows(self):
        return [_Row(self, self.tokenizer) for _ in range(self.tokens.shape[0] * self.options["n"])]

    def search(self):
        """The rows of a beam search."""
        found, logprobs, ends = _c._search(self.model._now(), self.tokens, self.count, self.options)
        rows = self.rows()
        for row, tokens, scores in zip(rows, found, logprobs):
            for at, (token, score) in enumerate(zip(tokens, scores)):
                row.add(token, score, ends, at + 1 == len(tokens))
                if row.finish_reason == "stop":
                    break
        return rows

    def steps(self, generation, rows):
        """Yields the pieces of text of each step."""
        ends = generation.end_tokens
        try:
            for at in range(1, self.count + 1):
                found = generation.step()
                if found is None:
                    return
                yield [None if row.finish_reason else row.add(token, logprob, ends, at == self.count)
                       for row, token, logprob in zip(rows, *found)]
                if all(row.finish_reason for row in rows):
                    return
        finally:
            generation.close()

    def result(self, rows):
        """The result for all rows of a call that is no stream."""
        if self.shape is not None:
            return self.tensors(rows)
        results = [self.one(row) for row in rows]
        return results if self.options["n"] > 1 else results[0]

    def one(self, row):
        if self.logprobs:
            return Generated(row.text if self.is_text else None, row.tokens, row.logprobs, row.finish_reason or "length")
        return row.text if self.is_text else row.tokens

    def tensors(self, rows):
        longest = max(len(row.tokens) for row in rows)
        # A sequence that has ended repeats its last token.
        tokens = [row.tokens + row.tokens[-1:] * (longest - len(row.tokens)) for row in rows]
        logprobs = [row.logprobs + [0.0] * (longest - len(row.logprobs)) for row in rows]
        shape = (longest,) if self.shape == 1 and len(rows) == 1 else (len(rows), longest)
        place = {"device": self.tokens.device}
        tokens = _tensor(tokens, dtype=_c.int64, **place).reshape(shape)
        if not self.logprobs:
            return tokens
        reason = "stop" if all(row.finish_reason == "stop" for row in rows) else "length"
        return Generated(None, tokens, _tensor(logprobs, dtype=_c.float64, **place).reshape(shape), reason)

    def pieces(self, generation):
        """The stream of a call."""
        rows = self.rows()
        steps = self.steps(generation, rows)
        try:
            for pieces in steps:
                row = rows[0]
                if len(rows) > 1:
                    tokens = _tensor([row.tokens[-1] for row in rows], dtype=_c.int64, device=self.tokens.device)
                    logprobs = [0.0 if piece is None else row.logprobs[-1] for row, piece in zip(rows, pieces)]
                    yield GeneratedToken(None, tokens, _tensor(logprobs, dtype=_c.float64)) if self.logprobs else tokens
                elif self.logprobs:
                    yield GeneratedToken(pieces[0] if self.is_text else None, row.tokens[-1], row.logprobs[-1])
                elif not self.is_text:
                    yield row.tokens[-1]
                elif pieces[0]:
                    yield pieces[0]
        finally:
            steps.close()


def generate(
    model: CausalLm,
    prompt: str | Sequence[Any] | Tensor,
    *,
    max_new_tokens: int = 256,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    presence_penalty: float | None = None,
    frequency_penalty: float | None = None,
    stop: str | Sequence[str] = (),
    stop_tokens: int | Sequence[int | Sequence[int]] = (),
    eos_token_id: int | Sequence[int] | None = None,
    seed: int | None = None,
    num_beams: int | None = None,
    length_penalty: float | None = None,
    n: int = 1,
    logprobs: bool = False,
    draft: CausalLm | None = None,
    num_draft_tokens: int | None = None,
    cache: KeyValueCache | None = None,
    tokenizer: Any = None,
    stream: bool = False,
) -> Any:
    """Continues a prompt, and returns what follows it.

    ``prompt`` is a str, or a list of chat messages such as ``{"role": "user", "content": "Hello!"}``: the result is a str. Or it is
    a list of tokens or a tensor ``[steps]`` or ``[batch, steps]``: the result is of the same kind. Options that are None are those
    that are published with the model in ``generation_config.json``, and otherwise off.

    Which token follows:

    - ``temperature``: the divisor of the logits before a token is drawn. 0 takes the most probable token.
    - ``top_k``, ``top_p``, ``min_p``: draw from the k most probable tokens; from the fewest tokens whose probabilities add up to
      p; from those with at least this fraction of the largest probability. 0, 1 and 0 turn them off.
    - ``repetition_penalty``: above 1, makes tokens of the prompt and the text less probable. ``presence_penalty`` is subtracted
      from the logits of generated tokens, ``frequency_penalty`` as often as they were generated.
    - ``seed``: the same seed gives the same text. Without one the draws depend on ``manual_seed``.
    - ``num_beams``, ``length_penalty``: a beam search, which returns the best of several continuations.

    Where the text ends:

    - ``max_new_tokens``: the most tokens.
    - ``stop``: a str or several. The text ends before the first of them. Tokens include those of this string.
    - ``eos_token_id``: a token or several, in place of the published ones; ``[]`` for none. They have no text.
    - ``stop_tokens``: more tokens, or sequences of tokens, that end the text. They have their text.

    What is returned:

    - ``n``: the number of texts, each with draws of its own, in a list; for a tensor they are adjacent rows.
    - ``logprobs``: a ``Generated`` with the tokens and their log-probabilities.
    - ``stream``: a generator of pieces of text, or of tokens, as they are known; with ``logprobs`` of a ``GeneratedToken`` for
      each token. It can be closed at any time.

    How it is computed:

    - ``draft``: a smaller model with the same tokens proposes ``num_draft_tokens``, 4 unless set, which the model checks in one pass.
    - ``cache``: a ``KeyValueCache``. The tokens that the prompt shares with it are not computed again, and it keeps what the model
      sees. After an exception it may have fewer tokens.
    - ``tokenizer``: a ``data.Tokenizer`` or the path of one, in place of the model's.

    The interpreter is released while a token is computed, and Ctrl-C ends the call.
    """
    optional = {"temperature": temperature, "top_p": top_p, "min_p": min_p, "repetition_penalty": repetition_penalty,
                "presence_penalty": presence_penalty, "frequency_penalty": frequency_penalty, "length_penalty": length_penalty}
    options = {name: None if value is None else _number(name, value) for name, value in optional.items()} | {
        "top_k": None if top_k is None else _integer("top_k", top_k, 0),
        "seed": None if seed is None else _integer("seed", seed, 0, 2**64 - 1),
        "num_beams": None if num_beams is None else _integer("num_beams", num_beams, 1, 1 << 16),
        "n": _integer("n", n, 1, 1 << 16),
        "eos_token_id": None if eos_token_id is None else _tokens("eos_token_id", eos_token_id),
        "stop_tokens": _sequences("stop_tokens", stop_tokens),
    }
    request = _Request(model, prompt, max_new_tokens, options, stop, logprobs, draft, num_draft_tokens, cache, tokenizer, stream)
    if request.beams > 1:
        return request.result(request.search())
    generation = request.begin()
    if request.is_stream:
        return request.pieces(generation)
    rows = request.rows()
    for _ in request.steps(generation, rows):
        pass
    return request.result(rows)
