"""The end of a stage: one decision about its sum, published as flags and carried out afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from torch import Tensor

from boundaryc.runtime.additive import Bare, bare
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.handoffs import NOT_ASKED_FOR, HandoffOutput
from boundaryc.runtime.owed import BranchOutput, OwedOutput
from boundaryc.runtime.stream import ResidualStream

if TYPE_CHECKING:
    from boundaryc.runtime.batch import Batch
    from boundaryc.runtime.boundaries import _Boundary
    from boundaryc.runtime.fusion import FusedBoundary

Reduce = Callable[[Tensor, Any], Tensor]
"""``(hidden, batch) -> hidden``: the sum that compute must do itself."""

Leave = Callable[..., Tensor | OwedOutput]
"""``(hidden, batch, *update_params) -> output``: completes or records what is still owed."""

Adds = Callable[..., Tensor]
"""``(hidden, batch, *, term, ...) -> hidden``: adds this rank's part of additive terms."""

AddsTail = Callable[[Any], bool]
"""``batch -> whether this rank is the one of its group that adds what is replicated``."""


@dataclass(frozen=True, slots=True)
class ExitDecision:
    """What compute must not do, and what the boundary does instead; made by the compiler.

    ``fuse_mlp_allreduce``: the sum crosses to the next stage, or `leave` does it in a form that
    compute does not know, such as a quantised one. ``mlp_reduce_scatter``: `leave` ends it in a
    reduce-scatter. Neither: compute calls ``reduce`` itself, through the open exit.
    ``adds_tail`` names the rank that adds a replicated component to a sum that the boundary owns;
    see `Exit.adds_tail`. ``before_sum`` and ``after_sum`` add the additive terms that the stage
    declares; both are None where it declares none. ``fused`` says who may do instead what this
    decision says, in the next stage; None where nobody may. ``finalize`` is the stack's kernel that
    finishes rows of experts, None where it has none.
    """

    fuse_mlp_allreduce: bool
    mlp_reduce_scatter: bool
    reduce: Reduce
    leave: Leave
    adds_tail: AddsTail | None = None
    before_sum: Adds | None = None
    after_sum: Adds | None = None
    fused: Callable[[Any], FusedBoundary] | None = None
    finalize: Callable[..., Tensor] | None = None


Exits = tuple[ExitDecision, ...]
"""The decision of one exit, one entry per column."""


BESIDE = "a branch is beside this stage: leave its output through branch_output and merge_branch"


class _Phase(Enum):
    NEW = "new"
    OPEN = "open"
    CLOSED = "closed"
    FAILED = "failed"
    FINISHED = "finished"


_REFUSALS = {
    _Phase.NEW: "run the computation inside the exit before finishing it",
    _Phase.OPEN: "close the exit before finishing it",
    _Phase.FAILED: "the computation of this exit failed; its output cannot be finished",
    _Phase.FINISHED: "this exit is already finished",
}


class _Added(Enum):
    """How far compute is with the additive terms of its output."""

    NOTHING = "nothing"
    BEFORE_SUM = "before the sum"
    ALL = "all"


# Looked up once: what follows runs in every layer of every forward.
_NEW, _OPEN, _CLOSED, _FINISHED = _Phase.NEW, _Phase.OPEN, _Phase.CLOSED, _Phase.FINISHED
_NOTHING, _ALL = _Added.NOTHING, _Added.ALL


