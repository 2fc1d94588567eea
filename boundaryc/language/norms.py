"""`norm` of the stack, and of a stage whose norm differs from it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from boundaryc.language.base_shape import Shape
from boundaryc.language.model import NormSpec

SMALLEST = 1.2e-38
"""Smaller numbers are subnormal in float32, in which norms are computed, or zero."""


class NormShape(Shape):
    """`norm`: what the stages and the end of the stack normalise with."""

    kind: Literal["rms"] = Field(description="the norm's formula")
    eps: float = Field(ge=SMALLEST, lt=1, description="added to the mean square, like 1.0e-6")
    accumulate: Literal["fp32", "rounded"] = Field(
        default="fp32", description="whether the sum enters the norm unrounded (fp32) or rounded"
    )
    weight_offset: float = Field(
        default=0.0, ge=-1e6, le=1e6, description="added to the weight in float32, like 1"
    )


def resolve_norm(shape: NormShape) -> NormSpec:
    """The norm that a mapping describes."""
    offset = float(shape.weight_offset) + 0.0  # of -0.0 too
    return NormSpec(shape.kind, float(shape.eps), shape.accumulate, offset)
