"""The residual of one forward and the contribution that is still to be added to it."""

from __future__ import annotations

from copy import copy
from enum import Enum
from typing import Any, Protocol, Self

from torch import Tensor
from torch.compiler import is_compiling

from boundaryc.runtime.additive import Bare
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.left import Access
from boundaryc.runtime.owed import BranchOutput, OwedOutput
from boundaryc.runtime.places import ANY, Position

_NOT_STARTED = "start the layer stack before entering a stage"
_FOREIGN = (
    "output does not belong to this residual stream; "
    "change layer outputs through boundary accessors"
)
_UNPREPARED = "prepare the stage before finishing it: nothing has entered this layer stack yet"
_NO_INPUT = "the stack's input is a tensor, not an output of another stream"
_ENTERED = "the stack was entered already; its first stage is prepared once in a forward"
_OCCUPIED = "a contribution is already pending; prepare the next stage before finishing another"


class StreamState(Enum):
    """Where a stream is between two stages."""

    UNSTARTED = "unstarted"  # no forward is running
    INITIAL = "initial"  # neither residual nor contribution
    WRITTEN = "written"  # residual, no pending contribution
    PENDING = "pending"  # a contribution whose update has not run


class Form(Enum):
    """How the stream came into its state, which decides what the next boundary runs."""

    PLANNED = "planned"  # as the producer left it, or not entered yet
    COMPLETED = "completed"  # its sum was finished early, the update is still pending
    WRITTEN = "written"  # the model folded or wrote it: a residual on the stack's rows
    RECEIVED = "received"  # other ranks finished it: output and residual on the stack's rows
    HANDED = "handed"  # summed where no exit was open: complete, on the hand-off's rows
    DEFERRED = "deferred"  # its exit has not ended it: a fused kernel may, see `handoffs`


class Placed(Protocol):
    """What is at one position of a stack: that position, or the boundary there."""

    @property
    def position(self) -> Any:
        """That position."""


