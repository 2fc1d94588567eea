"""Hyper-connections in torch: a residual of several streams, mixed anew at every stage.

The residual of a row is n streams, [rows, n, width]. A read makes coefficients of all of them: the
stage's input is the norm of their sum with weights ``pre``; its output is added to each
stream times ``post``, after the streams were mixed by a matrix H: ``out[j] = sum_i H[j, i] *
streams[i] + post[j] * output``. H is balanced by Sinkhorn iterations, so that its rows and columns
sum to about one. Coefficients are in ``promote_types(dtype, float32)``, and travel with the rows
from the read to the update. All is out of place, works on 0 rows, and rounds where it is stored.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class HyperConnection(Protocol):
    """The coefficients' parameters of one stage, as checkpoints have them.

    Of n streams: ``fn`` [(2 + n) * n, n * width] and ``base`` [(2 + n) * n] have the rows of
    ``pre``, of ``post``, and of the mixing matrix, in which row i * n + j is what stream i gives to
    stream j. ``scale`` [3] multiplies the three parts.
    """

    @property
    def fn(self) -> Tensor:
        """The projection of the flat streams."""

    @property
    def base(self) -> Tensor:
        """What is added to it."""

    @property
    def scale(self) -> Tensor:
        """What each part of it is multiplied by."""


class HyperHead(Protocol):
    """The parameters of a learned final read.

    ``hc_fn`` [n, n * width], ``hc_base`` [n] and ``hc_scale`` [1].
    """

    @property
    def hc_fn(self) -> Tensor:
        """The projection of the flat streams."""

    @property
    def hc_base(self) -> Tensor:
        """What is added to it."""

    @property
    def hc_scale(self) -> Tensor:
        """What it is multiplied by."""


def hyper_enter(hidden: Tensor, *, streams: int) -> Tensor:
    """The stack's input [rows, width] in every stream: [rows, streams, width], a new tensor."""
    return hidden.unsqueeze(1).expand(-1, streams, -1).contiguous()


def hyper_read(
    residual: Tensor,
    hyper: HyperConnection,
    *,
    iterations: int,
    eps: float,
    norm_eps: float,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """What a stage's norm is given, [rows, width], of the streams [rows, n, width]; its state.

    The state, for the stage's update, is (mix, post): the matrix H [rows, n * n], row after row,
    and the weights [rows, n].
    """
    n = residual.shape[1]
    parts = _projected(residual, hyper.fn, norm_eps).split([n, n, n * n], dim=-1)
    scales = hyper.scale.to(parts[0].dtype).unbind(0)
    bases = hyper.base.to(parts[0].dtype).split([n, n, n * n])
    pre, post, mix = (
        part * scale + base for part, scale, base in zip(parts, scales, bases, strict=True)
    )
    balanced = _balanced(mix.unflatten(-1, (n, n)), iterations, eps)
    # The one place where the checkpoint's orientation, from stream i to stream j, becomes H[j, i].
    kept = (balanced.transpose(1, 2).flatten(1), 2 * torch.sigmoid(post))
    return _mean(residual, torch.sigmoid(pre) + eps), kept


def hyper_update(contribution: Tensor, residual: Tensor, mix: Tensor, post: Tensor) -> Tensor:
    """The streams [rows, n, width] with an output [rows, width] in them, in residual's dtype.

    ``mix`` [rows, n * n] and ``post`` [rows, n] are what `hyper_read` kept of the same rows. The
    output is taken first and then stream after stream, each product and each sum rounded in the
    wide dtype.
    """
    n = residual.shape[1]
    dtype = torch.promote_types(residual.dtype, torch.float32)
    total = post.to(dtype).unsqueeze(-1) * contribution.to(dtype).unsqueeze(1)
    sources = residual.to(dtype).unsqueeze(2).unbind(1)
    for given, source in zip(mix.to(dtype).view(-1, n, n, 1).unbind(2), sources, strict=True):
        total = total + given * source
    return total.to(residual.dtype)


def hyper_mean(residual: Tensor) -> Tensor:
    """What the norm at the end of a stack is given: the mean of the streams, [rows, width]."""
    dtype = torch.promote_types(residual.dtype, torch.float32)
    total, *others = residual.to(dtype).unbind(1)
    for stream in others:
        total = total + stream
    return (total / residual.shape[1]).to(residual.dtype)


def hyper_head(residual: Tensor, head: HyperHead, *, eps: float, norm_eps: float) -> Tensor:
    """The same with learned weights: the sum of the streams, [rows, width]."""
    projected = _projected(residual, head.hc_fn, norm_eps)
    weights = projected * head.hc_scale.to(projected.dtype) + head.hc_base.to(projected.dtype)
    return _mean(residual, torch.sigmoid(weights) + eps)


def _projected(residual: Tensor, fn: Tensor, norm_eps: float) -> Tensor:
    """The projection of a row's streams together, each row over its root mean square first."""
    dtype = torch.promote_types(residual.dtype, torch.float32)
    flat = residual.flatten(1).to(dtype)
    scale = torch.rsqrt(flat.square().mean(dim=-1, keepdim=True) + norm_eps)
    # A product for each row: its bits do not depend on how many rows there are.
    each = fn.to(dtype).contiguous().T.expand(residual.shape[0], -1, -1)
    return torch.bmm((flat * scale).unsqueeze(1), each).squeeze(1)


def _mean(residual: Tensor, weights: Tensor) -> Tensor:
    """The sum of the streams [rows, n, width] with weights [rows, n], in residual's dtype.

    Stream after stream, each product and each sum rounded in the weights' dtype.
    """
    total, *others = (weights.unsqueeze(-1) * residual.to(weights.dtype)).unbind(1)
    for stream in others:
        total = total + stream
    return total.to(residual.dtype)


def _balanced(logits: Tensor, iterations: int, eps: float) -> Tensor:
    """Matrices [rows, n, n] of which rows and columns sum to about one, columns last."""
    matrix = torch.softmax(logits, dim=-1) + eps
    matrix = matrix / (matrix.sum(dim=-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        matrix = matrix / (matrix.sum(dim=-1, keepdim=True) + eps)
        matrix = matrix / (matrix.sum(dim=-2, keepdim=True) + eps)
    return matrix
