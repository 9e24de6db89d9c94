"""PyTorch's settings of cuDNN, which is not used. They are stored, but have no effect."""

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = False
allow_tf32 = False


def is_available() -> bool:
    """Always False: cuDNN is not used."""
    return False


def version():
    """Always None: cuDNN is not used."""
    return None
