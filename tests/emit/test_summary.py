"""What a stack says in the log when it is loaded: what was compiled, once, where it is asked."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator

import pytest

from boundaryc import api
from boundaryc.emit.diagnose import planned
from boundaryc.emit.summary import summaries
from boundaryc.language.loader import loads
from boundaryc.plan.result import StackPlan
from boundaryc.report.costs import costs
from boundaryc.runtime import AnyStack
from boundaryc.runtime.announce import announce
from generated import qwen3_moe
from tests.cli.process import MOE, ROOT
from tests.report.seeded import BASE


class Provider:
    """The groups of one rank, of which nothing is sent."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def collective(self, mesh: object, axes: object) -> object:
        """Some group."""
        return object()


def loaded(policy: str, rank: int = 0, layers: range | None = None) -> AnyStack:
    """A stack as an engine loads it."""
    return qwen3_moe.load("tp4_dp2", Provider(rank), policy=policy, layers=layers)  # type: ignore[arg-type]


def test_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """One record: collectives of a layer by variant, and what is not taken, with the reason."""
    caplog.set_level(logging.INFO, logger="boundaryc")

    loaded("ar", layers=range(2))

    [record] = caplog.records
    assert (record.name, record.levelno) == ("boundaryc", logging.INFO)
    assert record.getMessage() == (
        "qwen3_moe on tp4_dp2: policy ar, layers 0..1\n"
        "  a layer is attention, experts (2 of 4)\n"
        "  ordinary: 2 collectives a layer: all_reduce tp, gather_sum gather attn_dp sum attn_tp\n"
        "  sequence_parallel: 4 collectives a layer: all_reduce tp, all_gather attn_tp, "
        "reduce_scatter attn_tp, all_gather tp\n"
        "  no context_parallel batches: attn_cp is 1, so there are no token shards\n"
        "  no input_scattered batches: the stack does not list this variant\n"
        "  no reduce-scatter behind mlp or experts in ordinary batches: under any policy no plan "
        "is better for it\n"
        "  no reduce-scatter behind mlp or experts in sequence_parallel batches: policy ar does "
        "not permit what rs, rsv and rs+rsv would\n"
        "  no fused sums: the stack file names no fusion providers"
    )


def test_who_says_it(caplog: pytest.LogCaptureFixture) -> None:
    """One rank of a pipeline stage, where somebody listens; the same words at every load."""
    loaded("auto")
    assert caplog.records == []
    caplog.set_level(logging.INFO, logger="boundaryc")
    loaded("auto", rank=1)
    assert caplog.records == []
    loaded("auto")
    loaded("rs+rsv")
    first, second = (record.getMessage().splitlines() for record in caplog.records)
    assert first[1:] == second[1:]
    assert "policy auto" in first[0]


def test_without_the_plan(caplog: pytest.LogCaptureFixture) -> None:
    """A package that was installed without its data still loads."""
    caplog.set_level(logging.INFO, logger="boundaryc")
    about = {"stack": "s", "topology": "t", "policy": "ar", "layers": "0..1"}

    announce(Provider, 0, about)

    assert "there is no plan.json" in caplog.text


@pytest.fixture(scope="module")
def plan() -> StackPlan:
    """The plan of the example."""
    return api.plan(MOE)


def test_the_numbers(plan: StackPlan) -> None:
    """Are those of the cost model, under every policy, in every variant; and those published."""
    for topology in plan.topologies:
        found = summaries(plan, topology)
        path = ROOT / f"generated/qwen3_moe/{topology.spec.name}/plan.json"
        assert json.loads(path.read_text(encoding="utf-8"))["summary"] == found
        one = StackPlan(plan.stack, plan.graph, plan.operations, (topology,))
        for line in costs([one], [4096], list(topology.tables), "sum_len").lines:
            [said] = (each["lines"] for each in found if line.policy in each["policies"])
            assert line.layer_collectives in collectives(said, line.variant)


def collectives(lines: list[str], variant: str) -> Iterator[int]:
    """The numbers that are said of a variant, one for each kind of batch."""
    for line in lines:
        match = re.match(rf"{variant}: (\d+) collectives? a layer", line)
        if match:
            yield int(match[1])


def test_optional_paths() -> None:
    """Of fusion, quantised sums, joins and deferral, each with its reason."""
    text = BASE.replace("pipeline:", "fusion: {providers: [flashinfer]}\npipeline:").replace(
        "mlp: {kind: ffn}", "mlp: {kind: ffn, defer: false, joins_sum: allow}"
    )
    plan = planned(loads(text), {})

    [two, four] = (summaries(plan, topology)[0]["lines"] for topology in plan.topologies)

    assert "no sum of mlp is left to the next stage: `defer: false`" in two
    assert any(line.startswith("no residual in the sum behind mlp: ") for line in two)
    assert (
        "no fused sum at mlp -> the final norm: the final norm finishes no sum of its producer"
        in two
    )
    assert not any("attention -> mlp" in line for line in two)
    assert (
        "no fused sum at attention -> mlp: its sum is no all-reduce, or rows move beside it" in four
    )
