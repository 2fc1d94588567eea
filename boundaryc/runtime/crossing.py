"""How a boundary is crossed from every form in which its stream may be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from boundaryc.runtime.batch import Batch
from boundaryc.runtime.captures import BORROWED, CaptureMove
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.fusion import fusing
from boundaryc.runtime.pipeline import Transfer
from boundaryc.runtime.places import Place
from boundaryc.runtime.stream import Form

Prepare = Callable[..., Any]
"""``(hidden, batch, *read_params) -> input``: everything between two stages after the hand-off."""

Prepares = tuple[Callable[..., Any], ...]
"""``(at, hidden, batch, **shows) -> input``, one per column: a method of the boundary, see `At`."""

InputT = TypeVar("InputT", covariant=True)


class At(Protocol[InputT]):
    """The boundary that a generated function prepares for, bound to one layer's parameters.

    A model calls that function itself. Where the stream is ``due`` at ``here`` with the output that
    was handed out, and nothing is to be shown, nothing else has to be looked at: it takes the
    output out of the stream, which is then due at this boundary itself: to be left. In all other
    cases it leaves everything to ``detour``. ``read`` are the parameters of the stage's read.
    """

    here: Place
    read: tuple[Any, ...]

    def detour(self, hidden: Any, batch: Any, /, **shows: Any) -> InputT:
        """The stage's input, from whatever form the stream is in, after all checks."""


@dataclass(frozen=True, slots=True)
class Resume:
    """How a boundary is crossed in one column when the stream is not as its producer left it.

    ``written`` prepares from a residual on the stack's rows, also where the stack is entered;
    ``completed`` from an output whose sum was finished early, None where none is owed; ``handed``
    from one that `FfnBoundary.postprocess` brought to the hand-off's rows. What they read is taken
    from the stream as usual. ``producer`` moves the updated residual, as the
    boundary leaves it, to the producer's rows: those a model holds, equal under every policy.
    ``input`` moves it to the rows of the stage's input. ``transfer`` is what travels where the
    boundary is a pipeline cut, None in a stack without cuts and where the stack is entered.
    ``fused`` takes the input that a fused kernel made of an output that its exit deferred, and does
    what is left; None where nothing is. ``added`` starts from an output as its producer left it and
    takes, behind the batch, what the model adds to the residual between its update and its read;
    None where no kernel does that. ``finalized`` starts from the `ExpertRows` that a MoE handed on
    and that owe no sum; None where no kernel of the stack does.
    """

    written: Prepare
    completed: Prepare | None = None
    producer: CaptureMove = BORROWED
    input: CaptureMove = BORROWED
    handed: Prepare | None = None
    transfer: Transfer | None = None
    fused: Prepare | None = None
    added: Prepare | None = None
    finalized: Prepare | None = None


Resumes = tuple[Resume, ...]
"""One ``Resume`` per column; empty where a stack was generated without them."""


def crossing(planned: Prepare, resume: Resumes, batch: Batch[Any, Any]) -> Prepare:
    """The function that crosses a boundary from the form the stream is in.

    ``planned`` crosses it from an output that is as its producer left it.
    """
    form = batch.stream.form
    if form is Form.PLANNED:
        return planned
    way = resumed(resume, batch)
    if form is Form.DEFERRED:
        return fusing(planned, way.fused, way.finalized)
    crossed: Prepare | None
    if form is Form.RECEIVED:
        crossed = transfer_of(resume, batch).received
    else:
        ways = {Form.WRITTEN: way.written, Form.COMPLETED: way.completed, Form.HANDED: way.handed}
        crossed = ways[form]
    if crossed is None:
        raise BoundaryError("this boundary has no way on from an output that was completed early")
    return crossed


def resumed(resume: Resumes, batch: Batch[Any, Any]) -> Resume:
    """The entry of this batch; BoundaryError where the stack was generated without any."""
    if not resume:
        raise BoundaryError(
            "this boundary was generated without a way on from a changed or captured output; "
            "compile it again"
        )
    return resume[batch.plan]


def transfer_of(resume: Resumes, batch: Batch[Any, Any]) -> Transfer:
    """What travels at a boundary; BoundaryError where the stack was compiled without cuts."""
    found = resumed(resume, batch).transfer
    if found is None:
        raise BoundaryError(
            "this stack was compiled without pipeline cuts: declare `pipeline` in its file"
        )
    return found
