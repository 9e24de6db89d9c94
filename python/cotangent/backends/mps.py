"""Apple's GPUs, which are not used here."""


def is_available() -> bool:
    """Whether it is used: it is not."""
    return False


def is_built() -> bool:
    """Whether it could be used: it could not."""
    return False
