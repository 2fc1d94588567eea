"""What runs when a model uses an output between two stages: functions beside those of a boundary.

An exit leaves an ``Access`` in the stream: how its output is completed, folded, added to. A
boundary has a ``Resume``: how it is crossed from such an output or from a written residual, and how
the residual that it read gets to where it is shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from boundaryc.emit.additions import addition
from boundaryc.emit.calls import Calls, Names, left_by, without_output
from boundaryc.emit.crossings import WRITTEN, Crossing
from boundaryc.emit.doc_text import collectives, contract, lying, rows, summary
from boundaryc.emit.drafts import Draft
from boundaryc.emit.scope import Scope
from boundaryc.emit.script import Writer
from boundaryc.emit.statements import body
from boundaryc.emit.steps import Step, replayed, steps
from boundaryc.emit.ways import Way, crossed
from boundaryc.graph.build import ENTRY, FINAL, Edge
from boundaryc.operations import BUILTIN, Operation
from boundaryc.plan import ops
from boundaryc.plan.access import Access, Ops, access
from boundaryc.plan.result import Boundary
from boundaryc.plan.state import NO_RESIDUAL, Phase, State
from boundaryc.plan.transitions import Goal
from boundaryc.topology import Mesh

if TYPE_CHECKING:
    from boundaryc.emit.transfer import TransferDraft

RAW = next(operation for operation in BUILTIN if operation.name == "raw")
MOVED = ("value: Tensor", "batch: Batch")
"""The signature of functions that move or sum one tensor."""


@dataclass(frozen=True, slots=True)
class Shown:
    """How a residual gets to rows on which it is shown, see `runtime.CaptureMove`."""

    move: Draft | None = None
    owned: bool = False
    allocates: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two of them the same."""
        return (self.move and self.move.key, self.owned, self.allocates)


@dataclass(frozen=True, slots=True)
class AccessDraft:
    """What an exit leaves in the stream, under a name for the state in which it leaves it.

    ``update`` and ``residual`` are words for how it is added, and for where the residual lies.
    """

    base: str
    update: str
    residual: str
    complete: Draft | None
    fold: Draft | None
    fold_completed: Draft | None
    spread: Draft | None
    plain: bool

    def functions(self) -> dict[str, Draft]:
        """The functions by the field that names them."""
        named = {
            "complete": self.complete,
            "fold": self.fold,
            "fold_completed": self.fold_completed,
            "spread": self.spread,
        }
        return {field: draft for field, draft in named.items() if draft is not None}

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two of them the same."""
        found = tuple((field, draft.key) for field, draft in self.functions().items())
        return (self.base, found, self.plain)


@dataclass(frozen=True, slots=True)
class ResumeDraft:
    """The other ways across one boundary, under the name of the plain one."""

    base: str
    written: Draft
    completed: Draft | None
    producer: Shown
    input: Shown
    transfer: TransferDraft | None = None
    handed: Draft | None = None
    fused: Draft | None = None
    added: Draft | None = None
    finalized: Draft | None = None

    def functions(self) -> tuple[Draft, ...]:
        """Every function that it names."""
        ways = (self.completed, self.handed, self.fused, self.finalized, self.added, self.written)
        own = (*ways, self.producer.move, self.input.move)
        travels = self.transfer.every_function() if self.transfer else ()
        return (*(draft for draft in own if draft is not None), *travels)

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two of them the same."""
        ways = (self.completed, self.handed, self.fused, self.finalized, self.added, self.transfer)
        others = tuple(one and one.key for one in ways)
        return (self.base, self.written.key, others, self.producer.key, self.input.key)


@dataclass(frozen=True, slots=True)
class Between:
    """All of one boundary: ``access`` after a stage, ``empty`` at the end, without rows.

    ``late`` is what a stage leaves that ran without an exit.
    """

    access: AccessDraft | None
    resume: ResumeDraft
    empty: Draft | None
    late: AccessDraft | None = None

    @property
    def accesses(self) -> tuple[AccessDraft, ...]:
        """What the stage may leave in the stream."""
        return tuple(one for one in (self.access, self.late) if one is not None)

    def functions(self) -> tuple[Draft, ...]:
        """Every function, in the order in which a reader meets them."""
        left = tuple(draft for one in self.accesses for draft in one.functions().values())
        return (*left, *self.resume.functions(), *((self.empty,) if self.empty else ()))


def between(edge: Edge, ways: Access, scope: Scope, calls: Calls, *, shows: bool) -> Between:
    """What stands beside the functions of a boundary, without ``empty``.

    ``shows``: its consumer is a token mixer, which may be asked to show the residual it reads.
    """
    left = None if edge.producer == ENTRY else left_behind(ways, scope, calls)
    return Between(left, _resume(edge, ways, scope, calls, shows=shows), None)


