"""Row-wise operations in torch. All are out of place and exact in float64.

They accumulate in ``promote_types(x.dtype, float32)`` and work on any number of rows, 0 included.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """``x / rms(x) * weight`` over the last dimension: x [rows, width], weight [width].

    The result has x's dtype and is rounded once.
    """
    accumulate = torch.promote_types(x.dtype, torch.float32)
    return _normalize(x.to(accumulate), weight, eps).to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The norm of ``x + residual``, and that sum: both [rows, width].

    The unrounded sum is carried into the norm; the norm has x's dtype, the sum residual's.
    """
    accumulate = torch.promote_types(torch.promote_types(x.dtype, residual.dtype), torch.float32)
    total = x.to(accumulate) + residual.to(accumulate)
    return _normalize(total, weight, eps).to(x.dtype), total.to(residual.dtype)


def add(x: Tensor, residual: Tensor) -> Tensor:
    """``x + residual``, rounded once, in residual's dtype."""
    accumulate = torch.promote_types(torch.promote_types(x.dtype, residual.dtype), torch.float32)
    return (x.to(accumulate) + residual.to(accumulate)).to(residual.dtype)


def join(partial: Tensor, residual: Tensor) -> Tensor:
    """``partial + residual``, rounded once, in partial's dtype: the residual goes on the wire."""
    return add(residual, partial)


def _normalize(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    scale = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)
    return x * scale * weight.to(x.dtype)
