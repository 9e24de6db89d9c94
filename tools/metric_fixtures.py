"""Writes tests/fixtures/metrics.json: metrics computed by scikit-learn, for tests/train/loops.rs.

    python tools/metric_fixtures.py

Requires scikit-learn. Each case has predictions and targets, the ends of batches of uneven sizes, and the metrics over all
batches. The output is deterministic for given versions of scikit-learn and NumPy.
"""

import json
from pathlib import Path

import numpy as np
import sklearn
from sklearn import metrics as m

rng = np.random.default_rng(7)
OUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "metrics.json"


def batches(n):
    """The end positions of batches of uneven sizes."""
    ends, at = [], 0
    for size in [1, 7, 20, 3, 50]:
        at = min(n, at + size)
        ends.append(at)
        if at == n:
            break
    if ends[-1] < n:
        ends.append(n)
    return ends


def classes(name, n, k, present):
    """Scores of k classes, of which only those in `present` occur."""
    target = rng.choice(present, n)
    scores = rng.normal(size=(n, k)) + 1.2 * np.eye(k)[target]
    scores[:, [c for c in range(k) if c not in present]] -= 100.0
    scores = np.exp(scores)
    scores /= scores.sum(1, keepdims=True)
    predicted = scores.argmax(1)
    values = {"accuracy": m.accuracy_score(target, predicted)}
    for top in (1, 2, 3):
        if top < k:
            values[f"top{top}"] = m.top_k_accuracy_score(target, scores, k=top, labels=range(k)) if k > 2 else None
    for average in ("micro", "macro", "weighted"):
        values[f"precision_{average}"] = m.precision_score(target, predicted, average=average, zero_division=0)
        values[f"recall_{average}"] = m.recall_score(target, predicted, average=average, zero_division=0)
        values[f"f1_{average}"] = m.f1_score(target, predicted, average=average, zero_division=0)
    if k == 2:
        values["precision_binary"] = m.precision_score(target, predicted)
        values["recall_binary"] = m.recall_score(target, predicted)
        values["f1_binary"] = m.f1_score(target, predicted)
    elif len(present) == k:
        for average in ("micro", "macro", "weighted"):
            values[f"auc_{average}"] = m.roc_auc_score(target, scores, average=average, multi_class="ovr")
    return {
        "name": name, "classes": k, "ends": batches(n), "scores": scores.ravel().tolist(), "target": target.tolist(),
        "confusion": m.confusion_matrix(target, predicted, labels=range(k)).ravel().tolist(),
        "values": {key: value for key, value in values.items() if value is not None},
    }


def binary_scores(name, n, digits):
    """One score per example, rounded to create ties."""
    target = rng.integers(0, 2, n)
    scores = np.round(rng.normal(size=n) + target, digits)
    return {"name": name, "ends": batches(n), "scores": scores.tolist(), "target": target.tolist(),
            "auc": m.roc_auc_score(target, scores)}


def numbers(name, shape, offset):
    target = rng.normal(size=shape) + offset
    prediction = target + 0.5 * rng.normal(size=shape)
    values = {"mae": m.mean_absolute_error(target, prediction), "mse": m.mean_squared_error(target, prediction),
              "r2": m.r2_score(target, prediction)}
    if len(shape) == 1:
        values["rmse"] = m.root_mean_squared_error(target, prediction)
    return {"name": name, "shape": shape, "ends": batches(shape[0]), "prediction": prediction.ravel().tolist(),
            "target": target.ravel().tolist(), "values": values}


def perplexity(name, n, k):
    target = rng.integers(0, k, n)
    scores = rng.normal(size=(n, k))
    logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    loss = m.log_loss(target, np.exp(logs), labels=range(k))
    return {"name": name, "classes": k, "ends": batches(n), "scores": scores.ravel().tolist(), "target": target.tolist(),
            "perplexity": float(np.exp(loss))}


def main():
    fixtures = {
        "header": {"sklearn": sklearn.__version__, "generator": "tools/metric_fixtures.py"},
        "classes": [
            classes("two", 60, 2, [0, 1]),
            classes("five", 90, 5, [0, 1, 2, 3, 4]),
            classes("some never occur", 40, 6, [0, 2, 5]),
        ],
        "binary": [binary_scores("few are the same", 80, 6), binary_scores("many are the same", 120, 0)],
        "numbers": [
            numbers("one each", [70], 0.0),
            numbers("three each", [40, 3], 0.0),
            numbers("far from 0", [50], 1e6),
        ],
        "perplexity": [perplexity("words", 45, 11)],
    }
    OUT.write_text(json.dumps(fixtures, indent=None, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
