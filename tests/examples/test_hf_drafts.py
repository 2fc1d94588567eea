"""A draft goes on with what its target leaves on the same ranks."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.verify.world import SimulatedGroups, World
from examples.hf.cases import Case
from examples.hf.float64 import Float64
from examples.hf.program import RankProgram, Scene
from examples.hf.reference import LENGTHS
from examples.hf_ranks import Harness

TARGET, DRAFT = "deepseek_v3", "deepseek_v3_nextn"


@cache
def harness(name: str) -> Harness:
    """One for the target and one for the draft."""
    return Harness(name)


class DraftProgram(RankProgram):
    """A rank's draft on what its target left: nothing of the reference but token ids."""

    def __init__(self, scene: Scene, groups: SimulatedGroups, target: RankProgram) -> None:
        self._target = target
        super().__init__(scene, groups)

    def given(self) -> Tensor:
        """Made of the target's hidden states on this rank."""
        model: Any = self.scene.reference.model
        ids = [self._target.scene.reference.ids[one] for one in self.own]
        hidden = self._target.hidden[: sum(LENGTHS[one] for one in self.own)]
        pieces = hidden.split([LENGTHS[one] for one in self.own])
        with Float64():
            found = [model.joined(*pair) for pair in zip(ids, pieces, strict=True)]
        return torch.cat(found) if found else super().given()


@pytest.mark.parametrize("halves", ["", "exits"])
@pytest.mark.parametrize(
    ("topology", "variant", "placement"),
    [("tp4_dp2", "ordinary", "uneven"), ("tp4_dp2", "sequence_parallel", "last")],
)
def test_a_draft_agrees_on_the_hidden_states_of_its_target(
    topology: str, variant: str, placement: str, halves: Any
) -> None:
    """With a policy of its own, where the target's batch is whole and where it is in halves."""
    edition = "overlap" if halves else "plain"
    first = Case(topology, edition, variant, "rsv", "sum_len", placement, halves=halves)
    second = Case(topology, "plain", variant, "auto", "sum_len", placement, entry="partial")
    scene, draft = harness(TARGET).scene(first), harness(DRAFT).scene(second)
    world: World[float] = World(scene.parallel.tp, seed=0, poison=True)

    def forward(groups: SimulatedGroups) -> float:
        target = RankProgram(scene, groups)
        off = target.forward()
        return max(off, DraftProgram(draft, groups, target).forward())

    with torch.inference_mode():
        errors = world.run(forward)
    assert max(errors) <= 1e-9
