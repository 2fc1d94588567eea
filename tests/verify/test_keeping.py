"""Sums that may not be left to the next stage, and groups that scatter equal sizes only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from boundaryc.plan.access import handed_off
from boundaryc.verify.cells import Cell
from boundaryc.verify.matrix import Selection, covering, matrix
from tests.plan.simulated import kinds, subject, verified
from tests.plan.stacks import ATTENTION, EXPERTS, MLP, stack, topology
from tests.verify.subjects import prover
from tests.verify.test_operations import SMALL, text
from tests.verify.test_scenarios_e_stacks import MAMBA, SCAN, sums

POLICIES = ("ar", "rs", "rsv", "rs+rsv")
ORDINARY = ("ordinary",)


@pytest.mark.parametrize("defer", [True, False])
def test_defer_decides_who_sums(defer: bool) -> None:
    """Before the next stage an FFN leaves its sum only if it may; there are as many sums."""
    spec = topology(2)
    stages = (ATTENTION, replace(MLP, defer=defer))
    with subject(stack(spec, layers=(("attention", "mlp"),) * 3, stages=stages)) as runs:
        for policy in POLICIES:
            cell = Cell(spec.name, "ordinary", policy, "sum_len", (5,))
            found = verified(runs, cell)
            assert [one.fuse for one in found.decided[0]] == [defer, defer, False]
            assert [sums(trace) for trace in found.traces] == [6, 6]


@pytest.mark.parametrize("following", ["mlp", "scan"])
@pytest.mark.parametrize("defer", [True, False])
def test_defer_of_a_mixer(following: str, defer: bool) -> None:
    """Without it the sum before an FFN, which is otherwise always left, is compute's too."""
    spec = topology(2)
    stages = (replace(MAMBA, defer=defer), SCAN, MLP)
    layers = (("mamba",), (following,))
    with subject(stack(spec, layers=layers, stages=stages, variants=ORDINARY)) as runs:
        found = verified(runs, Cell(spec.name, "ordinary", "ar", "sum_len", (5,)))
        boundaries = runs.subject.topology(spec.name).tables["ar"][0].values()
        (left,) = [handed_off(one) for one in boundaries if one.edge.producer == "mamba"]
        assert bool(left.owes) == defer
        assert [sums(trace) for trace in found.traces] == [2, 2]


def test_defer_leaves_scatters_to_the_boundary() -> None:
    """An FFN that keeps its sum may still end it in a reduce-scatter, as its policy says."""
    spec = topology(4, dp=4)
    stages = (ATTENTION, replace(MLP, defer=False))
    layers = (("attention", "mlp"),) * 2
    with subject(stack(spec, layers=layers, stages=stages, variants=ORDINARY)) as runs:
        for policy, scatters in (("ar", False), ("rsv", True)):
            found = verified(runs, Cell(spec.name, "ordinary", policy, "sum_len", (3, 0, 5, 1)))
            flags = {(one.fuse, one.scatter) for one in found.decided[0]}
            assert flags == {(False, scatters)}


@pytest.mark.parametrize(
    ("policy", "padding", "scatters"),
    [
        *(("ar", padding, 0) for padding in ("sum_len", "max_len")),
        *(("rs", padding, int(padding == "max_len")) for padding in ("sum_len", "max_len")),
        *(("rsv", padding, 0) for padding in ("sum_len", "max_len")),
        *(("rs+rsv", padding, int(padding == "max_len")) for padding in ("sum_len", "max_len")),
    ],
)
def test_unequal_sizes_are_not_scattered(policy: str, padding: str, scatters: int) -> None:
    """DR-1's batch in groups that cannot: equal sizes where permitted, else an all-reduce."""
    able = topology(2, dp=2, ep=2)
    spec = replace(able, name="equal", variable_scatter=False)
    sample = stack(able, spec, layers=(("attention", "experts"),) * 2, variants=ORDINARY)
    with subject(sample) as runs:
        cell = Cell("equal", "ordinary", policy, padding, (3, 2))
        trace = verified(runs, cell).traces[0]
        found = [call for call in trace if call.kind == "reduce_scatter"]
        assert bool(found) == bool(scatters)
        assert all(call.sizes is None for call in found)
        other = verified(runs, replace(cell, topology=able.name)).traces[0]
        assert ("reduce_scatter(tp)" in kinds(other)) == (policy in ("rsv", "rs+rsv") or scatters)


def test_unequal_sizes_of_sums_without_a_policy() -> None:
    """Attention's sum in sequence-parallel batches: no group scatters by size."""
    spec = replace(topology(4, dp=2), variable_scatter=False)
    with subject(stack(spec, stages=(ATTENTION, MLP, EXPERTS))) as runs:
        for policy in POLICIES:
            for variant in ("ordinary", "sequence_parallel"):
                for padding in ("sum_len", "unpadded"):
                    cell = Cell(spec.name, variant, policy, padding, (5, 2))
                    for trace in verified(runs, cell).traces:
                        scatters = [call for call in trace if call.kind == "reduce_scatter"]
                        assert all(call.sizes is None for call in scatters)


@pytest.mark.parametrize("name", ["mixers", "updates"])
def test_they_hold_with_everything_else(name: str) -> None:
    """Stages that keep their sums, on groups that scatter equal sizes only."""
    written = text(name, SMALL).replace("{kind: mixer", "{kind: mixer, defer: false")
    written = written.replace("mlp: {kind: ffn", "mlp: {kind: ffn, defer: false")
    written = written.replace("attn_dp: 2}", "attn_dp: 2, variable_scatter: false}")
    runs = prover(written)
    for cell in covering(list(matrix(runs.subject.plan, Selection())))[::3]:
        outcome = runs.run(cell)
        assert outcome.failure is None, f"{cell}: {outcome.failure}"
