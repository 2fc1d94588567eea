"""The boundary of one stage as the model sees it: prepare, then finish or exit.

A boundary is unbound in the generated tables; ``bind`` gives it the parameters of one layer. They
are kept by reference and read at call time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MethodType
from typing import Any, ClassVar, Generic, NoReturn, Self, TypeVar, cast

from torch import Tensor

from boundaryc.runtime.access import capture_output, complete_output
from boundaryc.runtime.additions import refuse, with_addition
from boundaryc.runtime.additive import bare
from boundaryc.runtime.batch import Batch
from boundaryc.runtime.captures import Capture, Collector
from boundaryc.runtime.crossing import Prepares, Resumes, crossing, resumed
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.exits import (
    Exit,
    ExitDecision,
    Exits,
    FfnExit,
    Leave,
    MixerExit,
    check_output,
    opened,
)
from boundaryc.runtime.left import Left
from boundaryc.runtime.owed import OwedOutput
from boundaryc.runtime.pipeline import Entrance
from boundaryc.runtime.places import ANY, Place, Position, before
from boundaryc.runtime.stream import Form, StreamState
from boundaryc.runtime.unbound import Unbound

Leaves = tuple[Leave, ...]
"""One ``Leave`` per column."""

Onward = tuple[Place | None, ...]
"""By column where the stream is behind a stage that only leaves its output, by a `Left`.

None where leaving it is a call.
"""


LeavesT = TypeVar("LeavesT", bound=Iterable[Any])


class _Boundary(Generic[LeavesT]):
    """What all boundaries share: the tables of one stage and the parameters of one layer.

    ``position`` is where the layer's stage is in the stack; without it no order is checked.
    ``entrance`` starts the stream of a batch that comes from other ranks, where this is the first
    stage of a rank's layers.

    ``prepare(hidden, batch)`` is the stage's input, from what the previous stage handed out, in the
    read's format: the generated function of the first column itself. What `detour` takes beside
    these it takes too.
    """

    __slots__ = (
        *("_entrance", "_leave", "_onward", "_prepare", "_resume", "_update"),
        *("here", "position", "prepare", "read"),
        "_merge",  # of a stage beside a branch: of two bases one may have slots of its own
    )

    prepare: Callable[..., Any]
    _exit: ClassVar[type[Exit]] = Exit

    def __init__(
        self,
        prepare: Prepares,
        leave: LeavesT,
        *,
        resume: Resumes = (),
        read: tuple[Any, ...] = (),
        update: tuple[Any, ...] = (),
        position: Position | None = None,
        entrance: Entrance | None = None,
    ) -> None:
        self._entrance = entrance
        self._prepare = prepare
        self._leave = leave
        self._resume = resume
        self.read = read
        self._update = update
        self.position = position
        index = ANY if position is None else position.index
        self.here = before(index, 0)
        self._onward = onward(leave, position)
        self._ready()

    def _ready(self) -> None:
        """Makes the first function of this boundary its ``prepare``."""
        self.prepare = MethodType(self._prepare[0], self)

    def __getstate__(self) -> dict[str, Any]:
        """All but ``prepare``, which is bound to this object and pickles as no name of its own."""
        _, slots = cast(tuple[None, dict[str, Any]], super().__getstate__())
        return {name: value for name, value in slots.items() if name != "prepare"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self._ready()

    def bind(self, *read: Any, update: tuple[Any, ...] = ()) -> Self:
        """This boundary with one layer's parameters: of its read and of its update."""
        return self._with(read=read, update=update, position=self.position, entrance=self._entrance)

    def placed(
        self,
        position: Position,
        entrance: Entrance | None = None,
        lacks: tuple[bool, bool] = (False, False),
    ) -> Self:
        """This unbound boundary at one place of the stack; ``entrance`` if a cut precedes it.

        ``lacks``: whether it has to be bound before its read and before its update.
        """
        read, update = (Unbound(position.name) if lack else () for lack in lacks)
        return self._with(read=read, update=update, position=position, entrance=entrance)

    def _with(
        self,
        *,
        read: tuple[Any, ...] = (),
        update: tuple[Any, ...] = (),
        position: Position | None,
        entrance: Entrance | None,
    ) -> Self:
        """The same tables with these parameters at this place."""
        return type(self)(
            self._prepare,
            self._leave,
            resume=self._resume,
            read=read,
            update=update,
            position=position,
            entrance=entrance,
        )

    @property
    def prepares(self) -> Prepares:
        """The functions that prepare, by column."""
        return self._prepare

    @property
    def resumes(self) -> Resumes:
        """How it is crossed from other forms of the stream."""
        return self._resume

    def from_pp(self, tensors: Mapping[str, Tensor], batch: Batch[Any, Any]) -> Tensor | OwedOutput:
        """Goes on with a stream from what `Stack.to_pp` gave on the ranks before; its output.

        For the first stage of this rank's layers, in place of `Stack.start`. ``tensors`` are those
        of the rank with this one's number, whole or sliced and gathered as `payload` allows; the
        stream may write them. BoundaryError for other ones, and at any other stage.
        """
        if self._entrance is None:
            raise BoundaryError(
                "from_pp is for the first stage of a rank's layers, behind those of other ranks"
            )
        return self._entrance(tensors, batch)

    def _arrived(self, hidden: Tensor | OwedOutput, batch: Batch[Any, Any]) -> None:
        """Sees that this stage is next, and its input one: BoundaryError where that is not so."""
        stream = batch.stream
        if stream.due is self.here:  # nothing is wrong but, maybe, the output
            stream.due = None
            stream.check(hidden)
        stream.reach(self.position)
        stream.expect(hidden)

    def _planned(self, hidden: Tensor | OwedOutput, batch: Batch[Any, Any], *read: Any) -> Any:
        """Prepares from an output that is as its producer left it."""
        batch.stream.due = self.here  # which refuses another output
        return self._prepare[batch.plan](self, hidden, batch)

    def _cross(self, hidden: Tensor | OwedOutput, batch: Batch[Any, Any]) -> Any:
        """Prepares from whatever form the stream is in."""
        return crossing(self._planned, self._resume, batch)(hidden, batch, *self.read)


