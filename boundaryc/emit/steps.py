"""A planned boundary as steps: each operation with the states around it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from boundaryc.plan import ops
from boundaryc.plan.result import Boundary
from boundaryc.plan.state import EdgeFacts, State


class Step(NamedTuple):
    """An operation of a path with the states around it; a tuple, because many are compared."""

    op: ops.Operation
    before: State
    after: State


def replayed(
    operations: Iterable[ops.Operation], state: State, facts: EdgeFacts
) -> tuple[Step, ...]:
    """The operations from ``state`` on, each with the states around it."""
    found: list[Step] = []
    for op in operations:
        after = _applied(op, state, facts)
        step = _one(Step(op, state, after))
        found.append(step)
        state = step.after
    return tuple(found)


@lru_cache(maxsize=16384)
def _one(step: Step) -> Step:
    """Equal steps are one object: they are kept with what has been drafted of them."""
    return step


def steps(boundary: Boundary) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """The operations of a boundary before and after its hand-off, if it has one."""
    every = replayed(boundary.path.ops, boundary.start, boundary.facts)
    for split, step in enumerate(every):
        if isinstance(step.op, ops.HandOff):
            return every[:split], every[split + 1 :]
    return (), every


def _applied(op: ops.Operation, state: State, facts: EdgeFacts) -> State:
    after = op.apply(state, facts)
    if after is None:
        raise ValueError(f"{op} is not legal in {state}")
    return after
