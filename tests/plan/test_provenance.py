"""The provenance checker, on plans written by hand and on damage done to them."""

from __future__ import annotations

import pytest

from boundaryc.plan.ops import AllReduce, HandOff, Read, Update
from boundaryc.plan.provenance import (
    DeclaredGoal,
    DeclaredStart,
    Fault,
    Reason,
    check,
    final_state,
    rejections,
    verify_plan,
)
from boundaryc.plan.provenance_batches import count_vectors, size_vectors
from boundaryc.plan.provenance_layout import Layout, groups, keys
from tests.plan.hand_plans import ALL, RIGHT, WRONG, HandPlan
from tests.plan.mutations import changes_result, mutations


def _reasons(plan: HandPlan) -> set[Reason]:
    found = verify_plan(
        plan.ops, atoms=plan.atoms, start=plan.start, goal=plan.goal, even=plan.even
    )
    return {fault.reason for rejection in found for fault in rejection.faults}


def test_there_are_enough_plans_of_both_kinds() -> None:
    """Names are unique, both verdicts are common, and every reason occurs."""
    assert len({plan.name for plan in ALL}) == len(ALL) >= 50
    assert len(RIGHT) >= 25
    assert len(WRONG) >= 25
    assert all(plan.reasons for plan in WRONG)
    # in files of their own
    elsewhere = {Reason.ORDER, Reason.CAPTURE, Reason.QUANTIZED, Reason.QUANTIZED_SUM, Reason.MERGE}
    tested = elsewhere.union(*(plan.reasons for plan in WRONG))
    assert set(Reason) == tested, "a reason is untested"


@pytest.mark.parametrize("plan", RIGHT, ids=lambda plan: plan.name)
def test_right_plans_are_accepted(plan: HandPlan) -> None:
    """A right plan is accepted on every mesh and batch."""
    assert _reasons(plan) == set()


@pytest.mark.parametrize("plan", WRONG, ids=lambda plan: plan.name)
def test_wrong_plans_are_rejected_for_their_reason(plan: HandPlan) -> None:
    """A wrong plan is rejected for what is wrong with it and nothing else."""
    assert _reasons(plan) == plan.reasons


def test_a_right_plan_is_right_only_for_its_own_goal() -> None:
    """Each right plan, judged against every other goal of its mesh, delivers only its own rows."""
    for plan in RIGHT:
        every = range(1 << plan.atoms)
        for rows in every:
            for residual in every:
                goal = DeclaredGoal(rows, residual, plan.goal.hands_off, may_defer=True)
                same = (rows, residual) == (plan.goal.rows, plan.goal.residual)
                wrong = any(
                    rejections(
                        plan.ops, atoms=plan.atoms, start=plan.start, goal=goal, even=plan.even
                    )
                )
                assert wrong != same, (plan.name, rows, residual)


def test_mutations_are_rejected_exactly_where_the_final_state_differs() -> None:
    """Damage to a right plan is rejected if and only if it leaves another final state."""
    changed = 0
    for plan in RIGHT:
        judged = {"atoms": plan.atoms, "start": plan.start, "goal": plan.goal, "even": plan.even}
        for what, mutated in mutations(plan.ops, atoms=plan.atoms):
            differs = changes_result(plan.ops, mutated, **judged)
            assert differs == any(rejections(mutated, **judged)), (plan.name, what)
            changed += differs
    assert changed >= 500


def test_mutations_are_one_step_away_and_never_the_plan() -> None:
    """The four kinds of damage are all made, each once per place."""
    plan = (HandOff(), AllReduce(1), Update(), Read())
    found = dict(mutations(plan, atoms=2))
    assert plan not in found.values()
    assert len(found) == 4 + 4 + 3 + 2  # drops, duplicates, swaps, other axes
    assert (AllReduce(1), HandOff(), Update(), Read()) in found.values()
    assert (HandOff(), AllReduce(3), Update(), Read()) in found.values()


START = DeclaredStart("contribution", 0, 2, 0)
GOAL = DeclaredGoal(0, 0, hands_off=False)


def test_a_fault_says_where_and_on_which_ranks() -> None:
    """A fault names its operation and the ranks of the groups that break."""
    faults = check(
        [AllReduce(2), AllReduce(1), Update(), Read()],
        sizes=(2, 2),
        start=DeclaredStart("contribution", 1, 2, 1),
        goal=GOAL,
        counts=(1, 1, 1, 1),
    )
    assert faults == (Fault(Reason.TOKENS_ADDED, 1, (0, 1, 2, 3)),)
    assert "operation 1" in str(faults[0])


def test_ranks_that_break_in_different_ways_are_reported_apart() -> None:
    """Each reason has its own fault with its own ranks."""
    faults = check(
        [AllReduce(1)],
        sizes=(2, 2),
        start=DeclaredStart("contribution", 3, 0, 3),
        goal=GOAL,
        counts=(1, 1, 2, 1),
    )
    assert set(faults) == {
        Fault(Reason.COLLECTIVE, 0, (0, 2)),
        Fault(Reason.TOKENS_ADDED, 0, (1, 3)),
    }


