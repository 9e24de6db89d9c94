# Written by tools/stubs.py: not to be edited.
from .parametrize import spectral_norm as spectral_norm, weight_norm as weight_norm
