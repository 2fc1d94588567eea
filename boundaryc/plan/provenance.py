"""Judges finished boundary plans by running them on provenance.

The checker shares nothing with the search but the names and fields of the operations. Each rank
holds, for every row, its token and how often the residual and each partial of the owed sum are in
it; the plan is executed on that, and what comes out is compared with what was declared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from boundaryc.plan.provenance_batches import count_vectors, size_vectors
from boundaryc.plan.provenance_layout import Layout, groups
from boundaryc.plan.provenance_machine import DeclaredGoal, DeclaredStart, Machine
from boundaryc.plan.provenance_moves import BrokenPlanError, Held, Reason, require

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from boundaryc.plan.ops import Operation

__all__ = [
    "DeclaredGoal",
    "DeclaredStart",
    "Fault",
    "FinalState",
    "Reason",
    "Rejection",
    "check",
    "final_state",
    "rejections",
    "verify_plan",
]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong: what, at which operation, on which ranks.

    ``index`` counts operations from 0; the plan's length stands for its end.
    """

    reason: Reason
    index: int
    ranks: tuple[int, ...]

    def __str__(self) -> str:
        ranks = ", ".join(map(str, self.ranks[:8])) + (", …" if len(self.ranks) > 8 else "")
        return f"operation {self.index}: {self.reason} (ranks {ranks})"


@dataclass(frozen=True, slots=True)
class Rejection:
    """A mesh and batch on which a plan goes wrong, and how."""

    sizes: tuple[int, ...]
    counts: tuple[int, ...]
    faults: tuple[Fault, ...]


RankRows = tuple[tuple[tuple[int, int], ...], ...]
"""For each rank, its (token, mark) pairs in order."""


@dataclass(frozen=True, slots=True)
class FinalState:
    """All that a plan leaves behind; equal where two plans have the same result.

    A mark is an integer that counts the residual and each partial in a row; marks of one mesh and
    one start can be compared with each other only.
    """

    kind: str
    value: RankRows
    residual: RankRows | None
    transforms: int
    updates: int
    reads: int
    hand_offs: int
    captured: int
    quantized: int


def check(
    ops: Sequence[Operation],
    *,
    sizes: tuple[int, ...],
    start: DeclaredStart,
    goal: DeclaredGoal,
    counts: tuple[int, ...],
) -> tuple[Fault, ...]:
    """Say what is wrong with a plan on one mesh and one batch; empty where it is right.

    ``sizes`` are the sizes of the atoms, outermost first; ``counts`` the tokens of each rank's
    leaf. Execution stops at the first operation with a fault, so all faults have one index.
    Raises ``ValueError`` where ``counts`` does not have one entry a rank.
    """
    machine = Machine(Layout(sizes, counts), start, goal)
    index = 0
    try:
        for index, op in enumerate(ops):  # noqa: B007  (the index is used by the handler)
            machine.step(op)
        index = len(ops)
        _accept(machine)
    except BrokenPlanError as error:
        found = sorted(error.found.items())
        return tuple(Fault(reason, index, ranks) for reason, ranks in found)
    return ()


def final_state(
    ops: Sequence[Operation],
    *,
    sizes: tuple[int, ...],
    start: DeclaredStart,
    goal: DeclaredGoal,
    counts: tuple[int, ...],
) -> FinalState | None:
    """Return what a plan leaves on each rank, or None where it goes wrong before its end.

    The end is not judged: a plan may run through and still deliver something undeclared.
    """
    machine = Machine(Layout(sizes, counts), start, goal)
    try:
        for op in ops:
            machine.step(op)
    except BrokenPlanError:
        return None
    return FinalState(
        kind=machine.kind,
        value=_pairs(machine.value),
        residual=None if machine.residual is None else _pairs(machine.residual),
        transforms=machine.transforms,
        updates=machine.updates,
        reads=machine.reads,
        hand_offs=machine.hand_offs,
        captured=machine.captured,
        quantized=machine.quantized,
    )


