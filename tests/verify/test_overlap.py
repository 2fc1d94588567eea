"""Two-batch overlap on simulated ranks: TB-1, X09, and every construct in two halves."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import BoundaryError
from boundaryc.topology.contracts import CONTEXT_PARALLEL
from boundaryc.verify.cells import Cell
from boundaryc.verify.matrix import Selection, covering, matrix
from boundaryc.verify.meddling import MeddlingProgram
from boundaryc.verify.overlap import overlapped
from boundaryc.verify.ranks import MismatchError
from boundaryc.verify.run import Prover, poisoned_allocations
from boundaryc.verify.world import SimulatedGroups, World
from tests.plan.simulated import Unit, subject
from tests.plan.stacks import ATTENTION, EXPERTS, stack, topology
from tests.verify.subjects import prover, share
from tests.verify.test_operations import STACKS, text

OVERLAP = "overlap: {two_batch: true}\n"
TOPOLOGIES = """\
topologies:
  tp2: {tp: 2}
  tp4_dp2: {tp: 4, attn_dp: 2}
  tp4_dp2_a2a: {tp: 4, attn_dp: 2, dense_tp: attn_tp, moe: {ep: 4, all_to_all: true}}
  tp4_cp2: {tp: 4, attn_cp: 2}
"""
SPARSE = "sparse: true"


@cache
def overlapping(name: str) -> Prover:
    """A stack of all sorts of constructs whose batches may be split."""
    written = text(name, TOPOLOGIES)
    if SPARSE not in written:
        written = written.replace(", moe: {ep: 4, all_to_all: true}", "")
    return prover(written + OVERLAP)


def cells(runs: Prover, name: str) -> list[Cell]:
    """A stack's share of the cells that cover every pair of choices, of batches that split."""
    found = covering(list(matrix(runs.subject.plan, Selection(halves=("none",)))))
    able = [cell for cell in found if cell.variant != CONTEXT_PARALLEL]
    return share(able, list(STACKS).index(name), 6)


@pytest.mark.parametrize("name", STACKS)
def test_halves_equal_the_oracle(name: str) -> None:
    """In turns, stage by stage, each half and the merged whole; uneven and empty halves."""
    runs, draw = overlapping(name), random.Random(name)
    empty = 0
    for number, cell in enumerate(cells(runs, name)):
        first = tuple(draw.choice((0, rows, draw.randint(0, rows))) for rows in cell.rows)
        empty += not any(first)
        overlapped(runs, cell, first, without_exits=number % 3 > 0, schedule=number)
    assert empty


@pytest.mark.parametrize("name", ["tails", "captures", "additive"])
def test_some_layers_run_in_halves(name: str) -> None:
    """Split and merged between two layers, at the borders of which every update is plain."""
    runs, draw = overlapping(name), random.Random(name)
    depth = len(runs.subject.plan.stack.layers)
    ranges = {"captures": [range(1, 3), range(2), range(2, depth)]}.get(
        name, [range(1, 3), range(1), range(depth - 1, depth), range(2, depth - 1)]
    )
    for number, cell in enumerate(cells(runs, name)):
        first = tuple(draw.randint(0, rows) for rows in cell.rows)
        overlapped(runs, cell, first, layers=ranges[number % len(ranges)], schedule=number)


@pytest.mark.parametrize("without_exits", [True, False])
@pytest.mark.parametrize("policy", ["ar", "rsv"])
def test_tb1_sizes_are_those_of_ranks(policy: str, without_exits: bool) -> None:
    """sgl-project/sglang#32669: attn_tp 4 under attention DP, a replicated tail, no all-to-all."""
    spec = topology(16, dp=4)
    tail = replace(EXPERTS, reduction="local_tail")
    layers, first, second = (("attention", "experts"),) * 2, (6, 2, 0, 5), (3, 3, 1, 4)
    sample = stack(spec, layers=layers, stages=(ATTENTION, tail))
    whole = tuple(map(sum, zip(first, second, strict=True)))
    with subject(replace(sample, two_batch=True)) as runs:
        scattered = []
        for variant, many in product(("ordinary", "sequence_parallel"), (False, True)):
            cell = Cell(spec.name, variant, policy, "sum_len", whole, many=many)
            traces = overlapped(runs, cell, first, without_exits=without_exits, schedule=1)
            sized = [call for trace in traces for call in trace if call.sizes is not None]
            assert all(len(call.sizes or ()) == len(call.group) for call in sized)
            scattered += [call for call in sized if call.kind == "reduce_scatter"]
        over_all = [call.sizes or () for call in scattered if len(call.group) == 16]
        assert bool(over_all) == (policy == "rsv" and not without_exits)
        assert all(len(sizes) == 16 for sizes in over_all)
        # the rows of a half, and padded to whole slices of every group
        assert {sum(sizes) for sizes in over_all} <= {13, 11, 20, 16}


