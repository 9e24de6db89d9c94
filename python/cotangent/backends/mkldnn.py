"""Intel's oneDNN (MKL-DNN), which is not used."""


def is_available() -> bool:
    """Always False: oneDNN is not used."""
    return False
