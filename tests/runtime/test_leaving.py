"""How a stream starts and ends, and who owns what meanwhile, in exact numbers.

A sum doubles, the stand-in norm doubles: see `tests.runtime.doubling`. Tests that carry a number
show that line of the behaviours the reference system pins down.
"""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from boundaryc.runtime import BoundaryError, OwedOutput, StreamState
from tests.runtime import doubling
from tests.runtime.doubling import ATTENTION, ENTRY, FFN, Case, filled

NOT_STARTED = "^start the layer stack before entering a stage$"
FOREIGN = (
    "^output does not belong to this residual stream; "
    "change layer outputs through boundary accessors$"
)
UNWRITTEN = "^write the residual update before taking the final output$"


def test_r05_the_final_norm_does_not_do_it_again() -> None:
    """The same at the end of the stack."""
    case = Case()
    hidden = case.stack.complete_output(case.owed(), case.batch)

    assert case.stack.norm(hidden, case.batch, case.norm).eq(10).all()
    assert case.log == ["sum", "norm"]


def test_r20_a_partial_is_freed_though_its_handle_is_kept() -> None:
    """Once the next stage has read it, only the handle is left, and it is refused."""
    case = Case()
    case.residual()
    value = filled(1)
    alive = weakref.ref(value)
    hidden = doubling.leave(value, case.batch)
    del value

    case.stack.complete_output(hidden, case.batch)
    boundary = ATTENTION.bind(case.norm)
    assert boundary.prepare(case.stream.handle, case.batch).eq(10).all()
    gc.collect()
    assert alive() is None
    assert isinstance(hidden, OwedOutput)
    with pytest.raises(BoundaryError, match=FOREIGN):
        boundary.prepare(hidden, case.batch)


def test_r21_the_final_norm_frees_the_stream() -> None:
    """Value 2s over 1s: 3s; both buffers are freed and the batch has no stream any more."""
    case = Case(policy="complete")
    hidden: Any = case.pending(2.0, 1.0)
    buffers = [weakref.ref(hidden), weakref.ref(case.stream.residual)]
    seen = []

    result = case.stack.norm(
        hidden,
        case.batch,
        case.norm,
        capture_output=lambda value, *, owned=False: seen.append(value.clone()),
    )
    del hidden
    gc.collect()

    assert seen[0].eq(3).all()
    assert result.eq(6).all()
    assert [buffer() for buffer in buffers] == [None, None]
    assert case.stream.state is StreamState.UNSTARTED


def test_r24_nothing_runs_before_the_start() -> None:
    """Every stage and accessor has the same answer; starting again drops the old residual."""
    case = Case()
    case.residual()
    old = weakref.ref(case.stream.residual)
    case.stack.start(case.batch)
    gc.collect()
    assert old() is None

    case.batch.release()
    stack, x = case.stack, filled(1)
    uses: list[Callable[[Any, Any], Any]] = [
        ENTRY.bind(case.norm).prepare,
        ATTENTION.bind(case.norm).prepare,
        FFN.bind(case.norm).prepare,
        ATTENTION.finish,
        stack.complete_output,
        stack.fold,
        stack.written,
        stack.take_output,
        stack.snapshot,
        lambda hidden, batch: stack.add_to_output(hidden, batch, x),
        lambda hidden, batch: stack.norm(hidden, batch, case.norm),
    ]
    for use in uses:
        with pytest.raises(BoundaryError, match=NOT_STARTED):
            use(x, case.batch)


def test_r25_the_stream_is_released_before_the_norm_runs() -> None:
    """An owed 1s over 3s: one sum, and the norm finds a batch without a stream."""
    case = Case()
    hidden = case.owed()
    states = []

    class Watching(doubling.StandInNorm):
        def add(self, hidden: Any, residual: Any) -> Any:
            states.append(case.stream.state)
            return super().add(hidden, residual)

    assert case.stack.norm(hidden, case.batch, Watching(case.log)).eq(10).all()
    assert states == [StreamState.UNSTARTED]
    assert case.log == ["sum", "norm"]


