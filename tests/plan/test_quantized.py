"""Quantised inputs in plans: before or after rows move, whichever is cheaper, and once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boundaryc.language.model import Quantize
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.judge import declarations
from boundaryc.plan.ops import (
    AllGather,
    GatherSum,
    HandOff,
    Operation,
    Read,
    Slice,
    Update,
)
from boundaryc.plan.ops import Quantize as Quantise
from boundaryc.plan.provenance import DeclaredGoal, DeclaredStart, Reason, verify_plan
from boundaryc.plan.result import Boundary, TopologyPlan
from boundaryc.plan.state import Phase, State
from boundaryc.topology import Sizes, build_mesh
from tests.emit.facts import facts
from tests.plan.stacks import EXPERTS, MLP, TOPOLOGIES, stack, topology

H, U, R, Q = HandOff(), Update(), Read(), Quantise()
CUT = DeclaredStart("contribution", 1, 0, 1)
WHOLE = DeclaredGoal(0, 1, hands_off=True, quantized=True)
GATHER = AllGather(1, variable=True)


@pytest.mark.parametrize(
    ("ops", "right"),
    [
        ((H, U, R, Q, GATHER), True),
        ((H, U, R, GATHER, Q), True),
        ((H, U, R, GATHER), False),
        ((H, U, R, Q, GATHER, Q), False),
        ((H, U, R, Q, GatherSum(1, 0)), False),
        ((H, U, R, GatherSum(1, 0), Q), True),
    ],
)
def test_hand_plans(ops: tuple[Operation, ...], right: bool) -> None:
    """Once, and nothing is added to what is quantised."""
    found = verify_plan(ops, atoms=1, start=CUT, goal=WHOLE, even=0)
    reasons = {fault.reason for rejection in found for fault in rejection.faults}

    assert reasons == (set() if right else {Reason.QUANTIZED})


def test_nothing_is_quantised_that_nobody_asked_for() -> None:
    plain = replace(WHOLE, quantized=False)
    found = verify_plan((H, U, R, Q, GATHER), atoms=1, start=CUT, goal=plain, even=0)

    assert {fault.reason for one in found for fault in one.faults} == {Reason.QUANTIZED}


def test_typing() -> None:
    """Of an input that was read, once; a placed sum would add zeros to it, a move would not."""
    mesh = build_mesh(Sizes(2, 2, 1, 1, 2, 1))
    asked, plain = facts(mesh, quantized_tensors=2), facts(mesh)
    state = State(Phase.INPUT, rows=1, owes=0, residual=1, handed_off=True)
    done = Quantise().apply(state, asked)

    assert done == state._replace(quantized=True)
    assert Quantise().apply(done, asked) is None
    assert Quantise().apply(state, plain) is None
    assert Quantise().apply(state._replace(phase=Phase.STREAM), asked) is None
    assert GatherSum(1, 0).apply(state, asked) is not None
    assert GatherSum(1, 0).apply(done, asked) is None
    assert AllGather(1, variable=False).apply(done, asked) == done._replace(rows=0)
    assert Slice(1).apply(done._replace(rows=0), asked) == done


def _planned(quantize: Quantize | None, *, columns: int = 4096) -> TopologyPlan:
    """Dense layers whose FFN gathers its input over two attention-DP groups."""
    mlp = replace(MLP, quantize=quantize)
    dense = stack(topology(2, dp=2), layers=(("attention", "mlp"),) * 4, variants=("ordinary",),
                  stages=(replace(EXPERTS, name="attention", kind="attention", sparse=False,
                                  reduction="partial"), mlp))  # fmt: skip
    (planned,) = plan_stack(replace(dense, hidden_size=columns)).topologies
    return planned


def _into_mlp(planned: TopologyPlan, *, few: bool) -> list[Boundary]:
    """The boundaries before the FFN in batches of one size, in the deep part of the stack."""
    return [
        boundary
        for column, table in zip(planned.columns, planned.tables["rs+rsv"], strict=True)
        if column.few in (None, few)
        for edge, boundary in table.items()
        if edge.consumer == "mlp" and edge.source.producer
    ]


def _sent(boundary: Boundary) -> list[str]:
    """The read, the quantisation and the moves of a boundary's input, in order."""
    names = {Read: "read", Quantise: "quantise", AllGather: "gather"}
    return [names[type(op)] for op in boundary.path.ops if type(op) in names]


BEFORE, AFTER = ["read", "quantise", "gather"], ["read", "gather", "quantise"]


@pytest.mark.parametrize(
    ("quantize", "few", "many"),
    [
        # values and scales are two collectives of half the bytes
        (Quantize("fp8", "token", keep=False), AFTER, BEFORE),
        (Quantize("fp8", "group128", keep=False), AFTER, BEFORE),
        (Quantize("int8", "token", keep=False), AFTER, BEFORE),
        # a static scale is everywhere already
        (Quantize("fp8", "static", keep=False), BEFORE, BEFORE),
        # the unquantised input has all that the others are made of
        (Quantize("fp8", "token", keep=True), AFTER, AFTER),
        (Quantize("fp8", "static", keep=True), AFTER, AFTER),
    ],
)
def test_rows_move_in_whichever_form_is_cheaper(
    quantize: Quantize, few: list[str], many: list[str]
) -> None:
    planned = _planned(quantize)

    for size, expected in ((True, few), (False, many)):
        found = _into_mlp(planned, few=size)
        assert found
        assert [_sent(one) for one in found] == [expected] * len(found)


def test_costs_count_every_tensor_and_every_byte() -> None:
    """A row of 4096 16-bit numbers is 8192 bytes, and quantised by token 4096 and one scale."""
    planned = _planned(Quantize("fp8", "token", keep=False))
    plain = _planned(None)

    def gathered(of: TopologyPlan, *, few: bool) -> tuple[int, int]:
        (cost,) = {one.path.cost for one in _into_mlp(of, few=few)}
        return cost.collectives, cost.wire

    collectives, wire = gathered(plain, few=True)
    assert gathered(planned, few=True) == (collectives, wire)
    assert gathered(planned, few=False) == (collectives + 1, wire - 8192 + 4100)


def test_the_checker_accepts_every_plan() -> None:
    """In all variants, on all meshes, with the read on whatever rows are cheapest."""
    by_token = Quantize("fp8", "token", keep=False)
    stages = (
        replace(EXPERTS, quantize=replace(by_token, keep=True)),
        replace(MLP, quantize=by_token),
    )
    attention = replace(EXPERTS, name="attention", kind="attention", sparse=False,
                        reduction="partial", quantize=by_token)  # fmt: skip
    found = 0
    for planned in plan_stack(stack(*TOPOLOGIES, stages=(attention, *stages))).topologies:
        for table in planned.tables["ar"]:
            for boundary in table.values():
                start, goal = declarations(boundary)
                asked = boundary.edge.consumer != "final"
                assert goal.quantized is asked
                assert sum(isinstance(op, Quantise) for op in boundary.path.ops) == asked
                assert not verify_plan(
                    boundary.path.ops,
                    atoms=len(planned.mesh.atoms),
                    start=start,
                    goal=goal,
                    even=boundary.facts.even,
                )
                found += 1
    assert found > 50
