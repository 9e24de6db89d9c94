"""Weights that are computed from others."""

from .parametrize import spectral_norm, weight_norm  # noqa: F401
