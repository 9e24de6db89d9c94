# Written by tools/stubs.py: not to be edited.
from . import windows as windows
