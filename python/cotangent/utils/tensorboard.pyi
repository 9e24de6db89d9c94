# Written by tools/stubs.py: not to be edited.
from ..train import SummaryWriter as SummaryWriter
