"""Kullback-Leibler divergences."""

from __future__ import annotations

import math

from .. import _cotangent as _c
from .continuous import Beta, Dirichlet, Exponential, Gamma, Laplace, MultivariateNormal, Normal, Uniform
from .discrete import Bernoulli, Categorical, OneHotCategorical, Poisson
from .distribution import Independent

_ops = _c._functions
_RULES: dict = {}


def register_kl(type_p, type_q):
    """Decorator that registers ``f(p, q)`` as the divergence of two classes of distributions."""

    def decorator(function):
        _RULES[type_p, type_q] = function
        return function

    return decorator


def kl_divergence(p, q):
    """Returns the Kullback-Leibler divergence KL(p || q): the mean of ``log p(x) - log q(x)`` over samples of ``p``."""
    for one in type(p).__mro__:
        for other in type(q).__mro__:
            if (one, other) in _RULES:
                return _RULES[one, other](p, q)
    raise NotImplementedError(f"kl_divergence: no rule for {type(p).__name__} and {type(q).__name__}: add one with register_kl")


@register_kl(Normal, Normal)
def _normal(p, q):
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - ratio.log())


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p, q):
    # softplus is log(1 + exp(x)).
    first = p.probs * (_ops["softplus"](-q.logits) - _ops["softplus"](-p.logits))
    return first + (1 - p.probs) * (_ops["softplus"](q.logits) - _ops["softplus"](p.logits))


@register_kl(Categorical, Categorical)
def _categorical(p, q):
    terms = p.probs * (p.logits - q.logits)
    terms = _ops["where"](q.probs == 0, math.inf, terms)
    return _ops["where"](p.probs == 0, 0.0, terms).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p, q):
    return _categorical(p._categorical, q._categorical)


@register_kl(Uniform, Uniform)
def _uniform(p, q):
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return _ops["where"]((q.low > p.low) | (q.high < p.high), math.inf, found)


@register_kl(Exponential, Exponential)
def _exponential(p, q):
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Laplace, Laplace)
def _laplace(p, q):
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Poisson, Poisson)
def _poisson(p, q):
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Gamma, Gamma)
def _gamma(p, q):
    a, b = p.concentration, q.concentration
    return b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma() + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)


@register_kl(Beta, Beta)
def _beta(p, q):
    a, b = p.concentration1, p.concentration0
    c, d = q.concentration1, q.concentration0
    return q._normaliser() - p._normaliser() + (a - c) * a.digamma() + (b - d) * b.digamma() + (c + d - a - b) * (a + b).digamma()


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p, q):
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    first = total.lgamma() - a.lgamma().sum(-1) - b.sum(-1).lgamma() + b.lgamma().sum(-1)
    return first + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p, q):
    scale = q.scale_tril.expand(*p.scale_tril.shape)
    wide = _ops["linalg_solve_triangular"](scale, p.scale_tril, upper=False).square().sum((-2, -1))
    apart = _ops["linalg_solve_triangular"](scale, (q.loc - p.loc)[..., None], upper=False).square().sum((-2, -1))
    return q._log_det() - p._log_det() + 0.5 * (wide + apart - p.loc.shape[-1])


@register_kl(Independent, Independent)
def _independent(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError(f"kl_divergence: reinterpreted_batch_ndims must be equal, got {p.reinterpreted_batch_ndims} and "
                                  f"{q.reinterpreted_batch_ndims}")
    return p._summed(kl_divergence(p.base_dist, q.base_dist))
