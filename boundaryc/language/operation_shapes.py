"""The shapes of residual operations: those of a file's own, and the set for a whole stack."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from boundaryc.language.base_shape import Shape
from boundaryc.language.limits import MAX_ENTRIES, MAX_WIDTH, Axis
from boundaryc.language.norm_shape import SMALLEST

Width = Annotated[int, Field(ge=1, le=MAX_WIDTH)]
Streams = Annotated[int, Field(ge=1, le=64)]
Fact = Literal[
    "plain_add",
    "plain_norm",
    "row_wise",
    "linear",
    "at_producer",
    "outlives_producer",
    "joins_sum",
    "quantized_sum",
    "writes_stream",
    "rewrites_residual",
    "per_call",
]


class OperationShape(Shape):
    """One entry of `operations`."""

    role: Literal["enter", "update", "read", "transform"] = Field(
        description="where the operation is used"
    )
    call: str = Field(description="package.module:function")
    facts: list[Fact] = Field(
        default=[],
        max_length=MAX_ENTRIES,
        description="what the operation promises",
    )
    params: list[str] = Field(
        default=[], max_length=MAX_ENTRIES, description="what it is given, in call order"
    )
    read_local: list[Axis] = Field(
        default=[], max_length=MAX_ENTRIES, description="axes its rows must still be cut over"
    )
    read_whole: list[Axis] = Field(
        default=[], max_length=MAX_ENTRIES, description="axes its rows must be whole over"
    )
    state: dict[str, Width] = Field(
        default={},
        max_length=MAX_ENTRIES,
        description="what it keeps beside the residual by name, and how many columns that has",
    )
    streams: Streams = Field(default=1, description="how many residual streams it works on")


class ResidualShape(Shape):
    """`residual`: the operations of all stages, and of both ends of the stack."""

    kind: Literal["hyper_connections", "custom"] = Field(
        description="which set of operations; a custom one names its own"
    )
    streams: Streams = Field(description="how many streams the residual of a token has")
    enter: str | None = Field(
        default=None, description="the operation that makes the residual of the stack's input"
    )
    read: str | None = Field(default=None, description="how stages read the residual")
    update: str | None = Field(default=None, description="how their outputs join the residual")
    leave: str | None = Field(
        default=None, description="how the end of the stack reads the residual"
    )
    iterations: int | None = Field(
        default=None, ge=1, le=1000, description="rounds in which a mixing matrix is balanced"
    )
    eps: float | None = Field(
        default=None, ge=SMALLEST, lt=1, description="added to sums that the matrix is divided by"
    )
