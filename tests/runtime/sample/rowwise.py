"""Row-wise operations of `sample`: RMS norm with eps 1e-06, over rows of 8 columns."""

from __future__ import annotations

from torch import Tensor

from boundaryc import runtime


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """The norm of ``x`` [rows, 8], in x's dtype."""
    return runtime.rms_norm(x, weight, 1e-06)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The norm of ``x + residual`` and that sum, both [rows, 8]; the norm sees it unrounded."""
    return runtime.add_rms_norm(x, residual, weight, 1e-06)
