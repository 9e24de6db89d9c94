"""Training: metrics, logs, a report and a progress bar.

    >>> import cotangent as ct
    >>> accuracy = ct.train.Accuracy()
    >>> accuracy.update(ct.tensor([[0.1, 0.9], [0.8, 0.2]]), ct.tensor([1, 1]))
    >>> accuracy.compute()
    0.5
"""

from __future__ import annotations

from . import _cotangent as _c
from ._cotangent import ConfusionMatrix, Examples, Tensor  # noqa: F401


class Metric:
    """A metric over batches. Each subclass wraps the metric of the same name in the crate."""

    def __init__(self, *, classes=None, average=None, k=None, threshold=None, ignore_index=None):
        self._metric = _c._Metric(type(self).__name__, {"classes": classes, "average": average, "k": k, "threshold": threshold,
                                                        "ignore_index": ignore_index})

    @property
    def name(self):
        """The name for logs."""
        return self._metric.name()

    @property
    def higher_is_better(self):
        """Whether higher values are better."""
        return self._metric.higher_is_better()

    def update(self, prediction, target):
        """Updates the metric with a batch."""
        self._metric.update(prediction, target)

    def compute(self):
        """The value over all batches."""
        return self._metric.compute()

    def reset(self):
        """Resets the metric."""
        self._metric.reset()


class Accuracy(Metric):
    """The fraction of correct classes. Predictions are classes, scores of all classes, or scores of class 1 for a threshold."""

    def __init__(self, *, threshold=None, ignore_index=None):
        super().__init__(threshold=threshold, ignore_index=ignore_index)


class TopKAccuracy(Metric):
    """The fraction of targets among the ``k`` classes with the highest scores."""

    def __init__(self, k, *, ignore_index=None):
        super().__init__(k=k, ignore_index=ignore_index)


class Precision(Metric):
    """The fraction of correct predictions among the predictions of a class, averaged over classes."""

    def __init__(self, classes, average="macro", *, threshold=None, ignore_index=None):
        super().__init__(classes=classes, average=average, threshold=threshold, ignore_index=ignore_index)


class Recall(Metric):
    """The fraction of correct predictions among the examples of a class, averaged over classes."""

    def __init__(self, classes, average="macro", *, threshold=None, ignore_index=None):
        super().__init__(classes=classes, average=average, threshold=threshold, ignore_index=ignore_index)


class F1(Metric):
    """The harmonic mean of precision and recall, averaged over classes."""

    def __init__(self, classes, average="macro", *, threshold=None, ignore_index=None):
        super().__init__(classes=classes, average=average, threshold=threshold, ignore_index=ignore_index)


class RocAuc(Metric):
    """The area under the ROC curve, for one score, or for each class against the rest."""

    def __init__(self, classes=None, average="macro"):
        super().__init__(classes=classes, average=average)


class MeanSquaredError(Metric):
    """The mean of the squared differences."""

    def __init__(self):
        super().__init__()


class RootMeanSquaredError(Metric):
    """The square root of the mean of the squared differences."""

    def __init__(self):
        super().__init__()


class MeanAbsoluteError(Metric):
    """The mean of the absolute differences."""

    def __init__(self):
        super().__init__()


class R2Score(Metric):
    """The coefficient of determination R²."""

    def __init__(self):
        super().__init__()


class Perplexity(Metric):
    """The exponential of the mean cross entropy of logits for tokens."""

    def __init__(self, *, ignore_index=None):
        super().__init__(ignore_index=ignore_index)


def _numbers(values, more):
    """Named numbers. Tensors of one element are converted."""
    return {str(name): float(value) for name, value in {**(values or {}), **more}.items()}


class _Log:
    """A log that is flushed at the end of a ``with`` block."""

    def log(self, step, values=None, **more):
        """Logs the named numbers of a step."""
        self._log.log(step, _numbers(values, more))

    def flush(self):
        """Writes buffered data to the file."""
        self._log.flush()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.flush()


class CsvLog(_Log):
    """A log as a CSV file with a row for each step."""

    def __init__(self, path, append=False):
        self._log = _c._LineLog("csv", path, append)


