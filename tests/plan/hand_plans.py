"""Boundary plans written by hand, right and wrong, with the verdict each deserves.

Made without the planner. Masks: on two atoms ``D`` is outside ``T``; on three, ``C`` is between.
"""

from __future__ import annotations

from dataclasses import dataclass

from boundaryc.plan.ops import (
    AllGather,
    AllReduce,
    Enter,
    GatherSum,
    HandOff,
    Join,
    Operation,
    Read,
    ReduceScatter,
    ResidualGather,
    ResidualSlice,
    Slice,
    Transform,
    Update,
)
from boundaryc.plan.provenance import DeclaredGoal, DeclaredStart, Reason


@dataclass(frozen=True, slots=True)
class HandPlan:
    """One plan. ``reasons`` are all for which it is rejected; none where it is right."""

    name: str
    atoms: int
    start: DeclaredStart
    goal: DeclaredGoal
    ops: tuple[Operation, ...]
    even: int = 0
    reasons: frozenset[Reason] = frozenset()


ONE, D, T = 1, 1, 2
DT = D | T
D3, C3, T3 = 1, 2, 4

H, U, R, J, E, X = HandOff(), Update(), Read(), Join(), Enter(), Transform()


def _sum(axes: int) -> AllReduce:
    return AllReduce(axes)


def _scatter(axes: int) -> ReduceScatter:
    return ReduceScatter(axes, variable=True)


def _gather(axes: int) -> AllGather:
    return AllGather(axes, variable=True)


def _gather_residual(axes: int) -> ResidualGather:
    return ResidualGather(axes, variable=True)


def _output(
    rows: int, owes: int, residual: int, *, transform: bool = False, linear: bool = False
) -> DeclaredStart:
    return DeclaredStart(
        "contribution", rows, owes, residual, transform=transform, transform_linear=linear
    )


def _plain_add(rows: int, owes: int, residual: int) -> DeclaredStart:
    return DeclaredStart("contribution", rows, owes, residual, joins_sum=True)


def _input(rows: int, owes: int = 0) -> DeclaredStart:
    return DeclaredStart("initial", rows, owes, None)


def _stream(rows: int) -> DeclaredStart:
    return DeclaredStart("stream", rows, 0, rows)


def _defers(rows: int, residual: int) -> DeclaredGoal:
    return DeclaredGoal(rows, residual, hands_off=True, may_defer=True)


def _complete(rows: int, residual: int) -> DeclaredGoal:
    return DeclaredGoal(rows, residual, hands_off=True)


def _entry(rows: int, residual: int) -> DeclaredGoal:
    return DeclaredGoal(rows, residual, hands_off=False)


def _terminal(rows: int) -> DeclaredGoal:
    return DeclaredGoal(rows, rows, hands_off=True, may_defer=True, complete_on=rows)


def _at_producer(rows: int, residual: int) -> DeclaredGoal:
    return DeclaredGoal(rows, residual, hands_off=True, may_defer=True, update_at_producer=True)


def _read_whole(rows: int, residual: int, axes: int) -> DeclaredGoal:
    return DeclaredGoal(rows, residual, hands_off=True, may_defer=True, read_whole=axes)


def _read_local(rows: int, residual: int, axes: int) -> DeclaredGoal:
    return DeclaredGoal(rows, residual, hands_off=True, may_defer=True, read_local=axes)


def _why(*reasons: Reason) -> frozenset[Reason]:
    return frozenset(reasons)


_DIFFERENT_ROWS = _why(Reason.TOKENS_ADDED, Reason.COLLECTIVE)

_P = HandPlan

