"""Small damage to a plan, one operation at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from boundaryc.plan.ops import (
    AllGather,
    AllReduce,
    GatherSum,
    Operation,
    QuantizedAllReduce,
    ReduceScatter,
    ResidualGather,
    ResidualSlice,
    Slice,
)
from boundaryc.plan.provenance import DeclaredGoal, DeclaredStart, final_state
from boundaryc.plan.provenance_batches import count_vectors, size_vectors

Plan = tuple[Operation, ...]


def mutations(ops: Sequence[Operation], *, atoms: int) -> Iterator[tuple[str, Plan]]:
    """Each plan that differs from ``ops`` by one drop, duplicate, swap or change of axes.

    Yields a description and the mutated plan. Swaps are of neighbours that differ; axes change to
    every other non-empty set of the mesh's ``atoms`` atoms. Nothing equal to ``ops`` is yielded.
    """
    plan = tuple(ops)
    for index, op in enumerate(plan):
        before, after = plan[:index], plan[index + 1 :]
        yield f"drop {index}: {op}", before + after
        yield f"duplicate {index}: {op}", (*before, op, op, *after)
        if after and after[0] != op:
            yield f"swap {index}: {op} and {after[0]}", (*before, after[0], op, *after[1:])
        for other in _other_axes(op, atoms):
            yield f"axes {index}: {op} becomes {other}", (*before, other, *after)


def _other_axes(op: Operation, atoms: int) -> Iterator[Operation]:
    sets = range(1 << atoms)
    if isinstance(op, GatherSum):
        for gather in sets:
            for total in sets:
                if gather and (gather, total) != (op.gather, op.sum):
                    yield GatherSum(gather, total)
    elif isinstance(
        op,
        AllReduce
        | QuantizedAllReduce
        | ReduceScatter
        | AllGather
        | Slice
        | ResidualSlice
        | ResidualGather,
    ):
        for axes in sets:
            if axes and axes != op.axes:
                yield replace(op, axes=axes)


def changes_result(
    ops: Sequence[Operation],
    mutated: Sequence[Operation],
    *,
    atoms: int,
    start: DeclaredStart,
    goal: DeclaredGoal,
    even: int,
) -> bool:
    """Whether the mutated plan leaves another state than ``ops`` on some mesh and batch tried.

    A plan that breaks on the way leaves no state, which is another one.
    """
    for sizes in size_vectors(atoms):
        for counts in count_vectors(sizes, even):
            was, now = (
                final_state(plan, sizes=sizes, start=start, goal=goal, counts=counts)
                for plan in (ops, mutated)
            )
            if was != now:
                return True
    return False
