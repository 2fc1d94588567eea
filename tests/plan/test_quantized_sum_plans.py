"""Quantised sums in plans: where they are permitted, in prefills, and where they send less."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boundaryc.language.model import Stage
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.cost import Cost, price
from boundaryc.plan.judge import declarations
from boundaryc.plan.ops import (
    AllReduce,
    HandOff,
    Join,
    Operation,
    QuantizedAllReduce,
    Read,
    Transform,
    Update,
)
from boundaryc.plan.provenance import DeclaredGoal, DeclaredStart, Reason, verify_plan
from boundaryc.plan.result import Boundary, TopologyPlan
from boundaryc.plan.state import Phase, State, Widths
from boundaryc.topology import Sizes, build_mesh
from tests.emit.facts import facts
from tests.plan.stacks import EXPERTS, MLP, TOPOLOGIES, stack, topology

H, U, R, Q = HandOff(), Update(), Read(), QuantizedAllReduce(0b11)
START = DeclaredStart("contribution", 0, 0b11, 0, quantized_sum=True)
GOAL = DeclaredGoal(0, 0, hands_off=True, may_defer=True)

ATTENTION = replace(EXPERTS, name="attention", kind="attention", sparse=False, reduction="partial")


@pytest.mark.parametrize(
    ("ops", "start", "right"),
    [
        ((Q, H, U, R), START, True),
        ((Q, U, H, R), START, True),
        ((H, Q, U, R), START, False),  # X15: not left to the next stage
        ((AllReduce(0b01), QuantizedAllReduce(0b10), H, U, R), START, True),
        ((QuantizedAllReduce(0b01), AllReduce(0b10), H, U, R), START, False),
        ((QuantizedAllReduce(0b01), QuantizedAllReduce(0b10), H, U, R), START, False),
        ((Q, H, U, R), replace(START, quantized_sum=False), False),
        ((Join(), Q, H, R), replace(START, joins_sum=True), False),
        ((Q, Transform(), H, U, R), replace(START, transform=True), False),
    ],
)
def test_hand_plans(ops: tuple[Operation, ...], start: DeclaredStart, right: bool) -> None:
    """Where it is declared, the whole rest of a plain output's sum, before the hand-off."""
    found = verify_plan(ops, atoms=2, start=start, goal=GOAL, even=0)
    reasons = {fault.reason for rejection in found for fault in rejection.faults}

    assert reasons == (set() if right else {Reason.QUANTIZED_SUM})


def test_typing() -> None:
    """The typing rule says the same on its own."""
    mesh = build_mesh(Sizes(4, 1, 2, 2, 4, 1))
    allowed = facts(mesh, quantized_sum=3, joins_sum=True)
    state = State(Phase.CONTRIBUTION, rows=0, owes=0b11, residual=0)

    assert Q.apply(state, allowed) == state._replace(owes=0)
    assert Q.apply(state, allowed._replace(quantized_sum=0)) is None
    assert QuantizedAllReduce(0b01).apply(state, allowed) is None
    for change in (
        {"handed_off": True},
        {"joined": True},
        {"transform": True},
        {"phase": Phase.INITIAL},
        {"owes": 0},
    ):
        assert Q.apply(state._replace(**change), allowed) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ranks", "cost"),
    [
        # A row of 4096 16-bit numbers is 8192 bytes, and 4096 + 32 * 4 as values and scales. Costs
        # are for as many rows as there are ranks. A pair exchanges parts, n > 2 scatter and gather.
        (2, Cost(2, 2 * 4224)),
        (3, Cost(3, 2 * (8192 + 4224))),
        (8, Cost(3, 7 * (8192 + 4224))),
    ],
)
def test_bytes(ranks: int, cost: Cost) -> None:
    mesh = build_mesh(Sizes(ranks, 1, 1, ranks, ranks, 1))
    given = facts(mesh, quantized_sum=4224, widths=Widths(8192, 8192, 8192, 0))
    state = State(Phase.CONTRIBUTION, rows=0, owes=1, residual=0)
    found = price(QuantizedAllReduce(1), state, given)

    assert (found.collectives, found.wire) == (cost.collectives, cost.wire)
    assert found.wire < price(AllReduce(1), state, given).wire