RIGHT = (
    # One group.
    _P("sum in prepare", 1, _output(0, ONE, 0), _defers(0, 0), (H, _sum(ONE), U, R)),
    _P("sum in exit", 1, _output(0, ONE, 0), _complete(0, 0), (_sum(ONE), H, U, R)),
    _P("fixed scatter and gather of even rows", 1, _output(0, ONE, ONE), _defers(0, ONE),
       (H, ReduceScatter(ONE, variable=False), U, R, AllGather(ONE, variable=False)), even=ONE),
    _P("variable scatter and gather of uneven rows", 1, _output(0, ONE, ONE), _defers(0, ONE),
       (H, _scatter(ONE), U, R, _gather(ONE))),
    _P("residual cut before the update", 1, _output(0, ONE, 0), _defers(0, ONE),
       (H, _scatter(ONE), ResidualSlice(ONE), U, R, _gather(ONE))),
    _P("residual cut before the sum", 1, _output(0, ONE, 0), _defers(0, ONE),
       (ResidualSlice(ONE), H, _scatter(ONE), U, R, _gather(ONE))),
    _P("residual gathered after the read", 1, _output(0, ONE, ONE), _defers(0, 0),
       (H, _scatter(ONE), U, R, _gather(ONE), _gather_residual(ONE))),
    _P("stream gathered before the read", 1, _output(0, ONE, ONE), _defers(0, 0),
       (H, _scatter(ONE), U, _gather_residual(ONE), R)),
    _P("sum then cut", 1, _output(0, ONE, ONE), _defers(ONE, ONE),
       (H, _sum(ONE), Slice(ONE), U, R)),
    _P("entry on shards", 1, _input(ONE), _entry(ONE, ONE), (E, R)),
    _P("entry completes an owed embedding", 1, _input(0, ONE), _entry(0, 0), (_sum(ONE), E, R)),
    _P("entry cuts the stream", 1, _input(0), _entry(0, ONE), (E, R, ResidualSlice(ONE))),
    _P("written stream is read and gathered", 1, _stream(ONE), _complete(0, ONE),
       (H, R, _gather(ONE))),
    _P("residual joins the sum on one rank", 1, _plain_add(0, ONE, 0), _defers(0, 0),
       (H, J, _sum(ONE), R)),
    _P("residual in slices joins the sum", 1, _plain_add(0, ONE, ONE), _defers(0, 0),
       (H, J, _sum(ONE), R)),
    _P("joined sum ends in a scatter", 1, _plain_add(0, ONE, 0), _defers(ONE, ONE),
       (H, J, _scatter(ONE), R)),
    _P("sliced residual joins a scatter", 1, _plain_add(0, ONE, ONE), _defers(ONE, ONE),
       (H, J, _scatter(ONE), R)),
    _P("placed sum gathers the input", 1, _output(ONE, 0, ONE), _complete(0, ONE),
       (H, U, R, GatherSum(ONE, 0))),
    _P("linear transform of a partial", 1, _output(0, ONE, 0, transform=True, linear=True),
       _defers(0, 0), (X, H, _sum(ONE), U, R)),
    _P("transform of a complete value", 1, _output(0, ONE, 0, transform=True), _defers(0, 0),
       (H, _sum(ONE), X, U, R)),
    _P("transform after a scatter", 1, _output(0, ONE, ONE, transform=True), _defers(0, ONE),
       (H, _scatter(ONE), X, U, R, _gather(ONE))),
    _P("update at the producer", 1, _output(0, ONE, 0), _at_producer(0, 0),
       (_sum(ONE), U, H, R)),
    _P("joined update at the producer", 1, _plain_add(0, ONE, 0), _at_producer(0, 0),
       (J, _sum(ONE), H, R)),
    _P("terminal on the consumer's rows", 1, _output(0, ONE, 0), _terminal(0),
       (_sum(ONE), H, U, R)),
    _P("terminal on shards", 1, _output(0, ONE, ONE), _terminal(ONE), (_scatter(ONE), H, U, R)),
    _P("read of every row", 1, _output(0, ONE, ONE), _read_whole(0, 0, ONE),
       (H, _scatter(ONE), U, _gather_residual(ONE), R)),
    _P("read before the gather", 1, _output(0, ONE, ONE), _read_local(0, ONE, ONE),
       (H, _scatter(ONE), U, R, _gather(ONE))),
    # Two atoms.
    _P("attention to experts", 2, _output(D, T, D), _defers(0, D),
       (H, _sum(T), U, R, _gather(D))),
    _P("experts to attention", 2, _output(0, DT, D), _defers(D, D),
       (H, _scatter(D), _sum(T), U, R)),
    _P("experts to attention, inner sum first", 2, _output(0, DT, D), _defers(D, D),
       (H, _sum(T), _scatter(D), U, R)),
    _P("experts to attention, one sum and a cut", 2, _output(0, DT, D), _defers(D, D),
       (H, _sum(DT), Slice(D), U, R)),
    _P("experts to attention, world scatter", 2, _output(0, DT, D), _defers(D, D),
       (H, _scatter(DT), _gather(T), U, R)),
    _P("scatter, read on slices, gather inner first", 2, _output(0, DT, DT), _defers(0, DT),
       (H, _scatter(DT), U, R, _gather(T), _gather(D))),
    _P("scatter over D, then cut over T", 2, _output(0, D, DT), _defers(DT, DT),
       (H, _scatter(D), Slice(T), U, R)),
    _P("cut outer first", 2, _output(0, 0, DT), _complete(DT, DT), (H, Slice(D), Slice(T), U, R)),
    _P("placed sum with a joined residual", 2, _plain_add(D, T, D), _defers(0, 0),
       (H, J, GatherSum(D, T), R)),
    _P("placed sum, residual gathered", 2, _output(D, T, D), _defers(0, 0),
       (H, GatherSum(D, T), _gather_residual(D), U, R)),
    _P("placed sum of slices, residual joined", 2, _plain_add(D, T, DT), _defers(0, 0),
       (H, J, GatherSum(D, T), R)),
    _P("residual in slices of T joins the sum", 2, _plain_add(D, T, DT), _defers(D, D),
       (H, J, _sum(T), R)),
    _P("residual on D joins a sum over both", 2, _plain_add(0, DT, D), _defers(D, D),
       (H, J, _scatter(D), _sum(T), R)),
    _P("residual joins what is left of a sum", 2, _plain_add(0, DT, D), _defers(D, D),
       (H, _scatter(D), J, _sum(T), R)),
    _P("fixed over an even atom, variable over the other", 2, _output(D, T, DT), _defers(0, DT),
       (H, ReduceScatter(T, variable=False), U, R, AllGather(T, variable=False), _gather(D)),
       even=T),
    _P("replicas that owe nothing", 2, _output(D, 0, D), _complete(D, D), (H, U, R)),
    # Three atoms.
    _P("context shards gathered inner first", 3, _output(D3 | C3, T3, D3 | C3),
       _defers(0, D3 | C3), (H, _sum(T3), U, R, _gather(C3), _gather(D3))),
    _P("placed sum over the context", 3, _output(D3 | C3, T3, D3 | C3), _defers(D3, D3),
       (H, GatherSum(C3, T3), _gather_residual(C3), U, R)),
    _P("scatter outer first", 3, _output(0, 7, 7), _defers(7, 7),
       (H, _scatter(D3), _scatter(C3), _scatter(T3), U, R)),
    _P("scatter over the outer two", 3, _output(0, 7, D3 | C3), _defers(D3 | C3, D3 | C3),
       (H, _scatter(D3 | C3), _sum(T3), U, R)),
)  # fmt: skip

