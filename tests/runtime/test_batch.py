"""Batches: facts, padding, the rows they resolve to, and the choice of a column."""

from __future__ import annotations

from typing import Any

import pytest

from boundaryc.runtime import Batch, BoundaryError, Column, Mesh
from boundaryc.runtime.batch import BatchBuilder

GRID = Mesh((("attn_dp", 2, "attn_dp"), ("attn_tp", 4, "attn_tp")))
SHARDS = Mesh((("attn_dp", 2, "attn_dp"), ("attn_cp", 2, "attn_cp"), ("attn_tp", 2, "attn_tp")))
COLUMNS = (
    Column("ordinary", even=("attn_dp",)),
    Column("ordinary"),
    Column("sequence_parallel", even=("attn_dp", "attn_tp"), row_multiple=4),
    Column("sequence_parallel", even=("attn_tp",), row_multiple=4),
)
GOOD: dict[str, Any] = {
    "rows_per_dp": [3, 5],
    "padding": "sum_len",
    "mode": "prefill",
    "sequence_parallel": False,
}


def build(
    facts: dict[str, Any],
    *,
    mesh: Mesh = GRID,
    rank: int = 0,
    columns: tuple[Column, ...] = COLUMNS,
) -> Batch[Any, Any]:
    """A batch whose rows are its cut."""
    return BatchBuilder(mesh, rank, columns, None, lambda cut: cut).build(**facts)


@pytest.mark.parametrize("fact", list(GOOD))
def test_a_missing_fact_is_a_type_error(fact: str) -> None:
    """No fact is guessed."""
    with pytest.raises(TypeError, match=fact):
        build({name: value for name, value in GOOD.items() if name != fact})


@pytest.mark.parametrize(
    ("fact", "value", "text"),
    [
        ("rows_per_dp", [3], r"rows_per_dp has 1 entries; .* 2 attention DP group"),
        ("rows_per_dp", [3, 5, 1], "rows_per_dp has 3 entries"),
        ("rows_per_dp", [3, -1], r"rows_per_dp holds a negative row count: \(3, -1\)"),
        ("rows_per_dp", [3, 1.5], "rows_per_dp holds row counts"),
        ("rows_per_dp", [3, True], "rows_per_dp holds row counts"),
        ("padding", "max", "padding is 'max'; it must be one of sum_len, max_len, unpadded"),
        ("mode", "extend", "mode is 'extend'; it must be one of prefill, decode"),
    ],
)
def test_a_wrong_fact_is_named(fact: str, value: object, text: str) -> None:
    """ValueError with the fact's name and what it may be."""
    with pytest.raises(ValueError, match=text):
        build({**GOOD, fact: value})


@pytest.mark.parametrize(
    ("padding", "sequence_parallel", "padded"),
    [
        ("sum_len", False, (3, 5)),
        ("max_len", False, (5, 5)),
        ("unpadded", False, (3, 5)),
        ("sum_len", True, (4, 8)),
        ("max_len", True, (8, 8)),
    ],
)
def test_padding(padding: str, sequence_parallel: bool, padded: tuple[int, int]) -> None:
    """Rows are rounded only where the variant says so; real rows are a prefix of them."""
    facts = {**GOOD, "padding": padding, "sequence_parallel": sequence_parallel}
    for rank in range(8):
        batch = build(facts, rank=rank)
        assert batch.local_rows == padded[rank // 4]
        assert batch.real_rows == (3, 5)[rank // 4]
        assert batch.global_rows == sum(padded)
        assert sum(batch.rows.leaves) == sum(padded)


def test_empty_groups_stay_empty_unless_padded_to_the_largest() -> None:
    """Zero rows are a multiple of everything."""
    facts = {**GOOD, "rows_per_dp": [0, 5], "sequence_parallel": True}

    assert build(facts).local_rows == 0
    assert build({**facts, "padding": "max_len"}).local_rows == 8
    assert build({**facts, "padding": "max_len"}).real_rows == 0
    assert build({**facts, "rows_per_dp": [0, 0]}).global_rows == 0


def test_real_rows_of_a_shard() -> None:
    """Under attn_cp the tokens of a group end in one of its shards; later ones hold padding."""
    columns = (Column("ordinary", row_multiple=4),)
    facts = {**GOOD, "rows_per_dp": [5, 1]}
    batches = [build(facts, mesh=SHARDS, rank=rank, columns=columns) for rank in range(8)]

    assert [batch.local_rows for batch in batches] == [4, 4, 4, 4, 2, 2, 2, 2]
    assert [batch.real_rows for batch in batches] == [4, 4, 1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize(
    ("changes", "plan"),
    [
        ({}, 1),
        ({"padding": "max_len"}, 0),
        ({"rows_per_dp": [4, 4], "padding": "unpadded"}, 0),
        ({"rows_per_dp": [0, 0]}, 0),
        ({"sequence_parallel": True}, 3),
        ({"sequence_parallel": True, "padding": "max_len"}, 2),
        ({"sequence_parallel": True, "rows_per_dp": [2, 4]}, 2),
    ],
)
def test_the_first_column_that_fits_is_taken(changes: dict[str, Any], plan: int) -> None:
    """The column follows from facts alone: it is the same on all ranks."""
    assert {build({**GOOD, **changes}, rank=rank).plan for rank in range(8)} == {plan}


def test_no_column_is_an_error_and_no_fallback() -> None:
    """A variant without a path is refused by name, whether absent or too narrow."""
    uneven = {**GOOD, "rows_per_dp": [5, 5], "padding": "unpadded", "sequence_parallel": True}
    text = "no stage boundary path for the active SEQUENCE_PARALLEL batch"
    for columns in (COLUMNS, COLUMNS[:2]):
        with pytest.raises(BoundaryError, match=f"^{text}$"):
            build(uneven, columns=columns)
    with pytest.raises(BoundaryError, match=r"^no stage .* active ORDINARY batch$"):
        build(GOOD, columns=COLUMNS[2:])
