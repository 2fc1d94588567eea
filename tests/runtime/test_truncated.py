"""A stack that is left before its last stage, or with tensors of other shapes, is refused."""

from __future__ import annotations

import pytest
import torch

from boundaryc.runtime import BoundaryError, Members
from boundaryc.runtime.members import even_atoms
from boundaryc.runtime.mesh import Mesh
from boundaryc.runtime.rowwise import add, add_rms_norm
from boundaryc.verify.fixture import Parameter, Place
from boundaryc.verify.world import SimulatedGroups, World
from tests.verify.subjects import HEAD, prover

TEXT = HEAD + "topologies: {tp2: {tp: 2}}\nvariants: [ordinary]\n"


@pytest.mark.parametrize(("layers", "whole"), [((0, 1, 2, 3), True), ((0, 1, 2), False)])
def test_the_final_norm_follows_the_last_layer(layers: tuple[int, ...], whole: bool) -> None:
    """A model that runs fewer layers than were compiled would norm a sum that is still owed."""
    subject = prover(TEXT).subject
    fixture = subject.fixture

    def program(groups: SimulatedGroups) -> torch.Tensor:
        stack = subject.package.load("tp2", groups)
        batch = stack.batch(rows_per_dp=[3], padding="sum_len", mode="prefill")
        stack.start(batch)
        hidden = torch.ones(batch.local_rows, fixture.width, dtype=torch.float64)
        for index in layers:
            norm = Parameter(fixture.final)
            layer = stack.layer(index).bind(attention=norm, experts=norm)
            x = layer.attention.prepare(hidden, batch)
            y = fixture.partial(Place(index, "attention"), x, groups.rank, 2)
            hidden = layer.attention.finish(y, batch)
            x = layer.experts.prepare(hidden, batch)
            with layer.experts.exit(batch) as output:
                y = fixture.partial(Place(index, "experts"), x, groups.rank, 2)
                y = output.reduce_output(y)
            hidden = output.finish(y)
        return stack.norm(hidden, batch, Parameter(fixture.final))

    world: World[torch.Tensor] = World(2)
    if whole:
        assert all(out.shape == (3, fixture.width) for out in world.run(program))
        return
    with pytest.raises(BoundaryError, match="the final norm follows the last stage"):
        world.run(program)


def test_nothing_is_broadcast() -> None:
    residual, weight = torch.ones(4, 8), torch.ones(8)

    with pytest.raises(ValueError, match=r"\[1, 8\] meets \[4, 8\]"):
        add(residual[:1], residual)
    with pytest.raises(ValueError, match=r"8 columns has a weight \[1\]"):
        add_rms_norm(residual, residual, weight[:1], 1e-6)


def test_a_cut_of_other_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="7 rows where the group has 6"):
        Members((3, 3), 1).take(torch.ones(7, 2))


def test_evenness_by_its_definition() -> None:
    """Against comparing all members of all groups, for every pattern of few leaves."""
    mesh = Mesh((("a", 2, "attn_dp"), ("b", 3, "attn_tp")))
    for code in range(2**6):
        leaves = tuple(code >> rank & 1 for rank in range(6))
        slow = {
            name
            for name in mesh.names
            if all(
                len({leaves[member] for member in mesh.members(rank, (name,))}) == 1
                for rank in range(6)
            )
        }
        assert even_atoms(mesh, leaves) == slow
