"""What PyTorch lets one choose of the libraries below it. Nothing is to be chosen here: what is set is kept, and changes nothing.

Results do not depend on the number of threads, and products of float32 are computed in float32.
"""

from . import cuda, cudnn, mkl, mkldnn, mps, openmp  # noqa: F401