class _MixerInput(_Boundary[LeavesT]):
    """Prepare of a token mixer, which may show what it reads."""

    __slots__ = ()

    def detour(
        self,
        hidden: Tensor | OwedOutput,
        batch: Batch[Any, Any],
        *,
        capture_output: Capture | None = None,
        captured_last_layer_outputs: Collector | None = None,
        post_residual_addition: Tensor | None = None,
    ) -> Any:
        """As ``prepare``, from whatever form the stream is in.

        ``capture_output`` is given the updated residual on the producer's rows, after the sum, the
        update and the read; before the first stage it is given the stack's input, on the same rows
        and complete, also where what enters still owes its sum. The collector
        ``captured_last_layer_outputs`` takes the same residual on the rows of the stage's input.
        ``post_residual_addition``, on the stack's rows, is added to the updated residual with a
        rounding of its own before the read; captures, also those of the stack file, show the
        residual without it, for which a boundary that has any is crossed twice.
        """
        self._arrived(hidden, batch)
        if post_residual_addition is None:
            prepared = self._captured(hidden, batch, capture_output, captured_last_layer_outputs)
        else:
            refuse(batch, captured_last_layer_outputs)
            ways = self._planned, self._resume, self.read
            prepared = with_addition(hidden, batch, post_residual_addition, ways, capture_output)
        batch.stream.entered(self)
        return prepared

    def capture_output(
        self, hidden: Tensor | OwedOutput, batch: Batch[Any, Any]
    ) -> tuple[Tensor | OwedOutput, Tensor]:
        """The output to go on with, and a snapshot of the residual with it added."""
        return capture_output(hidden, batch)

    def _captured(
        self,
        hidden: Tensor | OwedOutput,
        batch: Batch[Any, Any],
        capture: Capture | None,
        collector: Collector | None,
    ) -> Any:
        """Prepares and shows the residual that was read."""
        stream = batch.stream
        if capture is not None:
            if stream.state is not StreamState.INITIAL:
                hidden = complete_output(hidden, batch)
            elif batch.facts.embeddings == "complete":
                capture(_tensor(hidden), owned=False)
                capture = None  # else what enters is complete only once it is the residual
        prepared = self._cross(hidden, batch)
        if capture is not None:
            resumed(self._resume, batch).producer.show(stream.residual, batch, capture)
        if collector is not None:
            resumed(self._resume, batch).input.show(stream.residual, batch, collector.capture)
        return prepared


