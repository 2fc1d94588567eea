"""Captures of the stack file at a pipeline cut: they stay, or travel on, and are checked then."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.verify.world import SimulatedGroups
from tests.runtime.test_pipeline import (
    COMPLETE,
    HEADED,
    PARTIAL,
    TOPOLOGIES,
    Part,
    on_ranks,
    refused,
)


def test_captures_stay_where_they_are_taken() -> None:
    """What is kept between two layers is kept by the ranks that read it."""

    def program(groups: SimulatedGroups) -> tuple[int, int]:
        first = Part(groups, PARTIAL, range(2))
        sent = first.stack.to_pp(first.run(first.enter()), first.batch)
        second = Part(groups, PARTIAL, range(2, 5))
        second.run(second.stack.from_pp(sent, second.batch))
        return len(first.batch.captured("kept")), len(second.batch.captured("kept"))

    assert on_ranks(program) == [(1, 1)] * 2


@pytest.mark.parametrize("rows", ["producer", "input"])
def test_captures_that_travel(rows: str) -> None:
    """At every later cut, so that the last ranks have all of them, in the order of the layers."""
    kept = f"captures: {{kept: {{before: [1, 3, 4], rows: {rows}, travels: true}}}}\n"
    whole = HEADED + TOPOLOGIES + kept

    def program(groups: SimulatedGroups, tail: str, cuts: tuple[int, ...]) -> list[Tensor]:
        hidden: Any = None
        sent: dict[str, Tensor] = {}
        for first, stop in pairwise((0, *cuts, 5)):
            part = Part(groups, whole + tail, range(first, stop), "tp4_dp2")
            hidden = part.stack.from_pp(sent, part.batch) if first else part.enter()
            hidden = part.run(hidden)
            if stop < 5:
                told = part.stack.payload(part.batch, incoming=False)
                sent = part.stack.to_pp(hidden, part.batch)
                assert [(t.name, t.rows) for t in told] == [
                    (name, tensor.shape[0]) for name, tensor in sent.items()
                ]
        part.end(hidden)
        captured: list[Tensor] = part.batch.captured("kept")
        return captured

    for tail in (PARTIAL, COMPLETE):
        uncut = on_ranks(lambda groups, tail=tail: program(groups, tail, ()), 4)
        cut = on_ranks(lambda groups, tail=tail: program(groups, tail, (1, 2, 3, 4)), 4)
        for ranks in zip(uncut, cut, strict=True):
            assert [len(captured) for captured in ranks] == [3, 3]
            for one, other in zip(*ranks, strict=True):
                torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_captures_that_are_wrong_are_refused() -> None:
    """One that is missing, and others of other rows, sizes and dtypes."""
    kept = "captures: {kept: {before: [1], rows: producer, travels: true}}\n"
    name = "captured.kept.0"

    def given(change: Callable[[Tensor], Tensor | None]) -> Callable[[SimulatedGroups], Any]:
        def program(groups: SimulatedGroups) -> Any:
            first = Part(groups, HEADED + TOPOLOGIES + kept + PARTIAL, range(2))
            sent = first.stack.to_pp(first.run(first.enter()), first.batch)
            changed = change(sent.pop(name))
            sent |= {} if changed is None else {name: changed}
            second = Part(groups, HEADED + TOPOLOGIES + kept + PARTIAL, range(2, 5))
            return second.stack.from_pp(sent, second.batch)

        return program

    refused(given(lambda _: None), f"`{name}` is missing: captures that travel go on at every cut")
    refused(given(lambda x: x[:2]), f"`{name}` must have 3 rows on this rank, not shape .2, ")
    refused(given(lambda x: x[:, None]), f"`{name}` must have 3 rows on this rank, not shape .3, 1")
    refused(given(lambda x: x[:, :8]), f"`{name}` is .3, 8. .*; widths and dtypes are equal")
    refused(given(lambda x: x.float()), f"`{name}` is .* torch.float32 .* widths and dtypes are")
