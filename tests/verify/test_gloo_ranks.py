"""Every construct on four gloo ranks: the oracle's numbers and one census, empty ranks too."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from boundaryc.graph.policy import POLICIES
from boundaryc.language import loads
from boundaryc.verify.cells import Cell
from tests.gloo.pool import shared_pool
from tests.verify import streams
from tests.verify.extras_stacks import EXTRAS
from tests.verify.gloo_ranks import packed
from tests.verify.pair_stacks import PAIRS
from tests.verify.test_named import NAMES, TEXT
from tests.verify.test_norms import HEAD as BARE
from tests.verify.test_norms import KINDS, NONE
from tests.verify.test_operations import HEAD, STACKS, text
from tests.verify.test_pipeline import PAYLOADS

TOPOLOGIES = "topologies: {tp4: {tp: 4}, tp4_dp2: {tp: 4, attn_dp: 2}}\n"
CELLS = tuple(
    Cell(topology, variant, policy, padding, rows)
    for topology, rows in (
        ("tp4", (3,)),
        ("tp4", (0,)),
        ("tp4_dp2", (3, 0)),
        ("tp4_dp2", (0, 5)),
        ("tp4_dp2", (0, 0)),
        ("tp4_dp2", (4, 4)),
    )
    for variant, policy, padding in (
        ("ordinary", "ar", "sum_len"),
        ("ordinary", "rsv", "unpadded"),
        ("ordinary", "rs", "max_len"),
        ("sequence_parallel", "rs+rsv", "sum_len"),
    )
)


@pytest.mark.parametrize("name", STACKS)
def test_real_ranks_agree_with_the_oracle(name: str) -> None:
    """A plain forward and one that uses outputs between all stages."""
    stack = text(name, TOPOLOGIES).replace("context_parallel, ", "")
    if "variants: [ordinary, context_parallel]" in stack:
        stack = stack.replace(", context_parallel]", "]")
    parallel = "sequence_parallel" in stack
    _agree(stack, [cell for cell in CELLS if parallel or cell.variant == "ordinary"])


NORMED = {
    "layer": BARE + KINDS + TOPOLOGIES,
    "none": BARE + NONE + TOPOLOGIES,
    **{name: TEXT.replace("NAME", name).replace("tp2: {tp: 2}", "tp4: {tp: 4}") for name in NAMES},
}


@pytest.mark.parametrize("name", NORMED)
def test_real_ranks_normalise_as_the_oracle_does(name: str) -> None:
    """Kinds of norm, norms of a stage's own, and norms of outputs."""
    stack = NORMED[name]
    if "variants" not in stack:
        stack += "variants: [ordinary, sequence_parallel]\n"
    _agree(stack, list(CELLS))


def _agree(stack: str, cells: list[Cell]) -> None:
    runs = [(cell, deeds) for deeds, cell in enumerate(cells)] + [(cell, None) for cell in cells]

    results = shared_pool().run(
        "tests.verify.gloo_ranks:forwards", packed(stack), runs, timeout_s=240.0
    )

    for place, (cell, _) in enumerate(runs):
        groups = [results[rank][place][1] for rank in range(4)]
        assert all(census == groups[0] for census in groups), str(cell)
        assert max(results[rank][place][0] for rank in range(4)) < 1e-12


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("name", ["mixers", "tails", "updates", "extras"])
def test_two_pipeline_stages_of_real_ranks(name: str, payload: str) -> None:
    """Two ranks hand over to two others, before each layer; empty ranks too."""
    topologies = "topologies: {tp2: {tp: 2}, tp2_dp2: {tp: 2, attn_dp: 2, moe: {ep: 2}}}\n"
    stack = text("tails" if name == "extras" else name, topologies)
    stack = stack.replace(STACKS["tails"], EXTRAS) if name == "extras" else stack
    stack = stack.replace("context_parallel, ", "").replace(", context_parallel]", "]")
    stack += f"pipeline: {{payload: {payload}}}\n"
    count = len(loads(stack).layers)
    cells = [
        Cell(topology, variant, policy, "sum_len", rows, cuts=(cut,))
        for cut in range(1, count)
        for topology, variant, policy, rows in (
            ("tp2", "ordinary", "rs+rsv", (3,)),
            ("tp2", "sequence_parallel", "ar", (5,)),
            ("tp2_dp2", "ordinary", "rsv", (3, 0)),
        )
    ]

    _equal(stack, cells)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_cut_between_any_two_kinds_of_stage_keeps_the_bits_on_real_ranks(payload: str) -> None:
    """Two ranks and two others run one layer each in turns, under every policy.

    Each layer is a stage, and each kind of stage follows each. That `auto` is one of these policies
    is settled when the stack is loaded.
    """
    topologies = "topologies: {tp2: {tp: 2}, tp2_dp2: {tp: 2, attn_dp: 2, moe: {ep: 2}}}\n"
    stack = HEAD + PAIRS + topologies + f"pipeline: {{payload: {payload}}}\n"
    layers = loads(stack).layers
    cuts = tuple(range(1, len(layers)))
    assert len({*pairwise(layers)}) == len({*layers}) ** 2 == len(cuts)
    cells = [
        Cell(topology, "ordinary", policy, "sum_len", rows, cuts=cuts)
        for policy, (topology, rows) in product(POLICIES, (("tp2", (3,)), ("tp2_dp2", (3, 0))))
    ]

    _equal(stack, cells)


def _equal(stack: str, cells: list[Cell]) -> None:
    """What every rank sees of a cut forward is that of the uncut one, bit for bit."""
    ranks = shared_pool().run(
        "tests.verify.gloo_ranks:stages", packed(stack), cells, timeout_s=240.0
    )

    for place, cell in enumerate(cells):
        every = [rank[place] for rank in ranks]
        assert [one.differing for one in every] == [()] * 4, str(cell)
        assert max(one.error for one in every) < 1e-12, str(cell)
        for first, second in zip(every[:2], every[2:], strict=True):
            assert first.own | second.own == first.every == second.every
            assert not first.own & second.own


def test_streams_and_state_cross_a_cut_on_real_ranks() -> None:
    """Hyper-connections, whose coefficients travel as well; a rank without rows too."""
    topologies = """\
topologies: {tp2: {tp: 2}, tp2_dp2: {tp: 2, attn_dp: 2, moe: {ep: 2}}}
variants: [ordinary, sequence_parallel]
"""
    stack = streams.text("hyper", "pipeline: {payload: partial}\n", topologies)
    cells = [
        Cell(topology, variant, "rs+rsv", "sum_len", rows, cuts=(cut,))
        for cut in (1, 2)
        for topology, variant, rows in (
            ("tp2", "sequence_parallel", (5,)),
            ("tp2_dp2", "ordinary", (3, 0)),
        )
    ]

    _equal(stack, cells)
