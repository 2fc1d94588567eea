"""What a model binds to a boundary, as far as its type says something."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Norm(Protocol):
    """The parameters of a norm: any module with a ``weight`` [width]."""

    @property
    def weight(self) -> Tensor:
        """Scale of each column, [width]."""


class BiasedNorm(Norm, Protocol):
    """The parameters of a norm with a bias: any module with a ``weight`` and a ``bias`` [width]."""

    @property
    def bias(self) -> Tensor:
        """What is added to each column, [width]."""


class InputScale(Protocol):
    """What has the scale of a statically quantised input: any module with an ``input_scale``."""

    @property
    def input_scale(self) -> Tensor:
        """What the number 1 of the quantised values stands for: float32 []."""
