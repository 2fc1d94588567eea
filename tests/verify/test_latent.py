"""Latent inputs: the model makes them of attention's input, on all rows that attention returns."""

from __future__ import annotations

from boundaryc.verify.cells import Cell
from boundaryc.verify.matrix import Selection, covering, matrix
from tests.plan.simulated import kinds, verified
from tests.verify.subjects import prover
from tests.verify.test_operations import HEAD, SMALL, VARIANTS

STAGES = """\
stages:
  attention: {kind: attention, latent_input: true}
  heads: {kind: attention, reduction: scoped, latent_input: true, read: raw}
  mlp: {kind: ffn}
layers: {pattern: "AHAA", stages: {A: [attention, mlp], H: [heads]}}
"""
ALONE = "topologies: {tp4: {tp: 4}}\n"


def test_latents_lie_on_the_rows_that_attention_returns() -> None:
    """In every variant, uneven and empty batches, also past outputs that were used in between."""
    runs = prover(HEAD + STAGES + SMALL + VARIANTS)
    cells = covering(list(matrix(runs.subject.plan, Selection())))
    assert {cell.variant for cell in cells} >= {"ordinary", "input_scattered"}
    for number, cell in enumerate(cells[::2]):
        outcome = runs.run(cell, deeds=number if number % 2 else None)
        assert outcome.failure is None, f"{cell}: {outcome.failure}"


def test_only_scattered_inputs_are_gathered() -> None:
    """One gather of the latent's five columns for each attention, none in an ordinary batch."""
    runs = prover(HEAD + STAGES + ALONE + "variants: [ordinary, input_scattered]\n")
    for variant, gathers in (("ordinary", 0), ("input_scattered", 4)):
        trace = verified(runs, Cell("tp4", variant, "ar", "sum_len", (7,))).traces[0]
        narrow = [call for call in trace if call.shape[-1] == 5]
        assert kinds(narrow) == ["all_gather(tp)"] * gathers


def test_a_latent_that_stays_cut_is_found() -> None:
    """What the test above compares is the latent's rows."""

    def damage(files: dict[str, str]) -> None:
        for path, content in files.items():
            lines = content.split("\n")
            kept = [line for line in lines if "latent = groups.tp.all_gather(" not in line]
            files[path] = "\n".join(kept)

    text = HEAD + STAGES + ALONE + "variants: [input_scattered]\n"
    cell = Cell("tp4", "input_scattered", "ar", "sum_len", (7,))
    assert prover(text).run(cell).failure is None
    assert "latent: 2 rows, must be 8" in str(prover(text, damage).run(cell).failure)
