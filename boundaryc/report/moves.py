"""The operations of a planned boundary in words, and what each of its collectives sends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from boundaryc.plan import ops
from boundaryc.plan.cost import Cost, price
from boundaryc.plan.result import Boundary
from boundaryc.topology import Mesh


@dataclass(frozen=True, slots=True)
class Sent:
    """One collective: its text, and the rows that all ranks together send for each token."""

    text: str
    rows: Fraction


def described(mesh: Mesh, boundary: Boundary) -> tuple[str, ...]:
    """Every operation of a boundary, in order."""
    return tuple(worded(mesh, op) for op in boundary.path.ops)


def moved(mesh: Mesh, boundary: Boundary, row: int) -> tuple[Sent, ...]:
    """The collectives of a boundary; ``row`` are the bytes of a row."""
    return tuple(
        Sent(worded(mesh, op), Fraction(cost.wire, row))
        for op, cost in priced(boundary)
        if cost.collectives
    )


def priced(boundary: Boundary) -> Iterator[tuple[ops.Operation, Cost]]:
    """Every operation of a boundary with its cost, in order.

    ``wire`` are the bytes that all ranks together send for each token of the batch.
    """
    state = boundary.start
    for op in boundary.path.ops:
        yield op, price(op, state, boundary.facts)
        after = op.apply(state, boundary.facts)
        assert after is not None
        state = after


def worded(mesh: Mesh, op: ops.Operation) -> str:
    """An operation as a word, with the group that it works over."""
    match op:
        case ops.AllReduce(axes):
            return f"all_reduce({mesh.label(axes)})"
        case ops.QuantizedAllReduce(axes):
            return f"quantized all_reduce({mesh.label(axes)})"
        case ops.ReduceScatter(axes):
            return f"reduce_scatter({mesh.label(axes)})"
        case ops.AllGather(axes):
            return f"all_gather({mesh.label(axes)})"
        case ops.GatherSum(gather, owed):
            return f"placed all_reduce({mesh.label(gather | owed)})"
        case ops.ResidualGather(axes):
            return f"residual all_gather({mesh.label(axes)})"
        case ops.Slice(axes):
            return f"slice({mesh.label(axes)})"
        case ops.ResidualSlice(axes):
            return f"residual slice({mesh.label(axes)})"
        case ops.HandOff():
            return "hand over"
        case ops.Reorder(to_tokens):
            return "to token order" if to_tokens else "to shard order"
        case _:
            return type(op).__name__.lower()