class Exit:
    """An open exit: flags for compute while it is entered, ``finish`` once afterwards.

    Entering publishes it as ``batch.exit``; leaving restores what was there, even when compute
    raises. ``fuse_mlp_allreduce``: do not sum, the next stage does. ``mlp_reduce_scatter``: do not
    sum, the boundary scatters. ``skips_reduction``: either of them. ``defer_moe_finalize``: a MoE
    may return a `HandoffOutput`, and then leaves its sum too, whatever the other flags say.
    ``bare`` is the output before its additive terms, None where it has none. Its boundary makes it,
    see `opened`.
    """

    __slots__ = (
        "_added",
        "_batch",
        "_boundary",
        "_decision",
        "_outer",
        "_phase",
        "_reduced",
        "_stream",
        "bare",
        "fuse_mlp_allreduce",
        "mlp_reduce_scatter",
        "skips_reduction",
    )

    bare: Bare | None
    fuse_mlp_allreduce: bool
    mlp_reduce_scatter: bool
    skips_reduction: bool
    defer_moe_finalize = False
    _added: _Added
    _batch: Batch[Any, Any]
    _boundary: _Boundary[Any]
    _decision: ExitDecision
    _outer: Exit | None
    _phase: _Phase
    _reduced: bool
    _stream: ResidualStream

    def __enter__(self) -> Self:
        if self._phase is not _NEW:
            raise BoundaryError("an exit is entered once; ask the boundary for a new one")
        self._phase = _OPEN
        batch = self._batch
        self._outer = batch.exit
        batch.exit = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._batch.exit = self._outer
        self._outer = None
        self._phase = _CLOSED if kind is None else _Phase.FAILED

    @property
    def adds_tail(self) -> bool:
        """Whether this rank adds a component that all ranks hold whole, such as a shared expert.

        Each rank asks once and adds it at most once: after its own sum, which every rank has, where
        compute sums; to its partial, on exactly one rank of the sum's group, where
        ``skips_reduction``. BoundaryError where the boundary owns a sum and the stage was not
        declared to have such a component.
        """
        if not self.skips_reduction:
            return True
        if self._decision.adds_tail is None:
            raise BoundaryError(
                "this exit owns the sum and names no rank for a replicated component; declare the "
                "stage `reduction: local_tail`"
            )
        return self._decision.adds_tail(self._batch)

    def reduce_output(self, hidden: Tensor, /, **terms: Tensor) -> Tensor:
        """The sum that compute must do itself; ``hidden`` unchanged where the boundary owns it.

        ``terms`` are the additive terms that the stage declares, by name, whole on every rank:
        [width], or rows like those of ``hidden``. Each enters once. An output of several parts is
        added up and then reduced. BoundaryError the second time, outside the open exit, and where
        the stage declares no terms; TypeError for a missing or an unknown one.
        """
        self._in_compute()
        if self._reduced:
            raise BoundaryError("the output is reduced already; add its parts before reduce_output")
        if terms:
            hidden = self.before_sum(hidden, **terms)
        hidden = self._sum(hidden)
        self._reduced = True
        return self.after_sum(hidden, **terms) if terms else hidden

    def _sum(self, hidden: Tensor) -> Tensor:
        return self._decision.reduce(hidden, self._batch)

    def before_sum(self, hidden: Tensor, /, **terms: Tensor) -> Tensor:
        """``hidden`` with what this rank adds to its partial, for compute that sums on its own.

        It comes before that sum, with the same terms as `after_sum`, and both are called whether
        there is a sum or not. BoundaryError for another order; otherwise as `reduce_output`.
        """
        adds = self._decision.before_sum
        added = self._add(adds, _Added.NOTHING, _Added.BEFORE_SUM, hidden, terms)
        self.bare = bare(hidden, terms, kept=self._batch.checks)
        return added

    def after_sum(self, hidden: Tensor, /, **terms: Tensor) -> Tensor:
        """``hidden`` with what this rank adds after the sum of compute; see `before_sum`."""
        return self._add(self._decision.after_sum, _Added.BEFORE_SUM, _Added.ALL, hidden, terms)

    def _add(
        self,
        adds: Adds | None,
        before: _Added,
        after: _Added,
        hidden: Tensor,
        terms: dict[str, Tensor],
    ) -> Tensor:
        self._in_compute()
        if adds is None:
            raise BoundaryError("this stage declares no additive terms")
        if self._added is not before:
            raise BoundaryError(
                "additive terms are added once: through reduce_output, or through before_sum and "
                "then after_sum"
            )
        hidden = adds(hidden, self._batch, **terms)
        self._added = after  # not where a term is missing or misspelt
        return hidden

    def finish(self, hidden: Tensor) -> Tensor | OwedOutput:
        """Completes or records what ``hidden`` owes; the model passes the result on.

        BoundaryError on a failed computation, while the exit is open, the second time, in another
        forward than the exit's, where declared additive terms are missing, and for what is no
        tensor.
        """
        batch, boundary = self._batch, self._boundary
        stream, onward = batch.stream, boundary._onward[batch.plan]
        if (
            stream.due is not boundary
            or onward is None
            or self._phase is not _CLOSED
            or stream is not self._stream
            or type(hidden) is not Tensor
        ):
            return self._finish(hidden)
        self._phase = _FINISHED
        leave: Any = self._decision.leave
        output = OwedOutput() if leave.owes else hidden
        stream.handle, stream.value, stream.access = output, hidden, leave.access
        stream.behind, stream.due = boundary, onward
        return output

    def _finish(self, hidden: Tensor) -> Tensor | OwedOutput:
        """As `finish`, after all checks."""
        self._computed(hidden)
        stream, position = self._batch.stream, self._boundary.position
        stream.reach(position)
        self._phase = _FINISHED
        stream.bare = self.bare
        output = self._leave(hidden)
        stream.passed(position, self._batch.plan)
        return output

    def _leave(self, hidden: Tensor) -> Tensor | OwedOutput:
        return self._decision.leave(hidden, self._batch, *self._boundary._update)

    def _in_compute(self) -> None:
        """Sees that the exit is open: BoundaryError where it is not."""
        if self._phase is not _Phase.OPEN:
            raise BoundaryError("what an exit decides is for the computation inside it: enter it")
        self._in_forward()

    def _in_forward(self) -> None:
        if self._batch.stream is not self._stream:
            raise BoundaryError(
                "this exit belongs to a forward that is over; ask the boundary for a new one"
            )

    def _computed(self, hidden: object) -> None:
        """Sees that compute is done, and all of it: BoundaryError where it is not."""
        if self._phase is not _Phase.CLOSED:
            raise BoundaryError(_REFUSALS[self._phase])
        self._in_forward()
        self._check_output(hidden)
        if self._added is not _Added.ALL:
            raise BoundaryError(
                "this stage declares additive terms that compute has not added; give them to "
                "reduce_output, or to before_sum and after_sum"
            )

    def _check_output(self, hidden: object) -> None:
        check_output(hidden)


