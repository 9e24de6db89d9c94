"""Tokenizers and chat templates in Hugging Face's formats, by the crate."""

from __future__ import annotations

import collections.abc
import json
import operator
import os
from typing import TYPE_CHECKING

from .. import _cotangent as _c
from .._cotangent import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def _own(name):
    """A class of the extension, which it has if it was built with tokenizers."""
    found = getattr(_c, name, None)
    if found is None:
        raise NotImplementedError(f"{name[1:]}: this extension was built without the feature tokenizers")
    return found


def _json(function, name, value):
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{function}: {name} must be JSON: {error}") from None


class ChatTemplate:
    """The chat template of a model: a Jinja template, which turns a conversation into the text that the model was trained on.

        >>> import cotangent as ct
        >>> chat = ct.data.ChatTemplate("{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}<assistant>")
        >>> chat.render([{"role": "user", "content": "Hello!"}])
        '<user>Hello!</s><assistant>'

    ``ChatTemplate.open(folder)`` reads that of a model's folder, with its special tokens. The text has special tokens such as
    the one for the start: encode it with ``add_special_tokens=False``.
    """

    def __init__(self, template):
        if not isinstance(template, str):
            raise TypeError(f"ChatTemplate: template must be a str, got a value of type {type(template).__name__}")
        self._own = _own("_ChatTemplate")(template)

    @classmethod
    def open(cls, folder: Any) -> ChatTemplate:
        """Reads ``chat_template.jinja`` or ``tokenizer_config.json`` of a model's folder."""
        made = cls.__new__(cls)
        made._own = _own("_ChatTemplate").open(folder)
        return made

    @property
    def names(self) -> list[str]:
        """The names of the templates. A single one is called ``default``."""
        return self._own.names()

    def special_token(self, name: str) -> str | None:
        """A special token, such as ``eos_token``, or None."""
        return self._own.special_token(name)

    def render(self, messages, *, tools=None, documents=None, template=None, add_generation_prompt=True,
               continue_final_message=False, **variables):
        """The text of a conversation: a list of dictionaries with ``role`` and ``content``, or other fields that the template reads.

        With ``add_generation_prompt`` it ends with the start of an answer; with ``continue_final_message`` it ends within the last
        message. ``template`` is a name, if there are several. ``variables`` are further variables of the template. The times of
        ``strftime_now`` are in UTC.
        """
        return self._rendered("render", messages, tools, documents, template, add_generation_prompt, continue_final_message, variables)

    def _rendered(self, function, messages, tools, documents, template, add_generation_prompt, continue_final_message, variables):
        if not isinstance(messages, (list, tuple)) or not all(isinstance(one, collections.abc.Mapping) for one in messages):
            raise TypeError(f"{function}: messages must be a list of dictionaries, got a value of type {type(messages).__name__}")
        given = {
            "messages": [_json(function, "messages", dict(one)) for one in messages],
            "tools": None if tools is None else _json(function, "tools", tools),
            "documents": None if documents is None else _json(function, "documents", documents),
            "template": template,
            "add_generation_prompt": bool(add_generation_prompt),
            "continue_final_message": bool(continue_final_message),
            "variables": [(name, _json(function, name, value)) for name, value in variables.items()],
        }
        return self._own.render(given)

    def __repr__(self):
        return f"ChatTemplate({', '.join(self.names)})"


class Tokenizer:
    """A tokenizer in Hugging Face's format: a file ``tokenizer.json``, or a folder with one.

        >>> tokenizer = ct.data.Tokenizer("folder")  # doctest: +SKIP
        >>> tokenizer.decode(tokenizer.encode("Some text."))  # doctest: +SKIP
        'Some text.'
    """

    def __init__(self, path):
        path = os.fspath(path)
        is_folder = os.path.isdir(path)
        self._folder = path if is_folder else os.path.dirname(path)
        self._own = _own("_Tokenizer")(os.path.join(path, "tokenizer.json") if is_folder else path)
        self._chat = None

    def __len__(self):
        return self._own.vocab_size()

    def token_id(self, token: str) -> int | None:
        """The id of a token, or None."""
        return self._own.token_id(token)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The tokens of a text, as a list of ints, with the special tokens that the model wants, such as one for the start."""
        if not isinstance(text, str):
            raise TypeError(f"encode: text must be a str, got a value of type {type(text).__name__}")
        return self._own.encode(text, bool(add_special_tokens))

    def decode(self, tokens: Tensor | Sequence[int]) -> str:
        """The text of a tensor or a sequence of tokens, without special tokens."""
        if isinstance(tokens, Tensor):
            tokens = tokens.flatten().tolist()
        return self._own.decode([operator.index(token) for token in tokens])

    @property
    def chat_template(self) -> ChatTemplate:
        """The ``ChatTemplate`` of the folder."""
        if self._chat is None:
            self._chat = ChatTemplate.open(self._folder)
        return self._chat

    def apply_chat_template(self, conversation, *, tools=None, documents=None, chat_template=None, add_generation_prompt=False,
                            continue_final_message=False, tokenize=True, **variables):
        """The tokens of a conversation, or its text without ``tokenize``: see ``ChatTemplate.render``.

        The arguments and their defaults are those of Hugging Face's library. ``chat_template`` is the name of a template.
        """
        text = self.chat_template._rendered("apply_chat_template", conversation, tools, documents, chat_template,
                                            add_generation_prompt, continue_final_message, variables)
        return self._own.encode(text, False) if tokenize else text

    def __repr__(self):
        return f"Tokenizer({len(self)} tokens)"
