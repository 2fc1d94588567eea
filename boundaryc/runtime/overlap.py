"""Two-batch overlap: one stream becomes two that interleave, and one again.

The rows of a batch are split on the stack's rows, where the tokens of a DP group are a prefix of
the rows, in order: the first child has the first of them, the second the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from boundaryc.runtime.access import fold
from boundaryc.runtime.batch import Batch
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.owed import OwedOutput
from boundaryc.runtime.stream import ResidualStream, StreamState

AnyBatch = Batch[Any, Any]


def split(
    hidden: Tensor | OwedOutput, batch: AnyBatch, children: Sequence[AnyBatch]
) -> tuple[Tensor, Tensor]:
    """What each of two ``children`` goes on with; the stream of ``batch`` ends, theirs begin.

    The children are what ``batch.split`` returned. Before the first stage ``hidden`` is the stack's
    input, on the stack's rows. Between two stages the output is completed and folded, so that
    each child has a written stream. BoundaryError where the pending update is not plain.
    """
    _check(batch, children)
    stream = batch.stream
    stream.settle("its split")
    at, behind, initial = stream.at, stream.behind, stream.state is StreamState.INITIAL
    if not initial:
        hidden = fold(hidden, batch)
    if not isinstance(hidden, Tensor):
        raise BoundaryError("the stack's input is a tensor, not an output of another stream")
    rows = hidden
    if rows.shape[0] != batch.stack_rows:
        raise ValueError(f"{rows.shape[0]} rows where the stack has {batch.stack_rows}")
    batch.release()
    parts, first = [], 0
    for child in children:
        part = rows.new_zeros((child.stack_rows, *rows.shape[1:]))
        part[: child.group_real_rows] = rows[first : first + child.group_real_rows]
        first += child.group_real_rows
        child.start(tuple(batch.captures), at)
        child.stream.behind = behind
        parts.append(part if initial else child.stream.write(part))
    return parts[0], parts[1]


def merge(
    hidden: Sequence[Tensor | OwedOutput], children: Sequence[AnyBatch], batch: AnyBatch
) -> Tensor:
    """The rows of both ``children`` together, on the stack's rows of ``batch``; pads are zero.

    After their final norms these are their outputs. Between two stages each child's output is
    completed and folded, their streams end, and that of ``batch`` goes on, written. BoundaryError
    where the two are at different stages, or where a pending update is not plain.
    """
    _check(batch, children)
    streams = [child.stream for child in children]
    ended = [stream.state is StreamState.UNSTARTED for stream in streams]
    if any(ended) != all(ended) or streams[0].at != streams[1].at:
        raise BoundaryError("the two batches are not at the same stage: run both before they merge")
    for stream in streams:
        stream.settle("the merge")
    parts = [
        one if ended[0] and isinstance(one, Tensor) else fold(one, child)
        for one, child in zip(hidden, children, strict=True)
    ]
    whole = parts[0].new_zeros((batch.stack_rows, *parts[0].shape[1:]))
    first = 0
    for part, child in zip(parts, children, strict=True):
        whole[first : first + child.group_real_rows] = part[: child.group_real_rows]
        first += child.group_real_rows
    if ended[0]:
        return whole
    behind = streams[0].behind
    for child in children:
        child.release()
    batch.stream = ResidualStream(captured=batch.captures)
    batch.stream.behind = behind
    return batch.stream.write(whole)


def _check(batch: AnyBatch, children: Sequence[AnyBatch]) -> None:
    rows = [
        sum(counts) for counts in zip(*(one.facts.rows_per_dp for one in children), strict=True)
    ]
    if len(children) != 2 or tuple(rows) != batch.facts.rows_per_dp:
        raise ValueError(
            f"two batches of together {batch.facts.rows_per_dp} rows are those that this batch is "
            f"split into, not {[one.facts.rows_per_dp for one in children]}"
        )
