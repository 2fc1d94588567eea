"""Hyper-connections as their definition has them: one stream after the other, float64.

Nothing of the runtime is used. H[j][i] is what stream i gives to stream j: ``out[j] = sum_i
H[j][i] * streams[i] + post[j] * output``. Checkpoints have the logits of H at row i * n + j.
"""

from __future__ import annotations

import torch
from torch import Tensor


def packed_shape(streams: int, width: int, *, head: bool) -> tuple[int, int]:
    """The shape of one tensor that holds all parameters of a stage, or of a learned final read."""
    outputs = streams if head else streams * (2 + streams)
    return outputs + 1, streams * width + 1


class HyperParameter:
    """What a model binds, from one tensor: ``fn``, beside it ``base``, below it ``scale``."""

    def __init__(self, packed: Tensor) -> None:
        self.fn, self.base, self.scale = packed[:-1, :-1], packed[:-1, -1], packed[-1, :3]


class HeadParameter:
    """The same for a learned final read."""

    def __init__(self, packed: Tensor) -> None:
        own = HyperParameter(packed)
        self.hc_fn, self.hc_base, self.hc_scale = own.fn, own.base, own.scale[:1]


def coefficients(
    streams: Tensor, packed: Tensor, iterations: int, eps: float, norm_eps: float
) -> tuple[list[Tensor], list[Tensor], list[list[Tensor]]]:
    """``pre`` and ``post`` of every stream, and H, each [tokens]; streams [tokens, n, width]."""
    own, n = HyperParameter(packed), streams.shape[1]
    logits = _logits(streams, own.fn, norm_eps)
    pre = [_squashed(logits[k] * own.scale[0] + own.base[k]) + eps for k in range(n)]
    post = [2 * _squashed(logits[n + k] * own.scale[1] + own.base[n + k]) for k in range(n)]
    given = [
        [logits[k] * own.scale[2] + own.base[k] for k in range(2 * n + i * n, 2 * n + i * n + n)]
        for i in range(n)
    ]
    return pre, post, _transposed(_balanced(given, iterations, eps))


def read(
    streams: Tensor, packed: Tensor, iterations: int, eps: float, norm_eps: float
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The weighted sum of the streams [tokens, width], and (H, post) as the read keeps them."""
    pre, post, mixing = coefficients(streams, packed, iterations, eps, norm_eps)
    rows = [one for row in mixing for one in row]
    kept = torch.stack(rows, dim=1), torch.stack(post, dim=1)
    return _summed(streams, pre), kept


def update(output: Tensor, streams: Tensor, mix: Tensor, post: Tensor) -> Tensor:
    """The streams behind a stage with this output."""
    n = streams.shape[1]
    after = []
    for j in range(n):
        own = _summed(streams, [mix[:, j * n + i] for i in range(n)])
        after.append(own + post[:, j].unsqueeze(1) * output)
    return torch.stack(after, dim=1)


def head(streams: Tensor, packed: Tensor, eps: float, norm_eps: float) -> Tensor:
    """The sum of the streams with learned weights."""
    own = HeadParameter(packed)
    logits = _logits(streams, own.hc_fn, norm_eps)
    weights = [
        _squashed(one * own.hc_scale[0] + base) + eps
        for one, base in zip(logits, own.hc_base, strict=True)
    ]
    return _summed(streams, weights)


def _logits(streams: Tensor, fn: Tensor, norm_eps: float) -> list[Tensor]:
    flat = streams.flatten(1)
    flat = flat / torch.sqrt((flat * flat).mean(dim=1, keepdim=True) + norm_eps)
    return [(flat * row).sum(dim=1) for row in fn]


def _squashed(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def _summed(streams: Tensor, weights: list[Tensor]) -> Tensor:
    total = torch.zeros_like(streams[:, 0])
    for i, weight in enumerate(weights):
        total = total + weight.unsqueeze(1) * streams[:, i]
    return total


def _balanced(logits: list[list[Tensor]], iterations: int, eps: float) -> list[list[Tensor]]:
    """From stream i to stream j: a softmax of what each gives, then rows and columns in turn."""
    n = len(logits)
    exponents = [[torch.exp(one) for one in row] for row in logits]
    given = [[one / sum(row) + eps for one in row] for row in exponents]
    for turn in range(iterations):
        if turn:
            given = [[one / (sum(row) + eps) for one in row] for row in given]
        taken = [sum(given[i][j] for i in range(n)) + eps for j in range(n)]
        given = [[given[i][j] / taken[j] for j in range(n)] for i in range(n)]
    return given


def _transposed(matrix: list[list[Tensor]]) -> list[list[Tensor]]:
    return [list(column) for column in zip(*matrix, strict=True)]
