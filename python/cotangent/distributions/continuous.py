"""Continuous distributions."""

from __future__ import annotations

import math

from .. import _cotangent as _c
from .._cotangent import Tensor
from .distribution import EULER, LOG_2PI, POSITIVE, REAL, Distribution, tensors

_ops = _c._functions


def _unit(shape, like):
    """Draws uniform numbers above 0 and below 1."""
    drawn = _ops["rand"](shape, dtype=like.dtype, device=like.device)
    tiny = 2.0**-53 if like.dtype == _c.float64 else 2.0**-24
    return _ops["clamp"](drawn, tiny, 1 - tiny)


def _value(value, like):
    return value if isinstance(value, Tensor) else _c._tensor(value, dtype=like.dtype, device=like.device)


class _LocationScale(Distribution):
    has_rsample = True
    arg_constraints = {"loc": REAL, "scale": POSITIVE}

    def __init__(self, loc, scale, validate_args=None):
        self.loc, self.scale = tensors(loc, scale)
        super().__init__(self.loc.shape, (), validate_args)

    @property
    def mean(self):
        return self.loc

    @property
    def mode(self):
        return self.loc

    def _draw(self, shape):
        """Draws samples with location 0 and scale 1."""
        raise NotImplementedError

    def rsample(self, sample_shape=()):
        return self.loc + self.scale * self._draw(self._extended(sample_shape))


class Normal(_LocationScale):
    """The normal distribution."""

    @property
    def stddev(self):
        return self.scale

    @property
    def variance(self):
        return self.scale.square()

    def _draw(self, shape):
        return _ops["randn"](shape, dtype=self.loc.dtype, device=self.loc.device)

    def log_prob(self, value):
        z = (_value(value, self.loc) - self.loc) / self.scale
        return -0.5 * z.square() - self.scale.log() - 0.5 * LOG_2PI

    def entropy(self):
        return 0.5 + 0.5 * LOG_2PI + self.scale.log()

    def cdf(self, value):
        return 0.5 * (1 + ((_value(value, self.loc) - self.loc) / (self.scale * math.sqrt(2))).erf())

    def icdf(self, value):
        return self.loc + self.scale * (2 * _value(value, self.loc) - 1).erfinv() * math.sqrt(2)


class LogNormal(Normal):
    """The log-normal distribution: the exponential of a normal variable."""

    @property
    def mean(self):
        return (self.loc + self.variance_of_log / 2).exp()

    @property
    def variance_of_log(self):
        return self.scale.square()

    @property
    def mode(self):
        return (self.loc - self.variance_of_log).exp()

    @property
    def variance(self):
        v = self.variance_of_log
        return v.expm1() * (2 * self.loc + v).exp()

    @property
    def stddev(self):
        return self.variance.sqrt()

    def rsample(self, sample_shape=()):
        return super().rsample(sample_shape).exp()

    def log_prob(self, value):
        log = _value(value, self.loc).log()
        return super().log_prob(log) - log

    def entropy(self):
        return super().entropy() + self.loc

    def cdf(self, value):
        return super().cdf(_value(value, self.loc).log())

    def icdf(self, value):
        return super().icdf(value).exp()


class HalfNormal(Distribution):
    """The half-normal distribution: the absolute value of a normal variable with mean 0."""

    has_rsample = True
    arg_constraints = {"scale": POSITIVE}

    def __init__(self, scale, validate_args=None):
        (self.scale,) = tensors(scale)
        super().__init__(self.scale.shape, (), validate_args)

    @property
    def mean(self):
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self):
        return _ops["zeros_like"](self.scale)

    @property
    def variance(self):
        return self.scale.square() * (1 - 2 / math.pi)

    def rsample(self, sample_shape=()):
        drawn = _ops["randn"](self._extended(sample_shape), dtype=self.scale.dtype, device=self.scale.device)
        return (self.scale * drawn).abs()

    def log_prob(self, value):
        value = _value(value, self.scale)
        found = Normal(0.0, self.scale).log_prob(value) + math.log(2)
        return _ops["where"](value >= 0, found, -math.inf)

    def entropy(self):
        return 0.5 + 0.5 * LOG_2PI + self.scale.log() - math.log(2)


