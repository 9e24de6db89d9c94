# Written by tools/stubs.py: not to be edited.
from ...data import *
from . import dataloader as dataloader, dataset as dataset, distributed as distributed, sampler as sampler
