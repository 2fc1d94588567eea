"""Other ways across a boundary, for a stream that is not in the state its producer left.

Between two stages a model may complete an output, fold it into the residual, or replace the stream
by a residual of its own. What then follows has a plan of its own: it starts from the state the
stream is in and arrives where the boundary arrives. These ways are taken seldom, so each has one
form for batches of every evenness, for every policy and for groups of every size: rows move by
their counts, sums are all-reduces, and costs are those of groups of two.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from boundaryc.plan.cost import Order
from boundaryc.plan.ops import AllGather, AllReduce, Operation, Reorder, Slice, Transform
from boundaryc.plan.result import Boundary
from boundaryc.plan.search import moves, search
from boundaryc.plan.state import EdgeFacts, Phase, State
from boundaryc.plan.transitions import Goal

Ops = tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """The plans of one boundary besides its own. None where the state cannot occur.

    ``handed_off`` is the state in which the producer leaves the stream, ``goal`` is the boundary's,
    ``facts`` is what they were planned with, ``stack_rows`` are those on which the stack is entered
    and left. ``complete`` finishes the sum in place, and the transform that waits for it, and
    leaves the state ``done``; ``fold`` and, from a completed output, ``fold_completed`` make it a
    written stream on the stack's rows. ``completed`` and ``written`` lead from a completed output
    and from such a stream to the boundary's goal. ``spread`` brings a tensor on the stack's rows to
    those of the output; ``to_producer`` and ``to_input`` bring the residual that was read to the
    stack's rows and to the input's.
    """

    handed_off: State
    done: State
    goal: Goal
    facts: EdgeFacts
    stack_rows: int
    complete: Ops
    fold: Ops | None
    fold_completed: Ops | None
    completed: Ops | None
    written: Ops
    spread: Ops
    to_producer: Ops
    to_input: Ops

    @property
    def asked(self) -> tuple[State, Goal, EdgeFacts, int]:
        """What all of it follows from."""
        return self.handed_off, self.goal, self.facts, self.stack_rows


def access(boundary: Boundary, rows: int) -> Access:
    """The other plans of ``boundary``; ``rows`` are those on which the stack is entered and left.

    LookupError where one that every boundary must have does not exist.
    """
    facts = boundary.facts._replace(even=0, scatter=0, scatter_by_size=False, quantized_sum=0)
    return _access(handed_off(boundary), boundary.goal, in_twos(facts), rows)


@lru_cache(maxsize=8192)
def _access(state: State, goal: Goal, facts: EdgeFacts, rows: int) -> Access:
    stream = Goal(rows, rows, phase=Phase.STREAM)
    done, complete = state, _completion(state)
    for op in complete:
        after = op.apply(done, facts)
        assert after is not None
        done = after
    fold = fold_completed = completed = None
    if state.phase is not Phase.INITIAL:
        fold = route(state, stream, facts, rounds=True)
    if state.owes and state.phase is Phase.CONTRIBUTION:
        fold_completed = route(done, stream, facts, rounds=True)
        completed = route(done, goal, facts, rounds=False)
    written = State(Phase.STREAM, rows, 0, rows, handed_off=True)
    return Access(
        handed_off=state,
        done=done,
        goal=goal,
        facts=facts,
        stack_rows=rows,
        complete=complete,
        fold=fold,
        fold_completed=fold_completed,
        completed=completed,
        written=route(written, goal, facts, rounds=False),
        spread=move(rows, state.rows, facts, by_token=state.by_token),
        to_producer=move(goal.residual, rows, facts),
        to_input=move(goal.residual, goal.rows, facts, by_token=goal.by_token),
    )


def _completion(state: State) -> Ops:
    """What is left to do for a complete output on the rows on which it was left."""
    if not state.owes:
        return ()
    return (AllReduce(state.owes), *((Transform(),) if state.transform else ()))


def move(before: int, after: int, facts: EdgeFacts, *, by_token: bool = False) -> Ops:
    """The move of complete rows from one layout to another: at most a gather and then a cut.

    ``by_token``: they are to arrive in token order.
    """
    gather, cut = before & ~after, after & ~before
    moves: list[Operation] = []
    if gather:
        moves.append(AllGather(gather, facts.variable(gather)))
    if cut:
        moves.append(Slice(cut))
    if by_token:
        moves.append(Reorder(to_tokens=True))
    return tuple(moves)


def handed_off(boundary: Boundary) -> State:
    """The state of a boundary right after its hand-off; its start where it has no producer."""
    state = boundary.start
    for op in boundary.path.ops:
        if state.handed_off:
            break
        after = op.apply(state, boundary.facts)
        if after is None:
            raise AssertionError(f"{op} is not legal in {state}")
        state = after
    return state


def in_twos(facts: EdgeFacts) -> EdgeFacts:
    """The facts of a mesh that is cut alike, each time in two."""
    return facts._replace(sizes=(2,) * len(facts.sizes))


@lru_cache(maxsize=8192)
def route(start: State, goal: Goal, facts: EdgeFacts, *, rounds: bool) -> Ops:
    """The cheapest way; ``rounds``: nothing reads the sum, so it may be rounded.

    LookupError where there is none.
    """
    facts = facts._replace(carries=False) if rounds else facts
    found = search(start, frozenset({goal}), moves(facts), Order(), facts.scatter)
    if goal not in found:
        raise LookupError(f"no way from {start} to {goal}")
    return found[goal].ops
