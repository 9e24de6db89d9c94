# Written by tools/stubs.py: not to be edited.
from ..nn.hooks import RemovableHandle as RemovableHandle
