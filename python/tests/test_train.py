"""Metrics against their formulas in NumPy, logs as they are read again, the report and the progress bar."""

import csv
import json
import struct

import numpy as np
import pytest

import cotangent as ct
from cotangent import train

RNG = np.random.default_rng(0)
SCORES, CLASSES = RNG.standard_normal((60, 4)).astype("float32"), RNG.integers(0, 4, 60)


def over_batches(metric, prediction, target):
    for start in range(0, len(target), 17):
        metric.update(ct.tensor(prediction[start : start + 17]), ct.tensor(target[start : start + 17]))
    value = metric.compute()
    metric.reset()
    metric.update(ct.tensor(prediction), ct.tensor(target))
    assert metric.compute() == pytest.approx(value)
    return value


def test_metrics_of_classes():
    found = SCORES.argmax(1)
    hits = [((found == c) & (CLASSES == c)).sum() for c in range(4)]
    precision = [h / max((found == c).sum(), 1) for c, h in enumerate(hits)]
    recall = [h / (CLASSES == c).sum() for c, h in enumerate(hits)]
    assert over_batches(train.Accuracy(), SCORES, CLASSES) == pytest.approx((found == CLASSES).mean())
    assert over_batches(train.Precision(4), SCORES, CLASSES) == pytest.approx(np.mean(precision))
    assert over_batches(train.Recall(4), found, CLASSES) == pytest.approx(np.mean(recall))
    f1 = [2 * p * r / (p + r) if p + r else 0 for p, r in zip(precision, recall)]
    assert over_batches(train.F1(4), SCORES, CLASSES) == pytest.approx(np.mean(f1))
    assert over_batches(train.F1(4, "micro"), SCORES, CLASSES) == pytest.approx((found == CLASSES).mean())
    ranks = (-SCORES).argsort(1)[:, :2]
    assert over_batches(train.TopKAccuracy(2), SCORES, CLASSES) == pytest.approx((ranks == CLASSES[:, None]).any(1).mean())
    positive = (CLASSES > 1).astype("int64")
    a, b = SCORES[positive == 1, 0], SCORES[positive == 0, 0]
    area = ((a[:, None] > b).sum() + 0.5 * (a[:, None] == b).sum()) / (len(a) * len(b))
    assert over_batches(train.RocAuc(), SCORES[:, 0], positive) == pytest.approx(area)
    with pytest.raises(ValueError, match="average"):
        train.F1(4, "mean")
    with pytest.raises(TypeError, match="Tensor"):
        train.Accuracy().update([1], [1])
    assert train.Accuracy().higher_is_better and not train.MeanSquaredError().higher_is_better and train.Accuracy().name == "accuracy"


def test_metrics_of_numbers():
    a, b = SCORES[:, 0], SCORES[:, 1]
    assert over_batches(train.MeanSquaredError(), a, b) == pytest.approx(((a - b) ** 2).mean(), rel=1e-5)
    assert over_batches(train.RootMeanSquaredError(), a, b) == pytest.approx(np.sqrt(((a - b) ** 2).mean()), rel=1e-5)
    assert over_batches(train.MeanAbsoluteError(), a, b) == pytest.approx(abs(a - b).mean(), rel=1e-5)
    assert over_batches(train.R2Score(), a, b) == pytest.approx(1 - ((a - b) ** 2).sum() / ((b - b.mean()) ** 2).sum(), rel=1e-4)
    logs = SCORES - np.log(np.exp(SCORES).sum(1, keepdims=True))
    wanted = np.exp(-logs[np.arange(60), CLASSES].mean())
    assert over_batches(train.Perplexity(), SCORES, CLASSES) == pytest.approx(wanted, rel=1e-4)


def confusion():
    matrix = train.ConfusionMatrix(4)
    matrix.update(ct.tensor(SCORES), ct.tensor(CLASSES))
    return matrix


def test_confusion():
    matrix = confusion()
    counts = np.zeros((4, 4), int)
    np.add.at(counts, (CLASSES, SCORES.argmax(1)), 1)
    np.testing.assert_array_equal(np.asarray(matrix.to_tensor()), counts)
    assert matrix.recall() == pytest.approx(list(counts.diagonal() / counts.sum(1))) and matrix.compute() == pytest.approx(np.trace(counts) / 60)
    assert len(matrix.precision()) == len(matrix.f1()) == 4 and str(matrix)


def test_logs_of_lines(tmp_path):
    with train.CsvLog(tmp_path / "a.csv") as log:
        log.log(1, {"loss": ct.tensor(0.5)}, lr=0.1)
        log.log(2, loss=0.25, lr=0.1)
    with open(tmp_path / "a.csv", newline="") as file:
        found = list(csv.DictReader(file))
    assert [float(row["loss"]) for row in found] == [0.5, 0.25] and [int(row["step"]) for row in found] == [1, 2]
    with train.JsonlLog(tmp_path / "a.jsonl") as log:
        log.log(1, loss=0.5)
    with train.JsonlLog(tmp_path / "a.jsonl", append=True) as log:
        log.log(2, loss=0.25)
    found = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [(one["step"], one["loss"]) for one in found] == [(1, 0.5), (2, 0.25)]
    with pytest.raises(OSError, match="nothere"):
        train.CsvLog(tmp_path / "nothere" / "a.csv")


def test_tensorboard(tmp_path):
    with train.SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", ct.tensor(0.5), 1)
        writer.add_scalars("both", {"a": 1, "b": 2}, 1)
        writer.add_histogram("weights", ct.randn(100), 1)
        writer.add_image("image", ct.rand(3, 4, 5), 1)
        writer.add_text("note", "words", 1)
        writer.log(2, loss=0.25)
    raw = writer.path.read_bytes()
    at, records = 0, 0
    while at < len(raw):
        (length,) = struct.unpack_from("<Q", raw, at)
        at, records = at + 8 + 4 + length + 4, records + 1
    # The version of the format comes first.
    assert at == len(raw) and records == 1 + 7 and b"loss" in raw and b"\x89PNG" in raw


def test_report(tmp_path):
    report = train.Report("A run")
    for step in range(20):
        report.log(step, loss=1 / (step + 1))
    report.fact("rate", 0.1)
    matrix = confusion()
    report.confusion(matrix, "abcd")
    examples = train.Examples(4)
    examples.update(ct.rand(60, 1, 4, 4), ct.tensor(SCORES), ct.tensor(CLASSES))
    report.examples(examples)
    report.save(tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text()
    assert page == report.html() and "A run" in page and "loss" in page and page.lstrip().lower().startswith("<!doctype html")
    with pytest.raises(ValueError):
        report.confusion(matrix, ["too", "few"])


def test_progress(capfd):
    assert list(train.progress([1, 2, 3], quiet=True)) == [1, 2, 3]
    assert list(train.progress(iter("ab"), quiet=True)) == ["a", "b"]
    assert capfd.readouterr() == ("", "")
    bar = train.Progress(10, "epoch 1")
    bar.update(10, loss=ct.tensor(0.5))
    bar.finish()
    # Where there is no terminal, nothing is drawn.
    assert capfd.readouterr() == ("", "")
