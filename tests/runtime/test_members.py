"""Meshes, leaf counts and members: all of it for small meshes."""

from __future__ import annotations

from itertools import chain, combinations, product

import pytest
import torch

from boundaryc.runtime import Cut, Members, Mesh
from boundaryc.runtime.members import Cutter, even_atoms, leaf_counts, split_evenly

MESHES = [
    Mesh(()),
    Mesh((("attn_tp", 3, "attn_tp"),)),
    Mesh((("attn_dp", 2, "attn_dp"), ("attn_tp", 2, "attn_tp"))),
    Mesh((("attn_dp", 3, "attn_dp"), ("attn_cp", 2, "attn_cp"), ("attn_tp", 2, "attn_tp"))),
    Mesh((("attn_cp", 2, "attn_cp"), ("a0", 2, "attn_tp"), ("a1", 3, "attn_tp"))),
    Mesh((("d0", 2, "attn_dp"), ("d1", 2, "attn_dp"), ("attn_tp", 2, "attn_tp"))),
]


def subsets(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """All subsets of atoms."""
    sizes = range(len(names) + 1)
    return list(chain.from_iterable(combinations(names, size) for size in sizes))


def tokens_by_rank(mesh: Mesh, rows_per_dp: tuple[int, ...]) -> list[list[int]]:
    """Token numbers of each rank's leaf, found by cutting lists, not counts."""
    first = 0
    leaves: dict[tuple[int, int, int], list[int]] = {}
    for dp, count in enumerate(rows_per_dp):
        group = torch.arange(first, first + count)
        first += count
        for cp, shard in enumerate(group.tensor_split(mesh.extent("attn_cp"))):
            for tp, leaf in enumerate(shard.tensor_split(mesh.extent("attn_tp"))):
                leaves[dp, cp, tp] = leaf.tolist()
    return [
        leaves[
            mesh.along(rank, "attn_dp"), mesh.along(rank, "attn_cp"), mesh.along(rank, "attn_tp")
        ]
        for rank in range(mesh.size)
    ]


@pytest.mark.parametrize("mesh", MESHES)
def test_ranks_are_lexicographic_coordinates(mesh: Mesh) -> None:
    """Coordinates enumerate in rank order, and back."""
    coordinates = list(product(*(range(size) for size in mesh.shape)))

    assert [mesh.coordinate(rank) for rank in range(mesh.size)] == coordinates
    assert [mesh.rank(coordinate) for coordinate in coordinates] == list(range(mesh.size))
    with pytest.raises(ValueError, match=f"rank {mesh.size} is not in"):
        mesh.coordinate(mesh.size)


@pytest.mark.parametrize("mesh", MESHES)
def test_groups_partition_the_ranks(mesh: Mesh) -> None:
    """For every set of atoms: groups are ordered, disjoint, and agree on all other atoms."""
    for axes in subsets(mesh.names):
        kept = [index for index, name in enumerate(mesh.names) if name not in axes]
        for rank in range(mesh.size):
            group = mesh.members(rank, axes)
            assert group == tuple(
                other
                for other in range(mesh.size)
                if all(mesh.coordinate(other)[i] == mesh.coordinate(rank)[i] for i in kept)
            )


def test_labels() -> None:
    """All ranks are tp; whole axes have their names; given names win; the rest is joined."""
    mesh = Mesh(
        (
            ("d0", 2, "attn_dp"),
            ("d1", 2, "attn_dp"),
            ("attn_cp", 2, "attn_cp"),
            ("t0", 2, "attn_tp"),
            ("t1", 2, "attn_tp"),
        ),
        labels=(("dense", ("t1",)),),
    )

    assert mesh.label(("d0", "d1", "attn_cp", "t0", "t1")) == "tp"
    assert mesh.label(("d0", "d1")) == "attn_dp"
    assert mesh.label(("t1",)) == "dense"
    assert mesh.label(("d1", "t0", "t1")) == "d1_attn_tp"
    assert mesh.label(("t0",)) == "t0"
    with pytest.raises(ValueError, match="not a set of the mesh's atoms"):
        mesh.label(("t9",))
    with pytest.raises(ValueError, match="not a set of the mesh's atoms"):
        mesh.members(0, ("d0", "d0"))


def test_split_is_balanced() -> None:
    """Parts differ by at most one row, longer ones first, for all small numbers."""
    for rows, parts in product(range(12), range(1, 6)):
        sizes = split_evenly(rows, parts)
        assert sum(sizes) == rows
        assert sizes == tuple(sorted(sizes, reverse=True))
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("mesh", MESHES)
def test_members_hold_the_tokens_of_their_leaves(mesh: Mesh) -> None:
    """For every rank, move and finer rows: sizes and offsets equal those of real token lists."""
    counts = [(7, 0, 3, 1), (5, 4, 4, 0), (0, 0, 0, 0), (6, 6, 6, 6)]
    for counted in counts:
        rows_per_dp = counted[: mesh.extent("attn_dp")]
        tokens = tokens_by_rank(mesh, rows_per_dp)
        leaves = leaf_counts(mesh, rows_per_dp)
        assert leaves == tuple(len(leaf) for leaf in tokens)
        for rank, finer in product(range(mesh.size), subsets(mesh.names)):
            cut = Cut(Cutter(mesh, rank), leaves)
            for moved in subsets(finer):
                check_members(mesh, rank, moved, finer, tokens, cut.members(moved, finer=finer))


def check_members(
    mesh: Mesh,
    rank: int,
    moved: tuple[str, ...],
    finer: tuple[str, ...],
    tokens: list[list[int]],
    members: Members,
) -> None:
    """Compare members with token lists held by each rank of the group."""
    whole = tuple(name for name in mesh.names if name not in finer)

    def held(of: int) -> list[int]:
        return [token for leaf in mesh.members(of, whole) for token in tokens[leaf]]

    group = mesh.members(rank, moved)
    assert members.sizes == tuple(len(held(member)) for member in group)
    assert members.index == group.index(rank)
    joined = torch.tensor([token for member in group for token in held(member)])
    assert members.take(joined).tolist() == held(rank)


@pytest.mark.parametrize("mesh", MESHES)
def test_even_atoms_make_every_cut_equal(mesh: Mesh) -> None:
    """A fixed-size move over atoms called even has equal members on all ranks, and only there."""
    choices = product(range(4), repeat=min(mesh.extent("attn_dp"), 2))
    for chosen in choices:
        rows_per_dp = (*chosen, *chosen)[: mesh.extent("attn_dp")]
        leaves = leaf_counts(mesh, rows_per_dp)
        even = even_atoms(mesh, leaves)
        for moved in subsets(mesh.names):
            every_leaf = all(
                len({leaves[member] for member in mesh.members(rank, moved)}) == 1
                for rank in range(mesh.size)
            )
            assert every_leaf == even.issuperset(moved)


def test_take_and_place() -> None:
    """A member takes a view of its rows and places them among zeros."""
    members = Members((2, 0, 3), 2)
    rows = torch.arange(10.0).view(5, 2)

    assert (members.start, members.stop, members.total) == (2, 5, 5)
    assert members.take(rows).equal(rows[2:])
    assert members.take(rows).data_ptr() == rows[2:].data_ptr()
    placed = members.place(rows[2:])
    assert placed.tolist() == [[0, 0], [0, 0], *rows[2:].tolist()]
    assert Members((2, 0, 3), 1).place(rows[:0]).equal(torch.zeros(5, 2))
    with pytest.raises(ValueError, match="member 3 is not one of 3"):
        Members((1, 1, 1), 3)


@pytest.mark.parametrize("mesh", MESHES)
def test_tokens_of_rows_are_those_of_their_leaves(mesh: Mesh) -> None:
    """For every rank and rows: which tokens, counted through the groups, and where the pads are."""
    for real, padded in (((5, 0, 3, 1), (7, 0, 3, 4)), ((4, 4, 4, 4), (4, 4, 4, 4))):
        groups = mesh.extent("attn_dp")
        real, padded = real[:groups], padded[:groups]
        leaves = leaf_counts(mesh, padded)
        places = tokens_by_rank(mesh, padded)
        numbers: list[int] = []
        for count, rows in zip(real, padded, strict=True):
            first = sum(number >= 0 for number in numbers)
            numbers += [*range(first, first + count), *[-1] * (rows - count)]
        ordered = sorted(place for leaf in places for place in leaf)
        number_of = dict(zip(ordered, numbers, strict=True))
        for rank, rows_on in product(range(mesh.size), subsets(mesh.names)):
            whole = tuple(name for name in mesh.names if name not in rows_on)
            held = [number_of[at] for one in mesh.members(rank, whole) for at in places[one]]
            cut = Cut(Cutter(mesh, rank), leaves, None, real)
            assert cut.tokens(rows=rows_on).tolist() == held
