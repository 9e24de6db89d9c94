"""PyTorch's module for downloading weights. Downloads are not supported."""

from __future__ import annotations


def load_url(url, *args, **kwargs):
    """Raises an error: downloads are not supported."""
    raise RuntimeError(f"model_zoo.load_url: downloads are not supported; download {url} yourself, and load it with cotangent.load")


load_state_dict_from_url = load_url
