"""Probability distributions, as in ``torch.distributions``: samples, log-probabilities and divergences.

    >>> import cotangent as ct
    >>> from cotangent.distributions import Categorical, Normal, kl_divergence
    >>> policy = Categorical(ct.tensor([0.2, 0.8]))
    >>> policy.log_prob(ct.tensor(1)).exp()
    tensor(0.8000)
    >>> kl_divergence(Normal(0.0, 1.0), Normal(0.0, 1.0))
    tensor(0.)

``rsample`` draws samples through which gradients reach the parameters. ``sample`` is outside of the graph.
"""

from __future__ import annotations

from .continuous import (  # noqa: F401
    Beta,
    Cauchy,
    Dirichlet,
    Exponential,
    Gamma,
    Gumbel,
    HalfNormal,
    Laplace,
    LogNormal,
    MultivariateNormal,
    Normal,
    StudentT,
    Uniform,
)
from .discrete import Bernoulli, Binomial, Categorical, Geometric, OneHotCategorical, Poisson  # noqa: F401
from .distribution import Distribution, Independent  # noqa: F401
from .kl import kl_divergence, register_kl  # noqa: F401


def __getattr__(name: str):
    own = sorted(key for key, value in globals().items() if isinstance(value, type))
    raise AttributeError(f"module 'cotangent.distributions' has no attribute {name!r}, only {', '.join(own)}")
