"""Branches on four gloo ranks, and as one graph of torch.compile."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import SingleGroups
from boundaryc.verify.cells import Cell
from boundaryc.verify.modules import forget
from tests.gloo.pool import shared_pool
from tests.verify.gloo_ranks import packed
from tests.verify.subjects import prover
from tests.verify.test_branch_cells import LONGCAT, PARALLEL

SHORTCUT = LONGCAT + (
    "topologies:\n  tp4: {tp: 4, moe: {ep: 4, all_to_all: true}}\n"
    "  tp4_dp2: {tp: 4, attn_dp: 2, moe: {ep: 4}}\n"
    "extras: {deepstack: {after: [0, 2]}}\n"
)
BLOCKS = PARALLEL.replace("SAYS", "allow").replace("  tp2: {tp: 2}\n", "")
BLOCKS = BLOCKS.replace("  tp8_dp2: {tp: 8, attn_dp: 2, dense_tp: attn_tp}\n", "")
CELLS = tuple(
    Cell(topology, "ordinary", policy, padding, rows)
    for topology, policy, padding, rows in (
        ("tp4", "ar", "sum_len", (5,)),
        ("tp4", "rs+rsv", "unpadded", (3,)),
        ("tp4_dp2", "rsv", "unpadded", (3, 0)),
        ("tp4_dp2", "rs", "max_len", (1, 4)),
        ("tp4_dp2", "ar", "sum_len", (0, 0)),
    )
)


@pytest.mark.parametrize("stack", [SHORTCUT, BLOCKS], ids=["shortcut", "parallel block"])
def test_real_ranks_agree_with_the_oracle(stack: str) -> None:
    """A plain forward and one that uses outputs, with one census on all ranks, empty ones too."""
    runs = [(cell, None) for cell in CELLS] + [(cell, seed) for seed, cell in enumerate(CELLS)]

    results = shared_pool().run(
        "tests.verify.gloo_ranks:forwards", packed(stack), runs, timeout_s=240.0
    )

    for place, (cell, _) in enumerate(runs):
        groups = [results[rank][place][1] for rank in range(4)]
        assert all(census == groups[0] for census in groups), str(cell)
        assert max(results[rank][place][0] for rank in range(4)) < 1e-12


class _Norm:
    def __init__(self) -> None:
        self.weight = torch.linspace(0.5, 1.5, 64, dtype=torch.float64)


def _forward(stack: Any, layers: list[Any], batch: Any, hidden: Any, extra: Tensor) -> Tensor:
    stack.start(batch)
    for index, at in enumerate(layers):
        hidden = at.attention.prepare(hidden, batch)
        hidden = at.attention.finish(torch.tanh(hidden), batch)
        hidden = at.experts.prepare(hidden, batch)
        with at.experts.exit(batch) as exit_:
            routed = exit_.reduce_output(torch.sin(hidden))
        routed = exit_.branch_output(routed)
        hidden = at.dense.branch_input(at.experts, hidden, batch)
        hidden = _ffn(at.dense, hidden, batch)
        hidden = at.attention_2.prepare(hidden, batch)
        hidden = at.attention_2.finish(torch.cos(hidden), batch)
        ended = _ffn(at.dense_2, at.dense_2.prepare(hidden, batch), batch)
        hidden = at.experts.merge_branch(ended, routed, batch)
        if index != 1:
            hidden = stack.add_extras(hidden, batch, deepstack=extra)
    normed: Tensor = stack.norm(hidden, batch, _Norm())
    return normed


def _ffn(boundary: Any, hidden: Tensor, batch: Any) -> Any:
    with boundary.exit(batch) as exit_:
        hidden = exit_.reduce_output(hidden * 0.5)
    return exit_.finish(hidden)


def test_a_branch_is_one_graph() -> None:
    """A compiled forward without a break has the bits of the eager one, extras among them."""
    package = prover(SHORTCUT.replace("topologies:\n", "topologies:\n  tp1: {tp: 1}\n")).subject
    stack = package.package.load("tp1", SingleGroups())
    names = ("attention", "experts", "attention_2", "dense_2")
    layers = [stack.layer(index).bind(**{name: _Norm() for name in names}) for index in range(3)]
    batch = stack.batch(rows_per_dp=[4], padding="unpadded", mode="decode")
    hidden = torch.linspace(-1, 1, 4 * 64, dtype=torch.float64).view(4, 64)
    traced = torch.compile(_forward, backend="eager", fullgraph=True)
    for value in (1.0, 0.0, -2.0):
        given = (stack, layers, batch, hidden, torch.full_like(hidden, value))
        assert torch.equal(traced(*given), _forward(*given))
    forget(package.package)
