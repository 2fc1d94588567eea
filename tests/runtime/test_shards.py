"""Context-parallel batches: shards, padding, when they apply, and the two orders of their rows."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import Batch, BoundaryError, Column, ContextParallel, Mesh
from boundaryc.runtime.builder import BatchBuilder
from boundaryc.runtime.members import Cut

Lengths = tuple[tuple[int, ...], ...]


def grid(dp: int, cp: int, tp: int) -> Mesh:
    """A mesh with atoms for the axes larger than one."""
    sizes = (("attn_dp", dp), ("attn_cp", cp), ("attn_tp", tp))
    return Mesh(tuple((name, size, name) for name, size in sizes if size > 1))


def build(mesh: Mesh, cp: ContextParallel | None, **facts: Any) -> list[Batch[Any, Cut]]:
    """The batch on every rank; its rows are the cut. Columns ask for whole shards."""
    inner = mesh.extent("attn_cp") * mesh.extent("attn_tp")
    columns = (
        Column("ordinary", row_multiple=inner),
        Column("context_parallel", even=("attn_cp",), row_multiple=inner),
        Column("context_parallel", row_multiple=inner),
    )
    given = {
        "rows_per_dp": [sum(lengths) for lengths in cp.requests] if cp else None,
        "padding": "sum_len",
        "mode": "prefill",
        "sequence_parallel": False,
        "input_scattered": False,
        "embeddings": "complete",
        "columns": columns,
        **facts,
    }
    columns = given.pop("columns")
    return [
        BatchBuilder(mesh, rank, columns, None, lambda cut: cut).build(cp=cp, **given)
        for rank in range(mesh.size)
    ]


def shards_by_hand(split: str, lengths: tuple[int, ...], parts: int) -> list[list[int]]:
    """Token numbers of each shard, found by cutting lists."""
    total = sum(lengths)
    if split == "interleaved":
        return [[token for token in range(total) if token % parts == p] for p in range(parts)]
    held: list[list[int]] = [[] for _ in range(parts)]
    for request in torch.arange(total).split(list(lengths)):
        chunks = [chunk.tolist() for chunk in request.tensor_split(2 * parts)]
        for p in range(parts):
            held[p] += chunks[p] + chunks[2 * parts - 1 - p]
    return held


@pytest.mark.parametrize(
    ("length", "parts", "rows"),
    [
        (7, 2, [3, 4]),
        (9, 2, [5, 4]),
        (19, 4, [5, 5, 5, 4]),
        (2999, 4, [749, 750, 750, 750]),
        (8, 4, [2, 2, 2, 2]),
    ],
)
def test_zigzag_rows(length: int, parts: int, rows: list[int]) -> None:
    """CP-3, CP-4: balanced chunks, one from each end."""
    batches = build(grid(1, parts, 1), ContextParallel("zigzag", ((length,),)))

    assert {batch.variant for batch in batches} == {"context_parallel"}
    assert [batch.real_rows for batch in batches] == rows
    assert [batch.local_rows for batch in batches] == rows
    assert {(batch.group_rows, batch.group_real_rows) for batch in batches} == {(length, length)}


def test_tokens_of_a_zigzag_shard() -> None:
    """CP-1: 9 tokens over two ranks of two; each shard is then cut over attention TP."""
    batches = build(grid(1, 2, 2), ContextParallel("zigzag", ((9,),)), padding="unpadded")

    held = [batch.local_tokens().tolist() for batch in batches]
    assert held == [[0, 1, 2, 7, 8]] * 2 + [[3, 4, 5, 6]] * 2
    assert {batch.rows.leaves for batch in batches} == {(3, 2, 2, 2)}
    assert {batch.plan for batch in batches} == {2}


@pytest.mark.parametrize(
    ("split", "padding", "shards"),
    [
        ("zigzag", "sum_len", [6, 4, 6, 8]),
        ("zigzag", "max_len", [8, 8, 8, 8]),
        ("zigzag", "unpadded", [5, 4, 6, 8]),
        ("interleaved", "sum_len", [6, 6, 8, 8]),
        ("interleaved", "max_len", [8, 8, 8, 8]),
        ("interleaved", "unpadded", [5, 4, 7, 7]),
    ],
)
def test_padding_of_shards(split: Any, padding: str, shards: list[int]) -> None:
    """Shards are padded one by one, to what cuts them further; the real rows are a prefix."""
    requests = ((9,), (7, 7)) if split == "zigzag" else ((9,), (14,))
    real = [5, 4, 6, 8] if split == "zigzag" else [5, 4, 7, 7]
    batches = build(grid(2, 2, 2), ContextParallel(split, requests), padding=padding)

    assert [batch.local_rows for batch in batches[::2]] == shards
    assert [batch.local_rows for batch in batches[1::2]] == shards
    assert [batch.real_rows for batch in batches[::2]] == real
    assert {batch.global_rows for batch in batches} == {sum(shards)}
    assert [batch.group_rows for batch in batches] == [sum(shards[:2])] * 4 + [sum(shards[2:])] * 4
    assert [batch.group_real_rows for batch in batches] == [9] * 4 + [14] * 4


def test_shards_are_rounded_only_where_the_variant_asks() -> None:
    """A variant that never cuts shards over attention TP has a row multiple of one."""
    columns = (Column("context_parallel"),)
    cp = ContextParallel("zigzag", ((9,),))

    assert [b.local_rows for b in build(grid(1, 2, 2), cp, columns=columns)] == [5, 5, 4, 4]
    assert [b.local_rows for b in build(grid(1, 2, 2), cp)] == [6, 6, 4, 4]


@pytest.mark.parametrize(
    ("split", "requests", "variant"),
    [
        ("zigzag", ((3,),), "ordinary"),
        ("zigzag", ((4,),), "context_parallel"),
        ("zigzag", ((7,),), "context_parallel"),
        ("zigzag", ((3, 9),), "ordinary"),
        ("zigzag", ((9, 4),), "context_parallel"),
        ("zigzag", ((),), "ordinary"),
        ("zigzag", ((0, 9),), "ordinary"),
        ("interleaved", ((1,),), "ordinary"),
        ("interleaved", ((2,),), "context_parallel"),
        ("interleaved", ((1, 9),), "ordinary"),
    ],
)
def test_short_requests_have_ordinary_rows(split: Any, requests: Lengths, variant: str) -> None:
    """CP-3: the split rule itself says whether every rank gets rows."""
    batches = build(grid(1, 2, 1), ContextParallel(split, requests))

    assert {batch.variant for batch in batches} == {variant}
    if variant == "context_parallel":
        assert min(batch.real_rows for batch in batches) > 0
    else:
        assert {batch.real_rows for batch in batches} == {sum(requests[0])}


def test_decode_and_one_rank_have_ordinary_rows() -> None:
    """CP-5: in decode every rank holds all rows; where attention is not cut there are no shards."""
    cp = ContextParallel("zigzag", ((10,),))

    assert {b.variant for b in build(grid(1, 2, 2), cp)} == {"context_parallel"}
    assert {b.variant for b in build(grid(1, 2, 2), cp, mode="decode")} == {"ordinary"}
    assert {b.variant for b in build(grid(1, 1, 4), cp)} == {"ordinary"}
    decode = build(grid(1, 2, 2), None, mode="decode", rows_per_dp=[3])
    assert {(b.local_rows, b.real_rows) for b in decode} == {(4, 3)}


def test_a_group_without_requests_is_empty_on_all_its_ranks() -> None:
    """The other groups keep their shards."""
    batches = build(grid(2, 2, 1), ContextParallel("zigzag", ((), (9,))))

    assert {batch.variant for batch in batches} == {"context_parallel"}
    assert [batch.local_rows for batch in batches] == [0, 0, 5, 4]
    assert batches[0].local_tokens().tolist() == []


def test_an_uncompiled_variant_is_an_error() -> None:
    """A batch that is context parallel never falls back to another variant's columns."""
    with pytest.raises(BoundaryError, match="active CONTEXT_PARALLEL batch"):
        build(grid(1, 2, 1), ContextParallel("zigzag", ((9,),)), columns=(Column("ordinary"),))


