"""Prints the contents of a folder of event files, as read by TensorBoard, as JSON. tests/train/loops.rs checks them.

    python tools/read_events.py FOLDER

Requires tensorboard and Pillow.
"""

import io
import json
import sys

from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

events = EventAccumulator(sys.argv[1], size_guidance={"histograms": 0, "images": 0, "scalars": 0, "tensors": 0})
events.Reload()
tags = events.Tags()


def histogram(tag):
    value = events.Histograms(tag)[0].histogram_value
    return {"min": value.min, "max": value.max, "num": value.num, "sum": value.sum, "bucket": list(value.bucket),
            "bucket_limit": list(value.bucket_limit)}


def image(tag):
    event = events.Images(tag)[0]
    picture = Image.open(io.BytesIO(event.encoded_image_string))
    assert picture.size == (event.width, event.height)
    return {"step": event.step, "pixels": [part for pixel in picture.getdata() for part in pixel]}


def text(tag):
    return tensor_util.make_ndarray(events.Tensors(tag)[0].tensor_proto)[0].decode()


print(json.dumps({
    "scalars": {tag: [[event.step, event.value] for event in events.Scalars(tag)] for tag in tags["scalars"]},
    "histograms": {tag: histogram(tag) for tag in tags["histograms"]},
    "images": {tag: image(tag) for tag in tags["images"]},
    "texts": {tag: text(tag) for tag in tags["tensors"]},
}))
