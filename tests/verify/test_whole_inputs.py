"""Token mixers that take all rows of their attention-TP ranks, next to some that are given slices.

In input-scattered batches alone the two differ.
"""

from __future__ import annotations

from boundaryc.verify.cells import Cell
from boundaryc.verify.matrix import Selection, covering, matrix
from tests.verify.subjects import compiled, prover
from tests.verify.test_operations import HEAD, SMALL, VARIANTS

STAGES = """\
stages:
  scan: {kind: mixer, gathers_tp_input: false}
  heads: {kind: attention, gathers_tp_input: false, latent_input: true}
  attention: {kind: attention}
  mlp: {kind: ffn}
layers:
  pattern: "SSAHM"
  stages: {S: [scan], A: [attention, mlp], H: [heads, mlp], M: [scan, mlp]}
captures: {seen: {before: [1, 2, 3, 4], rows: input}}
"""
ALONE = "topologies: {tp4: {tp: 4}}\nvariants: [ordinary, input_scattered]\n"
PAIR = """\
stages: {first: {kind: mixer}, second: {kind: mixer}, mlp: {kind: ffn}}
layers: {count: 3, default: [first, mlp, second]}
"""
WHOLE = PAIR.replace("second: {kind: mixer", "second: {kind: mixer, gathers_tp_input: false")


def test_they_have_all_rows_in_every_variant() -> None:
    """Inputs, latents and captures on the rows of inputs, also past outputs that are used."""
    runs = prover(HEAD + STAGES + SMALL + VARIANTS)
    cells = covering(list(matrix(runs.subject.plan, Selection())))
    assert {cell.entry for cell in cells if cell.variant == "input_scattered"} >= {"partial"}
    for number, cell in enumerate(cells[::3]):
        outcome = runs.run(cell, deeds=number if number % 2 else None)
        assert outcome.failure is None, f"{cell}: {outcome.failure}"


def test_a_scattered_batch_gives_them_every_row() -> None:
    """Eight rows on four ranks: two for a mixer that gathers itself, eight for the other."""
    cell = Cell("tp4", "input_scattered", "ar", "sum_len", (8,))
    for text, rows in ((PAIR, 2), (WHOLE, 8)):
        scene = prover(HEAD + text + ALONE).scene(cell)
        goals = {edge.consumer: one.goal for edge, one in scene.boundaries.items()}
        assert scene.held(1, goals["first"].rows).count == 2
        assert scene.held(1, goals["second"].rows).count == rows


def test_other_batches_are_the_same_code() -> None:
    """Only the module of input-scattered batches differs, beside the hashes."""
    one, other = (compiled(HEAD + text + ALONE)[1] for text in (PAIR, WHOLE))
    changed = {path for path in one if path.endswith(".py") and one[path] != other.get(path)}
    assert changed
    assert not [path for path in changed if path.endswith(("ordinary.py", "ordinary_access.py"))]