class Laplace(_LocationScale):
    """The Laplace distribution, whose density falls exponentially on both sides of the mean."""

    @property
    def variance(self):
        return 2 * self.scale.square()

    def _draw(self, shape):
        u = _unit(shape, self.loc) - 0.5
        return -u.sign() * (-2 * u.abs()).log1p()

    def log_prob(self, value):
        return -(2 * self.scale).log() - (_value(value, self.loc) - self.loc).abs() / self.scale

    def entropy(self):
        return 1 + (2 * self.scale).log()

    def cdf(self, value):
        z = _value(value, self.loc) - self.loc
        return 0.5 - 0.5 * z.sign() * (-z.abs() / self.scale).expm1()


class Cauchy(_LocationScale):
    """The Cauchy distribution: the ratio of two normal variables. It has no mean."""

    @property
    def mean(self):
        return _ops["full_like"](self.loc, math.nan)

    @property
    def variance(self):
        return _ops["full_like"](self.loc, math.inf)

    def _draw(self, shape):
        return (math.pi * (_unit(shape, self.loc) - 0.5)).tan()

    def log_prob(self, value):
        z = (_value(value, self.loc) - self.loc) / self.scale
        return -math.log(math.pi) - self.scale.log() - z.square().log1p()

    def entropy(self):
        return math.log(4 * math.pi) + self.scale.log()


class Gumbel(_LocationScale):
    """The Gumbel distribution: the limit of the maximum of many samples."""

    @property
    def mean(self):
        return self.loc + self.scale * EULER

    @property
    def variance(self):
        return (math.pi**2 / 6) * self.scale.square()

    def _draw(self, shape):
        return -(-_unit(shape, self.loc).log()).log()

    def log_prob(self, value):
        z = (self.loc - _value(value, self.loc)) / self.scale
        return z - z.exp() - self.scale.log()

    def entropy(self):
        return self.scale.log() + (1 + EULER)


class Uniform(Distribution):
    """The uniform distribution on ``[low, high)``."""

    has_rsample = True
    arg_constraints = {"low": REAL, "high": REAL}

    def __init__(self, low, high, validate_args=None):
        self.low, self.high = tensors(low, high)
        super().__init__(self.low.shape, (), validate_args)
        if validate_args is not False and not bool((self.low < self.high).all()):
            raise ValueError(f"Uniform: low must be below high, got {self.low} and {self.high}")

    @property
    def mean(self):
        return (self.low + self.high) / 2

    @property
    def variance(self):
        return (self.high - self.low).square() / 12

    def rsample(self, sample_shape=()):
        drawn = _ops["rand"](self._extended(sample_shape), dtype=self.low.dtype, device=self.low.device)
        return self.low + drawn * (self.high - self.low)

    def log_prob(self, value):
        value = _value(value, self.low)
        inside = (value >= self.low) & (value < self.high)
        return _ops["where"](inside, -(self.high - self.low).log(), -math.inf)

    def entropy(self):
        return (self.high - self.low).log()

    def cdf(self, value):
        return _ops["clamp"]((_value(value, self.low) - self.low) / (self.high - self.low), 0.0, 1.0)

    def icdf(self, value):
        return self.low + _value(value, self.low) * (self.high - self.low)


class Exponential(Distribution):
    """The exponential distribution with a rate."""

    has_rsample = True
    arg_constraints = {"rate": POSITIVE}

    def __init__(self, rate, validate_args=None):
        (self.rate,) = tensors(rate)
        super().__init__(self.rate.shape, (), validate_args)

    @property
    def mean(self):
        return self.rate.reciprocal()

    @property
    def variance(self):
        return self.rate.square().reciprocal()

    def rsample(self, sample_shape=()):
        return -_unit(self._extended(sample_shape), self.rate).log() / self.rate

    def log_prob(self, value):
        return self.rate.log() - self.rate * _value(value, self.rate)

    def entropy(self):
        return 1 - self.rate.log()

    def cdf(self, value):
        return -(-self.rate * _value(value, self.rate)).expm1()

    def icdf(self, value):
        return -(-_value(value, self.rate)).log1p() / self.rate


