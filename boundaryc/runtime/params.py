"""What a model binds to a boundary, as far as its type says something."""

from __future__ import annotations

from math import isclose
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


SHOWN_EPS = ("variance_epsilon", "eps")
"""What norms call it: those of Hugging Face, vLLM and SGLang, and those of torch."""


def check_eps(declared: float, /, **norms: object) -> None:
    """BoundaryError where a norm of ``norms``, by the names they are bound as, has another eps.

    ``declared`` is what the stack file says, and what generated code adds. One that shows no number
    is not compared, as it may be no norm but what has its weight.
    """
    for name, norm in norms.items():
        for shown in SHOWN_EPS:
            found = getattr(norm, shown, None)
            if isinstance(found, float) and not isclose(found, declared, rel_tol=1e-6):
                raise BoundaryError(
                    f"{name} is bound to a norm whose `{shown}` is {found!r}, and the stack file "
                    f"says {declared!r}, which is what the boundary computes with: write "
                    f"`eps: {found!r}` in the `norm` of its stage and compile, or bind a norm with "
                    "the file's"
                )


class InputScale(Protocol):
    """What has the scale of a statically quantised input: any module with an ``input_scale``."""

    @property
    def input_scale(self) -> Tensor:
        """What the number 1 of the quantised values stands for: float32 []."""