def overlapped(found: Between, handed: Boundary, rows: int, scope: Scope, calls: Calls) -> Between:
    """``found`` with what follows a stage that ran without an exit, whose boundary is ``handed``.

    ``rows`` are those on which the stack is entered.
    """
    edge, ways = handed.edge, access(handed, rows)
    source, state = edge.producer, ways.handed_off
    opening = "hidden = stream.take(hidden)"
    if state.phase is Phase.STREAM:
        opening = "stream.take(hidden)"
    crossing = Crossing(source, "handed", edge.consumer, calls.shown)
    way = Way(state, steps(handed)[1], handed.goal, (opening,), crossing=crossing)
    resume = replace(found.resume, handed=crossed(way, edge.consumer, scope, calls))
    return replace(found, resume=resume, late=left_behind(ways, scope, calls))


def left_behind(ways: Access, scope: Scope, calls: Calls) -> AccessDraft:
    """What can be done with an output, as its stage leaves it in the stream."""
    state, update = ways.handed_off, calls.update
    assert update is not None
    plain = state.phase is Phase.STREAM or is_plain(update)
    fold = fold_completed = None
    if plain and ways.fold is not None:
        fold = folding(ways, ways.fold, state, scope, calls)
    if plain and ways.fold_completed is not None:
        fold_completed = folding(ways, ways.fold_completed, ways.done, scope, calls)
    spread = None
    if ways.spread:
        base = f"spread_to_{_label(scope.mesh, state.rows)}"
        title = f"An extra contribution, {rows(scope.mesh, ways.stack_rows)}, on the output's rows"
        base += "_by_token" * state.by_token
        spread = moved(ways, ways.spread, ways.stack_rows, scope, base, title)
    return AccessDraft(
        base=state_name(scope.mesh, state),
        update=_words(calls),
        residual=f"RESIDUAL_{_label(scope.mesh, state.residual)}".upper(),
        complete=_complete(ways, scope, calls) if ways.complete else None,
        fold=fold,
        fold_completed=fold_completed,
        spread=spread,
        plain=plain,
    )


def is_plain(update: Operation) -> bool:
    """Whether an update is an addition, scaled or not."""
    return update.call is None or update.facts.plain_add


def _words(calls: Calls) -> str:
    """A producer's transform and update as words of an identifier."""
    said = [operation.name for operation in (calls.transform, calls.update) if operation]
    factors = [repr(factor) for factor in (calls.factor, calls.scale) if factor is not None]
    return as_word("_".join([*said, *factors])).upper()


def state_name(mesh: Mesh, state: State) -> str:
    """What an output is, as a word of an identifier."""
    what = "COMPLETE"
    if state.phase is Phase.STREAM:
        what = "WRITTEN"
    elif state.owes:
        what = f"OWES_{mesh.label(state.owes)}"
    joined, order = "_JOINED" * state.joined, "_BY_TOKEN" * state.by_token
    waiting = "_UNTRANSFORMED" * state.transform
    return f"{what}_ON_{_label(mesh, state.rows)}{joined}{order}{waiting}".upper()


def _label(mesh: Mesh, mask: int) -> str:
    return mesh.label(mask) if mask else "all"


def _complete(ways: Access, scope: Scope, calls: Calls) -> Draft:
    sequence = replayed(ways.complete, ways.handed_off, ways.facts)
    return scope.once(_completed, ways.handed_off.owes, sequence, left_by(calls, "the stage"))


def _completed(scope: Scope, owes: int, sequence: tuple[Step, ...], calls: Calls) -> Draft:
    group, names = scope.group(owes), Names("value")
    script = Writer(scope, calls, at_producer=False, names=names).write(sequence)
    return Draft(
        base="_".join([f"complete_over_{group}", *map(as_word, script.summary[1:])]),
        params=MOVED,
        returns="Tensor",
        doc=(*summary("The complete output", script), *collectives(script)),
        body=body(script.lines, result="value"),
        needs=frozenset(script.helpers),
        custom=frozenset(script.custom),
    )


def folding(ways: Access, path: Ops, state: State, scope: Scope, calls: Calls) -> Draft:
    """From an output to the written residual; the stream itself stays as it is."""
    sequence = replayed(path, state, ways.facts._replace(carries=False))
    return scope.once(_folding, state, sequence, ways.stack_rows, left_by(calls, "the stage"))


def _folding(
    scope: Scope, state: State, sequence: tuple[Step, ...], stack_rows: int, calls: Calls
) -> Draft:
    names = Names("value", "stream.residual", "residual")
    if state.phase is Phase.STREAM:
        names = Names("value", "value", "value")
    writer = Writer(scope, calls, at_producer=False, names=names, spares=True)
    script = writer.write(sequence)
    goal = Goal(stack_rows, stack_rows, phase=Phase.STREAM)
    title = "The residual with the output added"
    doc: tuple[str, ...] = (f"{title}: it is that already.", "")
    if script.summary:
        doc = summary(title if state.phase is not Phase.STREAM else "The residual", script)
    done = script.summary[:-1] if script.summary[-1:] == ["add"] else script.summary
    words = [as_word(text) for text in done]
    kind = "fold_written" if state.phase is Phase.STREAM else "fold"
    return Draft(
        base="_".join([kind, *words]),
        params=MOVED,
        returns="Tensor",
        doc=(*doc, *contract(scope.mesh, state, goal), *collectives(script)),
        body=body(script.lines, result=writer.residual),
        needs=frozenset(script.helpers),
        custom=frozenset(script.custom),
    )


