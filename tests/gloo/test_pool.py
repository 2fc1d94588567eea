"""The pool of ranks: results in order, tracebacks, time limits, and no process left hanging."""

from __future__ import annotations

import time

import pytest

from tests.gloo.pool import RankError, RankTimeoutError, shared_pool


def test_ranks_persist_and_answer_in_order() -> None:
    """Two runs meet the same four processes, each with one torch thread."""
    first = shared_pool().run("tests.gloo.ranks:sum_of_ranks", 0.5)
    second = shared_pool().run("tests.gloo.ranks:sum_of_ranks", 1.0)

    assert [total for total, _, _ in first] == [8.0] * 4
    assert [total for total, _, _ in second] == [10.0] * 4
    assert [pid for _, pid, _ in first] == [pid for _, pid, _ in second]
    assert len({pid for _, pid, _ in first}) == 4
    assert {threads for _, _, threads in first} == {1}


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        ("fail_on", RankError, "seeded failure"),
        ("die_on", RankError, "exit code 7"),
        ("hang_on", RankTimeoutError, r"no answer from ranks \[2\]"),
    ],
)
def test_a_lost_rank_ends_the_run_and_not_the_pool(
    function: str, error: type[Exception], text: str
) -> None:
    """One bad rank of four is reported in time; the next run has four good ones."""
    shared_pool().run("tests.gloo.ranks:sum_of_ranks", 0.0)
    began = time.monotonic()

    with pytest.raises(error, match=text):
        shared_pool().run(f"tests.gloo.ranks:{function}", 2, timeout_s=4.0)

    assert time.monotonic() - began < 15
    assert [total for total, _, _ in shared_pool().run("tests.gloo.ranks:sum_of_ranks", 0.0)] == [
        6.0
    ] * 4
