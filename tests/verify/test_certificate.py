"""Which captures are kept without a copy: those that the compiler certifies nobody writes."""

from __future__ import annotations

import pytest

from boundaryc.verify.cells import Cell
from tests.verify.subjects import compiled, prover

TEXT = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {{kind: rms, eps: 1.0e-6}}
stages:
  attention: {{kind: attention{attention}}}
  mlp: {{kind: ffn{mlp}}}
operations:
  over: {{role: update, call: "tests.verify.operations:added_in_place", facts: [row_wise]}}
layers: {{count: 4, default: [attention, mlp]}}
captures: {{aux: {{before: [1, 2, 3]}}}}
topologies: {{tp2: {{tp: 2}}, tp4_dp2: {{tp: 4, attn_dp: 2}}}}
"""
OVER = "update: over"


def text(attention: str, mlp: str) -> str:
    """A stack with a capture at every layer's input."""
    made = TEXT.format(attention=f", {attention}" * bool(attention), mlp=f", {mlp}" * bool(mlp))
    if "over}" in made.split("operations:")[0]:
        return made
    start, end = made.index("operations:"), made.index("layers:")
    return made[:start] + made[end:]


@pytest.mark.parametrize(
    ("attention", "mlp", "owned"),
    [
        ("", "", True),
        ("", "transform: {scale: 0.5}", True),
        # what the captured residual is made by, read by, and given to next
        ("", OVER, False),
        ("read: raw", "", False),
        (OVER, "", False),
        (OVER, OVER, False),
    ],
)
def test_what_is_owned_stays_what_it_was(attention: str, mlp: str, owned: bool) -> None:
    """Certified in the generated code exactly there; every capture keeps its value."""
    stack = text(attention, mlp)
    _, files = compiled(stack)
    shown = 'stream.capture("aux", stream.residual'
    module = files["tp2/ordinary.py"]
    assert (f"{shown}, owned=True)" in module, f"{shown})" in module) == (owned, not owned)

    runs = prover(stack)
    for name, rows in (("tp2", (3,)), ("tp4_dp2", (3, 0)), ("tp4_dp2", (2, 2))):
        for policy in ("ar", "rsv"):
            assert runs.run(Cell(name, "ordinary", policy, "sum_len", rows)).failure is None
