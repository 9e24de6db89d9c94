"""Discrete distributions."""

from __future__ import annotations

import math

from .. import _cotangent as _c
from .._cotangent import Tensor
from .._core.modes import no_grad
from .distribution import NOT_NEGATIVE, REAL, UNIT, Distribution, limited, log_odds, probabilities, tensors

_ops = _c._functions


def _one_of(name, probs, logits):
    if (probs is None) == (logits is None):
        raise ValueError(f"{name}: either probs or logits must be given, got {'neither' if probs is None else 'both'}")


class _Binary(Distribution):
    """Base class of distributions with the probability of a success, given by ``probs`` or by ``logits``, the log-odds."""

    arg_constraints = {"_probs": UNIT, "_logits": REAL}

    def _take(self, probs, logits, *more):
        _one_of(type(self).__name__, probs, logits)
        given, *more = tensors(probs if logits is None else logits, *more)
        self._probs, self._logits = (given, None) if logits is None else (None, given)
        return given, more

    @property
    def probs(self):
        """The probability of a success."""
        return probabilities(self._logits, True) if self._probs is None else self._probs

    @property
    def logits(self):
        """The log-odds of a success."""
        return log_odds(self._probs, True) if self._logits is None else self._logits

    def __repr__(self):
        name, value = ("probs", self._probs) if self._logits is None else ("logits", self._logits)
        return f"{type(self).__name__}({name}: {value if value.numel() == 1 else value.shape})"


class Bernoulli(_Binary):
    """The Bernoulli distribution: 1 with probability ``probs``, and 0 otherwise."""

    def __init__(self, probs=None, logits=None, validate_args=None):
        given, _ = self._take(probs, logits)
        super().__init__(given.shape, (), validate_args)

    @property
    def mean(self):
        return self.probs

    @property
    def variance(self):
        return self.probs * (1 - self.probs)

    @property
    def mode(self):
        return (self.probs >= 0.5).to(self.probs.dtype)

    def sample(self, sample_shape=()):
        with no_grad():
            return _ops["bernoulli"](self.probs.expand(self._extended(sample_shape)))

    def log_prob(self, value):
        logits, value = _ops["broadcast_tensors"]([self.logits, value])
        return -_ops["binary_cross_entropy_with_logits"](logits, value.to(logits.dtype), reduction="none")

    def entropy(self):
        logits = self.logits
        return _ops["binary_cross_entropy_with_logits"](logits, self.probs.to(logits.dtype), reduction="none")


class Geometric(_Binary):
    """The geometric distribution: the number of failures before the first success."""

    def __init__(self, probs=None, logits=None, validate_args=None):
        given, _ = self._take(probs, logits)
        super().__init__(given.shape, (), validate_args)

    @property
    def mean(self):
        return 1 / self.probs - 1

    @property
    def variance(self):
        return (1 / self.probs - 1) / self.probs

    def sample(self, sample_shape=()):
        with no_grad():
            probs = limited(self.probs)
            drawn = limited(_ops["rand"](self._extended(sample_shape), dtype=probs.dtype, device=probs.device))
            return (drawn.log() / (-probs).log1p()).floor()

    def log_prob(self, value):
        probs = limited(self.probs)
        return value * (-probs).log1p() + probs.log()

    def entropy(self):
        probs = limited(self.probs)
        return -(probs * probs.log() + (1 - probs) * (-probs).log1p()) / probs


class Binomial(_Binary):
    """The binomial distribution: the number of successes in ``total_count`` trials."""

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        given, (self.total_count,) = self._take(probs, logits, total_count)
        super().__init__(given.shape, (), validate_args)

    @property
    def mean(self):
        return self.total_count * self.probs

    @property
    def variance(self):
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape=()):
        shape = self._extended(sample_shape)
        with no_grad():
            most = int(self.total_count.max().item()) if self.total_count.numel() else 0
            made = _ops["zeros"](shape, dtype=self.probs.dtype, device=self.probs.device)
            for trial in range(most):
                made = made + _ops["bernoulli"](self.probs.expand(shape)) * (self.total_count > trial)
            return made

    def log_prob(self, value):
        n, logits = self.total_count, self.logits
        ways = (n + 1).lgamma() - (value + 1).lgamma() - (n - value + 1).lgamma()
        # `n log(1 + e^l)` without overflow.
        return ways + value * logits - n * (_ops["clamp"](logits, min=0.0) + (-logits.abs()).exp().log1p())

    def entropy(self):
        most = int(self.total_count.max().item())
        if bool((self.total_count != most).any()):
            raise NotImplementedError(f"Binomial: entropy: total_count must be the same everywhere, got {self.total_count}")
        counts = _ops["arange"](0, most + 1, dtype=self.probs.dtype, device=self.probs.device)
        found = self.log_prob(counts.reshape(-1, *[1] * len(self._batch_shape)))
        return -(found.exp() * found).sum(0)


