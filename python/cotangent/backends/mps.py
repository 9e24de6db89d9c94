"""Apple's GPUs, which are not supported."""


def is_available() -> bool:
    """Always False: not supported."""
    return False


def is_built() -> bool:
    """Always False: not supported."""
    return False
