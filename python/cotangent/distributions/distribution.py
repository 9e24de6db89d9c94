"""The base class of distributions."""

from __future__ import annotations

import math

from .. import _cotangent as _c
from .._cotangent import Tensor
from .._core.modes import no_grad
from .._core.size import Size

_ops = _c._functions


def tensors(*values):
    """Converts parameters to tensors of one shape. Numbers get the dtype of the tensors."""
    given = [x for x in values if isinstance(x, Tensor)]
    dtype, device = (given[0].dtype, given[0].device) if given else (_c.get_default_dtype(), None)
    made = [x if isinstance(x, Tensor) else _c._tensor(float(x), dtype=dtype, device=device) for x in values]
    return list(_ops["broadcast_tensors"](made))


class Distribution:
    """Base class of distributions: a batch of shape ``batch_shape``, with samples of shape ``event_shape``."""

    has_rsample = False
    arg_constraints: dict = {}

    def __init__(self, batch_shape=(), event_shape=(), validate_args=None):
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not False:
            self._check()

    def _check(self):
        """Raises ValueError if a parameter is invalid."""
        for name, (holds, text) in self.arg_constraints.items():
            value = self.__dict__.get(name)
            if value is not None and not bool(holds(value.detach()).all()):
                raise ValueError(f"{type(self).__name__}: {name.lstrip('_')} must be {text}, got {value}")

    @property
    def batch_shape(self):
        """The shape of the batch of distributions."""
        return self._batch_shape

    @property
    def event_shape(self):
        """The shape of one sample of one distribution."""
        return self._event_shape

    @property
    def stddev(self):
        """The standard deviation."""
        return self.variance.sqrt()

    def _extended(self, sample_shape):
        sample_shape = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        return (*sample_shape, *self._batch_shape, *self._event_shape)

    def rsample(self, sample_shape=()):
        """Draws samples through which gradients reach the parameters."""
        raise NotImplementedError(f"{type(self).__name__} has no rsample: use sample and log_prob")

    def sample(self, sample_shape=()):
        """Draws samples outside of the graph, of shape ``sample_shape + batch_shape + event_shape``."""
        with no_grad():
            return self.rsample(sample_shape)

    def sample_n(self, n):
        """Draws ``n`` samples."""
        return self.sample((n,))

    def log_prob(self, value):
        """Returns the logarithm of the probability, or of its density, at ``value``."""
        raise NotImplementedError(f"{type(self).__name__} has no log_prob")

    def entropy(self):
        """Returns the entropy."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy")

    def cdf(self, value):
        """Returns the cumulative distribution function at ``value``."""
        raise NotImplementedError(f"{type(self).__name__} has no cdf")

    def icdf(self, value):
        """Returns the inverse of the cumulative distribution function at ``value``."""
        raise NotImplementedError(f"{type(self).__name__} has no icdf")

    def perplexity(self):
        """Returns the perplexity, the exponential of the entropy."""
        return self.entropy().exp()

    def __repr__(self):
        shown = [f"{name}: {value if value.numel() == 1 else value.shape}" for name, value in self.__dict__.items()
                 if name in self.arg_constraints and value is not None]
        return f"{type(self).__name__}({', '.join(shown)})"


class Independent(Distribution):
    """Reinterprets the last ``reinterpreted_batch_ndims`` dimensions of a distribution's batch as dimensions of its samples."""

    def __init__(self, base_distribution, reinterpreted_batch_ndims, validate_args=None):
        own = tuple(base_distribution.batch_shape)
        if reinterpreted_batch_ndims > len(own):
            raise ValueError(f"Independent: reinterpreted_batch_ndims must be at most {len(own)}, got {reinterpreted_batch_ndims}")
        at = len(own) - reinterpreted_batch_ndims
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, reinterpreted_batch_ndims
        self.has_rsample = base_distribution.has_rsample
        super().__init__(own[:at], own[at:] + tuple(base_distribution.event_shape), validate_args)

    @property
    def mean(self):
        return self.base_dist.mean

    @property
    def mode(self):
        return self.base_dist.mode

    @property
    def variance(self):
        return self.base_dist.variance

    def rsample(self, sample_shape=()):
        return self.base_dist.rsample(sample_shape)

    def sample(self, sample_shape=()):
        return self.base_dist.sample(sample_shape)

    def _summed(self, x):
        count = self.reinterpreted_batch_ndims
        return x.sum(dim=tuple(range(-count, 0))) if count else x

    def log_prob(self, value):
        return self._summed(self.base_dist.log_prob(value))

    def entropy(self):
        return self._summed(self.base_dist.entropy())

    def __repr__(self):
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"


# The constraints of parameters, with their texts for messages.
POSITIVE = (lambda x: x > 0, "positive")
REAL = (lambda x: x == x, "a real number")
UNIT = (lambda x: (x >= 0) & (x <= 1), "in [0, 1]")
NOT_NEGATIVE = (lambda x: x >= 0, "non-negative")
LOG_2PI = math.log(2 * math.pi)
EULER = 0.5772156649015329


def probabilities(logits, binary):
    return logits.sigmoid() if binary else logits.softmax(-1)


def limited(probs):
    """Clamps probabilities away from 0 and 1, so that their logarithms are finite."""
    eps = 2.0**-52 if probs.dtype == _c.float64 else 2.0**-23
    return _ops["clamp"](probs, eps, 1 - eps)


def log_odds(probs, binary):
    probs = limited(probs)
    return probs.log() - (-probs).log1p() if binary else probs.log()