def as_word(step: str) -> str:
    """A step of a summary as a word of an identifier."""
    return re.sub(r"\W+", "_", step.replace(" over ", " ").replace("-", "minus "))


def moved(ways: Access, path: Ops, before: int, scope: Scope, base: str, title: str) -> Draft:
    """A tensor moved from the rows ``before`` to others."""
    state = State(Phase.CONTRIBUTION, before, 0, NO_RESIDUAL)
    return scope.once(_moved, replayed(path, state, ways.facts), base, title)


def _moved(scope: Scope, sequence: tuple[Step, ...], base: str, title: str) -> Draft:
    wanted = "it is wanted"
    calls = Calls("", "", "", None, RAW, {})
    writer = Writer(scope, calls, at_producer=False, names=Names("value"), wanted=wanted)
    script = writer.write(sequence)
    return Draft(
        base=base,
        params=MOVED,
        returns="Tensor",
        doc=(*summary(title, script), *collectives(script)),
        body=body(script.lines, result="value"),
        needs=frozenset(script.helpers),
    )


def _resume(edge: Edge, ways: Access, scope: Scope, calls: Calls, *, shows: bool) -> ResumeDraft:
    """The other ways in; ``shows``: the consumer may be asked to show what it reads."""
    goal, facts = ways.goal, ways.facts
    source = edge.producer or "start"
    stack = ways.stack_rows
    written = State(Phase.STREAM, stack, 0, stack, handed_off=True)
    opening = ("stream.residual = stream.take(hidden)",)
    sequence = replayed(ways.written, written, facts)
    crossing = Crossing("", WRITTEN, edge.consumer, calls.shown)
    from_written = Way(written, sequence, goal, opening, crossing=crossing)
    completed = None
    if ways.completed is not None:
        done = ways.done
        taken = "hidden = stream.take(hidden)"
        if done.phase is Phase.STREAM:
            taken = "stream.residual = stream.take(hidden)"
        sequence = replayed(ways.completed, done, facts)
        crossing = Crossing(source, "completed", edge.consumer, calls.shown)
        way = Way(done, sequence, goal, (taken,), crossing=crossing)
        completed = crossed(way, edge.consumer, scope, calls)
    kept = calls.kept
    to_producer, to_input = Shown(), Shown()
    if shows or edge.consumer == FINAL:
        to_producer = _shown(ways, ways.to_producer, goal, stack, scope, kept)
    if shows:
        to_input = _shown(ways, ways.to_input, goal, goal.rows, scope, kept, goal.by_token)
    return ResumeDraft(
        base=f"{source}_to_{edge.consumer}",
        written=crossed(from_written, edge.consumer, scope, without_output(calls)),
        completed=completed,
        producer=to_producer,
        input=to_input,
        added=addition(edge, ways, scope, calls),
    )


def _shown(
    ways: Access,
    path: Ops,
    goal: Goal,
    after: int,
    scope: Scope,
    kept: bool,
    by_token: bool = False,
) -> Shown:
    if not path:
        return Shown(owned=kept)
    mesh = scope.mesh
    base = f"residual_from_{_label(mesh, goal.residual)}_to_{_label(mesh, after)}"
    title = f"The residual that was read, {rows(mesh, goal.residual)}, on {lying(mesh, after)}"
    base += "_by_token" * by_token
    gathers = any(isinstance(op, ops.AllGather) for op in path)
    move = moved(ways, path, goal.residual, scope, base, title)
    return Shown(move, owned=kept and not gathers, allocates=gathers)


def empty(boundary: Boundary, scope: Scope, calls: Calls) -> Draft | None:
    """The end of the stack on a rank without rows: what others wait in, without the norm."""
    _, sequence = steps(boundary)
    own = calls.read.call is not None  # it makes the output's rows of the residual's
    if not own and not any(_sends(step) for step in sequence):
        return None
    start = sequence[0].before
    opening = "hidden = stream.take(hidden)"
    if start.phase is Phase.STREAM:
        opening = "stream.take(hidden)"
    source = boundary.edge.producer or "start"
    way = Way(
        start,
        sequence,
        boundary.goal,
        (opening,),
        "Tensor | OwedOutput",
        f"{source}_to_{FINAL}_empty",
        f"From {source}, without rows," if own else f"Without a norm from {source}",
    )
    if own:
        return crossed(way, FINAL, scope, calls)
    without = crossed(way, FINAL, scope, replace(calls, read=RAW))
    return without if calls.read == RAW else _as_normed(without, calls)


def _as_normed(without: Draft, calls: Calls) -> Draft:
    """The function with the argument that those have which run the norm."""
    norm = calls.norm.type
    params = (*without.params[:-1], f"norm: {norm}")
    return replace(without, params=params, needs=without.needs | {norm})


def _sends(step: Step) -> bool:
    silent = (ops.Slice, ops.ResidualSlice, ops.Update, ops.Read, ops.Join, ops.Reorder)
    return not isinstance(step.op, (*silent, ops.Transform))