def _planned(ranks: int, *stages: Stage, columns: int = 4096) -> TopologyPlan:
    dense = stack(
        topology(ranks), layers=(("attention", "mlp"),) * 4, variants=("ordinary",), stages=stages
    )
    (planned,) = plan_stack(replace(dense, hidden_size=columns)).topologies
    return planned


BOTH = (replace(ATTENTION, quantized_sum="int8"), replace(MLP, quantized_sum="fp8"))


def _sums(planned: TopologyPlan, mode: str, *, few: bool, policy: str) -> set[type[Operation]]:
    """How the sums of one kind of batch are done."""
    return {
        type(op)
        for column, table in zip(planned.columns, planned.tables[policy], strict=True)
        if column.few in (None, few) and column.mode == mode
        for boundary in table.values()
        for op in boundary.path.ops
        if isinstance(op, AllReduce | QuantizedAllReduce)
    }


@pytest.mark.parametrize("policy", ["ar", "rs", "rsv", "rs+rsv"])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_it_is_chosen_where_bytes_decide(ranks: int, policy: str) -> None:
    """E18: in prefills of many rows, under every policy; otherwise fewer collectives count."""
    planned = _planned(ranks, *BOTH)

    assert _sums(planned, "prefill", few=False, policy=policy) == {QuantizedAllReduce}
    assert _sums(planned, "prefill", few=True, policy=policy) == {AllReduce}
    for few in (True, False):
        assert _sums(planned, "decode", few=few, policy=policy) == {AllReduce}


def test_only_the_stage_that_says_so() -> None:
    planned = _planned(4, ATTENTION, BOTH[1])
    found: dict[str, set[bool]] = {}
    for column, table in zip(planned.columns, planned.tables["ar"], strict=True):
        for edge, boundary in table.items():
            if column.mode == "prefill" and column.few is False:
                lossy = any(isinstance(op, QuantizedAllReduce) for op in boundary.path.ops)
                found.setdefault(edge.producer, set()).add(lossy)

    assert found == {"": {False}, "attention": {False}, "mlp": {True}}


def test_modes_are_planned_apart_only_where_it_matters() -> None:
    """Context-parallel batches are prefills; a stack without such a sum knows no modes."""
    spec = topology(4, cp=2)
    both = ("ordinary", "context_parallel")
    for stages, modes in (
        ((ATTENTION, MLP), {("ordinary", None), ("context_parallel", None)}),
        (
            BOTH,
            {("ordinary", "prefill"), ("ordinary", "decode"), ("context_parallel", "prefill")},
        ),
    ):
        dense = stack(spec, layers=(("attention", "mlp"),), variants=both, stages=stages)
        (planned,) = plan_stack(dense).topologies
        assert {(column.variant, column.mode) for column in planned.columns} == modes


def test_the_checker_accepts_every_plan() -> None:
    """In all variants and on all meshes, and each of them is used somewhere."""
    stages = (*BOTH, replace(EXPERTS, quantized_sum="int8"))
    boundaries: dict[tuple[Boundary, int], None] = {}
    wide = replace(stack(*TOPOLOGIES, stages=stages), hidden_size=65536)
    for planned in plan_stack(wide).topologies:
        for table in planned.tables["ar"]:
            atoms = len(planned.mesh.atoms)
            boundaries |= dict.fromkeys((boundary, atoms) for boundary in table.values())
    lossy = [
        (boundary, atoms)
        for boundary, atoms in boundaries
        if any(isinstance(op, QuantizedAllReduce) for op in boundary.path.ops)
    ]
    for boundary, atoms in lossy:
        start, goal = declarations(boundary)
        ops, even = boundary.path.ops, boundary.facts.even
        assert not verify_plan(ops, atoms=atoms, start=start, goal=goal, even=even)
    assert len(lossy) > 20
