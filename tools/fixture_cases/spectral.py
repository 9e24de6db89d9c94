"""Transforms of the frames of a signal, and windows."""

import torch

from .core import DTYPES

WINDOWS = ("hann", "hamming", "bartlett", "blackman", "kaiser")
SIGNAL = (*WINDOWS, "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "nuttall")


def stft(x, window=None, **args):
    return torch.stft(x, window=window, **{"return_complex": True, **args})


def istft(x, window=None, **args):
    return torch.istft(x, window=window, **args)


def window(f):
    return lambda dtype=None, **args: f(**args, dtype=DTYPES[dtype] if dtype else None)


FUNCTIONS = {
    "stft": stft,
    "istft": istft,
    **{f"{name}_window": window(getattr(torch, f"{name}_window")) for name in WINDOWS},
    **{f"signal_windows_{name}": window(getattr(torch.signal.windows, name)) for name in SIGNAL},
}
NAMES = {"stft": ["self", "window"], "istft": ["self", "window"]}


def add_transforms(book):
    for shape, args in (
        ([12], {"n_fft": 4}), ([12], {"n_fft": 5, "hop_length": 2}), ([2, 12], {"n_fft": 4, "center": False}),
        ([12], {"n_fft": 4, "pad_mode": "constant", "normalized": True}), ([12], {"n_fft": 4, "pad_mode": "replicate", "onesided": False}),
        ([12], {"n_fft": 6, "win_length": 4}), ([12], {"n_fft": 7, "win_length": 4, "hop_length": 5}), ([12], {"n_fft": 4, "return_complex": False}),
        ([4], {"n_fft": 4, "center": False}),
    ):  # fmt: skip
        book.add("stft", [book.draw("stft").uniform(shape), None], args)
        draw = book.draw("stft")
        book.add("stft", [draw.uniform(shape), draw.positive([args.get("win_length", args["n_fft"])])], args)
    book.add("stft", [book.draw("stft").uniform([12], dtype="f32"), None], {"n_fft": 4})
    book.add("stft", [book.draw("stft").complex([12]), None], {"n_fft": 4}, note="complex")
    draw = book.draw("stft")
    book.add("stft", [draw.uniform([12]), draw.complex([4])], {"n_fft": 4}, note="a complex window")
    for shape, args in (
        ([3, 5], {"n_fft": 4}), ([2, 3, 5], {"n_fft": 4, "hop_length": 2}), ([3, 5], {"n_fft": 5, "hop_length": 2}), ([3, 5], {"n_fft": 4, "center": False}),
        ([3, 5], {"n_fft": 4, "normalized": True, "length": 3}), ([3, 5], {"n_fft": 4, "length": 9, "hop_length": 2}), ([4, 5], {"n_fft": 4, "onesided": False}),
        ([4, 5], {"n_fft": 6, "win_length": 4, "hop_length": 1}), ([4, 5], {"n_fft": 4, "onesided": False, "return_complex": True}),
    ):  # fmt: skip
        book.add("istft", [book.draw("istft").complex(shape), None], args)
        draw = book.draw("istft")
        book.add("istft", [draw.complex(shape), draw.positive([args.get("win_length", args["n_fft"])])], args)
    book.add("istft", [book.draw("istft").complex([3, 5], dtype="c64"), None], {"n_fft": 4})


def add_windows(book):
    own = {
        "hamming_window": {"periodic": True, "alpha": 0.6, "beta": 0.3}, "kaiser_window": {"periodic": True, "beta": 3.0}, "signal_windows_exponential": {"tau": 2.5},
        "signal_windows_gaussian": {"std": 2.5}, "signal_windows_kaiser": {"beta": 3.0}, "signal_windows_general_hamming": {"alpha": 0.7},
    }  # fmt: skip
    for name in FUNCTIONS:
        if not ("window" in name):
            continue
        length, flag = ("window_length", "periodic") if name.endswith("_window") else ("M", "sym")
        more = {"a": [0.5, 0.3, 0.2]} if name == "signal_windows_general_cosine" else {}
        for n in (0, 1, 2, 5, 6):
            book.add(name, [], {length: n, **more}, atol=1e-6)
            book.add(name, [], {length: n, flag: name not in (f"{w}_window" for w in WINDOWS), **more, "dtype": "f64"}, atol=1e-12)
        if name in own:
            book.add(name, [], {length: 6, **own[name], "dtype": "f64"}, atol=1e-12)
    book.add("signal_windows_exponential", [], {"M": 6, "sym": False, "center": 1.5, "dtype": "f64"})


def add_cases(book):
    book.define(FUNCTIONS, NAMES)
    add_transforms(book)
    add_windows(book)
