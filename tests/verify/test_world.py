"""Simulated ranks: values, mismatches and deadlocks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from boundaryc.runtime.mesh import Mesh
from boundaryc.verify.world import SimulatedGroups, World, WorldError

MESH = Mesh((("attn_dp", 2, "attn_dp"), ("attn_tp", 2, "attn_tp")))
ALL = ("attn_dp", "attn_tp")


def _rows(rank: int, count: int) -> Tensor:
    return torch.arange(count * 2, dtype=torch.float64).reshape(count, 2) + 100 * rank


def _run(program: Callable[[SimulatedGroups], Tensor], seed: int | None = None) -> list[Tensor]:
    world: World[Tensor] = World(4, seed=seed)
    return world.run(program)


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_collectives_have_their_values(seed: int | None) -> None:
    """A sum inside pairs, then a gather of uneven rows and a scatter of the sum over all."""

    def program(groups: SimulatedGroups) -> Tensor:
        rank = groups.rank
        pair = groups.collective(MESH, ("attn_tp",)).all_reduce(_rows(rank, 2))
        everyone = groups.collective(MESH, ALL)
        wide = everyone.all_gather(pair[: rank % 2 + 1], (1, 2, 1, 2))
        return everyone.reduce_scatter(wide, (3, 0, 2, 1))

    results = _run(program, seed)
    pairs = [_rows(0, 2) + _rows(1, 2), _rows(2, 2) + _rows(3, 2)]
    wide = torch.cat([pairs[0][:1], pairs[0], pairs[1][:1], pairs[1]]) * 4

    assert torch.equal(torch.cat(results), wide)
    assert [len(result) for result in results] == [3, 0, 2, 1]


def test_deadlock_is_found_at_once_and_names_the_culprit() -> None:
    """One rank of sixty-four leaves a collective out."""
    mesh = Mesh((("attn_tp", 64, "attn_tp"),))

    def program(groups: SimulatedGroups) -> Tensor:
        group = groups.collective(mesh, ("attn_tp",))
        first = group.all_reduce(_rows(groups.rank, 1))
        return first if groups.rank == 5 else group.all_reduce(first)

    with pytest.raises(WorldError) as caught:
        World[Tensor](64).run(program)
    text = str(caught.value)

    assert "deadlock" in text
    assert "rank 5: finished; last call: all_reduce(tp)" in text
    assert "waits for ranks [5]" in text
    assert "test_world.py" in text


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (lambda g, x: g.all_gather(x), "all_gather(tp)"),
        (lambda g, x: g.all_reduce(x[:1]), "[1, 2]"),
        (lambda g, x: g.all_reduce(x.float()), "torch.float32"),
        (lambda g, x: g.reduce_scatter(x), "reduce_scatter(tp)"),
    ],
)
def test_mismatch_names_both_sides(odd: Callable[[object, Tensor], Tensor], words: str) -> None:
    def program(groups: SimulatedGroups) -> Tensor:
        group = groups.collective(MESH, ALL)
        x = _rows(groups.rank, 4)
        return odd(group, x) if groups.rank == 2 else group.all_reduce(x)

    with pytest.raises(WorldError) as caught:
        _run(program)

    assert "ranks 0 and 2" in str(caught.value)
    assert words in str(caught.value)
    assert "all_reduce(tp) of [4, 2] torch.float64" in str(caught.value)


def test_equal_calls_from_different_lines_do_not_meet() -> None:
    """A rank that skips a sum meets the others in the next one, which looks the same."""

    def program(groups: SimulatedGroups) -> Tensor:
        group = groups.collective(MESH, ALL)
        first = _rows(0, 1)
        if groups.rank != 2:
            first = group.all_reduce(first)
        return group.all_reduce(first)

    with pytest.raises(WorldError, match="ranks 0 and 2"):
        _run(program)


def test_wrong_sizes_are_refused() -> None:
    def program(groups: SimulatedGroups) -> Tensor:
        return groups.collective(MESH, ALL).all_gather(_rows(0, 2), (2, 2, 2))

    with pytest.raises(WorldError, match="3 sizes for 4 members"):
        _run(program)


def test_uneven_rows_need_sizes() -> None:
    def program(groups: SimulatedGroups) -> Tensor:
        return groups.collective(MESH, ALL).all_gather(_rows(0, groups.rank))

    with pytest.raises(WorldError, match="not equal"):
        _run(program)


def test_an_exception_names_its_rank() -> None:
    def program(groups: SimulatedGroups) -> Tensor:
        if groups.rank == 3:
            raise RuntimeError("broken")
        return groups.collective(MESH, ALL).all_reduce(_rows(0, 1))

    with pytest.raises(RuntimeError, match="broken") as caught:
        _run(program)

    assert caught.value.__notes__ == ["on simulated rank 3 of 4"]


def test_poison_overwrites_what_a_sum_may_overwrite() -> None:
    inputs: list[Tensor] = []

    def program(groups: SimulatedGroups) -> Tensor:
        inputs.append(_rows(groups.rank, 1))
        return groups.collective(MESH, ALL).all_reduce(inputs[-1])

    World[Tensor](4, poison=True).run(program)

    assert all(bool(x.isnan().all()) for x in inputs)
