"""What travels where a boundary is a pipeline cut.

The sender may hand over an output as its producer left it, with its sum owed and its update
pending: then the receiver runs the boundary as if there were no cut. What it may not hand over so,
it finishes first: the sum and the transform, and where the receiver lacks the update's parameters
the update too. What is finished lies on the stack's rows, so that a transport may slice it over the
ranks that hold equal rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from boundaryc import operations
from boundaryc.plan.access import Access, Ops, route
from boundaryc.plan.state import Phase, State
from boundaryc.plan.transitions import Goal


@dataclass(frozen=True, slots=True)
class Transfer:
    """The plans of a cut at one boundary.

    ``as_left``: an output that nobody changed travels as it is. ``finish`` and, from an output that
    was completed early, ``finish_completed`` lead to ``finished``: a complete output whose update
    is pending, or the written residual. ``received`` leads from there to the boundary's goal and
    ``fold`` to the written residual; None where that is what was sent.
    """

    as_left: bool
    finished: State
    finish: Ops
    finish_completed: Ops | None
    received: Ops | None
    fold: Ops | None

    @property
    def written(self) -> bool:
        """Whether what is finished is the written residual."""
        return self.finished.phase is Phase.STREAM


def bound(
    state: State, transform: operations.Operation | None, update: operations.Operation
) -> tuple[bool, bool]:
    """Whether the transform and the update that ``state`` leaves to run take parameters."""
    waits = state.transform and transform is not None and bool(transform.params)
    own = bool(update.params) or update.facts.per_call
    return waits, state.phase is not Phase.STREAM and own


def transfer(ways: Access, payload: str, *, bound: tuple[bool, bool]) -> Transfer:
    """The cut at a boundary whose other plans are ``ways``.

    ``bound`` says whether what is left to run of the producer's transform and of its update takes
    parameters, which only the producer's ranks have.
    """
    state, done, rows = ways.handed_off, ways.done, ways.stack_rows
    transform, update = bound
    finished = State(Phase.CONTRIBUTION, rows, 0, rows, handed_off=True)
    if state.phase is Phase.STREAM or done.phase is Phase.STREAM or update:
        finished = finished._replace(phase=Phase.STREAM)
        finish, finish_completed = ways.fold, ways.fold_completed
        assert finish is not None
        received = fold = None
    else:
        goal = Goal(rows, rows, phase=Phase.CONTRIBUTION)
        finish = route(state, goal, ways.facts, rounds=False)
        finish_completed = None
        if state != done:
            finish_completed = route(done, goal, ways.facts, rounds=False)
        received = route(finished, ways.goal, ways.facts, rounds=False)
        stream = Goal(rows, rows, phase=Phase.STREAM)
        fold = route(finished, stream, ways.facts, rounds=True)
    as_left = state == finished or (payload == "partial" and not (transform or update))
    return Transfer(as_left, finished, finish, finish_completed, received, fold)
