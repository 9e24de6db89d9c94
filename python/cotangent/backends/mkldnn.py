"""Intel's library of layers, which is not used here."""


def is_available() -> bool:
    """Whether it is used: it is not."""
    return False
