"""Replicated terms of a sum on simulated ranks: each counts once, whoever does the sum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.language.model import Additive
from boundaryc.verify.cells import Cell
from boundaryc.verify.matrix import Selection, covering, matrix
from boundaryc.verify.ranks import RankProgram
from boundaryc.verify.run import Prover, poisoned_allocations
from boundaryc.verify.world import SimulatedGroups, World
from tests.plan.simulated import Stage, numbers, subject
from tests.plan.stacks import ATTENTION, EXPERTS, MLP, stack, topology
from tests.verify.subjects import prover
from tests.verify.test_operations import SMALL, text

WORDS = ("rank0", "divided", "after_sum")
BIAS = {"bias": torch.full((64,), 5.0, dtype=torch.float64)}
POLICIES = ("ar", "rs", "rsv")


def term(word: Any) -> tuple[Additive, ...]:
    """One bias."""
    return (Additive("bias", word),)


@pytest.mark.parametrize("word", ["rank0", "divided"])
@pytest.mark.parametrize(
    ("spec", "rows"),
    [
        (topology(1), (3,)),
        (topology(2), (3,)),
        (topology(4, dp=2), (3, 2)),
        (topology(4, dp=2), (0, 2)),
        (topology(4, dp=4), (1, 0, 2, 1)),
        (topology(3), (2,)),
    ],
)
def test_rm3_a_bias_of_a_partial_sum_enters_once(
    spec: Any, rows: tuple[int, ...], word: str
) -> None:
    """Partials 1, 2, ... and a bias of 5: 8 over two ranks, and 6 where a group is one rank."""
    sample = stack(
        spec,
        layers=(("attention", "mlp"),),
        variants=("ordinary",),
        stages=(replace(ATTENTION, additive=term(word)), MLP),
    )
    place = spec.attn_tp

    def compute(stage: Stage, x: Tensor) -> Tensor:
        if stage.name == "mlp":
            return stage.exit.reduce_output(torch.zeros_like(x))  # type: ignore[no-any-return]
        return torch.full_like(x, stage.rank % place + 1.0)

    with subject(sample) as runs:
        for policy in POLICIES:
            done, _ = numbers(
                runs, spec.name, compute, policy=policy, terms={"attention": BIAS}, rows_per_dp=rows
            )
            expected = place * (place + 1) / 2 + 5
            for rank, one in enumerate(done):
                torch.testing.assert_close(one.residual, torch.full_like(one.residual, expected))
                assert one.output.shape[0] == rows[rank // place]


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(
    ("spec", "rows"),
    [(topology(3), (4,)), (topology(3, dp=3), (2, 0, 1)), (topology(6, dp=2, dense=3), (3, 2))],
)
def test_rm6_a_bias_enters_once_in_every_convention(
    spec: Any, rows: tuple[int, ...], layers: int, word: str
) -> None:
    """Partials 1, 2 and 3 with a bias of 6 are 12 in every layer, deferred or at the end."""
    sample = stack(
        spec,
        layers=(("attention", "mlp"),) * layers,
        variants=("ordinary",),
        stages=(ATTENTION, replace(MLP, additive=term(word))),
    )

    def compute(stage: Stage, x: Tensor) -> Tensor:
        if stage.name == "attention":
            return torch.zeros_like(x)
        partial, bias = torch.full_like(x, stage.rank % 3 + 1.0), torch.full_like(x, 6.0)
        return stage.exit.reduce_output(partial, bias=bias)  # type: ignore[no-any-return]

    with subject(sample) as runs:
        for policy in POLICIES:
            done, _ = numbers(runs, spec.name, compute, policy=policy, rows_per_dp=rows)
            for one in done:
                torch.testing.assert_close(one.residual, torch.full_like(one.residual, 12 * layers))


@pytest.mark.parametrize("word", WORDS)
def test_a_complete_output_takes_the_whole_term_on_every_rank(word: str) -> None:
    """Experts behind an all-to-all owe nothing, so that every rank is the first of its sum."""
    spec = topology(4, dp=2, all_to_all=True)
    stages = (ATTENTION, replace(EXPERTS, additive=term(word)))
    layers = (("attention", "experts"),)

    def compute(stage: Stage, x: Tensor) -> Tensor:
        if stage.name == "attention":
            return torch.zeros_like(x)
        return stage.exit.reduce_output(  # type: ignore[no-any-return]
            torch.full_like(x, 7.0), bias=torch.full_like(x, 5.0)
        )

    with subject(stack(spec, layers=layers, variants=("ordinary",), stages=stages)) as runs:
        done, _ = numbers(runs, spec.name, compute, rows_per_dp=(3, 1))
    assert all((one.residual == 12).all() for one in done)


class OwnSum(RankProgram):
    """A model whose FFNs and mixers reduce by themselves and read the flags of their exits."""

    owed = 0

    def _feed_forward(self, place: Any, x: Tensor, following: Any) -> Tensor:
        self.owed = following.start.owes
        return super()._feed_forward(place, x, following)

    def _attend(self, place: Any, x: Tensor, held: Any, following: Any) -> Tensor:
        self.owed = following.start.owes
        return super()._attend(place, x, held, following)

    def _reduce(self, exit_: Any, y: Tensor, terms: dict[str, Tensor]) -> Tensor:
        assert self.batch.exit is exit_
        y = exit_.before_sum(y, **terms) if terms else y
        if self.owed and not (exit_.fuse_mlp_allreduce or exit_.mlp_reduce_scatter):
            mesh = self.scene.topology.mesh
            y = getattr(self.stack.groups, mesh.label(self.owed)).all_reduce(y)
        return exit_.after_sum(y, **terms) if terms else y


def run(subject_: Prover, cell: Cell, program: type[RankProgram]) -> None:
    """Runs a cell on all ranks; MismatchError where one differs from the oracle."""
    scene, world = (
        subject_.scene(cell),
        World[float](subject_.subject.topology(cell.topology).spec.tp),
    )

    def forward(groups: SimulatedGroups) -> float:
        return program(scene, groups).forward()

    with poisoned_allocations():
        world.run(forward)


@pytest.mark.parametrize("name", ["additive", "mixers"])
def test_a_reduction_of_computes_own_reads_the_exit(name: str) -> None:
    """Same numbers as through `reduce_output`, with terms and without, under every policy."""
    own = prover(text(name, SMALL))
    cells = covering(list(matrix(own.subject.plan, Selection(paddings=("sum_len",)))))
    assert {cell.policy for cell in cells} >= {"ar", "rs", "rsv"}
    for cell in cells:
        run(own, cell, OwnSum)


@pytest.mark.parametrize("word", ["rank0", "divided"])
def test_a_wrong_term_is_refused_on_every_rank(word: str) -> None:
    """Also where only the first rank would add it: the others would wait for it in the sum."""
    spec = topology(3)
    stages = (ATTENTION, replace(MLP, additive=term(word)))
    sample = stack(spec, layers=(("attention", "mlp"),), variants=("ordinary",), stages=stages)
    refused: list[int] = []

    def compute(stage: Stage, x: Tensor) -> Tensor:
        own = torch.zeros_like(x)
        if stage.name == "attention":
            return own
        with pytest.raises(ValueError, match=r"an additive term of shape \[5\] does not fit"):
            stage.exit.reduce_output(own, bias=torch.zeros(5))
        with pytest.raises(TypeError, match="an additive term is a floating tensor"):
            stage.exit.reduce_output(own, bias=torch.zeros(64, dtype=torch.int32))
        refused.append(stage.rank)
        return stage.exit.reduce_output(own, **BIAS)  # type: ignore[no-any-return]

    with subject(sample) as runs:
        done, _ = numbers(runs, spec.name, compute, rows_per_dp=[2])
    assert sorted(refused) == [0, 1, 2]
    assert all((one.residual == 5).all() for one in done)
