"""PyTorch's settings of CUDA's libraries: they are kept, and change nothing."""


class _Matmul:
    """How products of matrices may be rounded: they are of float32."""

    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = False
    allow_bf16_reduced_precision_reduction = False


matmul = _Matmul()


def is_built() -> bool:
    """Whether GPUs can be used where there are any."""
    return True
