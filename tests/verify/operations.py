"""Residual operations that random stacks declare; each is what its facts there say."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from boundaryc.runtime import rms_norm


def plain_add(contribution: Tensor, residual: Tensor) -> Tensor:
    """An update that is the built-in one under another name."""
    return residual + contribution


def decayed_add(contribution: Tensor, residual: Tensor) -> Tensor:
    """An update that does not commute with itself."""
    return 0.75 * residual + contribution


def gated_add(contribution: Tensor, residual: Tensor, gate: Any) -> Tensor:
    """An update with one parameter, its weight [width]."""
    return residual + gate.weight * contribution


def squashed_add(contribution: Tensor, residual: Tensor, gate: Any, shift: Any) -> Tensor:
    """An update that is not linear, with two parameters."""
    return residual + torch.tanh(contribution * gate.weight) - 0.25 * shift.weight


def added_in_place(contribution: Tensor, residual: Tensor) -> Tensor:
    """An update that writes over the residual it is given."""
    return residual.add_(contribution)


def turned_in_place(output: Tensor) -> Tensor:
    """A transform that writes over the output it is given."""
    return output.neg_()


def scaled_read(residual: Tensor, scale: Any) -> Tensor:
    """A read with one parameter."""
    return residual * scale.weight


def plain_read(residual: Tensor, scale: Any) -> Tensor:
    """The norm of a stack with eps 1.0e-6, as a read of its own."""
    return rms_norm(residual, scale.weight, 1e-6)


def centred_read(residual: Tensor) -> Tensor:
    """A read without parameters."""
    return residual - residual.mean(dim=-1, keepdim=True)


def shaped_read(residual: Tensor, scale: Any, shift: Any) -> Tensor:
    """A read with two parameters that is not linear."""
    return torch.tanh(residual * scale.weight) + shift.weight


def same_read(residual: Tensor) -> Tensor:
    """A read that returns the residual itself, not a copy."""
    return residual
