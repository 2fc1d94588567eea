"""The residual operations of a decoder whose residual is its own norm: what its stack file names.

The compiler never imports this module: generated code does, and knows of it what the file claims.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

EPS = 1e-6


def replaced(residual: Tensor, norm: Any, keep: Any) -> tuple[Tensor, Tensor]:
    """The norm of the residual [rows, width], which a stage is given, and the residual behind it.

    That is the norm as well, each column times its own number: ``norm`` and ``keep`` have a
    ``weight`` [width].
    """
    mean = residual.pow(2).mean(dim=-1, keepdim=True)
    x = residual * torch.rsqrt(mean + EPS) * norm.weight
    return x, x * keep.weight


def scaled(contribution: Tensor, residual: Tensor, gain: Any) -> Tensor:
    """The residual [rows, width] with a stage's output, each column of it times its own gain."""
    found: Tensor = residual + contribution * gain.weight
    return found
