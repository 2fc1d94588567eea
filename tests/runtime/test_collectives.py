"""Every collective on real gloo ranks, against sums and joins computed in one process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import MappedGroups, Mesh, SingleCollective, SingleGroups
from tests.gloo.pool import RankPool, shared_pool
from tests.runtime.ranks import piece

LINE = Mesh((("attn_tp", 4, "attn_tp"),))
GRID = Mesh((("attn_dp", 2, "attn_dp"), ("attn_tp", 2, "attn_tp")))
CUBE = Mesh((("attn_dp", 2, "attn_dp"), ("attn_cp", 2, "attn_cp"), ("attn_tp", 2, "attn_tp")))

SHAPES: list[dict[str, Any]] = [
    {},
    {"strided": True},
    {"tail": ()},
    {"tail": (1,), "strided": True},
    {"tail": (2, 3)},
    {"tail": (2, 3), "strided": True},
    {"dtype": torch.bfloat16},
    {"dtype": torch.float32},
]


@pytest.fixture(scope="module")
def eight() -> Iterator[RankPool]:
    """Eight ranks: the smallest number with atoms that are not neighbours."""
    pool = RankPool(8)
    yield pool
    pool.close()


def check(
    pool: RankPool,
    mesh: Mesh,
    axes: tuple[str, ...],
    method: str,
    rows: list[int],
    sizes: tuple[int, ...] | None,
    options: dict[str, Any],
) -> None:
    """Run one collective everywhere and compare each rank with the definition."""
    results = pool.run("tests.runtime.ranks:call", mesh, axes, method, rows, sizes, options)

    dtype = options.get("dtype", torch.float64)
    pieces = [
        piece(rank, rows[rank], options.get("tail", (3,)), dtype).to(torch.float64)
        for rank in range(pool.size)
    ]
    for rank, (result, index, size) in enumerate(results):
        stage = rank // mesh.size * mesh.size
        group = [stage + member for member in mesh.members(rank - stage, axes)]
        expected = define(method, [pieces[member] for member in group], group.index(rank), sizes)
        tolerance = {torch.bfloat16: 0.1, torch.float32: 1e-5}.get(dtype, 1e-12)
        if method == "all_gather":
            tolerance = 0.0
        torch.testing.assert_close(result, expected, rtol=0, atol=tolerance)
        assert (index, size) == (group.index(rank), len(group))


def define(method: str, pieces: list[Tensor], index: int, sizes: tuple[int, ...] | None) -> Tensor:
    """What a collective means."""
    if method == "all_gather":
        return torch.cat(pieces)
    total = torch.stack(pieces).sum(dim=0)
    if method == "all_reduce":
        return total
    if sizes is None:
        sizes = (total.shape[0] // len(pieces),) * len(pieces)
    return total.split(list(sizes))[index]


@pytest.mark.parametrize("options", SHAPES)
@pytest.mark.parametrize(
    ("method", "rows", "sizes"),
    [
        ("all_reduce", [5] * 4, None),
        ("all_reduce", [0] * 4, None),
        ("all_gather", [2] * 4, None),
        ("all_gather", [2] * 4, (2, 2, 2, 2)),
        ("all_gather", [3, 0, 1, 2], (3, 0, 1, 2)),
        ("all_gather", [0, 0, 0, 4], (0, 0, 0, 4)),
        ("all_gather", [0] * 4, (0, 0, 0, 0)),
        ("all_gather", [0] * 4, None),
        ("reduce_scatter", [8] * 4, None),
        ("reduce_scatter", [8] * 4, (2, 2, 2, 2)),
        ("reduce_scatter", [6] * 4, (3, 0, 1, 2)),
        ("reduce_scatter", [4] * 4, (0, 0, 0, 4)),
        ("reduce_scatter", [0] * 4, None),
        ("reduce_scatter", [0] * 4, (0, 0, 0, 0)),
    ],
)
def test_four_ranks(
    method: str, rows: list[int], sizes: tuple[int, ...] | None, options: dict[str, Any]
) -> None:
    """Even, uneven and empty members; any trailing shape, storage and dtype."""
    check(shared_pool(), LINE, ("attn_tp",), method, rows, sizes, options)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("rows", [[2, 2, 2, 2], [3, 0, 1, 2]])
def test_gather_moves_fp8(rows: list[int], dtype: torch.dtype) -> None:
    """Gloo knows no fp8; its bytes arrive unchanged."""
    options = {"dtype": dtype}
    check(shared_pool(), LINE, ("attn_tp",), "all_gather", rows, tuple(rows), options)


@pytest.mark.parametrize(
    ("axes", "gathered", "scattered"),
    [
        (("attn_dp",), (1, 3), (4, 2)),
        (("attn_tp",), (1, 3), (0, 6)),
        (("attn_dp", "attn_tp"), (3, 0, 1, 2), (1, 2, 3, 0)),
    ],
)
def test_groups_of_a_grid(
    axes: tuple[str, ...], gathered: tuple[int, ...], scattered: tuple[int, ...]
) -> None:
    """Groups over one atom and over both, in rank order."""
    rows = [gathered[GRID.members(rank, axes).index(rank)] for rank in range(4)]
    check(shared_pool(), GRID, axes, "all_reduce", [6] * 4, None, {})
    check(shared_pool(), GRID, axes, "all_gather", rows, gathered, {})
    check(shared_pool(), GRID, axes, "reduce_scatter", [6] * 4, scattered, {})


@pytest.mark.parametrize("axes", [("attn_dp", "attn_tp"), ("attn_dp", "attn_cp"), ("attn_cp",)])
def test_atoms_that_are_not_neighbours(eight: RankPool, axes: tuple[str, ...]) -> None:
    """A group over an outer and an inner atom skips the one between them."""
    sizes = (3, 0, 1, 2)[: 2 ** len(axes)]
    rows = [sizes[CUBE.members(rank, axes).index(rank)] for rank in range(8)]
    check(eight, CUBE, axes, "all_reduce", [3] * 8, None, {})
    check(eight, CUBE, axes, "all_gather", rows, sizes, {})
    check(eight, CUBE, axes, "reduce_scatter", [sum(sizes)] * 8, sizes, {})


def test_pipeline_stages_each_hold_the_mesh(eight: RankPool) -> None:
    """Consecutive runs of ranks are stages: their groups do not mix."""
    options = {"stage_size": 4}
    for axes in (("attn_dp",), ("attn_tp",), ("attn_dp", "attn_tp")):
        check(eight, GRID, axes, "all_reduce", [3] * 8, None, options)
        check(eight, GRID, axes, "all_gather", [2] * 8, None, options)


def test_wrong_sizes_are_refused_before_communicating() -> None:
    """A ValueError on the calling rank, not a hang on all of them."""
    for texts in shared_pool().run("tests.runtime.ranks:wrong_sizes"):
        assert "do not fit sizes (1, 1, 1, 1)" in texts[0]
        assert texts[1] == "6 rows do not divide evenly over 4 members"
        assert texts[2] == "6 rows over 4 members do not fit sizes (1, 1, 1, 1)"
        assert texts[3] == "the mesh has 2 ranks; a stage has 4"
        assert texts[4] == "4 ranks are not whole stages of 3"


def test_single_rank_needs_no_communication() -> None:
    """On one rank every collective returns its argument; a larger mesh is refused."""
    group = SingleGroups().collective(Mesh(()), ())
    x = torch.ones(2, 3)

    assert group.all_reduce(x) is group.all_gather(x, (2,)) is group.reduce_scatter(x) is x
    with pytest.raises(ValueError, match="the mesh has 4"):
        SingleGroups().collective(GRID, ("attn_dp",))


def test_mapped_groups_are_found_by_label_and_checked() -> None:
    """An engine's communicators: a missing one and one with other ranks are refused by name."""
    given = SingleCollective()
    groups = MappedGroups(2, {"attn_dp": given})

    with pytest.raises(ValueError, match="no group is given for `tp`; given: attn_dp"):
        groups.collective(GRID, ("attn_dp", "attn_tp"))
    with pytest.raises(ValueError, match="rank 0 of 1; rank 2 of this mesh is 1 of 2 there"):
        groups.collective(GRID, ("attn_dp",))