class ResidualStream:
    """The residual and the producer's contribution, carried from one boundary to the next.

    ``due`` is where the stream is, if what is called there has nothing else to see to: a place
    where the stage that is next takes the output of the one before it as that left it, or the
    boundary that took it and may leave its own. None where more has to be looked at. ``behind`` is
    at the position of the stage that was left last, None where that is not known. ``extras`` are
    the names of what is still to be added to its output.
    ``residual`` is set by whoever writes the stream and is unset before. ``kept`` is what a read
    keeps for the update of its stage, on the residual's rows. ``params`` are those of
    the producer's update, ``access`` is what can be done with its output in between. ``captured``
    collects the captures of the stack file by name. ``rows`` are those on which a stack is entered
    and written, None where that is not known. ``beside`` has the outputs that wait to be
    merged, by stage. ``bare`` is what the last output was before terms were added to it, None
    where none were. ``deferred`` is what an exit has not done, see `handoffs`. Every value handed
    to the model is taken back by identity, once.
    """

    __slots__ = (
        "access",
        "bare",
        "behind",
        "beside",
        "captured",
        "deferred",
        "due",
        "extras",
        "form",
        "handle",
        "kept",
        "params",
        "phase",
        "residual",
        "rows",
        "value",
    )

    residual: Tensor
    kept: tuple[Tensor, ...]
    phase: StreamState
    form: Form
    handle: Tensor | OwedOutput | None
    value: Any  # a tensor, or what its producer hands on in place of one; None where nothing is
    params: tuple[Any, ...]
    access: Access | None
    deferred: object
    behind: Placed | None
    due: object
    extras: tuple[str, ...]
    rows: int | None
    captured: dict[str, list[Tensor]]
    bare: Bare | None
    beside: dict[str, tuple[BranchOutput, Tensor, Bare | None]]

    def __init__(
        self,
        state: StreamState = StreamState.INITIAL,
        captured: dict[str, list[Tensor]] | None = None,
        rows: int | None = None,
    ) -> None:
        self.phase = state
        self.rows = rows
        self.form = Form.PLANNED
        self.handle = None
        self.value = None
        self.params = ()
        self.kept = ()
        self.access = None
        self.deferred = None
        self.behind = None
        self.due = None
        self.extras = ()
        self.captured = {} if captured is None else captured
        self.bare = None
        self.beside = {}

    @property
    def state(self) -> StreamState:
        """Where the stream is between two stages."""
        # What was taken leaves no handle: whoever takes it need not say so twice.
        taken = self.phase is StreamState.PENDING and self.handle is None
        return StreamState.WRITTEN if taken else self.phase

    @property
    def at(self) -> int:
        """The index of the stage that comes next, `ANY` where that is not known."""
        return ANY if self.behind is None else self.behind.position.index + 1

    @property
    def left(self) -> str:
        """The name of the stage that was left last, empty where there is none."""
        return "" if self.behind is None else self.behind.position.name

    def goes_on(self, index: int) -> None:
        """Takes note that the stage ``index`` is the next, any one where that is `ANY`."""
        self.behind, self.due = None if index == ANY else Position(index - 1, ""), None

    def reach(self, position: Position | None) -> None:
        """Sees that the stage at ``position`` is the one to enter or to leave now.

        BoundaryError where it is not. A trace is not followed: layers alike share one, and it would
        have to be made for each of them.
        """
        if position is None or is_compiling():
            return
        if self.at in (position.index, ANY):
            self.settle(position.name)
            return
        after = f"after {self.left}" if self.left else "first"
        raise BoundaryError(
            self._unleft(position.name, position.index)
            or f"{position.name} does not come {after}; "
            "run the stages of all layers once and in order"
        )

    def _unleft(self, before: str, index: int) -> str:
        """What the model left out, if a stage before ``index`` took its input and left nothing."""
        position: Position | None = getattr(self.due, "position", None)
        if position is None or position.index >= index:
            return ""
        return (
            f"{position.name} was prepared, and its output was not left before {before}: give what "
            "it computes to its `finish`, to the `finish` of its exit where it has one, or to "
            "`branch_output` beside a branch"
        )

    def ended(self, end: int, what: str, whose: str) -> None:
        """Sees that ``what`` follows the last stage, which is before ``end``: BoundaryError if not.

        ``whose`` stages they are is for people.
        """
        if self.at not in (ANY, end):
            raise BoundaryError(f"{what} follows the last stage of {whose}")

    def settle(self, follows: str) -> None:
        """Sees that all extras are in the output that ``follows`` takes: BoundaryError if not."""
        if self.extras:
            raise BoundaryError(
                f"{' and '.join(self.extras)} is added to the output of {self.left} before "
                f"{follows}: call add_extras, with None where this batch has none"
            )

    def passed(self, position: Position | None, plan: int) -> None:
        """Takes note that the stage at ``position`` has left its output, in a batch of ``plan``."""
        self.behind, self.due = position, None
        self.extras = () if position is None else position.extras
        pending = self.phase is StreamState.PENDING and self.form is Form.PLANNED
        if position is not None and pending and self.bare is None:
            self.due = position.onward[plan]

    def entered(self, boundary: object) -> None:
        """Takes note that the stage of ``boundary`` has taken its input.

        What a plain output is behind it is said here, and need not be said when it is left.
        """
        self.phase, self.form, self.bare = StreamState.PENDING, Form.PLANNED, None
        self.due = boundary

    def rest(self) -> None:
        """Sees that the stream is between two stages: BoundaryError where it is not."""
        if self.state is StreamState.UNSTARTED:
            raise BoundaryError(_NOT_STARTED)
        if self.state is not StreamState.INITIAL and self.handle is None:
            raise BoundaryError("a segment ends between two stages; finish this stage first")

    def expect(self, hidden: Tensor | OwedOutput) -> None:
        """Sees that a stream is entered by a tensor on the stack's rows: BoundaryError if not."""
        if self.state is StreamState.INITIAL:
            if not isinstance(hidden, Tensor):
                raise BoundaryError(_NO_INPUT)
            self._fits(hidden, "input")

    def enter(self, hidden: Tensor) -> Tensor:
        """Opens an initial stream with the stack's input; the caller sets ``residual``.

        BoundaryError where no stream was started for this forward, or it was entered before.
        """
        if self.state is not StreamState.INITIAL:
            unstarted = self.state is StreamState.UNSTARTED
            raise BoundaryError(_NOT_STARTED if unstarted else _ENTERED)
        self.phase, self.due = StreamState.WRITTEN, None
        return hidden

    def arrive(self, residual: Tensor | None = None, kept: tuple[Tensor, ...] = ()) -> None:
        """Makes this initial stream one that other ranks have run so far, behind their output.

        ``residual`` None: it comes with that output.
        """
        self.phase, self.due = StreamState.WRITTEN, None
        self.kept = kept
        self.bare = (None,)
        if residual is not None:
            self.residual = residual

    def take(self, hidden: Tensor | OwedOutput) -> Tensor:
        """The value behind what the last stage handed out; the stream is written afterwards.

        BoundaryError where ``hidden`` is another object or no stream was started.
        """
        value = self.check(hidden)
        self.handle = None
        self.value = None
        self.phase, self.due = StreamState.WRITTEN, None
        return value

    def check(self, hidden: Tensor | OwedOutput) -> Tensor:
        """The value behind ``hidden``, which stays where it is. Refuses what `take` refuses."""
        value: Tensor | None = self.value
        if value is None or hidden is not self.handle:
            if self.state is StreamState.UNSTARTED:
                raise BoundaryError(_NOT_STARTED)
            left_out = self._unleft("an output was taken", self.at + 1) if value is None else ""
            raise BoundaryError(left_out or _FOREIGN)
        return value

    def owe(
        self, value: Tensor, params: tuple[Any, ...] = (), access: Access | None = None
    ) -> OwedOutput:
        """Leaves a contribution whose sum is not complete; the model gets an opaque handle."""
        handle = OwedOutput()
        self._leave(value, handle, params, access)
        return handle

    def pend(
        self, value: Tensor, params: tuple[Any, ...] = (), access: Access | None = None
    ) -> Tensor:
        """Leaves a complete contribution whose update has not run; the model gets it back."""
        self._leave(value, value, params, access)
        return value

    def defer(self, value: Any, work: object) -> OwedOutput:
        """Leaves what a stage computed and the ``work`` that its exit has not done; see `handoffs`.

        ``value`` is a tensor, or what the producer hands on in place of one.
        """
        handle = self.owe(value)
        self.form = Form.DEFERRED
        self.deferred = work
        return handle

    def copied(self, value: Tensor) -> Self:
        """This stream with ``value`` in place of the one behind its handle."""
        same = copy(self)
        same.value = value
        return same

    def keep(self, value: Tensor, access: Access | None = None) -> Tensor:
        """Leaves a written stream: the update already ran, ``value`` is what the next one takes."""
        self._leave(value, value, (), access)
        self.phase, self.due = StreamState.WRITTEN, None
        return value

    def branch_output(self, value: Tensor, stage: str) -> BranchOutput:
        """Keeps the output of ``stage`` until it is merged; the model gets an opaque handle.

        BoundaryError where an output of it waits already.
        """
        if stage in self.beside:
            raise BoundaryError(f"an output of `{stage}` already waits to be merged")
        handle = BranchOutput()
        self.beside[stage] = handle, value, self.bare
        return handle

    def merged(
        self, branch: tuple[BranchOutput, str], beside: tuple[BranchOutput, str]
    ) -> tuple[Tensor, Tensor]:
        """The outputs behind two handles, each with the stage that it must be of; both once.

        BoundaryError, and neither is taken, where a handle is another object or its stage has no
        output that waits.
        """
        for handle, stage in (branch, beside):
            if stage not in self.beside or self.beside[stage][0] is not handle:
                raise BoundaryError(
                    "merge_branch takes the last output of the branch and then the output beside "
                    f"it, once; this is no output of `{stage}` that waits to be merged"
                )
        _, output, bare = self.beside.pop(branch[1])
        _, other, other_bare = self.beside.pop(beside[1])
        self.bare = None if bare is None and other_bare is None else (None,)
        return output, other

    def replace(self, value: Tensor, form: Form) -> Tensor:
        """Changes the pending contribution in place; the model gets the new one, the old is gone.

        ``form`` says how it now differs from what the producer left.
        """
        self.handle = value
        self.value = value
        self.form = form
        self.due = None
        return value

    def write(self, residual: Tensor) -> Tensor:
        """Makes this a written stream of ``residual``; whatever was pending is dropped.

        BoundaryError where no stream was started, and for other rows than the stack's.
        """
        if self.state is StreamState.UNSTARTED:
            raise BoundaryError(_NOT_STARTED)
        self._fits(residual, "written residual")
        self.phase, self.due = StreamState.WRITTEN, None
        self.residual = residual
        self.params = ()
        self.access = None
        return self.replace(residual, Form.WRITTEN)

    def capture(self, name: str, value: Tensor, *, owned: bool = False) -> None:
        """Keeps ``value`` for ``batch.captured(name)``; copied unless nothing else writes it."""
        self.captured.setdefault(name, []).append(value if owned else value.clone())

    def _fits(self, value: Tensor, what: str) -> None:
        # In a trace a comparison would fix a number of rows that may vary.
        if self.rows is None or is_compiling() or value.shape[0] == self.rows:
            return
        raise BoundaryError(
            f"the stack's {what} has {value.shape[0]} rows, and this batch has {self.rows} on this "
            "rank, pads included"
        )

    def _leave(
        self,
        value: Tensor,
        handle: Tensor | OwedOutput,
        params: tuple[Any, ...],
        access: Access | None,
    ) -> None:
        if self.state is not StreamState.WRITTEN or self.handle is not None:
            unstarted = self.state is StreamState.UNSTARTED
            missing = _NOT_STARTED if unstarted else _UNPREPARED
            raise BoundaryError(_OCCUPIED if self.handle is not None else missing)
        self.phase, self.due = StreamState.PENDING, None
        self.form = Form.PLANNED
        self.handle = handle
        self.value = value
        self.params = params
        self.access = access
