"""Parametrizations that normalise weights."""

from .parametrize import spectral_norm, weight_norm  # noqa: F401
