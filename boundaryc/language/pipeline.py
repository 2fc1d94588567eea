"""`pipeline` and `segments`: layers that run on other ranks, or later."""

from __future__ import annotations

from typing import Literal

from boundaryc.language.context import Context
from boundaryc.language.schema import StackShape


def resolve_pipeline(
    shape: StackShape, count: int, context: Context
) -> Literal["partial", "complete"] | None:
    """The payload at cuts of a stack of `count` layers, None without cuts; errors to `context`.

    `count` is 0 after an error in the layers.
    """
    if shape.pipeline is None:
        return None
    if count == 1:
        message = "a stack of one layer cannot be cut"
        help_ = "remove `pipeline`: a cut lies between two layers"
        context.report("BC204", ("pipeline",), message, help_, key=True)
    return shape.pipeline.payload


def resolve_segments(shape: StackShape, count: int, context: Context) -> bool:
    """Whether a forward of a stack of `count` layers, 0 after an error, may stop between them."""
    if shape.segments and count == 1:
        message = "a forward of one layer has one segment"
        help_ = "remove `segments`: a forward stops between two layers"
        context.report("BC204", ("segments",), message, help_, key=True)
    return shape.segments
