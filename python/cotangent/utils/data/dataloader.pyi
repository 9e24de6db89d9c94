# Written by tools/stubs.py: not to be edited.
from ...data import *
