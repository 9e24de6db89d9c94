# Written by tools/stubs.py: not to be edited.
from . import benchmark as benchmark, checkpoint as checkpoint, data as data, hooks as hooks, model_zoo as model_zoo, tensorboard as tensorboard
