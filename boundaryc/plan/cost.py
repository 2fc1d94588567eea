"""What an operation costs: collectives, wire bytes, device bytes, and the order of ties.

Bytes are for one rank and for as many tokens as the mesh has ranks, so that every share is a whole
number: rows sharded over ``R`` are ``ranks / size(R)`` of them. An all-reduce over n ranks sends
2(n-1)/n of its payload, a reduce-scatter or a gather (n-1)/n (ring or tree, to first order). A
quantised all-reduce gathers the values and scales of both members of a pair; larger groups
reduce-scatter the payload and gather values and scales of what was summed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import prod
from operator import add
from typing import NamedTuple

from boundaryc.plan.ops import (
    AllGather,
    AllReduce,
    Capture,
    Enter,
    GatherSum,
    HandOff,
    Join,
    Operation,
    Quantize,
    QuantizedAllReduce,
    Read,
    ReduceScatter,
    Reorder,
    ResidualGather,
    ResidualSlice,
    Slice,
    Transform,
    Update,
)
from boundaryc.plan.state import EdgeFacts, Phase, State, Widths, ranks_of


class Cost(NamedTuple):
    """What a plan sends and touches, and how it ranks among equals. All counts are non-negative."""

    collectives: int = 0
    wire: int = 0
    device: int = 0
    joins: int = 0
    before_hand_off: int = 0
    operations: int = 0

    def plus(self, other: Cost) -> Cost:
        """The cost of both, one after the other."""
        return Cost(*map(add, self, other))

    @staticmethod
    def total(costs: Iterable[Cost]) -> Cost:
        """The cost of all, one after the other."""
        return Cost._make(map(sum, zip(Cost(), *costs, strict=True)))

    def times(self, count: int) -> Cost:
        """The cost of ``count`` equal plans."""
        return Cost(*(part * count for part in self))


@dataclass(frozen=True, slots=True)
class Order:
    """How costs compare in one kind of batch.

    ``alpha`` None is the order for few rows: fewer collectives, then bytes. A number is the order
    for many: bytes, a collective counting as that many of them. Ties follow in both.
    """

    alpha: int | None = None

    def rank(self, cost: Cost) -> int:
        """One number that orders costs as their fields do, one after the other, and adds up.

        Each field has ``_DIGITS`` bits of its own, and room in these for a sum of thousands.
        """
        collectives, wire, device, joins, before, operations = cost
        if self.alpha is not None:
            collectives, wire = 0, wire + self.alpha * collectives
        if (collectives | wire | device | joins | before | operations) >> (_DIGITS - _ROOM):
            raise OverflowError(f"a part of {cost} does not fit into {_DIGITS - _ROOM} bits")
        rank = operations | before << _DIGITS | joins << 2 * _DIGITS | device << 3 * _DIGITS
        return rank | wire << 4 * _DIGITS | collectives << 5 * _DIGITS


_DIGITS = 80
_ROOM = 16


def sent(rank: int) -> int:
    """The bytes on the wire of a cost that ranks so where collectives come first."""
    return (rank >> 4 * _DIGITS) & ((1 << _DIGITS) - 1)


def again(rank: int) -> int:
    """The rank of a cost that is paid again and again: all of it comes before any that is not.

    In a deep stack a byte in every layer outweighs a collective at its end.
    """
    return rank << 6 * _DIGITS


def scale(facts: EdgeFacts) -> EdgeFacts:
    """The facts of an edge that costs look at; of all others, those of an edge that has none."""
    return _NONE._replace(
        sizes=facts.sizes,
        quantized_sum=facts.quantized_sum,
        quantized_tensors=facts.quantized_tensors,
        widths=facts.widths,
        taken_tensors=facts.taken_tensors,
        kept_tensors=facts.kept_tensors,
    )


_NONE = EdgeFacts(
    sizes=(),
    even=0,
    shards=0,
    scatter=0,
    scatter_by_size=False,
    may_defer=False,
    complete_on=None,
    joins_sum=False,
    update_at_producer=False,
    carries=False,
    transform_linear=False,
    captures=(),
    read_on=None,
    read_local=0,
    read_whole=0,
    quantized_sum=0,
    quantized_tensors=0,
    widths=Widths(0, 0, 0, 0),
)


def price(op: Operation, state: State, facts: EdgeFacts) -> Cost:
    """The cost of running ``op`` in ``state``, in which it is legal."""
    before = int(not state.handed_off)
    if isinstance(op, _VIEWS):
        return Cost(0, 0, 0, 0, before, 1)
    wire = _wire(op, state, facts) if isinstance(op, _SENDING) else 0
    collectives = _tensors(op, state, facts) if wire else 0
    device = _device(op, state, facts)
    return Cost(collectives, wire, device, int(isinstance(op, Join)), before, 1)


def collectives(op: Operation, state: State, facts: EdgeFacts) -> int:
    """How many of them ``op`` is, as `price` counts where a row has any bytes."""
    if not isinstance(op, _SENDING) or (isinstance(op, Capture) and not op.gather):
        return 0
    return _tensors(op, state, facts)


_VIEWS = (HandOff, Slice, ResidualSlice, Enter)
"""What makes a view at most."""
_SENDING = (
    *(AllReduce, QuantizedAllReduce, ReduceScatter, AllGather, GatherSum),
    *(Capture, ResidualGather),
)


def _rows(mask: int, facts: EdgeFacts) -> int:
    return _held(facts.sizes)[mask]


@cache
def _held(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The rows on a rank by the atoms that they are sharded over."""
    ranks = prod(sizes)
    return tuple(ranks // ranks_of(sizes, mask) for mask in range(1 << len(sizes)))


def _width(state: State, facts: EdgeFacts) -> int:
    if state.phase is Phase.INPUT:
        return facts.widths.quantized if state.quantized else facts.widths.input
    if state.phase in (Phase.CONTRIBUTION, Phase.INITIAL):
        return facts.widths.contribution
    return facts.widths.residual


def _tensors(op: Operation, state: State, facts: EdgeFacts) -> int:
    """How many collectives a move is: a quantised input is values and their scales."""
    if isinstance(op, QuantizedAllReduce):
        return 2 if facts.size(op.axes) == 2 else 3
    if isinstance(op, ResidualGather):
        return 1 + _beside(state, facts)[1]
    own = not isinstance(op, Capture)
    return facts.quantized_tensors if own and state.quantized else 1


def _beside(state: State, facts: EdgeFacts) -> tuple[int, int]:
    """What moves with the residual: its bytes per row, and how many tensors that is."""
    if state.phase is Phase.CONTRIBUTION:
        return facts.widths.taken, facts.taken_tensors
    if state.phase is Phase.INPUT:
        return facts.widths.kept, facts.kept_tensors
    return 0, 0


def _wire(op: Operation, state: State, facts: EdgeFacts) -> int:
    match op:
        case AllReduce(axes):
            return _share(2, axes, state.rows, facts) * _width(state, facts)
        case QuantizedAllReduce(axes):
            if facts.size(axes) == 2:
                return _rows(state.rows, facts) * facts.quantized_sum
            width = facts.widths.contribution + facts.quantized_sum
            return _share(1, axes, state.rows, facts) * width
        case ReduceScatter(axes):
            return _share(1, axes, state.rows, facts) * _width(state, facts)
        case AllGather(axes):
            return _share(1, axes, state.rows & ~axes, facts) * _width(state, facts)
        case GatherSum(gather, owed):
            wide = state.rows & ~gather
            return _share(2, gather | owed, wide, facts) * _width(state, facts)
        case Capture(_, gather, _):
            wide = state.residual & ~gather
            return _share(1, gather, wide, facts) * facts.widths.residual
        case ResidualGather(axes):
            width = facts.widths.residual + _beside(state, facts)[0]
            return _share(1, axes, state.residual & ~axes, facts) * width
        case _:
            return 0


def _share(times: int, axes: int, wide: int, facts: EdgeFacts) -> int:
    """``times`` (n-1)/n of the rows of ``wide``, of which n members hold a part or a copy each."""
    held = _held(facts.sizes)
    return times * (held[wide] - held[wide | axes])


def _device(op: Operation, state: State, facts: EdgeFacts) -> int:
    rows, widths = _rows(state.rows, facts), facts.widths
    match op:
        case Update():
            return rows * (widths.contribution + 2 * widths.residual)
        case Read():
            return rows * widths.input
        case Quantize():
            return rows * (widths.input + widths.quantized)
        case QuantizedAllReduce():
            return rows * (widths.contribution + facts.quantized_sum)
        case Join():
            return rows * (2 * widths.contribution + widths.residual)
        case Transform():
            return rows * 2 * widths.contribution
        case Reorder():
            return rows * 2 * _width(state, facts)
        case GatherSum(gather, _):
            return _rows(state.rows & ~gather, facts) * _width(state, facts)
        case _:
            return 0