def check_output(hidden: object) -> None:
    """Sees that a stage leaves a tensor: BoundaryError where it does not."""
    if isinstance(hidden, HandoffOutput):
        raise BoundaryError(NOT_ASKED_FOR)
    if not isinstance(hidden, Tensor):
        raise BoundaryError(f"a stage leaves a tensor, not a {type(hidden).__name__}")


class BranchExit(Exit):
    """The exit of a stage with a branch beside it, whose output is merged with the branch's."""

    __slots__ = ()

    def finish(self, hidden: Tensor) -> NoReturn:
        """BoundaryError: the output is placed for the merge, and the stream is the branch's."""
        raise BoundaryError(BESIDE)

    def branch_output(self, hidden: Tensor) -> BranchOutput:
        """Places what was computed where the branch's output will be: for `merge_branch`.

        The model may compute and place it before, between and after the stages of the branch.
        BoundaryError where `finish` of another exit would refuse, but in any order.
        """
        self._computed(hidden)
        self._phase = _FINISHED
        outer, self._stream.bare = self._stream.bare, self.bare
        output: BranchOutput = self._leave(hidden)  # type: ignore[assignment]
        self._stream.bare = outer
        return output


class FfnExit(Exit):
    """The exit of an FFN."""

    __slots__ = ()


class MixerExit(Exit):
    """The exit of a single-stage mixer; ``skips_reduction`` is its whole decision."""

    __slots__ = ()


def opened(self: _Boundary[Exits], batch: Batch[Any, Any]) -> Exit:
    """The exit of this batch: a context manager around compute, then its ``finish``."""
    decision = self._leave[batch.plan]
    found: Exit = self._exit()  # without an `__init__`: it is made in every layer
    found._boundary, found._decision, found._batch = self, decision, batch
    found._stream, found._phase, found._reduced = batch.stream, _NEW, False
    found._added = _ALL if decision.before_sum is None else _NOTHING
    found.bare = None
    found.fuse_mlp_allreduce = decision.fuse_mlp_allreduce
    found.mlp_reduce_scatter = decision.mlp_reduce_scatter
    found.skips_reduction = decision.fuse_mlp_allreduce or decision.mlp_reduce_scatter
    return found
