"""The functions of ``torch.nn.functional``. Those that are not defined here are operations of the Rust crate."""

from __future__ import annotations

import inspect
import warnings

from .. import _cotangent as _c
from .._core.forms import ctc_loss  # noqa: F401
from .._core.modes import no_grad

_ops = _c._functions

# Functions that are operations of the crate with the same arguments.
_SAME = """affine_grid avg_pool1d avg_pool2d avg_pool3d bilinear
binary_cross_entropy binary_cross_entropy_with_logits channel_shuffle conv1d conv2d conv3d conv_transpose1d conv_transpose2d
conv_transpose3d cosine_embedding_loss cosine_similarity cross_entropy fold
gaussian_nll_loss gelu glu grid_sample group_norm hardshrink hinge_embedding_loss huber_loss interpolate
kl_div l1_loss layer_norm linear local_response_norm logsigmoid lp_pool1d lp_pool2d lp_pool3d
margin_ranking_loss max_unpool1d max_unpool2d max_unpool3d mse_loss multi_margin_loss multilabel_margin_loss
multilabel_soft_margin_loss nll_loss one_hot pad pairwise_distance pdist pixel_shuffle pixel_unshuffle
poisson_nll_loss prelu rms_norm sigmoid smooth_l1_loss soft_margin_loss softplus softshrink softsign
tanh tanhshrink triplet_margin_loss"""
globals().update((name, _ops[name]) for name in _SAME.split() if name in _ops)


def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """Samples from the Gumbel-Softmax distribution with temperature ``tau``. ``eps`` has no effect, as in PyTorch."""
    return _ops["gumbel_softmax"](logits, tau, hard, dim)


# Functions with PyTorch's argument `inplace`.
_IN_PLACE = "celu elu hardsigmoid hardswish hardtanh leaky_relu mish relu relu6 selu silu threshold"


def _changing(name):
    op = _ops[name]

    def function(input, *args, inplace=False, **kwargs):
        # A positional `inplace` comes after the operation's own arguments.
        if args and isinstance(args[-1], bool) and len(args) == most:
            args, inplace = args[:-1], args[-1]
        result = op(input, *args, **kwargs)
        return input.copy_(result) if inplace else result

    most = len(inspect.signature(op).parameters)
    params = [*inspect.signature(op).parameters.values(), inspect.Parameter("inplace", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False)]
    function.__signature__ = inspect.Signature(params)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = op.__doc__
    return function


globals().update((name, _changing(name)) for name in _IN_PLACE.split())


def _dropping(name):
    op = _ops[name]

    def function(input, p=0.5, training=True, inplace=False):
        if not training and 0.0 <= p <= 1.0:
            return input
        result = op(input, p, training)
        return input.copy_(result) if inplace else result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = op.__doc__
    return function


