"""What a model binds to a boundary, as far as its type says something."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from boundaryc.runtime.errors import BoundaryError


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


def check_bias(name: str, norm: Any, *, declared: bool) -> None:
    """BoundaryError where the layer norm bound as ``name`` has a bias that its stack file does not.

    Or the reverse, or a bias that is no tensor; ``declared`` is what the file says. Its functions
    would leave the bias out, or find none.
    """
    bias = getattr(norm, "bias", None)
    if bias is not None and not isinstance(bias, Tensor):
        raise BoundaryError(
            f"{name} is bound to a norm whose bias is of type {type(bias).__name__}: bind one "
            "whose bias is a tensor, or None where it has no bias"
        )
    if bias is not None and not declared:
        raise BoundaryError(
            f"{name} is bound to a norm with a bias, and the stack file declares none: write "
            "`bias: true` in its `norm` and compile, or bind a norm without a bias"
        )
    if declared and bias is None:
        raise BoundaryError(
            f"{name} is bound to a norm without a bias, and the stack file says `bias: true`: "
            "bind a norm with one, or remove that and compile"
        )


class InputScale(Protocol):
    """What has the scale of a statically quantised input: any module with an ``input_scale``."""

    @property
    def input_scale(self) -> Tensor:
        """What the number 1 of the quantised values stands for: float32 []."""