class Late(MeddlingProgram):
    """A model whose FFNs run without exits and that works on the outputs in between."""

    without_exits = True

    def _compare_output(self, place: Any, edge: Any, value: Tensor) -> None:
        """An output that was handed on lies on other rows than the planned one."""
        stages = {one.name: one.kind for one in self.scene.subject.plan.stack.stages}
        if stages.get(edge.producer) != "ffn":
            super()._compare_output(place, edge, value)


@pytest.mark.parametrize("name", STACKS)
def test_outputs_handed_on_can_be_used(name: str) -> None:
    """Completed, folded, added to, shown and captured like those that an exit left."""
    runs = overlapping(name)
    for number, cell in enumerate(cells(runs, name)):
        scene = runs.scene(cell, deeds=number)
        world: World[float] = World(scene.topology.spec.tp, seed=number, poison=True)

        def forward(groups: SimulatedGroups, scene: Any = scene) -> float:
            return Late(scene, groups).forward()

        with poisoned_allocations():
            world.run(forward)


@pytest.mark.parametrize("policy", ["ar", "rs", "rsv", "rs+rsv"])
@pytest.mark.parametrize("padding", ["sum_len", "max_len"])
def test_x09_a_reduced_output_is_only_scattered(policy: str, padding: str) -> None:
    """Sum of 3s over two ranks is 6, one row of two; the residual stays the object that it was."""
    spec = topology(2, dp=2)
    sample = stack(spec, layers=(("attention", "mlp"),) * 2, variants=("ordinary",))
    with subject(replace(sample, two_batch=True)) as runs:
        world: World[None] = World(2)

        def program(groups: SimulatedGroups) -> None:
            loaded = runs.subject.package.load(spec.name, groups, policy=policy)
            batch = loaded.batch(rows_per_dp=[1, 1], padding=padding, mode="decode")
            loaded.start(batch)
            layer = loaded.layer(0).bind(attention=Unit(64), mlp=Unit(64))
            x = layer.attention.prepare(torch.zeros(1, 64, dtype=torch.float64), batch)
            hidden = layer.attention.finish(torch.zeros_like(x), batch)
            x = layer.mlp.prepare(hidden, batch)
            assert x.shape[0] == 2
            residual, calls = batch.stream.residual, len(world.traces()[groups.rank])
            reduced = loaded.groups.tp.all_reduce(torch.full_like(x, 3.0))
            hidden = layer.mlp.postprocess(reduced, batch)
            assert hidden.shape[0] == 1
            assert (hidden == 6).all()
            assert batch.stream.residual is residual
            assert len(world.traces()[groups.rank]) == calls + 1
            assert loaded.complete_output(hidden, batch) is hidden

        world.run(program)


def test_an_update_that_is_not_plain_cannot_be_split() -> None:
    """Between two layers the output is folded; before the first stage there is nothing to fold."""
    runs = overlapping("updates")
    cell = Cell("tp2", "ordinary", "ar", "sum_len", (5,))
    overlapped(runs, cell, (2,))
    with pytest.raises(BoundaryError, match="fold requires a plain residual update"):
        overlapped(runs, cell, (2,), layers=range(3, 5))


BROKEN = {
    "an output that stays where it was": ("hidden = rows.attn_dp.take(hidden)", "pass"),
    "a hand-off that is not added": (
        "hidden, stream.residual = add_rms_norm(hidden, stream.residual, norm.weight)",
        "hidden = rms_norm(stream.residual, norm.weight)",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_broken_is_found(what: str) -> None:
    before, after = BROKEN[what]
    changed = []

    def damage(files: dict[str, str]) -> None:
        handed = set(re.findall(r"    handed=(\w+),", "".join(files.values())))
        for path, content in files.items():
            parts = content.split("\ndef ")
            for at, part in enumerate(parts):
                late = "_postprocess(" in part[:80] or part.partition("(")[0] in handed
                if late and before in part:
                    parts[at] = part.replace(before, after)
                    changed.append(path)
            files[path] = "\ndef ".join(parts)

    written = text("tails", "topologies: {tp4_dp2: {tp: 4, attn_dp: 2}}\n")
    written = written.replace(", context_parallel", "").replace(", input_scattered", "") + OVERLAP
    cell = Cell("tp4_dp2", "ordinary", "ar", "sum_len", (5, 3))
    overlapped(prover(written), cell, (2, 3))
    with pytest.raises((MismatchError, ValueError, RuntimeError)):
        overlapped(prover(written, damage), cell, (2, 3))
    assert changed
