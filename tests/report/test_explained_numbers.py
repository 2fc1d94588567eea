"""What `explain` says is what ranks do: the same collectives in the same order, the same bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from boundaryc.language import loads
from boundaryc.report.costs import costs
from boundaryc.report.deployment import Source, dealt, deployed, load_of
from boundaryc.report.explain import Scope, explain, scope_of, sent_by
from boundaryc.report.moves import moved
from boundaryc.verify.run import Prover
from boundaryc.verify.scene import Cell
from tests.plan.simulated import subject
from tests.report.ranks import sent, texts, traced

TEXT = """\
boundaryc: 1
stack: narrow
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention}
  mlp: {kind: ffn}
  experts: {kind: ffn, sparse: true}
layers: {count: 3, default: [attention, experts], at: {0: [attention, mlp]}}
topologies:
  tp4_dp2: {tp: 4, attn_dp: 2, link: {latency_us: 0.1}}
  tp4_cp2: {tp: 4, attn_cp: 2}
variants: [ordinary, context_parallel, sequence_parallel]
"""

CASES = (
    ("tp4_dp2", "ordinary", "auto", (3, 8)),
    ("tp4_dp2", "ordinary", "auto", (300, 201)),
    ("tp4_dp2", "ordinary", "ar", (300, 201)),
    ("tp4_dp2", "ordinary", "auto", (151, 150)),
    ("tp4_dp2", "sequence_parallel", "rs", (8, 8)),
    ("tp4_cp2", "context_parallel", "auto", (16,)),
)


@pytest.fixture(scope="module", params=["tp4_dp2", "tp4_cp2"])
def ready(request: pytest.FixtureRequest) -> Iterator[tuple[str, Source, Prover]]:
    """The stack on one topology, compiled."""
    source = Source(loads(TEXT, "stack.yaml"), TEXT)
    with subject(deployed(source, request.param).stack) as one:
        yield request.param, source, one


def scope(source: Source, one: Prover, variant: str, policy: str, rows: tuple[int, ...]) -> Scope:
    """One batch of a plan."""
    plan = one.subject.plan
    load = load_of(plan.topologies[0], variant, rows)
    name = plan.stack.policy_auto if policy == "auto" else policy
    return scope_of(source, plan, name, variant, None, load)


def test_the_collectives_and_bytes_of_a_run(ready: tuple[str, Source, Prover]) -> None:
    """Layer for layer, and the end of the stack, on every rank."""
    topology, source, one = ready
    compared = False
    for name, variant, policy, rows in CASES:
        if name != topology:
            continue
        asked = scope(source, one, variant, policy, rows)
        walk = asked.plan.graph
        totals = [explain(asked, layer, None, None).totals[0] for layer in range(len(walk.walk))]
        last = asked.at(walk.last, asked.columns[0])
        split = "zigzag" if variant == "context_parallel" else ""
        traces = traced(one, Cell(name, variant, policy, "sum_len", rows, split=split))

        said = [text for total in totals for text in total.sent]
        said += [each.text for each in moved(asked.mesh, last, 1)]
        words = [text.removeprefix("placed ").removeprefix("residual ") for text in said]
        assert all(texts(trace) == words for trace in traces), (name, variant, policy)
        assert asked.load is not None
        if rows == dealt(sum(rows), len(rows)):
            compared = True
            lines = costs([asked.plan], [sum(rows)], [policy], "sum_len").lines
            line = next(one for one in lines if one.variant == variant)
            assert line.forward_bytes * asked.ranks == sent(traces)
            assert {line.forward_collectives} == {len(trace) for trace in traces}
        bytes_ = sum(total.bytes_per_rank or 0 for total in totals) * asked.ranks
        assert bytes_ + sent_by(last).wire * asked.load.rows == sent(traces)
    assert compared, "no batch that is dealt out evenly, which `cost` is about"