def rejections(
    ops: Sequence[Operation], *, atoms: int, start: DeclaredStart, goal: DeclaredGoal, even: int
) -> Iterator[Rejection]:
    """Find lazily each tried mesh and batch on which the plan is wrong.

    Atoms have size 2, 3 and both mixed. Batches are even, uneven and partly empty, except that
    cuts over the atoms of ``even`` are promised to be of equal sizes and always are.
    """
    for sizes in size_vectors(atoms):
        for counts in count_vectors(sizes, even):
            faults = check(ops, sizes=sizes, start=start, goal=goal, counts=counts)
            if faults:
                yield Rejection(sizes, counts, faults)


def verify_plan(
    ops: Sequence[Operation], *, atoms: int, start: DeclaredStart, goal: DeclaredGoal, even: int
) -> tuple[Rejection, ...]:
    """Return all of :func:`rejections`; empty where the plan is right everywhere it was tried."""
    return tuple(rejections(ops, atoms=atoms, start=start, goal=goal, even=even))


def _pairs(held: Held) -> RankRows:
    return tuple(tuple(zip(rows.tokens, rows.marks, strict=True)) for rows in held)


def _accept(machine: Machine) -> None:
    """Raise ``BrokenPlanError`` unless what the plan leaves is what was declared."""
    layout, goal = machine.layout, machine.goal
    ranks = range(layout.world)
    reads = not goal.merges and machine.start.phase != "input"
    if machine.kind != ("contribution" if goal.merges else "input") or machine.reads != reads:
        require(ranks, Reason.UNFINISHED)
    if machine.hand_offs != goal.hands_off:
        require(ranks, Reason.HAND_OFF)
    if machine.captured != len(goal.captures):
        require(ranks, Reason.CAPTURE)
    if machine.quantized != goal.quantized:
        require(ranks, Reason.QUANTIZED)
    if machine.transforms != machine.start.transform:
        require(ranks, Reason.TRANSFORM)
    if machine.updates != (machine.start.phase == "contribution" and not goal.merges):
        require(ranks, Reason.UNFINISHED)
    if goal.merges:
        _accept_merged(machine)
        return
    want = layout.tokens(goal.rows)
    if goal.by_token:
        want = layout.turned(want, machine.start.shards, 1)
    _ends_on(machine, machine.value, want, Reason.INPUT_ROWS)
    if machine.residual is None or goal.residual is None:
        require(ranks, Reason.RESIDUAL)
    else:
        want = layout.tokens(goal.residual)
        _ends_on(machine, machine.residual, want, Reason.FINAL_RESIDUAL)


def _accept_merged(machine: Machine) -> None:
    """Require an output of which every part is in the declared sum once, and its own residual.

    Two such outputs, of one declaration, add up to one of the same declaration: where that sum is
    done every part of either is in it once.
    """
    layout, goal, ranks = machine.layout, machine.goal, range(machine.layout.world)
    want = layout.tokens(goal.rows)
    moved = [rank for rank in ranks if machine.value[rank].tokens != want[rank]]
    require(moved, Reason.MERGE)
    for group in groups(layout.sizes, goal.owes):
        marks = (machine.value[rank].marks for rank in group)
        total = {sum(parts) for parts in zip(*marks, strict=True)}
        require(group if total - {machine.marks.complete} else (), Reason.MERGE)
    if (machine.residual is None) != (goal.residual is None):
        require(ranks, Reason.RESIDUAL)
    if machine.residual is not None and goal.residual is not None:
        rest = layout.tokens(goal.residual)
        wrong = [
            rank
            for rank in ranks
            if machine.residual[rank].tokens != rest[rank]
            or set(machine.residual[rank].marks) - {machine.marks.RESIDUAL}
        ]
        require(wrong, Reason.FINAL_RESIDUAL)


def _ends_on(
    machine: Machine, held: Held, want: tuple[tuple[int, ...], ...], reason: Reason
) -> None:
    """Require the tokens ``want`` in order on every rank, with everything in each once."""
    full = {machine.marks.written}
    ranks = range(machine.layout.world)
    require([rank for rank in ranks if held[rank].tokens != want[rank]], reason)
    require([rank for rank in ranks if set(held[rank].marks) - full], Reason.SUM_MISSING)
