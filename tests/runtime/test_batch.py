"""Batches: facts, padding, the rows they resolve to, and the choice of a column."""

from __future__ import annotations

from typing import Any

import pytest

from boundaryc.runtime import Batch, BoundaryError, Column, ContextParallel, Mesh
from boundaryc.runtime.builder import BatchBuilder

GRID = Mesh((("attn_dp", 2, "attn_dp"), ("attn_tp", 4, "attn_tp")))
SHARDS = Mesh((("attn_dp", 2, "attn_dp"), ("attn_cp", 2, "attn_cp"), ("attn_tp", 2, "attn_tp")))
COLUMNS = (
    Column("ordinary", even=("attn_dp",)),
    Column("ordinary"),
    Column("sequence_parallel", even=("attn_dp", "attn_tp"), row_multiple=4),
    Column("sequence_parallel", even=("attn_tp",), row_multiple=4),
)
CP = ContextParallel("zigzag", ((3,), (5,)))
GOOD: dict[str, Any] = {
    "rows_per_dp": [3, 5],
    "padding": "sum_len",
    "mode": "prefill",
    "sequence_parallel": False,
    "cp": None,
    "input_scattered": False,
    "embeddings": "complete",
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
        ("rows_per_dp", 8, "rows_per_dp is 8; it must be a list with the rows of each of 2 atten"),
        ("padding", "max", "padding is 'max'; it must be one of sum_len, max_len, unpadded"),
        ("mode", "extend", "mode is 'extend'; it must be one of prefill, decode"),
        ("sequence_parallel", 1, "sequence_parallel is 1; it must be True or False"),
        ("input_scattered", None, "input_scattered is None; it must be True or False"),
        ("embeddings", "reduced", "embeddings is 'reduced'; it must be one of complete, partial"),
        ("embeddings", "partial", "embeddings is 'partial'; only an input_scattered batch"),
        ("cp", "zigzag", "cp is 'zigzag'; it must be a ContextParallel or None"),
        ("cp", ContextParallel("zigzag", ((3,), (2, 2))), r"cp.requests add up to \(3, 4\) rows"),
        ("cp", ContextParallel("zigzag", ((5,), (3,))), r"cp.requests add up to \(5, 3\) rows"),
        ("cp", ContextParallel("zigzag", ((3,),)), r"cp.requests add up to \(3,\) rows"),
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


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"cp": CP, "sequence_parallel": True}, "cp and sequence_parallel contradict each other"),
        ({"cp": CP, "input_scattered": True}, "cp and input_scattered contradict each other"),
        (
            {"input_scattered": True, "sequence_parallel": True},
            "input_scattered and sequence_parallel contradict each other",
        ),
    ],
)
def test_contradictory_facts_are_refused(changes: dict[str, Any], text: str) -> None:
    """A batch is of one variant."""
    with pytest.raises(ValueError, match=text):
        build({**GOOD, **changes})


def test_ordinary_rows_are_whole_over_context_parallel_ranks() -> None:
    """Every attention CP rank holds all rows of its group where the batch is not cut over them."""
    columns = (Column("ordinary", row_multiple=4),)
    batches = [
        build({**GOOD, "rows_per_dp": [5, 1]}, mesh=SHARDS, rank=rank, columns=columns)
        for rank in range(8)
    ]

    assert [batch.local_rows for batch in batches] == [8] * 4 + [4] * 4
    assert [batch.real_rows for batch in batches] == [5] * 4 + [1] * 4
    for batch in batches:
        assert (batch.group_rows, batch.group_real_rows) == (batch.local_rows, batch.real_rows)
        assert batch.local_tokens().tolist() == list(range(batch.real_rows))


@pytest.mark.parametrize(
    ("tokens", "ranks", "leaf"), [(16, 8, 2), (1023, 8, 128), (3, 4, 1), (0, 4, 0)]
)
def test_input_scattered_rows(tokens: int, ranks: int, leaf: int) -> None:
    """IS-1, IS-3: attention takes equal padded slices; the stack is entered on all rows."""
    mesh = Mesh((("attn_tp", ranks, "attn_tp"),))
    columns = (
        Column("input_scattered", row_multiple=ranks),
        Column("input_scattered", row_multiple=ranks, entry="partial"),
    )
    facts = {**GOOD, "rows_per_dp": [tokens], "input_scattered": True}
    for entry, plan in (("complete", 0), ("partial", 1)):
        built = [
            build({**facts, "embeddings": entry}, mesh=mesh, rank=rank, columns=columns)
            for rank in range(ranks)
        ]
        assert {batch.plan for batch in built} == {plan}
        assert {batch.local_rows for batch in built} == {leaf}
        assert {batch.group_rows for batch in built} == {leaf * ranks}
        assert {batch.group_real_rows for batch in built} == {tokens}
        held = [token for batch in built for token in batch.local_tokens().tolist()]
        assert held == list(range(tokens))
        assert [batch.real_rows for batch in built] == [
            len(range(rank * leaf, min((rank + 1) * leaf, tokens))) for rank in range(ranks)
        ]


def test_a_partial_input_needs_a_column_of_its_own() -> None:
    """IS-1: what is entered complete is never run as if it owed a sum, nor the reverse."""
    for entry, other in (("complete", "partial"), ("partial", "complete")):
        columns = (Column("input_scattered", entry=other),)
        facts = {**GOOD, "rows_per_dp": [4], "input_scattered": True, "embeddings": entry}
        with pytest.raises(BoundaryError, match="active INPUT_SCATTERED batch"):
            build(facts, mesh=Mesh((("attn_tp", 4, "attn_tp"),)), columns=columns)


def test_few_rows_have_columns_of_their_own() -> None:
    """``max_rows`` counts the padded rows of all groups, and None serves any number."""
    columns = (
        Column("ordinary", even=("attn_dp",), max_rows=8),
        Column("ordinary", max_rows=9),
        Column("ordinary"),
    )
    cases = {(4, 4): 0, (5, 4): 1, (5, 5): 2, (0, 0): 0, (9, 0): 1, (10, 0): 2}
    for rows, plan in cases.items():
        facts = {**GOOD, "rows_per_dp": rows}
        assert {build(facts, rank=rank, columns=columns).plan for rank in range(8)} == {plan}
    facts = {**GOOD, "rows_per_dp": [1, 5], "padding": "max_len"}
    assert build(facts, columns=columns).plan == 2


def test_a_mode_may_have_columns_of_its_own() -> None:
    """Those of prefills stand before one for any mode; all ranks state the same one."""
    columns = (
        Column("ordinary", mode="prefill", max_rows=8),
        Column("ordinary", mode="prefill"),
        Column("ordinary"),
    )
    for mode, rows, plan in (("prefill", 4, 0), ("prefill", 9, 1), ("decode", 4, 2)):
        facts = {**GOOD, "rows_per_dp": [rows, 0], "mode": mode}
        assert {build(facts, rank=rank, columns=columns).plan for rank in range(8)} == {plan}


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
