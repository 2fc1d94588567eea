"""A thousand random stacks: the accepted ones hold on simulated ranks, the others say why not.

Every part has a seed of its own, so a run is the same everywhere. A failure is shrunk by hypothesis
and shows the stack file; `python -m tests.verify.soak` runs as many more as wanted.
"""

from __future__ import annotations

import pytest

from boundaryc.language import loads
from tests.verify.random_stacks import Tally, WrongError, judge, run_chunk
from tests.verify.random_texts import Case

PARTS, STACKS = 10, 100


@pytest.mark.parametrize("part", range(PARTS))
def test_random_stacks(part: int) -> None:
    tally = run_chunk(part, STACKS)

    assert tally.stacks >= STACKS
    assert tally.accepted >= STACKS // 2
    assert tally.cells >= tally.accepted
    assert tally.plans >= tally.accepted


GOOD = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention, update: gated}
  mlp: {kind: ffn}
layers: {count: 2, default: [attention, mlp]}
topologies:
  one: {tp: 2}
operations:
  gated:
    {role: update, call: "tests.verify.operations:gated_add", params: [gate],
     facts: [outlives_producer]}
"""


def test_what_is_accepted_is_run() -> None:
    tally = Tally()

    judge(Case(GOOD, 3), tally)

    assert (tally.accepted, tally.rejected) == (1, 0)
    assert tally.cells >= 1


def test_what_is_rejected_is_counted_by_its_code() -> None:
    tally = Tally()

    judge(Case(GOOD.replace("tp: 2", "tp: 2, attn_dp: 3"), 3), tally)

    assert (tally.accepted, dict(tally.codes)) == (0, {"BC205": 1})


def test_a_false_fact_is_found() -> None:
    """An update that claims to be a plain add and is none, where the residual joins the sum."""
    false = GOOD.replace("[outlives_producer]", "[outlives_producer, plain_add]")
    false = false.replace("update: gated", "update: gated, joins_sum: allow")
    false = false.replace("{tp: 2}", "{tp: 4, attn_dp: 2}")
    assert loads(false).stages[0].joins_sum

    with pytest.raises(WrongError, match="MismatchError"):
        _judge_all([Case(false, seed) for seed in range(20)])


def _judge_all(some: list[Case]) -> None:
    for case in some:
        judge(case, Tally())