globals().update((name, _dropping(name)) for name in
                 ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"))


def rrelu(input, lower=1.0 / 8, upper=1.0 / 3, training=False, inplace=False):
    """Randomised leaky ReLU. In training, each slope is drawn between the bounds. Otherwise it is their mean."""
    if training:
        slope = _ops["rand"](input.shape, dtype=input.dtype, device=input.device) * (upper - lower) + lower
        result = _ops["where"](input >= 0, input, input * slope)
    else:
        result = _ops["leaky_relu"](input, (lower + upper) / 2)
    return input.copy_(result) if inplace else result


def _sizes(input, output_size):
    """Returns the output size of a pool, with the input's size for None."""
    if not isinstance(output_size, (tuple, list)) or None not in output_size:
        return output_size
    own = input.shape[input.ndim - len(output_size):]
    return tuple(have if want is None else want for want, have in zip(output_size, own))


def _averaging(name):
    op = _ops[name]

    def function(input, output_size):
        return op(input, _sizes(input, output_size))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = op.__doc__
    return function


globals().update((name, _averaging(name)) for name in ("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"))


def _pooling(name):
    op, with_indices = _ops[name], _ops[name + "_with_indices"]

    def plain(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        return (with_indices if return_indices else op)(input, kernel_size, () if stride is None else stride, padding, dilation, ceil_mode)

    def to_size(input, output_size, return_indices=False):
        return (with_indices if return_indices else op)(input, _sizes(input, output_size))

    def fractional(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        return (with_indices if return_indices else op)(input, kernel_size, output_size, output_ratio, _random_samples)

    function = {"adaptive": to_size, "fractional": fractional}.get(name.split("_")[0], plain)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = op.__doc__
    return function


_POOLS = """max_pool1d max_pool2d max_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
fractional_max_pool2d fractional_max_pool3d"""
globals().update((name, _pooling(name)) for name in _POOLS.split())


def _along(name):
    op = _ops[name]

    def function(input, dim=None, _stacklevel=3, dtype=None):
        if dim is None:
            warnings.warn(f"{name}: dim is None, so the dimension is guessed: pass dim", stacklevel=_stacklevel)
            dim = 0 if input.ndim in (0, 1, 3) else 1
        return op(input, dim, dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = op.__doc__
    return function


globals().update((name, _along(name)) for name in ("softmax", "log_softmax", "softmin"))


def normalize(input, p=2.0, dim=1, eps=1e-12, out=None):
    """Divides the input by its p-norm along a dimension, or by the p-norm of all elements if ``dim`` is None."""
    if out is not None:
        raise NotImplementedError("normalize: out must be None: assign the result")
    if dim is None:
        return _ops["normalize"](input.reshape(-1), p, 0, eps).reshape(input.shape)
    return _ops["normalize"](input, p, dim, eps)


def embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """Returns the rows of ``weight`` at these indices. With ``max_norm`` their norms are first limited, in place."""
    if sparse:
        raise NotImplementedError("embedding: sparse must be False: gradients are dense")
    if max_norm is not None:
        _shorten(weight, input, max_norm, norm_type)
    return _ops["embedding"](input, weight, padding_idx, scale_grad_by_freq)


def _shorten(weight, index, max_norm, norm_type):
    """Limits the norms of the rows at these indices to ``max_norm``, in place."""
    with no_grad():
        used = _ops["unique"](index.reshape(-1))
        rows = weight.detach()[used]
        norms = _ops["norm"](rows, 1, True, float(norm_type))
        weight.detach()[used] = rows * _ops["clamp"](max_norm / (norms + 1e-7), max=1.0)


def embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode="mean", sparse=False,
                  per_sample_weights=None, include_last_offset=False, padding_idx=None):
    """Returns the means, sums or maxima of bags of rows. With ``max_norm`` the norms of the rows are first limited, in place."""
    if sparse or scale_grad_by_freq:
        raise NotImplementedError("embedding_bag: sparse and scale_grad_by_freq must be False: gradients are dense and not scaled")
    if max_norm is not None:
        _shorten(weight, input, max_norm, norm_type)
    return _ops["embedding_bag"](input, weight, offsets, mode, per_sample_weights, include_last_offset, padding_idx)


def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """Normalises each channel. Training uses the statistics of the batch, and updates the running statistics in place."""
    if training and running_mean is not None:
        dims = [at for at in range(input.ndim) if at != 1]
        with no_grad():
            var, mean = _ops["var_mean"](input.detach(), dims)
            running_mean.copy_(running_mean * (1 - momentum) + mean * momentum)
            running_var.copy_(running_var * (1 - momentum) + var * momentum)
    if training:
        running_mean = running_var = None
    return _ops["batch_norm"](input, running_mean, running_var, weight, bias, training, eps)


def instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, momentum=0.1, eps=1e-5):
    """Normalises each channel of each sample."""
    if not use_input_stats:
        return _ops["batch_norm"](input, running_mean, running_var, weight, bias, False, eps)
    if running_mean is not None:
        with no_grad():
            var, mean = _ops["var_mean"](input.detach(), list(range(2, input.ndim)))
            running_mean.copy_(running_mean * (1 - momentum) + mean.mean(dim=0) * momentum)
            running_var.copy_(running_var * (1 - momentum) + var.mean(dim=0) * momentum)
    return _ops["instance_norm"](input, weight=weight, bias=bias, eps=eps)


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """Scaled dot-product attention: ``softmax(query keyᵀ · scale + attn_mask) value``."""
    return _ops["scaled_dot_product_attention"](query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale,
                                                dropout_p=dropout_p, enable_gqa=enable_gqa)


def _pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


def unfold(input, kernel_size, dilation=1, padding=0, stride=1):
    """Extracts the patches of images as columns of shape ``[batch, channels · patch, positions]``."""
    kernel, dilation, padding, stride = _pair(kernel_size), _pair(dilation), _pair(padding), _pair(stride)
    single = input.ndim == 3
    x = input.unsqueeze(0) if single else input
    x = _ops["pad"](x, (padding[1], padding[1], padding[0], padding[0]))
    for at in (0, 1):
        x = x.unfold(2 + at, dilation[at] * (kernel[at] - 1) + 1, stride[at])
    x = x[..., ::dilation[0], ::dilation[1]]
    batch, channels, rows, columns = x.shape[:4]
    x = x.permute(0, 1, 4, 5, 2, 3).reshape(batch, channels * kernel[0] * kernel[1], rows * columns)
    return x.squeeze(0) if single else x


def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """Same as ``interpolate``."""
    return _ops["interpolate"](input, size, scale_factor, mode, align_corners)


def upsample_nearest(input, size=None, scale_factor=None):
    """Resizes images by nearest-neighbour interpolation."""
    return _ops["interpolate"](input, size, scale_factor, "nearest")


def upsample_bilinear(input, size=None, scale_factor=None):
    """Resizes images by bilinear interpolation with aligned corners."""
    return _ops["interpolate"](input, size, scale_factor, "bilinear", True)


def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False, reduction="mean"):
    """Triplet margin loss with a custom distance function."""
    distance = distance_function or _ops["pairwise_distance"]
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = _ops["minimum"](far, distance(positive, negative))
    loss = _ops["clamp"](near - far + margin, min=0.0)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"triplet_margin_with_distance_loss: reduction must be none, mean or sum, got {reduction!r}")
    return loss if reduction == "none" else getattr(loss, reduction)()


def _by_name(name):
    def function(input, *args, **kwargs):
        return globals()[name](input, *args, inplace=True, **kwargs)

    function.__name__ = function.__qualname__ = name + "_"
    function.__doc__ = f"In-place version of ``{name}``."
    return function


globals().update((name + "_", _by_name(name)) for name in ("celu", "elu", "hardtanh", "leaky_relu", "relu", "rrelu", "selu", "threshold"))
