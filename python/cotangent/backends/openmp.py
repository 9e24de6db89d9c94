"""OpenMP, which is not used: the library has its own threads."""


def is_available() -> bool:
    """Always False: OpenMP is not used."""
    return False

