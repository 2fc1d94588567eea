"""docs/plans.md: fresh, never dearer than the reference, and never below what is possible."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

from benchmarks.plans.compare import ROOT, Compared, beside, compared, page


@cache
def found() -> list[Compared]:
    """All comparisons, made once."""
    return compared()


def test_the_page_is_fresh() -> None:
    """What `python -m benchmarks.plans` would write is what is there."""
    assert (ROOT / "docs" / "plans.md").read_text(encoding="utf-8") == page(found())


def test_a_layer_is_never_dearer_than_the_reference_s() -> None:
    """In the order of the batch's regime: collectives first for few rows, bytes for many."""
    for one in found():
        for side in ("sum_len", "max_len"):
            assert one.rank("ours") <= one.rank(side), (one.names, side)
    assert len(found()) > 50


def test_nothing_sends_less_than_the_least() -> None:
    """Neither side of any boundary that the stack meets again and again."""
    for one in found():
        for side in ("ours", "sum_len", "max_len"):
            assert one.sent(side)[1] >= one.least, (one.names, side)


def test_many_rows_reach_the_least_under_data_parallelism() -> None:
    """Bytes first finds plans that send no row more than it must, on each of these."""
    for one in found():
        if one.variant == "ordinary" and not one.few and one.topology.spec.attn_dp > 1:
            assert one.sent("ours")[1] == one.least, one.names


def test_a_stack_with_a_branch_is_shown() -> None:
    """Every boundary of it, each once, and none that sends less than the least."""
    shown = beside()
    assert {(one.topology.spec.name, one.few) for one in shown} == {
        (name, few) for name in ("tp8", "tp8_dp4", "tp8_dp4_a2a") for few in (True, False)
    }
    for one in shown:
        names = {crossing.name.partition(",")[0] for crossing in one.crossings}
        assert names >= {"input of experts -> dense", "experts -> merge", "dense_2 -> merge"}
        assert names >= {"merge -> attention", "merge -> final norm"}
        for crossing in one.crossings:
            rows = sum((each.rows for each in crossing.ours), Fraction())
            assert rows >= crossing.least, (one.names, crossing.name)
    (merged,) = [each for each in shown[0].crossings if each.name == "merge -> attention"]
    assert [each.text for each in merged.ours] == ["all_reduce(tp)"]
