"""A model that completes, folds, shows and adds to outputs gets what the oracle says."""

from __future__ import annotations

from pathlib import Path

import pytest

from boundaryc.plan.compose import plan_stack
from boundaryc.verify.matrix import Selection, covering, matrix
from boundaryc.verify.modules import forget, import_package
from boundaryc.verify.run import Prover
from boundaryc.verify.scene import Cell
from tests.emit.compiled import MOE, ROOT, WIDE, compiled
from tests.verify.subjects import HEAD, prover, share

DP = HEAD + "topologies: {dp: {tp: 4, attn_dp: 2}}\nvariants: [ordinary, sequence_parallel]\n"
DENSE = ROOT / "examples/qwen3/stack.yaml"


SOURCES = [DENSE, MOE, WIDE]


@pytest.mark.parametrize("source", SOURCES, ids=["dense", "moe", "wide"])
def test_every_accessor_between_all_stages(source: Path) -> None:
    """Over every pair of topology, variant, policy, padding and batch, empty ranks among them.

    Plain forwards run in turns with them. Each stack runs half of the pairs.
    """
    built = compiled(source)
    plan = plan_stack(built.stack)
    package = import_package(built.output.files, built.stack.name)
    try:
        subject = Prover(plan, package)
        every = covering(list(matrix(plan, Selection())))
        cells = share(every, SOURCES.index(source), 2)
        outcomes = [
            subject.run(cell, deeds=at if at % 2 else None) for at, cell in enumerate(cells)
        ]
    finally:
        forget(package)

    assert len(every) > 90
    assert [f"{one.cell}: {one.failure}" for one in outcomes if one.failure] == []


IN_PLACE = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention, update: over, transform: turned}
  mlp: {kind: ffn, update: over}
operations:
  over: {role: update, call: "tests.verify.operations:added_in_place", facts: [row_wise, plain_add]}
  turned: {role: transform, call: "tests.verify.operations:turned_in_place", facts: [row_wise]}
layers: {count: 4, default: [attention, mlp]}
topologies: {one: {tp: 1}, dp: {tp: 4, attn_dp: 2, dense_tp: attn_tp}}
variants: [ordinary, sequence_parallel]
"""


def test_operations_that_write_over_what_they_are_given() -> None:
    """A snapshot and a capture leave the output and the residual as they are."""
    subject = prover(IN_PLACE)
    cells = covering(list(matrix(subject.subject.plan, Selection(paddings=("sum_len",)))))
    outcomes = [subject.run(cell, deeds=seed) for cell in cells for seed in range(3)]

    assert [f"{one.cell}: {one.failure}" for one in outcomes if one.failure] == []


BROKEN = {
    "an extra that stays on the stack's rows": ("    spread=spread_to_all,\n", ""),
    "a sum that is not completed": (
        "    return batch.groups.tp.all_reduce(value)\n",
        "    return value\n",
    ),
    "a fold that leaves the residual out": (
        "    return add(value, residual)\n",
        "    return value\n",
    ),
    "a fold from a completed output that sums again": (
        "    fold_completed=fold_cut_attn_dp_cut_residual_attn_dp,\n",
        "    fold_completed=fold_sum_tp_cut_attn_dp_cut_residual_attn_dp,\n",
    ),
    "a written residual that stays where it is": (
        "    stream.residual = groups.attn_dp.all_gather(stream.residual, rows.attn_dp.sizes)\n",
        "",
    ),
    "a residual shown on the rows on which it lies": (
        "    producer=CaptureMove(residual_from_all_to_attn_dp, owned=True),\n",
        "    producer=CaptureMove(owned=True),\n",
    ),
    "a completed output that is summed again": (
        "    completed=experts_completed_to_attention,\n",
        "    completed=written_to_attention,\n",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_is_found(what: str) -> None:
    before, after = BROKEN[what]

    def damage(files: dict[str, str]) -> None:
        text = files["dp/ordinary_access.py"]
        assert before in text
        files["dp/ordinary_access.py"] = text.replace(before, after)

    subject, cell = prover(DP, damage), Cell("dp", "ordinary", "ar", "sum_len", (5, 2))

    assert subject.run(cell).failure is None
    assert any(subject.run(cell, deeds=seed).failure for seed in range(10))