WRONG = (
    # Sums.
    _P("sum never", 1, _output(0, ONE, 0), _defers(0, 0), (H, U, R),
       reasons=_why(Reason.SUM_MISSING)),
    _P("sum twice", 1, _output(0, ONE, 0), _defers(0, 0), (H, _sum(ONE), _sum(ONE), U, R),
       reasons=_why(Reason.COUNTED_TWICE)),
    _P("sum in exit and in prepare", 1, _output(0, ONE, 0), _defers(0, 0),
       (_sum(ONE), H, _sum(ONE), U, R), reasons=_why(Reason.COUNTED_TWICE)),
    _P("sum over part of what is owed", 2, _output(0, DT, D), _defers(D, D),
       (H, _scatter(D), U, R), reasons=_why(Reason.SUM_MISSING)),
    _P("sum over a group whose rows differ", 2, _output(D, T, D), _defers(D, D),
       (H, _sum(D), U, R), reasons=_DIFFERENT_ROWS),
    _P("sum over too wide a group", 2, _output(D, T, D), _defers(D, D),
       (H, _sum(DT), U, R), reasons=_DIFFERENT_ROWS),
    _P("sum over replicas", 2, _output(0, T, 0), _defers(0, 0), (H, _sum(DT), U, R),
       reasons=_why(Reason.COUNTED_TWICE)),
    _P("scatter over replicas", 2, _output(0, D, DT), _defers(DT, DT), (H, _scatter(DT), U, R),
       reasons=_why(Reason.COUNTED_TWICE)),
    _P("sum of the scattered rows", 1, _output(0, ONE, ONE), _defers(ONE, ONE),
       (H, _scatter(ONE), _sum(ONE), U, R), reasons=_DIFFERENT_ROWS),
    _P("cut before the sum", 1, _output(0, ONE, ONE), _defers(ONE, ONE),
       (H, Slice(ONE), _sum(ONE), U, R), reasons=_DIFFERENT_ROWS),
    _P("gather before a sum over the gathered axis", 2, _output(D, T, D), _defers(0, D),
       (H, _gather(D), _sum(DT), U, R), reasons=_why(Reason.COUNTED_TWICE)),
    _P("sum of the input", 1, _output(0, ONE, 0), _defers(0, 0), (H, _sum(ONE), U, R, _sum(ONE)),
       reasons=_why(Reason.COUNTED_TWICE)),
    _P("sum over no axis", 1, _output(0, ONE, 0), _defers(0, 0), (H, _sum(0), U, R),
       reasons=_why(Reason.AXES)),
    _P("sum over an axis of another mesh", 1, _output(0, ONE, 0), _defers(0, 0),
       (H, _sum(2), U, R), reasons=_why(Reason.AXES)),
    # Order and number of rows.
    _P("cut over T, then scatter over D", 2, _output(0, D, DT), _defers(DT, DT),
       (H, Slice(T), _scatter(D), U, R), reasons=_why(Reason.RESIDUAL_ROWS)),
    _P("cut inner first", 2, _output(0, 0, DT), _complete(DT, DT), (H, Slice(T), Slice(D), U, R),
       reasons=_why(Reason.RESIDUAL_ROWS)),
    _P("scatter inner first", 2, _output(0, DT, DT), _defers(DT, DT),
       (H, _scatter(T), _scatter(D), U, R), reasons=_why(Reason.RESIDUAL_ROWS)),
    _P("input gathered outer first", 2, _output(0, DT, DT), _defers(0, DT),
       (H, _scatter(DT), U, R, _gather(D), _gather(T)), reasons=_why(Reason.INPUT_ROWS)),
    _P("residual gathered outer first", 2, _output(0, DT, DT), _defers(DT, 0),
       (H, _scatter(DT), U, R, _gather_residual(D), _gather_residual(T)),
       reasons=_why(Reason.FINAL_RESIDUAL)),
    _P("gather over replicas", 2, _output(D, 0, D), _complete(D, D), (H, U, R, _gather(T)),
       reasons=_why(Reason.INPUT_ROWS)),
    _P("gather twice", 2, _output(D, T, D), _defers(0, D),
       (H, _sum(T), U, R, _gather(D), _gather(D)), reasons=_why(Reason.INPUT_ROWS)),
    _P("cut twice", 1, _output(0, 0, ONE), _complete(ONE, ONE),
       (H, Slice(ONE), Slice(ONE), U, R), reasons=_why(Reason.ROW_COUNT)),
    _P("input left on shards", 1, _output(0, ONE, ONE), _defers(0, ONE),
       (H, _scatter(ONE), U, R), reasons=_why(Reason.INPUT_ROWS)),
    _P("input gathered that should stay", 1, _output(0, ONE, ONE), _defers(ONE, ONE),
       (H, _scatter(ONE), U, R, _gather(ONE)), reasons=_why(Reason.INPUT_ROWS)),
    _P("fixed scatter of uneven rows", 1, _output(0, ONE, ONE), _defers(ONE, ONE),
       (H, ReduceScatter(ONE, variable=False), U, R), reasons=_why(Reason.UNEVEN)),
    _P("fixed gather of uneven rows", 1, _output(ONE, 0, ONE), _complete(0, ONE),
       (H, U, R, AllGather(ONE, variable=False)), reasons=_why(Reason.UNEVEN)),
    _P("fixed gather over the uneven atom", 2, _output(D, T, D), _defers(0, D),
       (H, _sum(T), U, R, AllGather(D, variable=False)), even=T, reasons=_why(Reason.UNEVEN)),
    # Placed sums.
    _P("placed sum over replicas", 2, _output(D, 0, D), _complete(0, D),
       (H, U, R, GatherSum(D, T)), reasons=_why(Reason.COUNTED_TWICE)),
    _P("placed sum forgets what is owed", 2, _output(D, T, D), _defers(0, 0),
       (H, GatherSum(D, 0), _gather_residual(D), U, R), reasons=_why(Reason.SUM_MISSING)),
    _P("placed sum over the wrong axis", 2, _output(D, T, D), _defers(0, D),
       (H, _sum(T), U, R, GatherSum(T, 0)), reasons=_why(Reason.INPUT_ROWS)),
    _P("placed sum of scattered rows sums them again", 2, _output(D, T, D), _defers(0, D),
       (H, GatherSum(D, T), _gather_residual(D), U, R, _sum(T)),
       reasons=_why(Reason.COUNTED_TWICE)),
    # The residual.
    _P("residual added on every rank before the sum", 1, _output(0, ONE, 0), _defers(0, 0),
       (H, U, _sum(ONE), R), reasons=_why(Reason.SUM_MISSING)),
    _P("written stream is summed", 1, _output(0, 0, 0), _complete(0, 0), (H, U, _sum(ONE), R),
       reasons=_why(Reason.COUNTED_TWICE)),
    _P("residual never added", 1, _output(0, ONE, 0), _defers(0, 0), (H, _sum(ONE), R),
       reasons=_why(Reason.PHASE)),
    _P("residual added twice", 1, _output(0, ONE, 0), _defers(0, 0), (H, _sum(ONE), U, U, R),
       reasons=_why(Reason.PHASE)),
    _P("residual joins and is added", 1, _plain_add(0, ONE, 0), _defers(0, 0),
       (H, J, _sum(ONE), U, R), reasons=_why(Reason.PHASE)),
    _P("residual joins and is updated before the sum", 1, _plain_add(0, ONE, 0), _defers(0, 0),
       (H, J, U, _sum(ONE), R), reasons=_why(Reason.RESIDUAL)),
    _P("residual joins twice", 1, _plain_add(0, ONE, 0), _defers(0, 0),
       (H, J, J, _sum(ONE), R), reasons=_why(Reason.RESIDUAL)),
    _P("residual joined, then moved", 1, _plain_add(0, ONE, 0), _defers(0, 0),
       (H, J, ResidualSlice(ONE), _sum(ONE), R), reasons=_why(Reason.RESIDUAL)),
    _P("joined residual is summed over replicas", 2, _plain_add(0, T, 0), _defers(0, 0),
       (H, J, _sum(DT), R), reasons=_why(Reason.COUNTED_TWICE)),
    _P("residual joins although its update is no plain add", 1, _output(0, ONE, 0),
       _defers(0, 0), (H, J, _sum(ONE), R), reasons=_why(Reason.JOIN)),
    _P("residual of other rows joins", 2, _plain_add(D, T, 0), _defers(D, D),
       (H, J, _sum(T), R), reasons=_why(Reason.RESIDUAL_ROWS)),
    _P("residual in slices joins a sum that does not collect them", 2, _plain_add(0, T, D),
       _defers(0, 0), (H, J, _sum(T), R), reasons=_why(Reason.SUM_MISSING)),
    _P("update on other rows than the residual's", 1, _output(0, ONE, ONE), _defers(0, ONE),
       (H, _sum(ONE), U, R), reasons=_why(Reason.RESIDUAL_ROWS)),
    _P("residual left on slices", 1, _output(0, ONE, ONE), _defers(0, 0),
       (H, _scatter(ONE), U, R, _gather(ONE)), reasons=_why(Reason.FINAL_RESIDUAL)),
    _P("residual gathered twice", 1, _output(0, ONE, ONE), _defers(0, 0),
       (H, _scatter(ONE), U, R, _gather(ONE), _gather_residual(ONE), _gather_residual(ONE)),
       reasons=_why(Reason.FINAL_RESIDUAL)),
    _P("residual moved before it exists", 1, _input(0), _entry(0, ONE),
       (ResidualSlice(ONE), E, R), reasons=_why(Reason.RESIDUAL)),
    _P("no entry", 1, _input(0), _entry(0, 0), (R,), reasons=_why(Reason.PHASE)),
    _P("entry twice", 1, _input(0), _entry(0, 0), (E, E, R), reasons=_why(Reason.PHASE)),
    _P("entry of a partial", 1, _input(0, ONE), _entry(0, 0), (E, _sum(ONE), R),
       reasons=_why(Reason.SUM_MISSING)),
    # The read.
    _P("read before the sum", 1, _output(0, ONE, 0), _defers(0, 0), (H, R, _sum(ONE), U),
       reasons=_why(Reason.PHASE)),
    _P("read of a joined partial before its sum", 1, _plain_add(0, ONE, 0), _defers(0, 0),
       (H, J, R, _sum(ONE)), reasons=_why(Reason.SUM_MISSING)),
    _P("read twice", 1, _output(0, ONE, 0), _defers(0, 0), (H, _sum(ONE), U, R, R),
       reasons=_why(Reason.PHASE)),
    _P("read never", 1, _output(0, ONE, 0), _defers(0, 0), (H, _sum(ONE), U),
       reasons=_why(Reason.UNFINISHED)),
    _P("read of every row on shards", 1, _output(0, ONE, ONE), _read_whole(0, ONE, ONE),
       (H, _scatter(ONE), U, R, _gather(ONE)), reasons=_why(Reason.READ_ROWS)),
    _P("local read after the gather", 1, _output(0, ONE, ONE), _read_local(0, 0, ONE),
       (H, _scatter(ONE), U, _gather_residual(ONE), R), reasons=_why(Reason.READ_ROWS)),
    # Transforms.
    _P("transform never", 1, _output(0, ONE, 0, transform=True), _defers(0, 0),
       (H, _sum(ONE), U, R), reasons=_why(Reason.TRANSFORM)),
    _P("transform twice", 1, _output(0, ONE, 0, transform=True), _defers(0, 0),
       (H, _sum(ONE), X, X, U, R), reasons=_why(Reason.TRANSFORM)),
    _P("transform not declared", 1, _output(0, ONE, 0), _defers(0, 0),
       (H, _sum(ONE), X, U, R), reasons=_why(Reason.TRANSFORM)),
    _P("transform of a partial", 1, _output(0, ONE, 0, transform=True), _defers(0, 0),
       (H, X, _sum(ONE), U, R), reasons=_why(Reason.TRANSFORM)),
    _P("transform of the stream", 1, _output(0, ONE, 0, transform=True), _defers(0, 0),
       (H, _sum(ONE), X, U, X, R), reasons=_why(Reason.PHASE)),
    # The hand-off.
    _P("hand-off missing", 1, _output(0, ONE, 0), _defers(0, 0), (_sum(ONE), U, R),
       reasons=_why(Reason.HAND_OFF)),
    _P("hand-off twice", 1, _output(0, ONE, 0), _defers(0, 0), (H, _sum(ONE), H, U, R),
       reasons=_why(Reason.HAND_OFF)),
    _P("hand-off where there is no producer", 1, _input(0), _entry(0, 0), (E, H, R),
       reasons=_why(Reason.HAND_OFF)),
    _P("hand-off of the input", 1, _output(0, ONE, 0), _defers(0, 0), (_sum(ONE), U, R, H),
       reasons=_why(Reason.HAND_OFF_STATE)),
    _P("hand-off of a sum that must not cross", 1, _output(0, ONE, 0), _complete(0, 0),
       (H, _sum(ONE), U, R), reasons=_why(Reason.HAND_OFF_STATE)),
    _P("hand-off of a sum at the end of the stack", 1, _output(0, ONE, 0), _terminal(0),
       (H, _sum(ONE), U, R), reasons=_why(Reason.HAND_OFF_STATE)),
    _P("hand-off on other rows at the end of the stack", 1, _output(0, ONE, ONE), _terminal(ONE),
       (_sum(ONE), H, Slice(ONE), U, R), reasons=_why(Reason.HAND_OFF_STATE)),
    _P("hand-off before the producer's update", 1, _output(0, ONE, 0), _at_producer(0, 0),
       (_sum(ONE), H, U, R), reasons=_why(Reason.HAND_OFF_STATE)),
)  # fmt: skip

ALL = RIGHT + WRONG
