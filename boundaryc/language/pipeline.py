"""`pipeline`: whether layers run on different sets of ranks, and what travels between them."""

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
