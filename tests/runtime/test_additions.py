"""What a model adds to an output between two stages, in exact numbers.

A sum doubles, the stand-in norm doubles: see `tests.runtime.doubling`. Tests that carry a number
show that line of the behaviours the reference system pins down.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from boundaryc.runtime import BoundaryError, StreamState
from tests.runtime import doubling
from tests.runtime.doubling import ATTENTION, Case, filled

FOREIGN = (
    "^output does not belong to this residual stream; "
    "change layer outputs through boundary accessors$"
)


def test_r16_an_extra_contribution_enters_once() -> None:
    """7s to an owed 1s: 9s after one sum, residual untouched, update still pending."""
    case = Case()
    hidden = case.stack.add_to_output(case.owed(), case.batch, filled(7))

    assert hidden.eq(9).all()
    assert case.log == ["sum"]
    assert case.stream.residual.eq(3).all()
    assert case.stream.state is StreamState.PENDING
    assert ATTENTION.bind(case.norm).prepare(hidden, case.batch).eq(24).all()
    assert case.log == ["sum", "norm"]


@pytest.mark.parametrize("written", [False, True])
def test_an_extra_contribution_to_a_complete_output(written: bool) -> None:
    """Of a written stream it is added to the residual; a new object is handed out either way."""
    case = Case()
    hidden: Any = case.pending()
    if written:
        hidden = case.stack.fold(hidden, case.batch)
    added = case.stack.add_to_output(hidden, case.batch, filled(7))

    assert added.eq(11 if written else 8).all()
    assert hidden.eq(4 if written else 1).all()
    with pytest.raises(BoundaryError, match=FOREIGN):
        case.stack.snapshot(hidden, case.batch)
    boundary = doubling.AFTER_COMPLETE.bind(case.norm)
    assert boundary.prepare(added, case.batch).eq(22).all()
    assert case.stream.residual.eq(11).all()


def test_an_extra_contribution_must_fit() -> None:
    """Rows that are not the output's are refused, never broadcast."""
    case = Case()
    hidden = case.pending()
    with pytest.raises(BoundaryError, match=r"shape \(1, 4\) does not fit .* \(2, 4\)"):
        case.stack.add_to_output(hidden, case.batch, filled(7, rows=1))
    assert case.stack.snapshot(hidden, case.batch).eq(4).all()


def test_ex1_each_form_of_an_addition_keeps_its_order_and_rounding() -> None:
    """(h + extra) + residual is 1.015625 in bfloat16, (h + residual) + extra 1.0078125."""
    numbers = {}
    for form in ("add_to_output", "post_residual_addition"):
        case = Case()
        h, extra, residual = (
            torch.full((2, 4), value, dtype=torch.bfloat16) for value in (1.0, 2.0**-7, 2.0**-8)
        )
        case.stream.residual = case.stream.enter(residual)
        hidden = doubling.pend(h, case.batch)
        boundary = doubling.AFTER_COMPLETE.bind(case.norm)
        if form == "add_to_output":
            boundary.prepare(case.stack.add_to_output(hidden, case.batch, extra), case.batch)
        else:
            boundary.prepare(hidden, case.batch, post_residual_addition=extra)
        numbers[form] = case.stream.residual[0, 0].item()
    assert numbers == {"add_to_output": 1.015625, "post_residual_addition": 1.0078125}


def test_a_partial_input_is_only_for_the_first_stage() -> None:
    """Embeddings that still owe a sum cannot be shown, completed or added to."""
    case = Case()
    batch: Any = case.batch
    object.__setattr__(batch.facts, "embeddings", "partial")
    for use in (case.stack.complete_output, case.stack.snapshot):
        with pytest.raises(BoundaryError, match="still owes a sum"):
            use(filled(1), batch)
