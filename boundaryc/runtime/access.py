"""What a model may do with an output between two stages.

Each function takes what the last boundary handed out and the batch; the model goes on with what it
returns, and what it gave is refused from then on where the two differ. All ranks call the same
ones in the same order: a sum may be behind them.

Before the first stage the stack's input is no output yet. It can be completed, shown and added to,
as there is nothing behind it, but not folded.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from boundaryc.runtime.batch import Batch
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.handoffs import settle, unsettled_copy
from boundaryc.runtime.left import Access, Move
from boundaryc.runtime.owed import OwedOutput
from boundaryc.runtime.places import ANY
from boundaryc.runtime.rowwise import add
from boundaryc.runtime.stream import Form, ResidualStream, StreamState

_AS_LEFT = (Form.PLANNED, Form.HANDED)
"""The forms in which a stage leaves a stream."""
UNWRITTEN = "write the residual update before taking the final output"
_NOT_PLAIN = "{} requires a plain residual update"
_GENERATED_WITHOUT = (
    "these boundaries were generated without access to outputs between stages; compile them again"
)
_PARTIAL_INPUT = "the stack's input still owes a sum; it can only be given to the first stage"


def complete_output(hidden: Tensor | OwedOutput, batch: Batch[Any, Any]) -> Tensor:
    """Finishes the sum that ``hidden`` owes and leaves its update pending.

    The result has the rows on which the producer left its output. A complete output is returned as
    it is, so completing twice runs one sum.
    """
    stream = batch.stream
    if stream.state is StreamState.INITIAL:
        return _input(hidden, batch)
    hidden = settle(hidden, batch)
    value = stream.check(hidden)
    if isinstance(hidden, Tensor):
        return hidden
    complete = _required(_access(stream).complete)
    return stream.replace(complete(value, batch), Form.COMPLETED)


def fold(hidden: Tensor | OwedOutput, batch: Batch[Any, Any]) -> Tensor:
    """Completes ``hidden`` and adds it to the residual: the written stream on the stack's rows.

    BoundaryError where the pending update is not a plain one.
    """
    stream = batch.stream
    hidden = settle(hidden, batch)
    value = stream.check(hidden)
    if stream.form is Form.WRITTEN:
        return value
    folded = _fold(stream, "fold")
    return stream.write(folded(stream.take(hidden), batch))


def written(hidden: Tensor, batch: Batch[Any, Any]) -> Tensor:
    """Makes ``hidden``, on the stack's rows, the residual of a written stream.

    For compute that produced the whole residual. A pending contribution is dropped: fold it first
    where it must not be lost.
    """
    if not isinstance(hidden, Tensor):
        raise BoundaryError("an unfinished output is no residual; fold it instead")
    stream = batch.stream
    residual = stream.write(hidden)
    stream.goes_on(ANY)  # stages whose work the model did itself are not run
    stream.extras = ()
    return residual


def take_output(hidden: Tensor | OwedOutput, batch: Batch[Any, Any]) -> Tensor:
    """Ends the stream of a stack whose output is already written, and returns that output.

    BoundaryError while an update is pending; the stream is kept then.
    """
    stream = batch.stream
    value = stream.check(hidden)
    stream.settle("the end of the stack")
    if stream.state is StreamState.PENDING:
        raise BoundaryError(UNWRITTEN)
    if stream.form in _AS_LEFT and stream.access is not None:
        value = _required(stream.access.fold)(value, batch)
    batch.release()
    return value


def snapshot(hidden: Tensor | OwedOutput, batch: Batch[Any, Any]) -> Tensor:
    """The residual with ``hidden`` added, on the stack's rows and in storage of its own.

    A sum that is owed runs on a copy: the stream is left as it is and still owes it. Before the
    first stage it is a copy of the input. BoundaryError where the pending update is not plain, and
    for a hand-off of its producer.
    """
    stream = batch.stream
    if stream.state is StreamState.INITIAL:
        return _input(hidden, batch).clone()
    if stream.form is Form.DEFERRED:
        batch.stream = unsettled_copy(hidden, batch)
        try:
            return snapshot(settle(hidden, batch), batch)
        finally:
            batch.stream = stream
    value = stream.check(hidden)
    if stream.form is Form.WRITTEN:
        return value.clone()
    folded = _fold(stream, "snapshot")
    if stream.state is StreamState.WRITTEN:
        return folded(value, batch).clone()  # no addition: it may be the residual itself
    return folded(value if hidden is value else value.clone(), batch)


def add_to_output(hidden: Tensor | OwedOutput, batch: Batch[Any, Any], extra: Tensor) -> Tensor:
    """Adds ``extra``, on the stack's rows, once to the completed output; its update stays pending.

    The sum is rounded to the output's dtype. Of a written stream ``extra`` is added to the
    residual.
    """
    stream = batch.stream
    if stream.state is StreamState.INITIAL:
        return _sum(extra, _input(hidden, batch))
    complete = changeable(hidden, batch)
    if stream.form is Form.WRITTEN:
        return stream.write(_sum(extra, complete))
    spread = None if stream.access is None else stream.access.spread
    if spread is not None:
        extra = spread(extra, batch)
    return stream.replace(_sum(extra, complete), stream.form)


def changeable(hidden: Tensor | OwedOutput, batch: Batch[Any, Any]) -> Tensor:
    """What can be added to: the completed output, or the residual of a written stream."""
    stream = batch.stream
    if stream.form in _AS_LEFT and stream.state is StreamState.WRITTEN:
        hidden = fold(hidden, batch)
    return complete_output(hidden, batch)


def capture_output(
    hidden: Tensor | OwedOutput, batch: Batch[Any, Any]
) -> tuple[Tensor | OwedOutput, Tensor]:
    """What to go on with, and a `snapshot`: a declared sum runs on a copy and is still owed.

    What an exit deferred is not declared: it is done.
    """
    hidden = settle(hidden, batch)
    return hidden, snapshot(hidden, batch)


def _input(hidden: Tensor | OwedOutput, batch: Batch[Any, Any]) -> Tensor:
    """The stack's input before its first stage."""
    if not isinstance(hidden, Tensor):
        raise BoundaryError("the stack's input is a tensor, not an output of another stream")
    if batch.facts.embeddings == "partial":
        raise BoundaryError(_PARTIAL_INPUT)
    return hidden


def _sum(extra: Tensor, output: Tensor) -> Tensor:
    if extra.shape != output.shape:
        raise BoundaryError(
            f"an extra contribution of shape {tuple(extra.shape)} does not fit an output of shape "
            f"{tuple(output.shape)}"
        )
    return add(extra, output)


def _access(stream: ResidualStream) -> Access:
    if stream.access is None:
        raise BoundaryError(_GENERATED_WITHOUT)
    return stream.access


def _required(function: Move | None) -> Move:
    if function is None:
        raise BoundaryError(_GENERATED_WITHOUT)
    return function


def _fold(stream: ResidualStream, what: str) -> Move:
    """The function that folds what is pending, from the form that it is in."""
    access = _access(stream)
    if not access.plain:
        raise BoundaryError(_NOT_PLAIN.format(what))
    if stream.form is Form.COMPLETED:
        return _required(access.fold_completed)
    return _required(access.fold)