def _gamma(concentration, shape):
    """Draws samples of the gamma distribution with rate 1, by the rejection method of Marsaglia and Tsang."""
    a = concentration.detach().expand(shape).clone()
    # A concentration below 1 is sampled at concentration + 1, and scaled by a power of a uniform number.
    small = a < 1
    d = _ops["where"](small, a + 1, a) - 1 / 3
    c = 1 / (9 * d).sqrt()
    made, open_ = _ops["zeros_like"](a), _ops["ones"](shape, dtype=_c.bool, device=a.device)
    while bool(open_.any()):
        x = _ops["randn"](shape, dtype=a.dtype, device=a.device)
        v = (1 + c * x) ** 3
        fits = (v > 0) & (_unit(shape, a).log() < 0.5 * x.square() + d - d * v + d * _ops["clamp"](v, min=1e-30).log())
        made = _ops["where"](open_ & fits, d * v, made)
        open_ = open_ & ~fits
    return _ops["where"](small, made * _unit(shape, a) ** (1 / a), made)


class Gamma(Distribution):
    """The gamma distribution with a concentration (shape) and a rate."""

    arg_constraints = {"concentration": POSITIVE, "rate": POSITIVE}

    def __init__(self, concentration, rate, validate_args=None):
        self.concentration, self.rate = tensors(concentration, rate)
        super().__init__(self.rate.shape, (), validate_args)

    @property
    def mean(self):
        return self.concentration / self.rate

    @property
    def variance(self):
        return self.concentration / self.rate.square()

    def sample(self, sample_shape=()):
        return _gamma(self.concentration, self._extended(sample_shape)) / self.rate.detach()

    def log_prob(self, value):
        value, a, b = _value(value, self.rate), self.concentration, self.rate
        return a * b.log() + (a - 1) * value.log() - b * value - a.lgamma()

    def entropy(self):
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()


class Beta(Distribution):
    """The beta distribution on ``[0, 1]``."""

    arg_constraints = {"concentration1": POSITIVE, "concentration0": POSITIVE}

    def __init__(self, concentration1, concentration0, validate_args=None):
        self.concentration1, self.concentration0 = tensors(concentration1, concentration0)
        super().__init__(self.concentration1.shape, (), validate_args)

    @property
    def mean(self):
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def variance(self):
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    def sample(self, sample_shape=()):
        shape = self._extended(sample_shape)
        a, b = _gamma(self.concentration1, shape), _gamma(self.concentration0, shape)
        return a / (a + b)

    def _normaliser(self):
        a, b = self.concentration1, self.concentration0
        return a.lgamma() + b.lgamma() - (a + b).lgamma()

    def log_prob(self, value):
        value = _value(value, self.concentration1)
        return (self.concentration1 - 1) * value.log() + (self.concentration0 - 1) * (-value).log1p() - self._normaliser()

    def entropy(self):
        a, b = self.concentration1, self.concentration0
        return self._normaliser() - (a - 1) * a.digamma() - (b - 1) * b.digamma() + (a + b - 2) * (a + b).digamma()


class Dirichlet(Distribution):
    """The Dirichlet distribution: vectors of probabilities that sum to 1."""

    arg_constraints = {"concentration": POSITIVE}

    def __init__(self, concentration, validate_args=None):
        self.concentration = concentration
        if concentration.ndim < 1:
            raise ValueError("Dirichlet: concentration must have a dimension, got a 0-d tensor")
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    @property
    def mean(self):
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def variance(self):
        total = self.concentration.sum(-1, keepdim=True)
        return self.concentration * (total - self.concentration) / (total.square() * (total + 1))

    def sample(self, sample_shape=()):
        drawn = _gamma(self.concentration, self._extended(sample_shape))
        return drawn / drawn.sum(-1, keepdim=True)

    def log_prob(self, value):
        a = self.concentration
        return ((a - 1) * value.log()).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self):
        a, total = self.concentration, self.concentration.sum(-1)
        normaliser = a.lgamma().sum(-1) - total.lgamma()
        return normaliser - (a.shape[-1] - total) * total.digamma() - ((a - 1) * a.digamma()).sum(-1)


