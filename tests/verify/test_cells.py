"""Cells on simulated ranks: what holds, what is found, and how small it gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from boundaryc.api import plan
from boundaryc.emit.build import build
from boundaryc.plan.result import StackPlan
from boundaryc.verify.cells import Cell
from boundaryc.verify.matrix import Selection, covering, matrix
from boundaryc.verify.modules import import_package
from boundaryc.verify.proof import Journal, Task, prove, summarise
from boundaryc.verify.run import Prover, shrink
from tests.verify.subjects import HEAD, prover

ROOT = Path(__file__).parents[2]
EXAMPLES = ("qwen3", "qwen3_moe")
TP4 = HEAD + "topologies: {tp4: {tp: 4}, tp2: {tp: 2}}\nvariants: [ordinary]\n"


def _published(name: str) -> tuple[Prover, StackPlan]:
    """The code of an example as it is published."""
    source, out = ROOT / "examples" / name / "stack.yaml", ROOT / "generated"
    files = {path: (out / name / path).read_text() for path in build(source, out)[0].output.files}
    planned = plan(source)
    return Prover(planned, import_package(files, name)), planned


@pytest.mark.parametrize("name", EXAMPLES)
def test_published_examples_hold_in_every_pair_of_choices(name: str) -> None:
    subject, planned = _published(name)
    cells = covering(list(matrix(planned, Selection())))
    for index, outcome in enumerate(subject.run(cell, schedule=i) for i, cell in enumerate(cells)):
        assert outcome.failure is None, (cells[index], outcome.failure)
    assert len(cells) > 100


def test_covering_sample_misses_no_pair() -> None:
    _, planned = _published("qwen3_moe")
    cells = list(matrix(planned, Selection()))
    sample = covering(cells)

    def pairs(some: list[Cell]) -> set[tuple[str, ...]]:
        return {
            pair
            for c in some
            for pair in (
                (c.topology, c.variant),
                (c.topology, c.policy),
                (c.variant, c.padding),
                (c.policy, c.padding),
            )
        }

    assert pairs(sample) == pairs(cells)
    assert len(sample) < len(cells) / 3


def test_sixty_four_ranks_hold() -> None:
    """How long that takes is in benchmarks."""
    text = HEAD + "topologies: {big: {tp: 64, attn_dp: 8}}\nvariants: [ordinary]\n"
    subject = prover(text)
    cell = Cell("big", "ordinary", "rsv", "sum_len", (3, 0, 5, 1, 8, 2, 2, 7))
    assert subject.run(cell).failure is None


def test_a_dropped_sum_is_found_and_shrunk_to_one_token() -> None:
    def drop(files: dict[str, str]) -> None:
        for path in ("tp2/ordinary.py", "tp4/ordinary.py"):
            line = "hidden = groups.tp.all_reduce(hidden)\n"
            assert line in files[path]
            files[path] = files[path].replace(line, "pass\n", 1)

    subject = prover(TP4, drop)
    failing = Cell("tp4", "ordinary", "ar", "sum_len", (9,))
    assert subject.run(failing).failure is not None
    smallest = shrink(subject, failing)

    assert smallest.failure is not None
    assert smallest.cell == Cell("tp2", "ordinary", "ar", "sum_len", (1,))


def test_a_collective_skipped_by_empty_ranks_names_the_boundary() -> None:
    line = "    hidden = groups.tp.all_reduce(hidden)\n"

    def skip(files: dict[str, str]) -> None:
        path = "dp2/ordinary.py"
        assert line in files[path]
        files[path] = files[path].replace(line, f"    if batch.local_rows:\n    {line}", 1)

    text = HEAD + "topologies: {dp2: {tp: 4, attn_dp: 2}}\nvariants: [ordinary]\n"
    subject = prover(text, skip)
    outcome = subject.run(Cell("dp2", "ordinary", "ar", "sum_len", (3, 0)))

    assert outcome.failure is not None
    assert "stage='experts'" in outcome.failure
    assert "on simulated rank 2 of 4" in outcome.failure
    assert subject.run(Cell("dp2", "ordinary", "ar", "sum_len", (3, 1))).failure is None


def test_journal_resumes_and_forgets_other_texts(tmp_path: Path) -> None:
    subject = prover(TP4)
    cells = [Cell("tp4", "ordinary", "ar", "sum_len", (count,)) for count in range(1, 5)]
    path = tmp_path / "journal"
    first = list(Journal(path, "a").run(cells[:2], subject.prove))
    judged: list[Cell] = []

    def judge(some: list[Cell]) -> Iterator[object]:
        judged.extend(some)
        return subject.prove(some)

    again = list(Journal(path, "a").run(cells, judge))  # type: ignore[arg-type]

    assert judged == cells[2:]
    assert again[:2] == first
    assert not Journal(path, "b").known


def test_processes_agree_with_one(tmp_path: Path) -> None:
    source = tmp_path / "stack.yaml"
    source.write_text(TP4)
    task = Task(source, "sample", build(source, tmp_path / "out")[0].output.files, 0)
    cells = list(matrix(plan(source), Selection(policies=("ar", "rs"), paddings=("sum_len",))))

    assert list(prove(task, cells, jobs=2)) == list(prove(task, cells))
    assert sum(line.cells for line in summarise(prove(task, cells))) == len(cells)
