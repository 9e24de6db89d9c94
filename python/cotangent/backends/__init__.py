"""PyTorch's settings of its backend libraries. They are stored, but have no effect.

Results do not depend on the number of threads, and products of float32 are computed in float32.
"""

from . import cuda, cudnn, mkl, mkldnn, mps, openmp  # noqa: F401