class AttentionBoundary(_MixerInput[Leaves]):
    """Boundary of a stage that always leaves a partial sum: ``prepare``, compute, ``finish``."""

    __slots__ = ()

    def finish(
        self, hidden: Tensor, batch: Batch[Any, Any], /, **terms: Tensor
    ) -> Tensor | OwedOutput:
        """Registers the stage's contribution; the model passes the result on.

        ``terms`` are the additive terms that the stage declares, by name, whole on every rank:
        [width], or rows like those of ``hidden``. Each enters the sum once. TypeError for a missing
        or an unknown one.
        """
        stream, onward = batch.stream, self._onward[batch.plan]
        if stream.due is not self or onward is None or type(hidden) is not Tensor or terms:
            return self._finish(hidden, batch, terms)
        leave: Any = self._leave[batch.plan]
        output = OwedOutput() if leave.owes else hidden
        stream.handle, stream.value, stream.access = output, hidden, leave.access
        stream.behind, stream.due = self, onward
        return output

    def _finish(
        self, hidden: Tensor, batch: Batch[Any, Any], terms: dict[str, Tensor]
    ) -> Tensor | OwedOutput:
        """As `finish`, after all checks."""
        stream = batch.stream
        stream.reach(self.position)
        check_output(hidden)
        stream.bare = bare(hidden, terms, kept=batch.checks)
        output: Tensor | OwedOutput = self._leave[batch.plan](hidden, batch, *self._update, **terms)
        stream.passed(self.position, batch.plan)
        return output

    def exit(self, batch: Batch[Any, Any]) -> NoReturn:
        """A stage that always leaves its sum has no decision to publish: BoundaryError."""
        raise BoundaryError("a PARTIAL stage leaves its output through finish, not exit")


class MixerBoundary(_MixerInput[Exits]):
    """Boundary of a token mixer that obeys the exit's decision."""

    __slots__ = ()

    _exit: ClassVar[type[Exit]] = MixerExit
    exit = opened

    def finish(self, hidden: Tensor, batch: Batch[Any, Any]) -> NoReturn:
        """BoundaryError: the exit finishes what was computed under its flags."""
        _refuse_finish()


class FfnBoundary(_Boundary[Exits]):
    """Boundary of a stage that obeys the exit's decision: ``prepare``, compute inside ``exit``.

    In two-batch overlap compute may run without an exit; ``postprocess`` then stands for its end.
    """

    __slots__ = ("_postprocess",)

    def __init__(
        self, prepare: Prepares, leave: Exits, *, postprocess: Leaves = (), **rest: Any
    ) -> None:
        super().__init__(prepare, leave, **rest)
        self._postprocess = postprocess

    def _with(
        self,
        *,
        read: tuple[Any, ...] = (),
        update: tuple[Any, ...] = (),
        position: Position | None,
        entrance: Entrance | None,
    ) -> Self:
        same = super()._with(read=read, update=update, position=position, entrance=entrance)
        same._postprocess = self._postprocess
        return same

    def postprocess(self, hidden: Tensor, batch: Batch[Any, Any], /, **terms: Tensor) -> Tensor:
        """Ends a stage that computed without an exit, and so has summed its output itself.

        ``hidden`` is the complete output on the rows of the stage's input. Its transform runs, and
        it is moved to the hand-off's rows; nothing is owed, and the residual is left alone.
        ``terms`` are the additive terms that the stage declares, each added once. BoundaryError
        inside an exit, and in a stack that is compiled without two-batch overlap.
        """
        if not self._postprocess:
            raise BoundaryError(
                "this stack is compiled without two-batch overlap; its file says "
                "`overlap: {two_batch: true}` where a stage may run without an exit"
            )
        if batch.exit is not None:
            raise BoundaryError("an exit is open: finish it, it decides on this stage's sum")
        stream = batch.stream
        stream.reach(self.position)
        stream.bare = None
        output: Tensor = self._postprocess[batch.plan](hidden, batch, *self._update, **terms)  # type: ignore[assignment]
        stream.form = Form.HANDED
        stream.passed(self.position, batch.plan)
        return output

    def detour(self, hidden: Tensor | OwedOutput, batch: Batch[Any, Any]) -> Any:
        """As ``prepare``, from whatever form the stream is in."""
        self._arrived(hidden, batch)
        prepared = self._cross(hidden, batch)
        batch.stream.entered(self)
        return prepared

    _exit: ClassVar[type[Exit]] = FfnExit
    exit = opened

    def finish(self, hidden: Tensor, batch: Batch[Any, Any]) -> NoReturn:
        """BoundaryError: the exit finishes what was computed under its flags."""
        _refuse_finish()


def onward(leave: Iterable[Leave | ExitDecision], position: Position | None) -> Onward:
    """Where the stream is behind a stage at ``position`` that ends with one of these."""
    if position is None:
        return tuple(None for _ in leave)
    ends = zip(leave, position.onward, strict=True)
    return tuple(onward if _only_leaves(one) else None for one, onward in ends)


def _only_leaves(leave: Leave | ExitDecision) -> bool:
    if isinstance(leave, ExitDecision):
        # Of declared terms compute may not have added all.
        return leave.before_sum is None and type(leave.leave) is Left
    return type(leave) is Left


def _tensor(hidden: Tensor | OwedOutput) -> Tensor:
    if not isinstance(hidden, Tensor):
        raise BoundaryError("the stack's input is a tensor, not an output of another stream")
    return hidden


def _refuse_finish() -> NoReturn:
    raise BoundaryError("this stage leaves its output through exit(): finish the exit instead")
