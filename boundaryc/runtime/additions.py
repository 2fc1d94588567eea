"""Additions of the model between the update of the residual and its read."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from boundaryc.runtime.access import fold
from boundaryc.runtime.batch import Batch
from boundaryc.runtime.captures import Capture, Collector
from boundaryc.runtime.crossing import Prepare, Resumes, crossing
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.owed import OwedOutput
from boundaryc.runtime.rowwise import add
from boundaryc.runtime.stream import Form, StreamState

Ways = tuple[Prepare, Resumes, tuple[Any, ...]]
"""How a boundary is crossed, from every form of the stream, and what its read takes."""


def refuse(batch: Batch[Any, Any], collector: Collector | None) -> None:
    """BoundaryError where no update precedes an addition, or where ``collector`` is to show it."""
    if batch.stream.state is StreamState.INITIAL:
        raise BoundaryError(
            "post_residual_addition follows a residual update and the stack's first stage has "
            "none; add it to the stack's input"
        )
    if collector is not None:
        raise BoundaryError(
            "captured_last_layer_outputs cannot be combined with post_residual_addition; use "
            "capture_output"
        )


def with_addition(
    hidden: Tensor | OwedOutput,
    batch: Batch[Any, Any],
    extra: Tensor,
    ways: Ways,
    capture: Capture | None,
) -> Any:
    """Prepares with ``extra`` [rows, width] added after the update; no capture shows it.

    Sums are rounded before it is added and afterwards, whichever way is taken.
    """
    planned, resume, read = ways
    stream = batch.stream
    if capture is None and resume and stream.form is Form.PLANNED:
        added = resume[batch.plan].added
        if added is not None:
            return added(hidden, batch, extra, *read)
    own = stream.form is not Form.WRITTEN
    residual = fold(hidden, batch)
    if capture is not None:
        capture(residual, owned=own)
    captured, stream.captured = stream.captured, {}
    try:
        written = stream.write(add(extra, residual))
        prepared = crossing(planned, resume, batch)(written, batch, *read)
    finally:
        missed, stream.captured = stream.captured, captured
    if missed:
        # Captures of the stack file are taken on the way across: once more, without extra.
        read_from = stream.residual
        written = stream.write(residual)
        crossing(planned, resume, batch)(written, batch, *read)
        stream.residual = read_from
    return prepared