def test_the_end_of_a_plan_has_the_index_after_the_last_operation() -> None:
    """What is found at the end points behind the plan."""
    (fault,) = check([AllReduce(2)], sizes=(2, 2), start=START, goal=GOAL, counts=(1, 1, 1, 1))
    assert (fault.reason, fault.index) == (Reason.UNFINISHED, 1)


def test_a_replica_of_a_partial_is_the_same_partial() -> None:
    """Ranks that differ on an atom that is not owed hold one contribution, not two."""
    right = [AllReduce(2), Update(), Read()]
    state = {"sizes": (2, 2), "start": START, "goal": GOAL, "counts": (1, 0, 2, 1)}
    assert check(right, **state) == ()
    (fault,) = check([AllReduce(3), Update(), Read()], **state)
    assert fault.reason is Reason.COUNTED_TWICE


def test_the_final_state_is_none_only_where_the_plan_breaks() -> None:
    """A plan that runs through leaves a state even where it delivers nothing."""
    state = {"sizes": (2, 2), "start": START, "goal": GOAL, "counts": (1, 1, 1, 1)}
    assert final_state([AllReduce(1)], **state) is None
    unfinished = final_state([AllReduce(2)], **state)
    assert unfinished is not None
    assert unfinished.reads == 0
    assert unfinished.kind == "contribution"


@pytest.mark.parametrize(
    ("phase", "owes", "residual", "transform"),
    [
        ("initial", 0, 0, False),
        ("contribution", 0, None, False),
        ("stream", 0, 1, False),
        ("stream", 1, 0, False),
        ("initial", 0, None, True),
    ],
)
def test_a_start_that_cannot_be_is_refused(
    phase: str, owes: int, residual: int | None, transform: bool
) -> None:
    """Phase, rows, owed sum and residual of a start must fit together."""
    with pytest.raises(ValueError, match=r"residual|transform"):
        DeclaredStart(phase, 0, owes, residual, transform)


def test_one_count_a_rank() -> None:
    """Counts that do not fit the mesh are refused."""
    with pytest.raises(ValueError, match="3 leaf counts for 4 ranks"):
        Layout((2, 2), (1, 1, 1))


def test_layout_numbers_tokens_in_rank_order() -> None:
    """Rows of a rank are the agreeing leaves in lexicographic order."""
    layout = Layout((2, 2), (1, 2, 0, 3))
    assert layout.tokens(0b11) == ((0,), (1, 2), (), (3, 4, 5))
    assert layout.tokens(0b01) == ((0, 1, 2), (0, 1, 2), (3, 4, 5), (3, 4, 5))
    assert layout.tokens(0b10) == ((0,), (1, 2, 3, 4, 5), (0,), (1, 2, 3, 4, 5))
    assert layout.tokens(0) == (tuple(range(6)),) * 4
    assert layout.owners() == (0, 1, 1, 3, 3, 3)
    assert groups((2, 3), 0b10) == ((0, 1, 2), (3, 4, 5))
    assert keys((2, 3), 0b10) == (0, 1, 2, 0, 1, 2)


@pytest.mark.parametrize("atoms", [1, 2, 3, 4])
def test_batches_keep_their_promise_and_are_uneven_elsewhere(atoms: int) -> None:
    """Cuts over promised atoms are always equal, over each other atom sometimes not."""
    every = (1 << atoms) - 1
    for sizes in size_vectors(atoms):
        for even in range(every + 1):
            layouts = [Layout(sizes, counts) for counts in count_vectors(sizes, even)]
            for atom in range(atoms):
                axes = 1 << atom
                uneven = any(
                    len(set(layout.parts(group, rows))) > 1
                    for layout in layouts
                    for rows in range(every + 1)
                    if rows & axes
                    for group in groups(sizes, axes)
                )
                assert uneven == (not axes & even)


def test_batches_have_empty_leaves_and_empty_ends() -> None:
    """Even, partly empty, nearly empty and empty batches are among those tried."""
    vectors = count_vectors((2, 2), 0)
    assert (2, 2, 2, 2) in vectors
    assert (0, 0, 0, 3) in vectors
    assert (0, 0, 0, 0) in vectors
    assert any(0 in counts and len(set(counts)) > 2 for counts in vectors)


def test_a_mesh_of_five_atoms_is_checked() -> None:
    """Thirty-two ranks with all rows each."""
    start = DeclaredStart("contribution", 0, 31, 31)
    goal = DeclaredGoal(31, 31, hands_off=False)
    outer_first = [AllReduce(1 << atom) for atom in range(5)]
    (fault,) = check(
        [*outer_first, Update(), Read()],
        sizes=(2,) * 5,
        start=start,
        goal=goal,
        counts=tuple(1 + rank % 3 for rank in range(32)),
    )
    assert fault.reason is Reason.RESIDUAL_ROWS
