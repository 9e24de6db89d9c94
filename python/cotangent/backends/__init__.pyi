# Written by tools/stubs.py: not to be edited.
from . import cuda as cuda, cudnn as cudnn, mkl as mkl, mkldnn as mkldnn, mps as mps, openmp as openmp
