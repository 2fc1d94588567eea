"""What a branch writes over while the stage beside it still reads: the residual, which is shared.

A raw read gives a stage the residual itself, and that stage may compute until the merge. A fused
kernel and an update from outside may write over the residual they are given.
"""

from __future__ import annotations

import pytest

from boundaryc.emit.summary import summaries
from boundaryc.verify.cells import Cell
from boundaryc.verify.modules import forget
from tests.verify.subjects import compiled, prover

OPERATIONS = {
    "same": "role: read, call: 'tests.verify.operations:same_read', facts: [row_wise]",
    "over": "role: update, call: 'tests.verify.operations:added_in_place', facts: [row_wise]",
    "early": "role: update, call: 'tests.verify.operations:added_in_place', facts: [at_producer]",
}
FUSION = "fusion: {providers: [kernels]}\n"
CAPTURE = "captures: {aux: {before: [1]}}\n"
ALL = ("look", "middle", "last")


def text(
    more: str = "",
    *,
    read: str = "norm",
    beside: str = "add",
    update: str = "add",
    last: str = "ffn",
    branch: tuple[str, ...] = ALL,
) -> str:
    """Two layers of an attention beside a branch; in the second one it computes at the end.

    ``read`` and ``beside`` are its read and update, ``update`` is the one of the branch's first
    stage, ``last`` the kind of the branch's last.
    """
    stages = {
        "attention": f"kind: attention, read: {read}, update: {beside}",
        "look": f"kind: attention, update: {update}",
        "middle": "kind: ffn",
        "last": f"kind: {last}",
    }
    used = [name for name in OPERATIONS if name in (read, beside, update)]
    lines = [
        *("boundaryc: 1", "stack: sample", "hidden_size: 64", "norm: {kind: rms, eps: 1.0e-6}"),
        "stages:",
        *(f"  {name}: {{{stages[name]}}}" for name in ("attention", *branch)),
        "layers: {count: 2, default: [attention]}",
        f"branch: {{beside: attention, stages: [{', '.join(branch)}], merges_sum: allow}}",
        "topologies: {tp2: {tp: 2}}",
        *(["operations:"] if used else []),
        *(f"  {name}: {{{OPERATIONS[name]}}}" for name in used),
    ]
    return "\n".join([*lines, more])


def failures(stack: str, *deeds: int) -> list[str]:
    """What is wrong on some rank, over batches some of which a provider takes."""
    runs = prover(stack)
    cells = [Cell("tp2", "ordinary", "ar", "unpadded", (rows,)) for rows in (1, 2, 3, 4)]
    found = [runs.run(cell, deeds=one) for cell in cells for one in deeds or (None,)]
    forget(runs.subject.package)
    return [one.failure for one in found if one.failure]


@pytest.mark.parametrize(
    ("read", "update", "offered"),
    [
        ("norm", "add", ["look_to_middle", "middle_to_last"]),
        ("raw", "add", ["middle_to_last"]),
        ("same", "add", ["middle_to_last"]),
        ("raw", "early", ["middle_to_last"]),
    ],
)
def test_kernels_write_over_what_nobody_reads(read: str, update: str, offered: list[str]) -> None:
    """The first sum of a branch is offered to providers only where its residual is its own."""
    stack = text(FUSION, read=read, update=update)
    assert failures(stack) == []
    plan, files = compiled(stack)
    sums = ("look_to_middle", "middle_to_last")
    assert [one for one in sums if f"{one}_over_tp = " in files["tp2/layout.py"]] == offered
    why = "look -> middle: a kernel may write over the residual, which the stage beside may still"
    told = str(summaries(plan, plan.topologies[0]))
    assert (why in told) == (sums[0] not in offered and update == "add")


@pytest.mark.parametrize("update", ["over", "early"])
@pytest.mark.parametrize(("read", "copied"), [("norm", False), ("raw", True), ("same", True)])
def test_an_update_from_outside_is_given_a_copy(read: str, update: str, *, copied: bool) -> None:
    """The branch goes on with a copy of the residual, if the input beside it may be that."""
    stack = text(read=read, update=update)
    assert failures(stack) == []
    _, files = compiled(stack)
    assert ("residual.clone()" in files["tp2/ordinary.py"]) == copied


@pytest.mark.parametrize("branch", [ALL, ("look",)])
def test_nothing_is_copied_where_nothing_is_written(branch: tuple[str, ...]) -> None:
    """Built-in updates make another residual, and a branch of one stage updates none."""
    stack = text(read="raw", beside="add" if branch[1:] else "over", branch=branch)
    assert failures(stack) == []
    _, files = compiled(stack)
    assert "residual.clone()" not in files["tp2/ordinary.py"]


@pytest.mark.parametrize(("update", "owned"), [("add", True), ("over", False)])
def test_a_capture_before_a_branch_stays_what_it_was(update: str, *, owned: bool) -> None:
    """The residual read beside a branch is next given to the first update of the branch."""
    stack = text(CAPTURE, update=update)
    assert failures(stack) == []
    _, files = compiled(stack)
    shown = f'stream.capture("aux", stream.residual{", owned=True" * owned})'
    assert shown in files["tp2/ordinary.py"]


@pytest.mark.parametrize(("beside", "owned"), [("add", True), ("over", False)])
def test_what_the_end_of_a_branch_shows_stays_what_it_was(beside: str, *, owned: bool) -> None:
    """The residual that its last stage reads is next given to the update beside the branch."""
    stack = text(beside=beside, last="attention")
    assert failures(stack, *range(3)) == []
    _, files = compiled(stack)
    resume = files["tp2/ordinary_access.py"].partition("MIDDLE_TO_LAST = ")[2].partition("\n)")[0]
    assert ("owned=True" in resume) == owned