class JsonlLog(_Log):
    """A log as a JSON Lines file with a line for each step."""

    def __init__(self, path, append=False):
        self._log = _c._LineLog("jsonl", path, append)


class SummaryWriter(_Log):
    """Event files for TensorBoard, with the methods of PyTorch's writer."""

    def __init__(self, log_dir=None, comment="", purge_step=None, max_queue=10, flush_secs=120, filename_suffix=""):
        if log_dir is None:
            import datetime
            import os
            import socket

            now = datetime.datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self._log = _c._TensorBoard(log_dir)
        self.log_dir = log_dir

    def get_logdir(self):
        """The folder of the event files."""
        return self.log_dir

    @property
    def path(self):
        """The event file."""
        return self._log.path()

    def add_scalar(self, tag, scalar_value, global_step=0):
        """Logs a number."""
        self._log.scalar(tag, global_step, float(scalar_value))

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=0):
        """Logs several numbers under one tag."""
        for tag, value in tag_scalar_dict.items():
            self.add_scalar(f"{main_tag}/{tag}", value, global_step)

    def add_histogram(self, tag, values, global_step=0):
        """Logs a histogram of a tensor."""
        self._log.histogram(tag, global_step, values if isinstance(values, Tensor) else _c._tensor(values))

    def add_image(self, tag, img_tensor, global_step=0, walltime=None, dataformats="CHW"):
        """Logs an image, ``[channels, height, width]`` or ``[height, width]``; ``dataformats`` names the dimensions."""
        x = img_tensor if isinstance(img_tensor, Tensor) else _c._tensor(img_tensor)
        if dataformats == "HWC":
            x = x.permute(2, 0, 1).contiguous()
        elif dataformats not in ("CHW", "HW"):
            raise ValueError(f"add_image: dataformats must be 'CHW', 'HWC' or 'HW', got {dataformats!r}")
        self._log.image(tag, global_step, x)

    def add_images(self, tag, img_tensor, global_step=0):
        """Logs several images, ``[n, channels, height, width]``, in one row."""
        self.add_image(tag, _c._functions["cat"](list(img_tensor.unbind(0)), -1), global_step)

    def add_graph(self, model, input_to_model=None, verbose=False):
        """Logs the text of a model, which has no static graph."""
        self.add_text("model", repr(model))

    def add_text(self, tag, text_string, global_step=0):
        """Logs a text."""
        self._log.text(tag, global_step, text_string)

    def close(self):
        """Writes buffered data to the file."""
        self.flush()


class Report:
    """A self-contained HTML file with the curves of a run, facts, a confusion matrix and images."""

    def __init__(self, title):
        self._log = _c._Report(title)

    def log(self, step, values=None, **more):
        """Logs the named numbers of a step."""
        self._log.log(step, _numbers(values, more))

    def fact(self, name, value):
        """Sets a named fact of the run, for the table at the top."""
        self._log.fact(str(name), str(value))

    def confusion(self, matrix, labels=()):
        """Sets the confusion matrix, with names of the classes."""
        self._log.confusion(matrix, [str(label) for label in labels])

    def examples(self, examples):
        """Sets example images for the confusion matrix."""
        self._log.examples(examples)

    def html(self):
        """The page as a string."""
        return self._log.html()

    def save(self, path):
        """Writes the file."""
        self._log.save(path)


class Progress:
    """A progress bar on the terminal, for loops that call ``update``."""

    def __init__(self, total=None, label=None, quiet=False):
        self._bar = _c._Progress(total, label, quiet)

    def update(self, done, values=None, **more):
        """Sets the number of finished steps, and the numbers to show."""
        self._bar.update(done, _numbers(values, more))

    def finish(self):
        """Ends the progress bar."""
        self._bar.finish()


def progress(items, label=None, quiet=False):
    """Iterates over items with a progress bar."""
    try:
        total = len(items)
    except TypeError:
        total = None
    bar = Progress(total, label, quiet)
    try:
        for done, item in enumerate(items, 1):
            yield item
            bar.update(done)
    finally:
        bar.finish()
