# Written by tools/stubs.py: not to be edited.
from . import Beta as Beta
