"""PyTorch's old name of what fetches weights: nothing is fetched here."""

from __future__ import annotations


def load_url(url, *args, **kwargs):
    """An error: nothing is fetched."""
    raise RuntimeError(f"model_zoo.load_url: nothing is fetched; get {url} by other means, and load it with cotangent.load")


load_state_dict_from_url = load_url
