"""PyTorch's settings of cuDNN, which is not used here: they are kept, and change nothing."""

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = False
allow_tf32 = False


def is_available() -> bool:
    """Whether cuDNN is used: it is not."""
    return False


def version():
    """The version of cuDNN: there is none."""
    return None
