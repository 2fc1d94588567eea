"""Hands a planned boundary to the provenance checker."""

from __future__ import annotations

from typing import Literal

from boundaryc.plan.ops import HandOff
from boundaryc.plan.provenance import DeclaredGoal, DeclaredStart
from boundaryc.plan.result import Boundary
from boundaryc.plan.state import NO_RESIDUAL, Phase

_PHASES: dict[Phase, Literal["initial", "contribution", "stream", "input"]] = {
    Phase.INITIAL: "initial",
    Phase.CONTRIBUTION: "contribution",
    Phase.STREAM: "stream",
    Phase.INPUT: "input",
}


def declarations(boundary: Boundary) -> tuple[DeclaredStart, DeclaredGoal]:
    """What a boundary was to do, in the checker's own terms."""
    start, goal, facts = boundary.start, boundary.goal, boundary.facts
    declared_start = DeclaredStart(
        phase=_PHASES[start.phase],
        rows=start.rows,
        owes=start.owes,
        residual=None if start.residual == NO_RESIDUAL else start.residual,
        beside=boundary.edge.beside,
        transform=start.transform,
        transform_linear=facts.transform_linear,
        joins_sum=facts.joins_sum,
        quantized_sum=bool(facts.quantized_sum),
        shards=facts.shards,
        by_token=start.by_token,
    )
    declared_goal = DeclaredGoal(
        rows=goal.rows,
        residual=None if boundary.edge.beside else goal.residual,
        merges=facts.merges,
        owes=goal.owes,
        hands_off=not start.handed_off,
        may_defer=facts.may_defer,
        complete_on=facts.complete_on,
        update_at_producer=facts.update_at_producer,
        read_local=facts.read_local,
        read_whole=facts.read_whole,
        read_on=facts.read_on,
        update_on=facts.update_on,
        by_token=goal.by_token,
        captures=facts.captures,
        quantized=bool(facts.quantized_tensors),
    )
    return declared_start, declared_goal


def exit_length(boundary: Boundary) -> int:
    """How many operations run before the hand-off, in the producer's exit."""
    for index, op in enumerate(boundary.path.ops):
        if isinstance(op, HandOff):
            return index
    return 0
