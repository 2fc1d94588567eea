"""The small parts: names, runs, columns, layout, and the examples in their docstrings."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

import boundaryc.emit
from boundaryc.emit.columns import merged
from boundaryc.emit.files import Origin
from boundaryc.emit.layout_text import tuple_lines
from boundaryc.emit.naming import suffixes
from boundaryc.emit.output import emit
from boundaryc.emit.render import templates_directory
from boundaryc.emit.runs import runs
from boundaryc.emit.when import batches
from boundaryc.language import loads
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.result import Column

MODULES = [
    f"boundaryc.emit.{module.name}" for module in pkgutil.iter_modules(boundaryc.emit.__path__)
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    """They are run as they stand."""
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@given(st.lists(st.sampled_from("ab"), max_size=40))
def test_runs_say_the_same(names: list[str]) -> None:
    """Writing the runs out gives the names again."""
    assert [n for run in runs(names) for n in run.names * run.count] == names


@given(st.lists(st.fixed_dictionaries({"x": st.sampled_from("ab"), "y": st.sampled_from("ab")}),
                min_size=1, max_size=6))  # fmt: skip
def test_suffixes_differ(traits: list[dict[str, str]]) -> None:
    """Always, and the first has none."""
    found = suffixes(traits)

    assert found[0] == ""
    assert len(set(found)) == len(found)


EVEN = [("a", "b"), ("a",), ("b",), ()]


@given(st.lists(st.integers(0, 2), min_size=4, max_size=4))
def test_merged_columns_serve_every_batch(behaviours: list[int]) -> None:
    """Each batch finds what was planned for it, among the fewest columns that greed finds."""
    columns = [Column("ordinary", even) for even in EVEN]
    kept = merged(columns, behaviours)

    for index, even in enumerate(EVEN):
        first = next(k for k in kept if set(columns[k].even) <= set(even))
        assert behaviours[first] == behaviours[index]
    if len(set(behaviours)) == 1:
        assert kept == (3,)


@pytest.mark.parametrize("large", ["few", "many"])
def test_columns_of_few_and_many_rows(large: str) -> None:
    """Two behaviours by size need two columns, the bounded one first; equal ones need one."""
    columns = [Column("ordinary", (), few=True), Column("ordinary", (), few=False)]

    kept = merged(columns, ["few", large])

    assert kept == ((0, 1) if large == "many" else (1,))


@given(st.lists(st.integers(0, 2), min_size=8, max_size=8))
def test_merged_columns_by_mode_and_size(behaviours: list[int]) -> None:
    """Each batch finds what was planned for it: decoding passes by what is for prefills."""
    columns = [
        Column("ordinary", even, few=few, mode=mode)
        for mode in ("prefill", "decode")
        for even in (("a",), ())
        for few in (True, False)
    ]
    kept = merged(columns, behaviours)

    for index, wanted in enumerate(columns):
        first = next(
            k
            for k in kept
            if columns[k].mode in ("decode", wanted.mode)
            and set(columns[k].even) <= set(wanted.even)
            and (wanted.few or not columns[k].few)
        )
        assert behaviours[first] == behaviours[index]
    if len(set(behaviours)) == 1:
        assert kept == (7,)


def test_batches_in_words() -> None:
    """Modes and sizes by name, and what remains by what it is not."""
    pre, dec = (
        [Column("ordinary", ("a",), few=few, mode=mode) for few in (True, False)]
        for mode in ("prefill", "decode")
    )
    both = [*pre, *dec]

    assert batches(both, pre) == "batches in prefill"
    assert batches(both, dec[:1]) == "batches in decode of few rows"
    assert batches(both, [*pre[:1], *dec]) == "batches other than those in prefill of many rows"


def test_a_tuple_of_one_is_a_tuple_at_every_width() -> None:
    """Its comma may be what no longer fits."""
    for width in range(85, 100):
        lines = tuple_lines("NAME = ", ["x" * width])
        assert "".join(lines).replace(" ", "") == f"NAME=({'x' * width},)"


def test_templates_are_found() -> None:
    """In a checkout; an installed package has them inside (see the packaging tests)."""
    assert (templates_directory() / "module.py.jinja").is_file()


def test_a_decision_follows_all_functions_it_names() -> None:
    """An exit of which only an alternative names a rank for its tail still imports."""
    text = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6, accumulate: rounded}
stages:
  attention: {kind: attention, read: raw}
  mlp: {kind: ffn, sparse: true, read: raw, joins_sum: allow}
  tailed: {kind: ffn, sparse: true, reduction: local_tail}
layers: {count: 3, default: [mlp, attention, tailed], at: {2: [attention]}}
topologies: {t: {tp: 12, attn_dp: 12, moe: {dp: 1, ep: 2}}}
variants: [ordinary]
"""
    files = emit(plan_stack(loads(text)), Origin("x", "y", "0" * 64)).files

    (module,) = (one for one in files.values() if "adds_tail=tailed_tail" in one)
    assert module.index("def tailed_tail") < module.index("adds_tail=tailed_tail")
