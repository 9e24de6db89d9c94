"""Intel's MKL, which is not used."""


def is_available() -> bool:
    """Always False: MKL is not used."""
    return False

