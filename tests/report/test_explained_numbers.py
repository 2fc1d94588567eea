"""What `explain` says is what ranks do: the same collectives in the same order, the same bytes.

So does what `cost` says, and what the page of `report` embeds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from boundaryc.language import loads
from boundaryc.report.costs import costs
from boundaryc.report.deployment import Source, dealt, deployed, load_of
from boundaryc.report.explain import Scope, crossed, explain, scope_of, sent_by
from boundaryc.report.moves import moved
from boundaryc.report.page import page
from boundaryc.report.page_data import report
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
    ("tp4_dp2", "ordinary", "auto", (200, 200)),
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
        layers = [explain(asked, layer, None, None) for layer in range(len(walk.walk))]
        totals = [one.totals[0] for one in layers]
        last = asked.at(walk.last, asked.columns[0])
        split = "zigzag" if variant == "context_parallel" else ""
        traces = traced(one, Cell(name, variant, policy, "sum_len", rows, split=split))

        said = [text for total in totals for text in total.sent]
        said += [each.text for each in moved(asked.mesh, last, 1)]
        words = [text.removeprefix("placed ").removeprefix("residual ") for text in said]
        assert all(texts(trace) == words for trace in traces), (name, variant, policy)
        assert asked.load is not None
        for one_layer, total in zip(layers, totals, strict=True):
            ways = [crossing.ways[0] for crossing in one_layer.crossings]
            assert total.collectives == sum(way.collectives for way in ways) == len(total.sent)
            assert total.bytes_per_token == sum(way.bytes_per_token for way in ways)
            assert total.bytes_per_token * asked.load.rows == total.bytes_per_rank
        if rows == dealt(sum(rows), len(rows)):
            compared = True
            lines = costs([asked.plan], [sum(rows)], [policy], "sum_len").lines
            line = next(one for one in lines if one.variant == variant)
            assert line.forward_bytes * asked.ranks == sent(traces)
            assert {line.forward_collectives} == {len(trace) for trace in traces}
        bytes_ = sum(total.bytes_per_rank or 0 for total in totals) * asked.ranks
        assert bytes_ + sent_by(last).wire * asked.load.rows == sent(traces)
    assert compared, "no batch that is dealt out evenly, which `cost` is about"


def embedded(source: Source, topology: str, tokens: list[int]) -> dict[str, Any]:
    """The data of a page, as a browser reads it."""
    html = page(report(source, [topology], tokens))
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_the_page_shows_the_collectives_and_bytes_of_a_run(
    ready: tuple[str, Source, Prover],
) -> None:
    """Boundary for boundary along the stack, and in its costs, in batches that are dealt out."""
    topology, source, one = ready
    cases = [case for case in CASES if case[0] == topology]
    cases = [case for case in cases if case[3] == dealt(sum(case[3]), len(case[3]))]
    assert cases
    data = embedded(source, topology, [sum(case[3]) for case in cases])
    (ranks,) = [each["ranks"] for each in data["topologies"]]
    graph = one.subject.plan.graph
    walk = [edge for layer in range(len(graph.walk)) for edge in crossed(graph, layer)]
    places = [graph.edges().index(edge) for edge in (*walk, graph.last)]
    for _, variant, policy, rows in cases:
        asked = {"variant": variant, "policy": data["auto"] if policy == "auto" else policy}
        (plan,) = [each for each in data["plans"] if asked.items() <= each.items()]
        (batch,) = [each for each in plan["batches"] if each["tokens"] == sum(rows)]
        split = "zigzag" if variant == "context_parallel" else ""
        traces = traced(one, Cell(topology, variant, policy, "sum_len", rows, split=split))

        crossings = [data["crossings"][plan["crossings"][at]] for at in places]
        taken = [
            data["ways"][each["ways"][batch["runs"][at]]]
            for at, each in zip(places, crossings, strict=True)
        ]
        said = [text for each in taken for text in each["sends"].split(" + ") if text]
        words = [text.removeprefix("placed ").removeprefix("residual ") for text in said]
        assert all(texts(trace) == words for trace in traces), (variant, policy)
        assert sum(each["way"]["collectives"] for each in taken) == len(words)
        per_token = sum(each["way"]["bytes_per_token"] for each in taken)
        assert per_token == sum(
            work["bytes_per_token"] for e in taken for work in e["way"]["works"]
        )
        assert per_token * batch["rows"] * ranks == sent(traces)
        (line,) = [
            each
            for each in data["costs"]["lines"]
            if {**asked, "tokens": sum(rows)}.items() <= each.items()
        ]
        assert line["forward_bytes"] * ranks == sent(traces)
        assert {line["forward_collectives"]} == {len(trace) for trace in traces}