def test_r25_a_norm_that_fails_leaves_no_stream() -> None:
    """The next forward of the same batch starts clean."""
    case = Case()

    class Broken(doubling.StandInNorm):
        def add(self, hidden: Any, residual: Any) -> Any:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        case.stack.norm(case.owed(), case.batch, Broken(case.log))
    assert case.stream.state is StreamState.UNSTARTED
    case.stack.start(case.batch)
    assert case.stack.norm(case.owed(), case.batch, case.norm).eq(10).all()


def test_r26_the_final_output_is_taken_once_it_is_written() -> None:
    """Pending: refused and kept. A clone: refused. Written: returned, the stream is gone."""
    case = Case()
    hidden = case.owed()
    with pytest.raises(BoundaryError, match=UNWRITTEN):
        case.stack.take_output(hidden, case.batch)
    complete = case.stack.complete_output(hidden, case.batch)
    with pytest.raises(BoundaryError, match=UNWRITTEN):
        case.stack.take_output(complete, case.batch)

    residual = case.stack.fold(complete, case.batch)
    with pytest.raises(BoundaryError, match=FOREIGN):
        case.stack.take_output(residual.clone(), case.batch)
    assert case.stack.take_output(residual, case.batch) is residual
    assert residual.eq(5).all()
    assert case.stream.state is StreamState.UNSTARTED


@pytest.mark.parametrize("skip_empty", [True, False])
def test_r30_an_empty_rank_captures_without_the_norm(skip_empty: bool) -> None:
    """The capture sees 0 rows, so that every rank captures equally often."""
    case = Case(rows=0, policy="complete")
    shapes = []
    result = case.stack.norm(
        case.pending(),
        case.batch,
        case.norm,
        skip_empty=skip_empty,
        capture_output=lambda value, *, owned=False: shapes.append((tuple(value.shape), owned)),
    )
    assert result.shape == (0, 4)
    assert shapes == [((0, 4), False)]
    assert case.log == ([] if skip_empty else ["norm"])


def test_r32_an_empty_rank_takes_part_in_an_owed_sum() -> None:
    """Others may be waiting in it; the norm does not run, the capture does."""
    case = Case(rows=0)
    shapes = []
    result = case.stack.norm(
        case.owed(),
        case.batch,
        case.norm,
        capture_output=lambda value, *, owned=False: shapes.append(tuple(value.shape)),
    )
    assert result.shape == (0, 4)
    assert case.log == ["sum"]
    assert shapes == [(0, 4)]


def test_r37_a_draft_folds_norms_and_takes_its_output() -> None:
    """1s + 1s = 2s, normed x3 by the model itself: 6s, and the stream is gone."""
    case = Case()
    folded = case.stack.fold(case.pending(1.0, 1.0), case.batch)
    assert folded.eq(2).all()
    hidden = case.stack.written(folded * 3, case.batch)
    assert case.stack.take_output(hidden, case.batch).eq(6).all()
    assert case.stream.state is StreamState.UNSTARTED


def test_an_output_written_at_its_producer_is_taken_on_the_stacks_rows() -> None:
    """What a producer left written moves by its fold before it is handed out."""
    case = Case()
    case.residual()
    hidden = case.stream.keep(filled(8), doubling.Access(fold=lambda value, batch: value[:1]))
    assert case.stack.take_output(hidden, case.batch).tolist() == [[8.0] * 4]


def test_r36_a_copied_batch_has_no_stream() -> None:
    """The copy is started by itself, and what it does is not seen by the batch it came from."""
    case = Case()
    hidden = case.owed()
    other = copy.copy(case.batch)

    assert other.stream.state is StreamState.UNSTARTED
    assert (other.facts, other.plan, other.local_rows) == (case.batch.facts, 0, 2)
    with pytest.raises(BoundaryError, match=NOT_STARTED):
        ATTENTION.bind(case.norm).prepare(hidden, other)
    case.stack.start(other)
    other.stream.residual = other.stream.enter(filled(50))
    other.stream.capture("aux", other.stream.residual)
    assert case.batch.captured("aux") == []
    assert case.stack.norm(hidden, case.batch, case.norm).eq(10).all()
    assert other.stream.residual.eq(50).all()
