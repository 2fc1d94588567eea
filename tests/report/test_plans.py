"""docs/plans.md: fresh, never dearer than the reference, and never below what is possible."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

from boundaryc.report.plans import ROOT, Compared, compared, page


@cache
def found() -> list[Compared]:
    """All comparisons, made once."""
    return compared()


def test_the_page_is_fresh() -> None:
    """What `python -m boundaryc.report.plans` would write is what is there."""
    assert (ROOT / "docs" / "plans.md").read_text(encoding="utf-8") == page()


def test_a_layer_is_never_dearer_than_the_reference_s() -> None:
    """In the order of the batch's regime: collectives first for few rows, bytes for many."""
    for one in found():
        for side in ("sum_len", "max_len"):
            assert one.rank("ours") <= one.rank(side), (one.names, side)
    assert len(found()) > 50


def test_nothing_sends_less_than_the_least() -> None:
    """Neither side of any boundary that the stack meets again and again."""
    for one in found():
        least = sum(crossing.least for crossing in one.layer)
        for side in ("ours", "sum_len", "max_len"):
            sent = [each for crossing in one.layer for each in getattr(crossing, side)]
            assert sum((each.rows for each in sent), Fraction()) >= least, (one.names, side)


def test_many_rows_reach_the_least_under_data_parallelism() -> None:
    """Bytes first finds plans that send no row more than it must, on each of these."""
    for one in found():
        if one.variant == "ordinary" and not one.few and one.topology.spec.attn_dp > 1:
            sent = [each for crossing in one.layer for each in crossing.ours]
            least = sum(crossing.least for crossing in one.layer)
            assert sum((each.rows for each in sent), Fraction()) == least, one.names
