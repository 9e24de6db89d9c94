# Written by tools/stubs.py: not to be edited.
from . import checkpoint as checkpoint, data as data, tensorboard as tensorboard
