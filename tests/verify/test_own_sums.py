"""Compute that sums by itself: one sum, several over different groups, or none that is left."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from boundaryc.runtime import Mesh
from boundaryc.verify.cells import Cell
from boundaryc.verify.ranks import RankProgram
from tests.plan.simulated import subject, verified
from tests.plan.stacks import EXPERTS, MLP, stack, topology
from tests.verify.test_additive import run

POLICIES = ("ar", "rs", "rsv", "rs+rsv")
LAYERS = (("attention", "mlp"), ("attention", "experts"), ("attention", "experts"))


class SumsByPart(RankProgram):
    """Experts that add up the columns of an expert first, then the experts, in groups of their own.

    The boundary knows one sum, over all of these ranks; the model has groups for the parts of it.
    """

    ran: dict[bool, int]

    def _reduce(self, exit_: Any, y: Tensor, terms: dict[str, Tensor]) -> Tensor:
        owed = self.scene.topology.spec.moe
        if not self.sparse:
            return super()._reduce(exit_, y, terms)
        self.ran[exit_.skips_reduction] = self.ran.get(exit_.skips_reduction, 0) + 1
        if exit_.skips_reduction:
            return y
        shape = (("dp", owed.dp), ("ep", owed.ep), ("tp", owed.tp))
        mesh = Mesh(tuple((name, size, "attn_tp") for name, size in shape))
        for part in ("tp", "ep"):
            y = self._groups.collective(mesh, (part,)).all_reduce(y)
        return y

    def _feed_forward(self, place: Any, x: Tensor, following: Any) -> Tensor:
        self.sparse = self.scene.subject.plan.stack.stage(place.stage).sparse
        return super()._feed_forward(place, x, following)


@pytest.mark.parametrize(
    ("spec", "rows"),
    [
        (topology(4, ep=2), (5,)),
        (topology(8, dp=2, ep=4), (3, 2)),
        (topology(8, dp=2, moe_dp=2, ep=2), (0, 5)),
        (topology(12, dp=3, ep=3), (1, 0, 4)),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_several_sums_over_different_groups(spec: Any, rows: tuple[int, ...]) -> None:
    """One decision for all of them: each runs where the exit leaves it to compute, else none."""
    ran: dict[bool, int] = {}
    program = type("Program", (SumsByPart,), {"ran": ran})
    with subject(stack(spec, layers=LAYERS)) as runs:
        for policy in POLICIES:
            for variant in runs.subject.topology(spec.name).row_multiples:
                run(runs, Cell(spec.name, variant, policy, "sum_len", rows), program)
    assert set(ran) == {True, False}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("rows", [(3, 2), (0, 4), (0, 0)])
def test_an_output_that_compute_completes_owes_nothing(policy: str, rows: tuple[int, ...]) -> None:
    """Behind an all-to-all, and of an FFN that each rank holds whole: no flag, no sum after it."""
    spec = topology(4, dp=2, dense=1, all_to_all=True)
    with subject(stack(spec, layers=LAYERS)) as runs:
        for variant in ("ordinary", "sequence_parallel"):
            found = verified(runs, Cell(spec.name, variant, policy, "sum_len", rows))
            assert {one.stage for one in found.decided[0]} == {MLP.name, EXPERTS.name}
            for decided in found.decided:
                assert not any(one.fuse or one.scatter for one in decided)
            for trace in found.traces:
                sums = [call for call in trace if call.kind != "all_gather"]
                assert {call.label for call in sums} <= {"attn_tp"}
