"""PyTorch's settings of the CUDA libraries. They are stored, but have no effect."""


class _Matmul:
    """The precision of matrix products. They are always computed in float32."""

    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = False
    allow_bf16_reduced_precision_reduction = False


matmul = _Matmul()


def is_built() -> bool:
    """Whether GPUs are supported: always True."""
    return True