@pytest.mark.parametrize(
    ("split", "requests", "text"),
    [
        ("striped", ((9,),), "cp.split is 'striped'; it must be one of zigzag, interleaved"),
        ("zigzag", ((-9,),), "cp.requests holds -9"),
        ("zigzag", ((9.0,),), "cp.requests holds 9.0"),
        ("zigzag", ((True,),), "cp.requests holds True"),
    ],
)
def test_a_wrong_split_is_named(split: Any, requests: Any, text: str) -> None:
    """ValueError with the fact's name."""
    with pytest.raises(ValueError, match=text):
        ContextParallel(split, requests)


def gathered(mesh: Mesh, batches: list[Batch[Any, Cut]], group: int) -> tuple[Tensor, list[Tensor]]:
    """The tokens of a DP group as a gather over its shards delivers them, pads as -1."""
    shards = []
    for rank, batch in enumerate(batches):
        if mesh.along(rank, "attn_dp") == group and mesh.along(rank, "attn_tp") == 0:
            shard = torch.full((batch.local_rows,), -1)
            shard[: batch.real_rows] = batch.local_tokens()
            shards.append(shard)
    return torch.cat(shards), shards


@pytest.mark.parametrize("padding", ["sum_len", "max_len", "unpadded"])
@pytest.mark.parametrize("split", ["zigzag", "interleaved"])
@pytest.mark.parametrize("parts", [2, 3, 4])
def test_gathering_shards_gives_the_sequence_back(split: Any, parts: int, padding: str) -> None:
    """CP-4: for every length up to 64, alone and after another request."""
    least = 2 * parts if split == "zigzag" else parts
    for length, slots in product(range(least, 65), (1, 2)):
        for lengths in ((length,), (least + 1, length)):
            mesh = grid(1, parts, slots)
            batches = build(mesh, ContextParallel(split, (lengths,)), padding=padding)
            whole, shards = gathered(mesh, batches, 0)
            real = batches[0].group_real_rows
            by_hand = shards_by_hand(split, lengths, parts)
            assert [batch.local_tokens().tolist() for batch in batches[::slots]] == by_hand
            order = batches[-1].rows.order(rows=())
            in_sequence = order.to_tokens(whole)
            pads = whole.shape[0] - real
            assert in_sequence.tolist() == [*range(real), *[-1] * pads]
            assert order.to_shards(in_sequence).equal(whole)
            moved = batches[0].rows.members(mesh.names[:1], finer=mesh.names[:1])  # over attn_cp
            assert moved.sizes == tuple(len(shard) for shard in shards)


