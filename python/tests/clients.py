"""Libraries that take arrays of any kind, with ours; one command, in an environment of its own:

    python -m venv env && env/bin/pip install ./python einops scipy scikit-learn && env/bin/python python/tests/clients.py

What they give is compared with what they give for NumPy's arrays.
"""

from __future__ import annotations

import os
import sys
import warnings

os.environ["SCIPY_ARRAY_API"] = "1"

import numpy as np  # noqa: E402

import cotangent as ct  # noqa: E402

warnings.simplefilter("ignore")
RNG = np.random.default_rng(0)


def numbers(result):
    """The arrays of a result, as NumPy's."""
    if isinstance(result, (tuple, list)):
        return [array for part in result for array in numbers(part)]
    return [np.asarray(result)]


def ours(result):
    return all(map(ours, result)) if isinstance(result, (tuple, list)) else isinstance(result, (ct.Tensor, float, int, bool))


def compare(name, call, *arrays, rtol=1e-6):
    """Whether a call gives the same for our arrays, as ours."""
    try:
        found, wanted = call(*map(ct.asarray, arrays)), call(*arrays)
        if not ours(found):
            raise TypeError(f"the result is of type {type(found).__name__}")
        for a, b in zip(numbers(found), numbers(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-9)
    except Exception as error:
        print(f"  {name}: {type(error).__name__}: {str(error).strip()[:200]}")
        return 1
    return 0


def einops():
    from einops.array_api import pack, rearrange, reduce, repeat, unpack

    x = RNG.standard_normal((2, 3, 4, 6))
    calls = {
        "rearrange": lambda a: rearrange(a, "b c (h p) (w q) -> b (h w) (p q c)", p=2, q=3),
        "reduce mean": lambda a: reduce(a, "b c h w -> b c", "mean"),
        "reduce max": lambda a: reduce(a, "b c (h p) w -> b c h w", "max", p=2),
        "reduce sum": lambda a: reduce(a, "b c h w -> ", "sum"),
        "repeat": lambda a: repeat(a, "b c h w -> b c (h k) w", k=2),
        "pack": lambda a: pack([a, a], "b * h w")[0],
        "unpack": lambda a: unpack(pack([a, a[:, 0]], "b * h w")[0], [(3,), ()], "b * h w"),
    }
    return sum(compare(f"einops {name}", call, x) for name, call in calls.items()), len(calls)


def scipy():
    from scipy import cluster, fft, integrate, signal, special, stats

    x, y = RNG.standard_normal(64), RNG.standard_normal(64)
    p = RNG.uniform(0.1, 0.9, 64)
    calls = {
        "special.logsumexp": (lambda a: special.logsumexp(a), x), "special.softmax": (lambda a: special.softmax(a), x),
        "special.log_softmax": (lambda a: special.log_softmax(a), x), "special.erf": (lambda a: special.erf(a), x),
        "special.expit": (lambda a: special.expit(a), x), "special.logit": (lambda a: special.logit(a), p),
        "special.gammaln": (lambda a: special.gammaln(a), p), "special.xlogy": (lambda a: special.xlogy(a, a), p),
        "special.ndtr": (lambda a: special.ndtr(a), x), "special.entr": (lambda a: special.entr(a), p),
        "stats.zscore": (lambda a: stats.zscore(a), x), "stats.skew": (lambda a: stats.skew(a), x),
        "stats.kurtosis": (lambda a: stats.kurtosis(a), x), "stats.moment": (lambda a: stats.moment(a, order=3), x),
        "stats.gmean": (lambda a: stats.gmean(a), p), "stats.hmean": (lambda a: stats.hmean(a), p),
        "stats.sem": (lambda a: stats.sem(a), x), "stats.variation": (lambda a: stats.variation(a), p),
        "stats.ttest_1samp": (lambda a: stats.ttest_1samp(a, 0.1).statistic, x),
        "stats.ttest_ind": (lambda a, b: stats.ttest_ind(a, b).statistic, x, y),
        "stats.pearsonr": (lambda a, b: stats.pearsonr(a, b).statistic, x, y),
        "stats.entropy": (lambda a: stats.entropy(a), p), "stats.jarque_bera": (lambda a: stats.jarque_bera(a).statistic, x),
        "stats.circmean": (lambda a: stats.circmean(a), x),
        "integrate.trapezoid": (lambda a: integrate.trapezoid(a, dx=0.1), x),
        "integrate.simpson": (lambda a: integrate.simpson(a, dx=0.1), x),
        "integrate.cumulative_trapezoid": (lambda a: integrate.cumulative_trapezoid(a), x),
        "fft.fft": (lambda a: abs(fft.fft(a)), x), "fft.rfft": (lambda a: abs(fft.rfft(a)), x),
        "fft.fftfreq": (lambda a: fft.fftshift(a), x),
        "signal.detrend": (lambda a: signal.detrend(a), x), "signal.hilbert": (lambda a: abs(signal.hilbert(a)), x),
        "cluster.vq.whiten": (lambda a: cluster.vq.whiten(a), RNG.standard_normal((20, 3))),
    }
    return sum(compare(f"SciPy {name}", *call) for name, call in calls.items()), len(calls)


def sklearn():
    import sklearn
    from sklearn import metrics
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import Ridge
    from sklearn.mixture import GaussianMixture
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler

    x = RNG.standard_normal((60, 5))
    y, t = (x[:, 0] > 0).astype("int64"), x @ np.arange(5.0)
    guess = (x[:, 1] > 0).astype("int64")
    calls = {
        "MinMaxScaler": (lambda a: MinMaxScaler().fit_transform(a), x), "MaxAbsScaler": (lambda a: MaxAbsScaler().fit_transform(a), x),
        "StandardScaler": (lambda a: StandardScaler().fit_transform(a), x), "Normalizer": (lambda a: Normalizer().fit_transform(a), x),
        "PCA": (lambda a: PCA(n_components=2, svd_solver="full").fit(a).explained_variance_, x),
        "LinearDiscriminantAnalysis": (lambda a, b: LinearDiscriminantAnalysis().fit(a, b).predict(a), x, y),
        "Ridge": (lambda a, b: Ridge(solver="svd").fit(a, b).coef_, x, t),
        "GaussianMixture": (lambda a: GaussianMixture(2, init_params="random", random_state=0, max_iter=3).fit(a).means_, x),
        "train_test_split": (lambda a: train_test_split(a, random_state=0)[0], x),
        "accuracy_score": (lambda a, b: metrics.accuracy_score(a, b), y, guess),
        "f1_score": (lambda a, b: metrics.f1_score(a, b), y, guess),
        "mean_squared_error": (lambda a, b: metrics.mean_squared_error(a, b), t, x[:, 0]),
        "r2_score": (lambda a, b: metrics.r2_score(a, b), t, x[:, 0]),
        "euclidean_distances": (lambda a: metrics.pairwise.euclidean_distances(a), x),
        "rbf_kernel": (lambda a: metrics.pairwise.rbf_kernel(a), x),
    }
    with sklearn.config_context(array_api_dispatch=True):
        return sum(compare(f"scikit-learn {name}", *call, rtol=1e-5) for name, call in calls.items()), len(calls)


def main():
    total = 0
    for part in (einops, scipy, sklearn):
        try:
            failed, count = part()
        except ImportError as error:
            print(f"{part.__name__}: skipped, {error}")
            continue
        total += failed
        print(f"{part.__name__}: {count - failed} of {count} agree with NumPy's")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