class StudentT(Distribution):
    """Student's t-distribution with ``df`` degrees of freedom."""

    arg_constraints = {"df": POSITIVE, "loc": REAL, "scale": POSITIVE}

    def __init__(self, df, loc=0.0, scale=1.0, validate_args=None):
        self.df, self.loc, self.scale = tensors(df, loc, scale)
        super().__init__(self.df.shape, (), validate_args)

    @property
    def mean(self):
        return _ops["where"](self.df > 1, self.loc, math.nan)

    @property
    def variance(self):
        wide = self.scale.square() * self.df / _ops["where"](self.df > 2, self.df - 2, 1.0)
        return _ops["where"](self.df > 2, wide, _ops["where"](self.df > 1, math.inf, math.nan))

    def sample(self, sample_shape=()):
        shape = self._extended(sample_shape)
        normal = _ops["randn"](shape, dtype=self.df.dtype, device=self.df.device)
        chi = 2 * _gamma(self.df / 2, shape)
        return self.loc.detach() + self.scale.detach() * normal * (self.df.detach() / chi).sqrt()

    def log_prob(self, value):
        y = (_value(value, self.loc) - self.loc) / self.scale
        n = self.df
        return -0.5 * (n + 1) * (y.square() / n).log1p() - self._normaliser()

    def _normaliser(self):
        n = self.df
        return self.scale.log() + 0.5 * n.log() + 0.5 * math.log(math.pi) + (0.5 * n).lgamma() - (0.5 * (n + 1)).lgamma()

    def entropy(self):
        n = self.df
        return self._normaliser() + 0.5 * (n + 1) * ((0.5 * (n + 1)).digamma() - (0.5 * n).digamma())


class MultivariateNormal(Distribution):
    """The multivariate normal distribution, given by its covariance, the inverse (precision), or the Cholesky factor."""

    has_rsample = True
    arg_constraints = {"loc": REAL}

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        if (covariance_matrix is not None) + (precision_matrix is not None) + (scale_tril is not None) != 1:
            raise ValueError("MultivariateNormal: exactly one of covariance_matrix, precision_matrix and scale_tril must be given")
        if covariance_matrix is not None:
            scale_tril = _ops["linalg_cholesky"](covariance_matrix)
        elif precision_matrix is not None:
            scale_tril = _ops["linalg_cholesky"](_ops["linalg_inv"](precision_matrix))
        batch = _ops["broadcast_tensors"]([loc[..., None], scale_tril])[0].shape[:-2]
        self.loc = loc.expand(*batch, loc.shape[-1])
        self.scale_tril = scale_tril.expand(*batch, *scale_tril.shape[-2:])
        super().__init__(batch, loc.shape[-1:], validate_args)

    @property
    def covariance_matrix(self):
        return self.scale_tril @ self.scale_tril.mT

    @property
    def precision_matrix(self):
        return _ops["linalg_inv"](self.covariance_matrix)

    @property
    def mean(self):
        return self.loc

    @property
    def mode(self):
        return self.loc

    @property
    def variance(self):
        return self.scale_tril.square().sum(-1)

    def rsample(self, sample_shape=()):
        drawn = _ops["randn"](self._extended(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self.scale_tril @ drawn[..., None])[..., 0]

    def _log_det(self):
        return _ops["linalg_diagonal"](self.scale_tril).log().sum(-1)

    def log_prob(self, value):
        difference = value - self.loc
        scale = self.scale_tril.expand(*difference.shape[:-1], *self.scale_tril.shape[-2:])
        z = _ops["linalg_solve_triangular"](scale, difference[..., None], upper=False)[..., 0]
        return -0.5 * (z.square().sum(-1) + self.loc.shape[-1] * LOG_2PI) - self._log_det()

    def entropy(self):
        return 0.5 * self.loc.shape[-1] * (1 + LOG_2PI) + self._log_det()
