"""Row-wise operations in torch. All are out of place and exact in float64.

They accumulate in ``promote_types(x.dtype, float32)`` and work on any number of rows, 0 included.
Each rounds once where its result is stored; what else rounds is an argument.
"""

from __future__ import annotations

from typing import Literal, NoReturn

import torch
from torch import Tensor

Accumulate = Literal["fp32", "rounded"]
"""What a norm reads of a sum: "fp32" the unrounded one, "rounded" the one that is stored."""


def rms_norm(x: Tensor, weight: Tensor, eps: float, offset: float = 0.0) -> Tensor:
    """``x / rms(x) * (weight + offset)`` over the last dimension: x [rows, width], weight [width].

    The result has x's dtype and is rounded once; the weight is wide before ``offset`` is added.
    """
    accumulate = torch.promote_types(x.dtype, torch.float32)
    return _normalize(x.to(accumulate), weight, eps, offset).to(x.dtype)


def add_rms_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    scale: float | None = None,
    accumulate: Accumulate = "fp32",
    offset: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The norm of ``x * scale + residual``, and that sum: both [rows, width].

    The norm has x's dtype, the sum residual's. ``accumulate`` says which sum the norm reads;
    ``offset`` is added to the weight.
    """
    total = _total(x, residual, scale)
    written = total.to(residual.dtype)
    if accumulate == "rounded":
        total = written.to(total.dtype)
    return _normalize(total, weight, eps, offset).to(x.dtype), written


def add(x: Tensor, residual: Tensor, scale: float | None = None) -> Tensor:
    """``x * scale + residual``, rounded once, in residual's dtype."""
    if scale is None and x.dtype is residual.dtype and x.shape == residual.shape:
        return x + residual  # the same bits, in one pass
    return _total(x, residual, scale).to(residual.dtype)


def join(partial: Tensor, residual: Tensor) -> Tensor:
    """``partial + residual``, rounded once, in partial's dtype: the residual goes on the wire."""
    return add(residual, partial)


def reject_shapes(x: Tensor, weight: Tensor, residual: Tensor | None = None) -> NoReturn:
    """ValueError for shapes that torch would broadcast."""
    if residual is not None and x.shape != residual.shape:
        raise ValueError(f"a contribution of {list(x.shape)} meets {list(residual.shape)} residual")
    raise ValueError(f"a norm of {x.shape[-1]} columns has a weight {list(weight.shape)}")


def _total(x: Tensor, residual: Tensor, scale: float | None) -> Tensor:
    if x.shape != residual.shape:
        reject_shapes(x, x, residual)
    accumulate = torch.promote_types(torch.promote_types(x.dtype, residual.dtype), torch.float32)
    wide = x.to(accumulate)
    if scale is not None:
        wide = wide * scale
    return wide + residual.to(accumulate)


def layer_norm(
    x: Tensor, weight: Tensor, eps: float, offset: float = 0.0, bias: Tensor | None = None
) -> Tensor:
    """As `rms_norm`, of x minus its mean over the last dimension, and with ``bias`` [width] added.

    The mean square is that of what is left, which is the variance of x.
    """
    accumulate = torch.promote_types(x.dtype, torch.float32)
    return _centred(x.to(accumulate), weight, eps, offset, bias).to(x.dtype)


def add_layer_norm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    eps: float,
    scale: float | None = None,
    accumulate: Accumulate = "fp32",
    offset: float = 0.0,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """As `add_rms_norm`, with the norm of `layer_norm`."""
    total = _total(x, residual, scale)
    written = total.to(residual.dtype)
    if accumulate == "rounded":
        total = written.to(total.dtype)
    return _centred(total, weight, eps, offset, bias).to(x.dtype), written


def _centred(x: Tensor, weight: Tensor, eps: float, offset: float, bias: Tensor | None) -> Tensor:
    if bias is not None and bias.shape != x.shape[-1:]:
        raise ValueError(f"a norm of {x.shape[-1]} columns has a bias {list(bias.shape)}")
    normed = _normalize(x - x.mean(dim=-1, keepdim=True), weight, eps, offset)
    return normed if bias is None else normed + bias.to(x.dtype)


def _normalize(x: Tensor, weight: Tensor, eps: float, offset: float) -> Tensor:
    if weight.shape != x.shape[-1:]:
        reject_shapes(x, weight)
    scale = torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps)
    factor = weight.to(x.dtype)  # first: 1 plus a small number is 1 in bfloat16
    return x * scale * (factor + offset if offset else factor)