class Poisson(Distribution):
    """The Poisson distribution: the number of events at a rate."""

    arg_constraints = {"rate": NOT_NEGATIVE}

    def __init__(self, rate, validate_args=None):
        (self.rate,) = tensors(rate)
        super().__init__(self.rate.shape, (), validate_args)

    @property
    def mean(self):
        return self.rate

    @property
    def variance(self):
        return self.rate

    @property
    def mode(self):
        return self.rate.floor()

    def sample(self, sample_shape=()):
        with no_grad():
            return _ops["poisson"](self.rate.expand(self._extended(sample_shape)))

    def log_prob(self, value):
        value = value if isinstance(value, Tensor) else _c._tensor(value, dtype=self.rate.dtype)
        return _ops["xlogy"](value, self.rate) - self.rate - (value + 1).lgamma()


class Categorical(Distribution):
    """The categorical distribution of indices: ``probs`` or ``logits``, along the last dimension, need not be normalised."""

    arg_constraints = {"probs": NOT_NEGATIVE, "logits": REAL}

    def __init__(self, probs=None, logits=None, validate_args=None):
        _one_of("Categorical", probs, logits)
        given = probs if logits is None else logits
        if given.ndim < 1:
            raise ValueError("Categorical: probs or logits must have a dimension, got a 0-d tensor")
        self._by_logits = logits is not None
        if logits is None:
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = logits - logits.logsumexp(dim=-1, keepdim=True)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], (), validate_args)

    def __getattr__(self, name):
        # The other form is computed at its first use.
        if name == "logits" and "probs" in self.__dict__:
            self.__dict__["logits"] = log_odds(self.probs, False)
        elif name == "probs" and "logits" in self.__dict__:
            self.__dict__["probs"] = probabilities(self.logits, False)
        else:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")
        return self.__dict__[name]

    @property
    def param_shape(self):
        return self.logits.shape

    @property
    def mean(self):
        return _ops["full"](tuple(self._batch_shape), math.nan, dtype=self.probs.dtype, device=self.probs.device)

    @property
    def variance(self):
        return self.mean

    @property
    def mode(self):
        return self.probs.argmax(dim=-1)

    def sample(self, sample_shape=()):
        shape = self._extended(sample_shape)
        with no_grad():
            rows = self.probs.reshape(-1, self._num_events)
            count = math.prod(shape) // max(rows.shape[0], 1)
            drawn = _ops["multinomial"](rows, count, True).t()
            return drawn.reshape(shape)

    def log_prob(self, value):
        value = value.long().unsqueeze(-1)
        shape = _ops["broadcast_tensors"]([value, self.logits[..., :1]])[0].shape
        logits = self.logits.expand(*shape[:-1], self._num_events)
        return logits.gather(-1, value.expand(*shape)).squeeze(-1)

    def entropy(self):
        logits = _ops["clamp"](self.logits, min=-3.4028234663852886e38)
        return -(logits * self.probs).sum(-1)

    def __repr__(self):
        name = "logits" if self._by_logits else "probs"
        value = getattr(self, name)
        return f"Categorical({name}: {value if value.numel() == 1 else value.shape})"


class OneHotCategorical(Distribution):
    """The categorical distribution of one-hot vectors."""

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, (self._categorical._num_events,), validate_args)

    @property
    def probs(self):
        return self._categorical.probs

    @property
    def logits(self):
        return self._categorical.logits

    @property
    def mean(self):
        return self.probs

    @property
    def variance(self):
        return self.probs * (1 - self.probs)

    @property
    def mode(self):
        return self._one_hot(self._categorical.mode)

    def _one_hot(self, kinds):
        return _ops["one_hot"](kinds, self._categorical._num_events).to(self.probs.dtype)

    def sample(self, sample_shape=()):
        return self._one_hot(self._categorical.sample(sample_shape))

    def log_prob(self, value):
        return self._categorical.log_prob(value.argmax(dim=-1))

    def entropy(self):
        return self._categorical.entropy()
