"""Two-batch overlap in stacks with pipeline cuts and with sums that travel quantised."""

from __future__ import annotations

import random
from typing import Any

import pytest

from boundaryc.runtime import BoundaryError, Form
from boundaryc.topology.contracts import CONTEXT_PARALLEL
from boundaryc.verify.matrix import Selection, covering, matrix
from boundaryc.verify.overlap import HalfProgram, overlapped
from boundaryc.verify.run import Prover
from boundaryc.verify.scene import Cell
from tests.verify.subjects import prover
from tests.verify.test_operations import text
from tests.verify.test_overlap import OVERLAP, TOPOLOGIES
from tests.verify.test_quantized_sums import STACKS as QUANTIZED

SAMPLE = Selection(
    policies=("ar", "rsv"),
    paddings=("sum_len",),
    batches=("uneven", "one_empty"),
    halves=("none",),
)


def _cells(runs: Prover, *, cut: bool) -> list[Cell]:
    found = covering(list(matrix(runs.subject.plan, SAMPLE)))
    return [one for one in found if bool(one.cuts) == cut and one.variant != CONTEXT_PARALLEL]


def _in_halves(runs: Prover, cells: list[Cell]) -> None:
    draw = random.Random(1)
    assert cells
    for number, cell in enumerate(cells):
        first = tuple(draw.randint(0, rows) for rows in cell.rows)
        overlapped(runs, cell, first, without_exits=number % 3 > 0, schedule=number)


@pytest.mark.parametrize("payload", ["partial", "complete"])
@pytest.mark.parametrize("name", ["mixers", "tails"])
def test_halves_cross_every_cut(name: str, payload: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each half travels by itself, also behind a stage that ran without an exit: folded."""
    crossed: list[Form] = []
    plain = HalfProgram._cross

    def cross(half: HalfProgram, index: int, hidden: Any) -> Any:
        crossed.append(half.batch.stream.form)
        return plain(half, index, hidden)

    monkeypatch.setattr(HalfProgram, "_cross", cross)
    written = text(name, TOPOLOGIES)
    if "sparse: true" not in written:
        written = written.replace(", moe: {ep: 4, all_to_all: true}", "")
    lora = "lora: true\n" if payload == "complete" else ""
    runs = prover(f"{written}{OVERLAP}{lora}pipeline: {{payload: {payload}}}\n")
    _in_halves(runs, _cells(runs, cut=True)[:6])
    assert Form.HANDED in crossed
    assert Form.PLANNED in crossed


@pytest.mark.parametrize("name", ["ordinary and sequence parallel", "input scattered"])
def test_halves_of_quantised_sums(name: str) -> None:
    """Exits send their sums quantised in a half too; what has summed itself does not."""
    runs = prover(QUANTIZED[name] + OVERLAP)
    _in_halves(runs, [cell for cell in _cells(runs, cut=False) if cell.mode == "prefill"][:8])


def test_an_output_with_another_update_is_not_handed_over() -> None:
    """Its update has no form in a payload, and there is no fold: the model is told so."""
    written = text("updates", TOPOLOGIES)
    runs = prover(f"{written}{OVERLAP}pipeline: {{payload: partial}}\n")
    cell = next(one for one in _cells(runs, cut=True) if sum(one.rows) > 1)
    with pytest.raises(BoundaryError, match="fold requires a plain residual update"):
        overlapped(runs, cell, tuple(rows // 2 for rows in cell.rows))
