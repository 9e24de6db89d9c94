"""The rows of `benches/workloads/networks.rs` in PyTorch, on any device."""

import torch
from torch import nn
from torch.nn import functional as F


def rows(device):
    """A dict of functions by name, which create the inputs and return the step to time and its work."""

    def both_ways(f, *shapes, **work):
        def make():
            leaves = [torch.randn(*shape, device=device).requires_grad_() for shape in shapes]

            def step():
                for leaf in leaves:
                    leaf.grad = None
                f(*leaves).sum().backward()

            return step, work

        return make

    def layer(module, shape, **work):
        def make():
            x, own = torch.randn(*shape, device=device).requires_grad_(), module().to(device)

            def step():
                x.grad = None
                own.zero_grad(set_to_none=True)
                y = own(x)
                (y[0] if isinstance(y, tuple) else y).sum().backward()

            return step, work

        return make

    def conv(batch, c_in, c_out, output, kernel):
        return 6 * batch * c_in * c_out * output * kernel / 1e9

    pool = 4 * 32 * 64 * 2 * (56 * 56 + 28 * 28) / 1e9
    norm = 4 * 5 * 32 * 64 * 56 * 56 / 1e9
    return {
        "conv": both_ways(lambda x, w: F.conv2d(x, w, padding=1), (32, 64, 32, 32), (64, 64, 3, 3), gflop=conv(32, 64, 64, 32 * 32, 9)),
        "conv_small_images": both_ways(
            lambda x, w: F.conv2d(x, w, padding=1), (32, 256, 4, 4), (256, 256, 3, 3), gflop=conv(32, 256, 256, 4 * 4, 9)
        ),
        "conv_stride2": both_ways(
            lambda x, w: F.conv2d(x, w, padding=1, stride=2), (32, 64, 32, 32), (128, 64, 3, 3), gflop=conv(32, 64, 128, 16 * 16, 9)
        ),
        "conv_depthwise": both_ways(
            lambda x, w: F.conv2d(x, w, padding=1, groups=144), (32, 144, 28, 28), (144, 1, 3, 3), gflop=conv(32, 1, 144, 28 * 28, 9)
        ),
        "conv_1x1": both_ways(F.conv2d, (32, 64, 28, 28), (256, 64, 1, 1), gflop=conv(32, 64, 256, 28 * 28, 1)),
        "conv_transpose": both_ways(
            lambda x, w: F.conv_transpose2d(x, w, padding=1, stride=2), (32, 64, 16, 16), (64, 32, 4, 4), gflop=conv(32, 64, 32, 16 * 16, 16)
        ),
        "conv1d": both_ways(lambda x, w: F.conv1d(x, w, padding=2), (16, 64, 4096), (64, 64, 5), gflop=conv(16, 64, 64, 4096, 5)),
        "max_pool": both_ways(lambda x: F.max_pool2d(x, 3, 2, 1), (32, 64, 56, 56), gb=pool),
        "avg_pool": both_ways(lambda x: F.avg_pool2d(x, 2), (32, 64, 56, 56), gb=pool),
        "batch_norm": layer(lambda: nn.BatchNorm2d(64), (32, 64, 56, 56), gb=norm),
        "group_norm": layer(lambda: nn.GroupNorm(32, 64), (32, 64, 56, 56), gb=norm),
        "lstm": layer(lambda: nn.LSTM(256, 256), (128, 64, 256), gflop=conv(64, 256 + 256, 4 * 256, 128, 1)),
    }
