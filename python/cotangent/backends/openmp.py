"""OpenMP, which is not used here: there are threads of our own."""


def is_available() -> bool:
    """Whether it is used: it is not."""
    return False

