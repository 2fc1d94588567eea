"""Branches in the graph, in plans, and on provenance."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boundaryc.graph.build import MERGE, Edge, Node, build_graph
from boundaryc.language.model import Branch, Stack, Stage
from boundaryc.plan.approve import RejectedPlanError, approve
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.judge import declarations
from boundaryc.plan.ops import (
    AllGather,
    AllReduce,
    HandOff,
    Operation,
    ReduceScatter,
    ResidualSlice,
    Slice,
    Transform,
    Update,
)
from boundaryc.plan.provenance import DeclaredGoal, DeclaredStart, Reason, verify_plan
from boundaryc.plan.result import StackPlan
from tests.plan.stacks import ATTENTION, EXPERTS, stack, topology

ONE, D, T = 1, 1, 2
H, U, X = HandOff(), Update(), Transform()
DENSE = Stage("dense", "ffn", False, "scoped", "norm", "add")
LAST = replace(DENSE, name="last")


def _branched(*, merges_sum: bool = False, layers: int = 3) -> Stack:
    found = stack(
        topology(4),
        topology(8, dp=2, dense=4, all_to_all=True),
        layers=(("attention", "experts", "dense", "last"),) * layers,
        variants=("ordinary",),
        stages=(ATTENTION, EXPERTS, DENSE, LAST),
    )
    return replace(found, branch=Branch("experts", ("dense", "last"), merges_sum))


def test_a_merge_is_a_node_of_the_graph() -> None:
    """Two edges lead to it, one leads on, and the branch begins at an input."""
    graph = build_graph(_branched())
    merge = Node("experts", MERGE)
    into = [edge for edge in graph.edges() if edge.target == merge]
    assert [(edge.producer, edge.beside) for edge in into] == [("experts", True), ("last", False)]
    assert [(edge.producer, edge.consumer) for edge in graph.edges() if edge.source == merge] == [
        ("experts", "attention"),
        ("experts", "final"),
    ]
    forks = [edge for edge in graph.edges() if edge.forks]
    assert [(edge.producer, edge.consumer) for edge in forks] == [("experts", "dense")]
    assert all(graph.repeats(edge) for edge in (*into, *forks))
    assert {index: edge.consumer for index, edge in graph.merged.items()} == {
        0: "attention",
        1: "attention",
        2: "final",
    }


def test_a_deep_stack_has_the_graph_of_a_short_one() -> None:
    """And that of the stack without a branch is as it ever was."""
    assert build_graph(_branched(layers=500)).edges() == build_graph(_branched()).edges()
    plain = stack(topology(4))
    found = build_graph(plain)
    assert not any(edge.forks or edge.merges or edge.source.merges for edge in found.edges())
    flat = [edge for layer in found.walk for edge in layer]
    assert [edge for layer in found.left for edge in layer] == [*flat[1:], found.last]


@pytest.mark.parametrize("merges_sum", [False, True])
def test_every_table_merges_what_fits(merges_sum: bool) -> None:
    """On equal rows with equal sums; a sum may be left to the merge only where the file says so."""
    plan = plan_stack(_branched(merges_sum=merges_sum))
    left = set()
    for found in plan.topologies:
        for tables in found.tables.values():
            for table in tables:
                ends = [one for edge, one in table.items() if edge.merges]
                (goal,) = {(one.goal.rows, one.goal.owes) for one in ends}
                going = [one.start for edge, one in table.items() if edge.source.merges]
                assert {(start.rows, start.owes) for start in going} == {goal}
                left.add(goal[1] != 0)
    assert left == ({False, True} if merges_sum else {False})


def test_a_merge_that_does_not_fit_is_not_approved() -> None:
    """The approval compares both ends of every merge, whatever each of them does by itself."""
    plan = plan_stack(_branched())
    found = plan.topologies[0]
    (edge,) = [one for one in plan.graph.edges() if one.beside]
    boundary = found.tables["ar"][0][edge]
    other = boundary.goal._replace(rows=boundary.goal.rows ^ 1)
    for damaged in (_with(plan, edge, None), _with(plan, edge, replace(boundary, goal=other))):
        with pytest.raises(RejectedPlanError, match="merged behind experts"):
            approve(damaged)


def _with(plan: StackPlan, edge: Edge, boundary: object) -> StackPlan:
    """The plan with another boundary, or none, at ``edge`` of one table."""
    found = plan.topologies[0]
    table = {one: known for one, known in found.tables["ar"][0].items() if one != edge}
    if boundary is not None:
        table[edge] = boundary  # type: ignore[assignment]
    tables = {**found.tables, "ar": (table, *found.tables["ar"][1:])}
    return replace(plan, topologies=(replace(found, tables=tables),))


def _gather(axes: int) -> AllGather:
    return AllGather(axes, variable=True)


def _scatter(axes: int) -> ReduceScatter:
    return ReduceScatter(axes, variable=True)


def _beside(rows: int, owes: int, *, transform: bool = False) -> DeclaredStart:
    return DeclaredStart("contribution", rows, owes, None, transform=transform, beside=True)


def _ended(rows: int, owes: int, residual: int) -> DeclaredStart:
    return DeclaredStart("contribution", rows, owes, residual)


def _merged(rows: int, residual: int | None, owes: int = 0) -> DeclaredGoal:
    return DeclaredGoal(rows, residual, hands_off=True, may_defer=True, merges=True, owes=owes)


def _taken(rows: int, residual: int) -> DeclaredGoal:
    return DeclaredGoal(rows, residual, hands_off=False)


Plan = tuple[str, int, DeclaredStart, DeclaredGoal, tuple[Operation, ...], set[Reason]]
TAKES = DeclaredStart("input", T, 0, 0)
PLANS: tuple[Plan, ...] = (
    ("complete beside", 1, _beside(ONE, 0), _merged(ONE, None), (H,), set()),
    ("placed beside", 1, _beside(ONE, 0), _merged(0, None), (_gather(ONE), H), set()),
    ("partial beside", 1, _beside(0, ONE), _merged(0, None, ONE), (H,), set()),
    ("scattered end", 1, _ended(0, ONE, 0), _merged(ONE, 0), (_scatter(ONE), H), set()),
    ("a part of a sum", 2, _ended(0, D | T, 0), _merged(D, 0, T), (_scatter(D), H), set()),
    ("an input is gathered", 1, DeclaredStart("input", ONE, 0, 0), _taken(0, 0),
     (_gather(ONE),), set()),
    ("an input stays", 1, DeclaredStart("input", ONE, 0, 0), _taken(ONE, 0), (), set()),
    ("residual along", 1, DeclaredStart("input", 0, 0, 0), _taken(0, ONE),
     (ResidualSlice(ONE),), set()),
    ("partial as complete", 1, _beside(0, ONE), _merged(0, None), (H,), {Reason.MERGE}),
    ("complete as partial", 1, _beside(0, 0), _merged(0, None, ONE), (H,), {Reason.MERGE}),
    ("summed, and owed again", 1, _ended(0, ONE, 0), _merged(0, 0, ONE),
     (AllReduce(ONE), H), {Reason.MERGE}),
    ("another sum", 2, _beside(0, D), _merged(0, None, T), (H,), {Reason.MERGE}),
    ("other rows", 1, _beside(ONE, 0), _merged(0, None), (H,), {Reason.MERGE}),
    ("moved after the hand-off", 1, _beside(ONE, 0), _merged(0, None),
     (H, _gather(ONE)), {Reason.MERGE}),
    ("not handed off", 1, _beside(0, 0), _merged(0, None), (), {Reason.HAND_OFF}),
    ("updated before the merge", 1, _ended(0, 0, 0), _merged(0, 0), (U, H), {Reason.UNFINISHED}),
    ("transform forgotten", 1, _beside(0, 0, transform=True), _merged(0, None), (H,),
     {Reason.TRANSFORM}),
    ("residual elsewhere", 1, _ended(0, 0, 0), _merged(0, 0), (ResidualSlice(ONE), H),
     {Reason.FINAL_RESIDUAL}),
    ("residual lost", 1, _beside(0, 0), _merged(0, 0), (H,), {Reason.RESIDUAL}),
    ("residual from nowhere", 1, _ended(0, 0, 0), _merged(0, None), (H,), {Reason.RESIDUAL}),
    ("an input on other rows", 1, DeclaredStart("input", ONE, 0, 0), _taken(0, 0), (),
     {Reason.INPUT_ROWS}),
    ("an input is cut", 1, DeclaredStart("input", 0, 0, 0), _taken(0, 0), (Slice(ONE),),
     {Reason.INPUT_ROWS}),
    ("an input is updated", 1, DeclaredStart("input", 0, 0, 0), _taken(0, 0), (U,),
     {Reason.PHASE}),
)  # fmt: skip


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan[0])
def test_both_ends_of_a_branch_on_provenance(plan: Plan) -> None:
    """Right plans are accepted on every mesh and batch, wrong ones for their reason alone."""
    _, atoms, start, goal, ops, reasons = plan
    found = verify_plan(ops, atoms=atoms, start=start, goal=goal, even=0)
    assert {fault.reason for one in found for fault in one.faults} == reasons


def test_the_transform_runs_before_the_merge() -> None:
    """It is the stage's own; what is merged has it behind it."""
    start, goal = _beside(0, ONE, transform=True), _merged(0, None)
    assert not verify_plan((AllReduce(ONE), X, H), atoms=1, start=start, goal=goal, even=0)
    assert verify_plan((X, AllReduce(ONE), H), atoms=1, start=start, goal=goal, even=0)


@pytest.mark.parametrize(
    "start",
    [
        lambda: DeclaredStart("stream", 0, 0, 0, beside=True),
        lambda: DeclaredStart("contribution", 0, 0, 0, beside=True),
        lambda: DeclaredStart("input", 0, ONE, 0),
        lambda: DeclaredStart("input", 0, 0, None),
    ],
)
def test_what_no_branch_begins_with(start: object) -> None:
    with pytest.raises(ValueError, match=r"only|input|residual"):
        start()  # type: ignore[operator]


def test_every_planned_boundary_is_judged_as_what_it_is() -> None:
    """The planner's ends of branches in the checker's own terms."""
    plan = plan_stack(_branched(merges_sum=True))
    table = plan.topologies[0].tables["ar"][0]
    starts = {(edge.producer, edge.consumer): declarations(one) for edge, one in table.items()}
    fork, goal = starts["experts", "dense"]
    assert (fork.phase, goal.merges) == ("input", False)
    beside, goal = starts["experts", MERGE]
    assert (beside.beside, beside.residual, goal.merges, goal.residual) == (True, None, True, None)
    ended, goal = starts["last", MERGE]
    assert (ended.beside, goal.merges, goal.residual is None) == (False, True, False)
