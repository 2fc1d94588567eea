"""Residual operations from outside the package, as a user would bring them."""

from __future__ import annotations

import torch
from torch import Tensor

from boundaryc.runtime import Norm


def gated_add(contribution: Tensor, residual: Tensor, gate: Norm) -> Tensor:
    """Adds ``contribution`` [rows, width] scaled by the tanh of ``gate``'s weight [width]."""
    return residual + contribution * torch.tanh(gate.weight)


def plain_add(contribution: Tensor, residual: Tensor) -> Tensor:
    """A plain add that allows the residual to join a partial sum."""
    return residual + contribution


def scaled_read(residual: Tensor, scale: Norm, shift: Norm) -> Tensor:
    """The residual [rows, width] scaled and shifted column by column."""
    return residual * scale.weight + shift.weight


def squashed(contribution: Tensor, shift: Norm) -> Tensor:
    """A transform that is not linear: tanh of what ``contribution`` is beyond the shift."""
    return torch.tanh(contribution + shift.weight)


def weighed(contribution: Tensor, gate: Norm) -> Tensor:
    """A linear transform: each column times the gate's weight."""
    return contribution * gate.weight
