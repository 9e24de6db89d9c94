# Written by tools/stubs.py: not to be edited.
from typing import Any

def __getattr__(name: str) -> Any: ...
