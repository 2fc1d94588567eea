"""Drafts on simulated ranks, against the oracle: each is a stack with a first stage of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from boundaryc.cli import Exit, main
from boundaryc.emit.build import Build
from boundaryc.plan.compose import plan_stack
from boundaryc.verify.matrix import Selection, covering, matrix
from boundaryc.verify.modules import forget, import_package
from boundaryc.verify.run import Prover
from boundaryc.verify.world import SimulatedGroups, World
from tests.emit.compiled import DRAFTS, family

NAMES = ("target_mtp", "target_nextn")


def draft(name: str) -> Build:
    """One of the drafts of the file, compiled."""
    assert tuple(built.name for built in family(DRAFTS)[1:]) == NAMES
    return family(DRAFTS)[1 + NAMES.index(name)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("meddles", [False, True], ids=["plain", "accessors"])
def test_every_variant_of_a_draft(name: str, meddles: bool) -> None:
    """Over every pair of topology, variant, policy, padding and batch, empty ranks among them."""
    built = draft(name)
    plan = plan_stack(built.stack)
    package = import_package(built.output.files, built.name)
    try:
        subject = Prover(plan, package)
        cells = covering(list(matrix(plan, Selection())))
        found = [
            subject.run(cell, deeds=seed if meddles else None) for seed, cell in enumerate(cells)
        ]
    finally:
        forget(package)

    assert {cell.variant for cell in cells} == set(built.stack.variants)
    assert any(0 in cell.rows and any(cell.rows) for cell in cells)
    assert any(len(set(cell.rows)) > 1 for cell in cells)
    assert [f"{one.cell}: {one.failure}" for one in found if one.failure] == []
    entries = {cell.entry for cell in cells}
    assert entries == ({"partial"} if built.stack.entry == "partial" else {"complete", "partial"})


def test_a_draft_that_drops_its_inputs_sum_is_found() -> None:
    """What enters is summed at the first stage: without that, the first stage sees a share."""
    built = draft("target_mtp")
    text = built.output.files["tp4_dp2/ordinary.py"]
    line = "    hidden = groups.tp.all_reduce(hidden)\n"
    start = text.index("def start_to_attention")
    assert line in text[start:]
    damaged = text[:start] + text[start:].replace(line, "", 1)
    package = import_package({**built.output.files, "tp4_dp2/ordinary.py": damaged}, built.name)
    try:
        plan = plan_stack(built.stack)
        chosen = Selection(topologies=("tp4_dp2",), variants=("ordinary",), rows=(5, 2))
        found = [Prover(plan, package).run(cell) for cell in matrix(plan, chosen)]
    finally:
        forget(package)

    assert found
    assert all(one.failure is not None for one in found)


def test_the_entry_of_a_draft_is_a_fact_of_its_batches() -> None:
    """Left out it is what the file says; something else is refused."""
    built = draft("target_mtp")
    package = import_package(built.output.files, built.name)
    facts = {"rows_per_dp": [3], "padding": "sum_len", "mode": "decode"}

    def entered(groups: SimulatedGroups) -> str:
        stack = package.load("tp2", groups)
        with pytest.raises(ValueError, match="declared `entry: partial`, so it always owes its"):
            stack.batch(**facts, embeddings="complete")
        return str(stack.batch(**facts).facts.embeddings)

    try:
        assert World(2).run(entered) == ["partial"] * 2
    finally:
        forget(package)


def test_verify_runs_drafts_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All stacks of a file, or those that are named."""
    out = ["--out", str(tmp_path)]
    assert main(["compile", str(DRAFTS), *out]) == Exit.OK
    cells = ["--topology", "tp2", "--variant", "ordinary", "--policy", "auto", "--rows", "3"]
    capsys.readouterr()

    assert main(["verify", str(DRAFTS), *out, *cells]) == Exit.OK
    every = capsys.readouterr()
    assert [line for line in every.out.splitlines() if line.endswith(":")] == [
        "target:", "target_mtp:", "target_nextn:",
    ]  # fmt: skip
    assert main(["verify", str(DRAFTS), *out, *cells, "--stack", "target_mtp"]) == Exit.OK
    assert "target" not in capsys.readouterr().out
    assert main(["verify", str(DRAFTS), *out, *cells, "--stack", "mtp"]) == Exit.UNUSABLE
    known = "--stack: unknown name 'mtp'; there is target, target_mtp, target_nextn"
    assert known in capsys.readouterr().err
