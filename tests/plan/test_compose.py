"""Every plan of every column: typed, judged by the checker, and as cheap as it should be."""

from __future__ import annotations

from pathlib import Path

import pytest

import boundaryc.plan
from boundaryc.graph.build import FINAL
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.ops import AllGather, AllReduce, GatherSum, HandOff, Operation, ReduceScatter
from boundaryc.plan.result import Boundary, StackPlan, Table
from boundaryc.plan.state import Phase
from tests.plan.stacks import DENSE_LAYERS, MIXED_LAYERS, TOPOLOGIES, stack, topology


@pytest.fixture(scope="module")
def planned() -> StackPlan:
    return plan_stack(stack(*TOPOLOGIES))


def _boundaries(planned: StackPlan) -> list[Boundary]:
    return [
        boundary
        for topology in planned.topologies
        for tables in topology.tables.values()
        for table in tables
        for boundary in table.values()
    ]


def test_every_path_is_typed_and_arrives(planned: StackPlan) -> None:
    """Replaying the operations under the batch's own facts ends in the goal."""
    boundaries = _boundaries(planned)
    for boundary in boundaries:
        state = boundary.start
        for op in boundary.path.ops:
            after = op.apply(state, boundary.facts)
            assert after is not None, (boundary.edge, op, state)
            state = after
        assert state.phase is Phase.INPUT
        assert state.handed_off
        assert (state.rows, state.residual) == (boundary.goal.rows, boundary.goal.residual)
    assert len(boundaries) > 1000


def test_boundaries_of_a_stage_agree(planned: StackPlan) -> None:
    """What one boundary leaves is what the next one starts from."""
    for plan in planned.topologies:
        for tables in plan.tables.values():
            for table in tables:
                for edge, boundary in table.items():
                    for following, after in table.items():
                        if following.source == edge.target:
                            assert after.start.residual == boundary.goal.residual


def _ops(table: Table, consumer: str) -> tuple[Operation, ...]:
    return next(b.path.ops for b in table.values() if b.edge.consumer == consumer)


def test_tensor_parallel_layer_sums_twice() -> None:
    table = plan_stack(stack(topology(4), layers=DENSE_LAYERS)).topologies[0].tables["ar"][0]
    sums = {
        (edge.producer, edge.consumer): [
            type(op).__name__
            for op in boundary.path.ops
            if isinstance(op, AllReduce | AllGather | ReduceScatter | GatherSum)
        ]
        for edge, boundary in table.items()
    }

    assert sums == {
        ("", "attention"): [],
        ("attention", "mlp"): ["AllReduce"],
        ("mlp", "attention"): ["AllReduce"],
        ("mlp", FINAL): ["AllReduce"],
    }


def test_sum_crosses_the_hand_off_but_not_at_the_end() -> None:
    table = plan_stack(stack(topology(4), layers=DENSE_LAYERS)).topologies[0].tables["ar"][0]

    assert isinstance(_ops(table, "mlp")[0], HandOff)
    assert isinstance(_ops(table, FINAL)[0], AllReduce)


def test_local_experts_need_no_collective() -> None:
    """Attention data parallel over all ranks with all-to-all experts moves nothing."""
    plan = plan_stack(
        stack(
            topology(4, dp=4, all_to_all=True),
            layers=(("attention", "experts"),) * 2,
            variants=("ordinary",),
        )
    ).topologies[0]
    assert all(b.path.cost.collectives == 0 for t in plan.tables["ar"] for b in t.values())


def test_policy_only_touches_the_sums_of_ffns(planned: StackPlan) -> None:
    for plan in planned.topologies:
        for index in range(len(plan.columns)):
            for edge in planned.graph.edges():
                plans = {policy: plan.tables[policy][index][edge] for policy in plan.tables}
                if edge.producer in ("attention", ""):
                    scatters = {b.facts.scatter for b in plans.values()}
                    assert scatters == {plan.mesh.every}
                else:
                    assert not any(isinstance(op, ReduceScatter) for op in plans["ar"].path.ops)


def test_uneven_batches_take_sizes(planned: StackPlan) -> None:
    """A move over an axis that a batch cuts unevenly names its sizes; an even one need not."""
    seen = set()
    for boundary in _boundaries(planned):
        for op in boundary.path.ops:
            if isinstance(op, AllGather):
                uneven = bool(op.axes & ~boundary.facts.even)
                assert op.variable is uneven
                seen.add(uneven)
    assert seen == {True, False}


def test_depth_adds_no_boundary() -> None:
    shallow = plan_stack(stack(topology(4, dp=2)))
    deep = plan_stack(stack(topology(4, dp=2), layers=(MIXED_LAYERS[0], *MIXED_LAYERS[1:] * 300)))
    for policy in ("ar", "rs+rsv"):
        assert shallow.topologies[0].tables[policy] == deep.topologies[0].tables[policy]


def test_planner_names_no_stage_topology_or_variant() -> None:
    """What a kind or a variant means is decided before the planner, in the graph."""
    words = ("attention", "ffn", "sparse", "mixer", "ordinary", "sequence_parallel", "moe", "tp4")
    for path in Path(boundaryc.plan.__path__[0]).glob("*.py"):
        text = path.read_text()
        for word in words:
            assert f'"{word}"' not in text, (path.name, word)
