"""Batches of sequences of different lengths: padded, or packed step by step.

    >>> import cotangent as ct
    >>> from cotangent.nn.utils.rnn import pack_sequence, pad_packed_sequence
    >>> packed = pack_sequence([ct.tensor([1.0, 2.0, 3.0]), ct.tensor([4.0])])
    >>> packed.data, packed.batch_sizes
    (tensor([1., 4., 2., 3.]), tensor([2, 1, 1]))
    >>> pad_packed_sequence(packed, batch_first=True)
    (tensor([[1., 2., 3.],
            [4., 0., 0.]]), tensor([3, 1]))
"""

from __future__ import annotations

from collections import namedtuple

from ... import _cotangent as _c
from ..._cotangent import Tensor

_ops = _c._functions


class PackedSequence(namedtuple("PackedSequence", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"])):
    """A batch of sequences, longest first: all first elements, then all second elements, and so on.

    ``batch_sizes`` is the number of sequences at each step. Recurrent layers accept and return packed sequences.
    """

    __slots__ = ()

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None):
        if unsorted_indices is None and sorted_indices is not None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args, **kwargs):
        """Casts the data to a dtype, or moves it to a device."""
        return self._replace(data=self.data.to(*args, **kwargs))

    def cpu(self):
        """Moves the data to the CPU."""
        return self.to("cpu")

    def cuda(self, device=None):
        """Moves the data to a GPU."""
        return self._replace(data=self.data.cuda(device))

    def float(self):
        """Casts the data to float32."""
        return self.to(_c.float32)

    def double(self):
        """Casts the data to float64."""
        return self.to(_c.float64)

    @property
    def is_cuda(self):
        """Whether the data is on a GPU."""
        return self.data.is_cuda


def invert_permutation(permutation):
    """Returns the inverse of a permutation."""
    if permutation is None:
        return None
    return _ops["argsort"](permutation)


def _lengths(lengths):
    return [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]


def pack_padded_sequence(input, lengths, batch_first=False, enforce_sorted=True):
    """Packs padded sequences, ``[steps, batch, ..]`` or batch first. Unsorted ones need ``enforce_sorted=False``."""
    lengths = _lengths(lengths)
    x = input.transpose(0, 1) if batch_first else input
    if len(lengths) != x.shape[1]:
        raise ValueError(f"pack_padded_sequence: lengths must have {x.shape[1]} elements, got {len(lengths)}")
    if min(lengths, default=0) < 1:
        raise ValueError("pack_padded_sequence: lengths must be positive, got " + str(lengths))
    order = sorted(range(len(lengths)), key=lambda at: -lengths[at])
    indices = None
    if enforce_sorted:
        if any(a < b for a, b in zip(lengths, lengths[1:])):
            raise RuntimeError(f"pack_padded_sequence: lengths must be sorted, longest first, or enforce_sorted must be False, "
                               f"got {lengths}")
    else:
        indices = _c._tensor(order, dtype=_c.int64, device=x.device)
        x, lengths = x.index_select(1, indices), [lengths[at] for at in order]
    if lengths[0] > x.shape[0]:
        raise ValueError(f"pack_padded_sequence: lengths must be at most {x.shape[0]}, got {lengths[0]}")
    sizes = [sum(n > step for n in lengths) for step in range(lengths[0])]
    data = _ops["cat"]([x[step, :size] for step, size in enumerate(sizes)], 0)
    return PackedSequence(data, _c._tensor(sizes, dtype=_c.int64), indices)


def pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):
    """Pads packed sequences to the longest, or to ``total_length``. Returns the padded tensor and the lengths."""
    sizes = sequence.batch_sizes.tolist()
    steps = len(sizes) if total_length is None else total_length
    if steps < len(sizes):
        raise ValueError(f"pad_packed_sequence: total_length must be at least {len(sizes)}, got {total_length}")
    batch, rest = sizes[0], tuple(sequence.data.shape[1:])
    rows = []
    for part, size in zip(_ops["split_with_sizes"](sequence.data, sizes, 0), sizes):
        if size < batch:
            part = _ops["cat"]([part, _filled(sequence.data, (batch - size, *rest), padding_value)], 0)
        rows.append(part)
    rows += [_filled(sequence.data, (batch, *rest), padding_value)] * (steps - len(sizes))
    lengths = _c._tensor([sum(size > at for size in sizes) for at in range(batch)], dtype=_c.int64)
    x = _ops["stack"](rows, 0)
    if sequence.unsorted_indices is not None:
        x, lengths = x.index_select(1, sequence.unsorted_indices), lengths[sequence.unsorted_indices.cpu()]
    return (x.transpose(0, 1) if batch_first else x), lengths


def _filled(like, shape, value):
    return _ops["full"](shape, value, dtype=like.dtype, device=like.device)


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Pads sequences at one side to the length of the longest, and stacks them in one tensor."""
    if padding_side not in ("left", "right"):
        raise ValueError(f"pad_sequence: padding_side must be left or right, got {padding_side!r}")
    sequences = list(sequences)
    longest = max(x.shape[0] for x in sequences)
    rows = []
    for x in sequences:
        if x.shape[0] < longest:
            more = _filled(x, (longest - x.shape[0], *x.shape[1:]), padding_value)
            x = _ops["cat"]([x, more] if padding_side == "right" else [more, x], 0)
        rows.append(x)
    return _ops["stack"](rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences, lengths, batch_first=False):
    """Returns the sequences of a padded tensor, each with its own length."""
    x = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [x[at, :length] for at, length in enumerate(_lengths(lengths))]


def pack_sequence(sequences, enforce_sorted=True):
    """Packs sequences. Those that are not sorted, longest first, need ``enforce_sorted=False``."""
    sequences = list(sequences)
    return pack_padded_sequence(pad_sequence(sequences), [x.shape[0] for x in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences):
    """Returns the list of sequences in a packed sequence."""
    return unpad_sequence(*pad_packed_sequence(packed_sequences, batch_first=True), batch_first=True)