def test_orders_keep_dp_groups_apart() -> None:
    """Rows of all groups, of one, and of a slice of one: each group's tokens come first in it."""
    mesh = grid(2, 2, 2)
    batches = build(mesh, ContextParallel("zigzag", ((9,), (4, 6))), padding="sum_len")
    first, second = gathered(mesh, batches, 0)[0], gathered(mesh, batches, 1)[0]
    inside = [*range(9), -1], [*range(10), *[-1] * (second.shape[0] - 10)]

    both = batches[3].rows.order(rows=()).to_tokens(torch.cat([first, second]))
    assert both.tolist() == inside[0] + inside[1]
    for rank, (own, expected) in ((0, (first, inside[0])), (7, (second, inside[1]))):
        assert batches[rank].rows.order(rows=("attn_dp",)).to_tokens(own).tolist() == expected
    # Attention TP rank 1 holds the second half of each shard.
    shards = gathered(mesh, batches, 0)[1]
    halves = torch.cat([shard[shard.shape[0] // 2 :] for shard in shards])
    order = batches[1].rows.order(rows=("attn_dp", "attn_tp"))
    real = sorted(token for token in halves.tolist() if token >= 0)
    assert order.to_tokens(halves).tolist() == [*real, *[-1] * (len(halves) - len(real))]


def test_rows_on_shards_have_one_order_only() -> None:
    """Sharded rows cannot be put in token order; ordinary batches have nothing to permute."""
    mesh = grid(1, 2, 2)
    batches = build(mesh, ContextParallel("zigzag", ((9,),)))
    with pytest.raises(ValueError, match="not whole over attn_cp"):
        batches[0].rows.order(rows=("attn_cp",))
    with pytest.raises(ValueError, match="not a set of the mesh's atoms"):
        batches[0].rows.order(rows=("attn_dp",))

    ordinary = build(mesh, None, rows_per_dp=[9])[0].rows.order(rows=())
    x = torch.randn(12, 3)
    assert ordinary.identity
    assert ordinary.to_tokens(x) is x
    assert ordinary.to_shards(x) is x


def test_an_order_is_one_graph() -> None:
    """torch.compile traces both permutations; gradients and widths do not matter."""
    order = build(grid(1, 2, 1), ContextParallel("zigzag", ((9,),)))[0].rows.order(rows=())
    x = torch.randn(9, 4, 3, dtype=torch.float64)
    both = torch.compile(
        lambda x: order.to_shards(order.to_tokens(x)), backend="eager", fullgraph=True
    )

    assert not order.identity
    assert both(x).equal(x)
    assert not order.to_tokens(x).equal(x)
