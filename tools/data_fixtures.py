#!/usr/bin/env python3
"""Writes tests/fixtures/data: small images with torchvision's transforms of them, and a small tokenizer with its tokens.

    python3 -m venv target/peers && target/peers/bin/pip install torch torchvision tokenizers
    target/peers/bin/python tools/data_fixtures.py

`tests/data` compares our results with them.
"""

import json
import pathlib

import numpy as np
import torch
import torchvision
import torchvision.transforms.functional as F
from PIL import Image, features
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torchvision.transforms import InterpolationMode as Mode

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "data"


def pictures():
    """Colour gradients with noise: an RGB, a grayscale and a square image."""
    random = np.random.default_rng(0)

    def picture(height, width):
        y, x = np.mgrid[0:height, 0:width]
        waves = np.stack([np.sin(x / 3), np.cos(y / 4), np.sin((x + y) / 5)], -1) * 90 + 127
        return Image.fromarray(np.clip(waves + random.normal(0, 30, waves.shape), 0, 255).astype(np.uint8))

    return {"rgb": picture(17, 23), "gray": picture(12, 9).convert("L"), "square": picture(14, 14)}


def cases():
    modes = {
        "nearest": Mode.NEAREST,
        "bilinear": Mode.BILINEAR,
        "bicubic": Mode.BICUBIC,
        "lanczos": Mode.LANCZOS,
    }
    for image in ["rgb", "gray"]:
        for name, mode in modes.items():
            for size in [(8, 10), (30, 41), (17, 5), (40, 23), (1, 1)]:
                yield image, "resize", [*size, name], lambda x, size=size, mode=mode: F.resize(x, list(size), mode)
        for size in [7, 25]:
            yield image, "resize_shorter", [size], lambda x, size=size: F.resize(x, size)
        for size in [(6, 5), (30, 8), (21, 33), (9, 9)]:
            yield image, "center_crop", list(size), lambda x, size=size: F.center_crop(x, list(size))
        yield image, "resized_crop", [2, 3, 7, 5, 11, 12], lambda x: F.resized_crop(x, 2, 3, 7, 5, [11, 12])
        yield image, "crop", [2, 3, 7, 5], lambda x: F.crop(x, 2, 3, 7, 5)
        yield image, "hflip", [], F.hflip
        yield image, "vflip", [], F.vflip
        yield image, "pad", [1, 2, 3, 4, 99], lambda x: F.pad(x, [1, 2, 3, 4], fill=99)
        for factor in [0.0, 0.4, 1.0, 1.7]:
            yield image, "brightness", [factor], lambda x, f=factor: F.adjust_brightness(x, f)
            yield image, "contrast", [factor], lambda x, f=factor: F.adjust_contrast(x, f)
            yield image, "saturation", [factor], lambda x, f=factor: F.adjust_saturation(x, f)
        for factor in [-0.5, -0.17, 0.0, 0.31, 0.5]:
            yield image, "hue", [factor], lambda x, f=factor: F.adjust_hue(x, f)
        for channels in [1, 3]:
            yield image, "grayscale", [channels], lambda x, c=channels: F.to_grayscale(x, c)
    for image in ["rgb", "square", "gray"]:
        for angle in [0.0, 13.7, 90.0, -45.0, 180.0, 270.0, 301.5]:
            for name in ["nearest", "bilinear"]:
                rotate = lambda x, angle=angle, mode=modes[name]: F.rotate(x, angle, mode, fill=7)
                yield image, "rotate", [angle, name, 7], rotate


def described(image):
    pixels = np.asarray(image)
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    return {"height": image.height, "width": image.width, "channels": channels, "pixels": pixels.tobytes().hex()}


TEXTS = ["the quick brown fox jumps over the lazy dog", "to be, or not to be: that's the question", "naïve café, 12,345 — 変数 🙂"]


def tokens():
    """A byte-level BPE of a few hundred tokens, and the tokens of some texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=["<|end|>"])
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    (FOLDER / "tokenizer.json").write_text(tokenizer.to_str() + "\n")
    made = [{"text": text, "ids": tokenizer.encode(text).ids} for text in [*TEXTS, " be that as it may", ""]]
    (FOLDER / "tokens.json").write_text(json.dumps(made) + "\n")


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    tokens()
    images = pictures()
    made = [
        {"image": image, "op": op, "args": args, **described(function(images[image]))}
        for image, op, args, function in cases()
    ]
    images["rgb"].save(FOLDER / "small.png")
    images["rgb"].resize((40, 32)).save(FOLDER / "small.jpg", quality=90)
    decoded = {name: described(Image.open(FOLDER / name).convert("RGB")) for name in ["small.png", "small.jpg"]}
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    normalized = F.normalize(F.to_tensor(images["rgb"]), mean, std)
    versions = {"torch": torch.__version__, "torchvision": torchvision.__version__, "Pillow": features.version("pil")}
    out = {
        "versions": versions,
        "images": {name: described(image) for name, image in images.items()},
        "cases": made,
        "decoded": decoded,
        "normalized": {"mean": mean, "std": std, "values": [float(x) for x in normalized.flatten()[::7]]},
    }
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in out.items() if key != "cases")
    rows = ",\n".join(json.dumps(case) for case in made)
    (FOLDER / "transforms.json").write_text("{\n" + lines + ',\n"cases": [\n' + rows + "\n]\n}\n")
    print(f"{len(made)} cases")


if __name__ == "__main__":
    main()
