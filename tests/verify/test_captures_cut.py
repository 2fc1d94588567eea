"""Captures on the rows of inputs at pipeline cuts, where each rank has a slice of these rows.

Only in input-scattered batches do they differ from the rows of the stack. The simulated transport
slices complete payloads over attention TP, as engines do, and takes partial ones as they are.
"""

from __future__ import annotations

from itertools import product

import pytest

from boundaryc.verify.cells import Cell
from boundaryc.verify.run import Prover
from tests.verify.subjects import prover

STACK = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages: {attention: {kind: attention}, mlp: {kind: ffn}}
layers: {pattern: "MAMM.AM", stages: {M: [mlp], A: [attention, mlp], ".": []}}
topologies: {tp2: {tp: 2}, tp3: {tp: 3}, tp4_dp2: {tp: 4, attn_dp: 2}, tp4_cp2: {tp: 4, attn_cp: 2}}
variants: [ordinary, context_parallel, input_scattered, sequence_parallel]
captures:
  seen: {before: [1, 2, 4, 5], rows: input, travels: true}
  left: {after: [0, 1, 6], rows: producer, travels: true}
pipeline: {payload: PAYLOAD}
"""
EVERY, APART = (1, 2, 3, 4, 5, 6), (2, 5)
SCATTERED = tuple(product(("tp2", "tp3"), ((5,), (1,), (0,)), ("complete", "partial")))
OTHERS = (
    Cell("tp3", "ordinary", "ar", "unpadded", (5,), cuts=EVERY),
    Cell("tp3", "sequence_parallel", "rs", "sum_len", (4,), cuts=EVERY),
    Cell("tp4_dp2", "sequence_parallel", "rs+rsv", "max_len", (3, 0), cuts=EVERY),
    Cell("tp4_cp2", "context_parallel", "ar", "unpadded", (7,), split="zigzag", cuts=EVERY),
)
PAYLOADS = ("partial", "complete")


def _stack(payload: str) -> str:
    return STACK.replace("PAYLOAD", payload)


def _failures(subject: Prover, cells: list[Cell]) -> list[str]:
    found = [subject.run(cell, deeds=at if at % 2 else None) for at, cell in enumerate(cells)]
    return [f"{one.cell}: {one.failure}" for one in found if one.failure]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_slices_of_inputs_arrive_as_they_were_taken(payload: str) -> None:
    """Over cuts in a row and apart, of uneven and of no rows, also where outputs are used.

    Before layers 3 and 6 nothing is taken, and in ordinary batches the same functions run there.
    """
    scattered = [
        Cell(
            topology,
            "input_scattered",
            ("ar", "rs+rsv")[at % 2],
            "unpadded" if at % 3 else "sum_len",
            rows,
            entry=entry,
            cuts=APART if at % 4 == 3 else EVERY,
        )
        for at, (topology, rows, entry) in enumerate(SCATTERED)
    ]
    assert _failures(prover(_stack(payload)), [*scattered, *OTHERS]) == []


def test_the_end_without_a_norm_shows_all_that_arrived() -> None:
    """Also where the last output is folded before it is taken."""
    subject = prover(_stack("partial") + "terminal: {norm: false}\n")
    cell = Cell("tp2", "ordinary", "ar", "unpadded", (5,), cuts=APART)
    found = [subject.run(cell, deeds=deeds).failure for deeds in range(4)]
    assert found == [None] * 4


def test_slices_that_are_sent_as_they_are_would_be_mixed() -> None:
    """What makes a complete payload whole, left out on both sides of each cut."""

    def damage(files: dict[str, str]) -> None:
        for path, content in files.items():
            lines = content.splitlines(keepends=True)
            kept = [line for line in lines if not line.lstrip().startswith("inputs_")]
            if len(kept) < len(lines):
                rows = 'input_rows=("attn_tp",),'
                files[path] = "".join(kept).replace("input_rows=(),", rows)

    cell = Cell("tp3", "input_scattered", "ar", "unpadded", (6,), cuts=EVERY)
    (failure,) = _failures(prover(_stack("complete"), damage), [cell])
    assert "seen did not arrive as it was taken" in failure
