"""What travels where a boundary is a pipeline cut, as a record and the functions that it names."""

from __future__ import annotations

from dataclasses import dataclass, replace

from boundaryc.emit.between import (
    AccessDraft,
    as_word,
    folding,
    left_behind,
    moved,
    state_name,
)
from boundaryc.emit.calls import Calls, Names
from boundaryc.emit.crossings import Crossing
from boundaryc.emit.doc_text import collectives, contract, lying, rows, summary
from boundaryc.emit.drafts import Draft
from boundaryc.emit.scope import Scope
from boundaryc.emit.script import Writer
from boundaryc.emit.statements import body
from boundaryc.emit.steps import replayed
from boundaryc.emit.ways import Way, crossed
from boundaryc.graph.build import Edge
from boundaryc.plan.access import Access, Ops, move
from boundaryc.plan.state import Phase, State
from boundaryc.plan.transfer import Transfer, bound, transfer
from boundaryc.plan.transitions import Goal
from boundaryc.topology import Mesh

HIDDEN, RESIDUAL = "hidden_states", "residual"
"""What tensors of a payload are called that lie on the stack's rows and owe nothing."""


@dataclass(frozen=True, slots=True)
class TransferDraft:
    """A ``runtime.Transfer``: its functions, and what it says of an output as it was left.

    ``parts`` are the tensors of such an output, a name and the atoms that cut its rows, the value
    first; none where it may not travel. ``left`` and ``arrived`` are what can be done with an
    output that travelled so and with one that was finished. ``rows`` are those of the stack,
    ``inputs`` those on which captures of token mixers' inputs travel, where any do, and
    ``inputs_sent`` and ``inputs_received`` bring these to the stack's rows and back where a
    transport may slice. ``streams`` and ``state`` are what the residual has, and what goes with it.
    """

    rows: int
    parts: tuple[tuple[str, int], ...]
    owes: bool
    written: bool
    finish: Draft | None
    finish_completed: Draft | None
    received: Draft | None
    left: AccessDraft | None
    arrived: AccessDraft | None
    inputs: int | None = None
    inputs_sent: Draft | None = None
    inputs_received: Draft | None = None
    streams: int = 1
    state: tuple[tuple[str, int], ...] = ()

    def functions(self) -> dict[str, Draft]:
        """The functions by the field that names them."""
        named = {
            "finish": self.finish,
            "finish_completed": self.finish_completed,
            "received": self.received,
            "inputs_sent": self.inputs_sent,
            "inputs_received": self.inputs_received,
        }
        return {field: draft for field, draft in named.items() if draft is not None}

    def every_function(self) -> tuple[Draft, ...]:
        """Its functions, and those for what arrives."""
        after = self.arrived.functions().values() if self.arrived else ()
        return (*self.functions().values(), *after)

    def accesses(self) -> dict[str, AccessDraft]:
        """What can be done with what arrives, by the field that names it."""
        named = {"access": self.left, "received_access": self.arrived}
        return {field: draft for field, draft in named.items() if draft is not None}

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two of them the same."""
        functions = tuple((field, draft.key) for field, draft in self.functions().items())
        accesses = tuple((field, draft.key) for field, draft in self.accesses().items())
        own = (self.rows, self.inputs, self.parts, self.owes, self.written)
        return (*own, self.streams, self.state, functions, accesses)


def transferred(
    edge: Edge, ways: Access, scope: Scope, calls: Calls, left: AccessDraft, payload: str
) -> TransferDraft:
    """The cut at one boundary behind a stage; ``left`` is what the stage's exit leaves."""
    assert calls.update is not None
    params = bound(ways.handed_off, calls.transform, calls.update)
    plan = transfer(ways, payload, bound=params)
    calls = replace(calls, producer="the stage")
    arrived = received = None
    if plan.received is not None and plan.finished != ways.handed_off:
        way = Way(
            plan.finished,
            replayed(plan.received, plan.finished, ways.facts),
            ways.goal,
            ("hidden = stream.take(hidden)",),
            crossing=Crossing(edge.producer, "received", edge.consumer, calls.shown),
        )
        received = crossed(way, edge.consumer, scope, calls)
        arrived = left_behind(_as_received(ways, plan), scope, calls)
    state = calls.update.facts.state if calls.update else ()
    parts = _parts(scope.mesh, ways, plan, tuple(name for name, _ in state))
    return TransferDraft(
        rows=ways.stack_rows,
        parts=parts,
        owes=bool(parts and ways.handed_off.owes),
        written=plan.written,
        finish=None if parts else _as_completed(ways, plan, left, scope, calls),
        finish_completed=None
        if plan.finish_completed is None
        else _finish(ways, plan, plan.finish_completed, ways.done, scope, calls),
        received=received,
        left=left if parts else None,
        arrived=arrived,
        streams=calls.streams,
        state=state,
    )


