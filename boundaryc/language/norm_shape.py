"""The shape of `norm`, of the stack and of a stage."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from boundaryc.language.base_shape import Shape

SMALLEST = 1.2e-38
"""Smaller numbers are subnormal in float32, in which norms are computed, or zero."""


class NormShape(Shape):
    """`norm`: what the stages and the end of the stack normalise with."""

    kind: Literal["rms", "layer", "none"] = Field(description="the norm's formula")
    eps: float | None = Field(
        default=None, ge=SMALLEST, lt=1, description="added to the mean square, like 1.0e-6"
    )
    accumulate: Literal["fp32", "rounded"] = Field(
        default="fp32", description="whether the sum enters the norm unrounded (fp32) or rounded"
    )
    weight_offset: float = Field(
        default=0.0, ge=-1e6, le=1e6, description="added to the weight in float32, like 1"
    )
    bias: bool = Field(default=False, description="whether a layer norm has a bias")
