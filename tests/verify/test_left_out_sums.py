"""Sums that an exit leaves to compute, and that compute leaves out: the check sees them."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from boundaryc.runtime import BoundaryError
from boundaryc.runtime.handshake import CHECK_VARIABLE
from boundaryc.verify.cells import Cell
from boundaryc.verify.ranks import MismatchError, RankProgram
from boundaryc.verify.run import Prover
from boundaryc.verify.world import SimulatedGroups, World
from tests.verify.subjects import prover

STACK = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention}
  mlp: {kind: ffn}
  scan: {kind: mixer}
layers: {pattern: "AS", stages: {A: [attention, mlp], S: [mlp, scan]}}
topologies: {tp2: {tp: 2}, tp4_dp2: {tp: 4, attn_dp: 2}}
variants: [ordinary]
overlap: {two_batch: true}
"""


@pytest.fixture(scope="module")
def runs() -> Prover:
    """A stack that ends with a mixer, whose last sum is compute's own."""
    return prover(STACK)


class LeavesOut(RankProgram):
    """A model in which a stage of the last layer returns this rank's partial, and not their sum."""

    stage = "scan"

    def _reduce(self, exit_: Any, y: Tensor, terms: dict[str, Tensor]) -> Any:
        left = f"`{self.stage}` of layer 1"
        return y if exit_._boundary.position.name == left else super()._reduce(exit_, y, terms)

    def _alone(self, place: Any, stage: Any, x: Tensor, following: Any) -> Tensor:
        if (place.layer, place.stage) == (1, self.stage):
            return self._feed_forward(place, x, following)
        return super()._alone(place, stage, x, following)


class LeavesOutAlone(LeavesOut):
    """The same of an FFN that runs without an exit."""

    stage, without_exits = "mlp", True


def forward(runs: Prover, cell: Cell, program: type[RankProgram]) -> None:
    """A forward of all ranks."""
    scene, ranks = runs.scene(cell), runs.subject.topology(cell.topology).spec.tp
    World[float](ranks, seed=1).run(lambda groups: program(scene, groups).forward())


CELLS = [
    Cell("tp2", "ordinary", "ar", "sum_len", (3,)),
    Cell("tp4_dp2", "ordinary", "rsv", "unpadded", (3, 0)),
    Cell("tp4_dp2", "ordinary", "ar", "max_len", (4, 3)),
]


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_an_exit_whose_sum_is_left_out(
    runs: Prover, cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the check only the values say so; with it an error names stage, group and remedy."""
    with pytest.raises(MismatchError, match="the final norm"):
        forward(runs, cell, LeavesOut)

    monkeypatch.setenv(CHECK_VARIABLE, "1")
    with pytest.raises(BoundaryError) as caught:
        forward(runs, cell, LeavesOut)

    group, rows = "tp" if cell.topology == "tp2" else "attn_tp", cell.rows[0]
    assert str(caught.value) == (
        f"`scan` of layer 1 to the final norm: the output must be complete, and {rows} of its "
        f"{rows} rows differ between the 2 ranks of `{group}`; its exit leaves the sum to compute: "
        "inside it return `exit.reduce_output(hidden)` of all parts of the output, or sum over "
        f"`{group}` in compute where `skips_reduction` is False"
    )


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_stage_without_an_exit_whose_sum_is_left_out(
    runs: Prover, cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in two-batch overlap, where `postprocess` stands for the exit."""
    with pytest.raises(MismatchError):
        forward(runs, cell, LeavesOutAlone)

    monkeypatch.setenv(CHECK_VARIABLE, "1")
    with pytest.raises(
        BoundaryError,
        match=r"^`mlp` of layer 1 to `scan`: the output must be complete, .* of `tp`; a stage that "
        "runs without an exit sums its output itself: sum over `tp` before `postprocess`, or "
        "compute inside its exit",
    ):
        forward(runs, cell, LeavesOutAlone)


class Alone(RankProgram):
    """A model whose FFNs run without exits, and are right."""

    without_exits = True


class SumsItself(RankProgram):
    """A model that asks its exits for flags alone, and sums over its own group."""

    def _reduce(self, exit_: Any, y: Tensor, terms: dict[str, Tensor]) -> Any:
        if exit_.skips_reduction:
            return y
        groups = self.stack.groups
        return (groups.tp if self.scene.cell.topology == "tp2" else groups.attn_tp).all_reduce(y)


@pytest.mark.parametrize("program", [RankProgram, Alone, SumsItself])
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_what_is_summed_is_left_alone(
    runs: Prover, cell: Cell, program: type[RankProgram], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the exit, by compute itself, and without an exit; pads hold what they may."""
    monkeypatch.setenv(CHECK_VARIABLE, "1")
    forward(runs, cell, program)


class Rounds(RankProgram):
    """A model whose sums are another on each rank, by the order of adding."""

    def _reduce(self, exit_: Any, y: Tensor, terms: dict[str, Tensor]) -> Any:
        done = super()._reduce(exit_, y, terms)
        return done if exit_.skips_reduction else done * (1 + 1e-14 * self.rank)


def test_rounding_is_left_alone(runs: Prover, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CHECK_VARIABLE, "1")
    forward(runs, CELLS[0], Rounds)


def test_nothing_is_sent_where_nobody_asks(runs: Prover, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ends of stages are those of the generated tables."""
    seen: list[Any] = []

    def leaves(groups: SimulatedGroups) -> None:
        seen.append(runs.subject.package.load("tp2", groups).layer(1).scan._leave)

    World[None](2).run(leaves)
    monkeypatch.setenv(CHECK_VARIABLE, "1")
    World[None](2).run(leaves)

    assert seen[0] is seen[1]
    assert seen[2][0].leave.leave is seen[0][0].leave


class Pads(RankProgram):
    """A model whose pads are another on each rank."""

    def _reduce(self, exit_: Any, y: Tensor, terms: dict[str, Tensor]) -> Any:
        done = super()._reduce(exit_, y, terms)
        if not exit_.skips_reduction:
            done[self.batch.group_real_rows :] = self.rank
        return done


@pytest.mark.parametrize("rows", [(4, 3), (0, 2)])
def test_pads_say_nothing(
    runs: Prover, rows: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a group that has nothing else."""
    monkeypatch.setenv(CHECK_VARIABLE, "1")
    forward(runs, Cell("tp4_dp2", "ordinary", "ar", "max_len", rows), Pads)