def with_inputs(
    draft: TransferDraft, inputs: int, ways: Access, scope: Scope, payload: str
) -> TransferDraft:
    """``draft`` with captures on the rows ``inputs``; a complete payload is on the stack's rows.

    What a transport slices over the ranks that hold equal rows must not be cut over them already.
    """
    stack = ways.stack_rows
    if payload == "partial" or inputs == stack:
        return replace(draft, inputs=inputs)
    sent, received = (
        _capture_moved(ways, before, after, scope)
        for before, after in ((inputs, stack), (stack, inputs))
    )
    return replace(draft, inputs=stack, inputs_sent=sent, inputs_received=received)


def _capture_moved(ways: Access, before: int, after: int, scope: Scope) -> Draft:
    mesh = scope.mesh
    names = (mesh.label(mask) if mask else "all" for mask in (before, after))
    title = f"A capture that travels, {rows(mesh, before)}, on {lying(mesh, after)}"
    path = move(before, after, ways.facts)
    return moved(ways, path, before, scope, "captured_from_{}_to_{}".format(*names), title)


def _parts(
    mesh: Mesh, ways: Access, plan: Transfer, kept: tuple[str, ...]
) -> tuple[tuple[str, int], ...]:
    state = ways.handed_off
    beside = tuple((f"state.{name}", state.residual) for name in kept)
    if not plan.as_left or (plan.written and state == plan.finished):
        return ()
    if state == plan.finished:
        return ((HIDDEN, state.rows), (RESIDUAL, state.residual), *beside)
    value = (f"{HIDDEN}.{state_name(mesh, state).lower()}", state.rows)
    if state.phase is Phase.STREAM or state.joined:
        return (value,)
    residual = f"{RESIDUAL}.on_{mesh.label(state.residual) if state.residual else 'all'}"
    return (value, (residual, state.residual), *beside)


def _as_received(ways: Access, plan: Transfer) -> Access:
    """The other plans of an output that was finished before it travelled."""
    state = plan.finished
    ways = replace(ways, handed_off=state, done=state, complete=(), spread=())
    return replace(ways, fold=plan.fold, fold_completed=None, completed=None)


def _as_completed(
    ways: Access, plan: Transfer, left: AccessDraft, scope: Scope, calls: Calls
) -> Draft | None:
    """What finishes an output as it was left: what completes it, where that is all."""
    found, known = _finish(ways, plan, plan.finish, ways.handed_off, scope, calls), left.complete
    return known if found and known and found.body == known.body else found


def _finish(
    ways: Access, plan: Transfer, path: Ops, state: State, scope: Scope, calls: Calls
) -> Draft | None:
    """From an output to what travels of it; None where it is that already."""
    if not path:
        return None
    if plan.written:
        return folding(ways, path, state, scope, calls)
    writer = Writer(scope, calls, at_producer=False, names=Names("value"))
    script = writer.write(replayed(path, state, ways.facts))
    goal = Goal(ways.stack_rows, ways.stack_rows, phase=Phase.CONTRIBUTION)
    return Draft(
        base="_".join(["finish_to_send", *map(as_word, script.summary)]),
        params=("value: Tensor", "batch: Batch"),
        returns="Tensor",
        doc=(
            *summary("The output that other ranks go on with", script),
            *contract(scope.mesh, state, goal),
            *collectives(script),
        ),
        body=body(script.lines, result="value"),
        needs=frozenset(script.helpers),
        custom=frozenset(script.custom),
    )
