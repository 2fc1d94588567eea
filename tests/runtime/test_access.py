"""What a model may do with an output between two stages, in exact numbers.

A sum doubles, the stand-in norm doubles: see `tests.runtime.doubling`. Tests that carry a number
show that line of the behaviours the reference system pins down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from boundaryc.runtime import AttentionBoundary, BoundaryError, Form, Resume, StreamState, add
from tests.runtime import doubling
from tests.runtime.doubling import ATTENTION, ENTRY, FFN, Case, filled

NOT_STARTED = "^start the layer stack before entering a stage$"
FOREIGN = (
    "^output does not belong to this residual stream; "
    "change layer outputs through boundary accessors$"
)


def test_r01_a_written_stream_skips_enter() -> None:
    """An entry that starts the residual as 3x its input runs once; the written residual is read."""
    case = Case()
    entered = []

    def start(hidden: Any, batch: Any, norm: Any) -> Any:
        entered.append(1)
        batch.stream.residual = batch.stream.enter(hidden) * 3
        return norm(batch.stream.residual)

    entry = AttentionBoundary(
        (doubling.planned(start),),
        (doubling.leave,),
        resume=(Resume(written=doubling.after_written),),
    ).bind(case.norm)

    assert entry.prepare(filled(1), case.batch).eq(6).all()
    hidden = case.stack.written(case.stream.residual, case.batch)
    assert entry.prepare(hidden, case.batch).eq(6).all()
    assert entered == [1]


def test_r02_the_update_that_travels_runs_once() -> None:
    """The parameters in the stream are those of the producer that left the contribution."""
    for gate, expected in ((4.0, 14.0), (9.0, 24.0)):
        case = Case()
        case.residual()

        def gated(hidden: Any, batch: Any) -> Any:
            stream = batch.stream
            value = stream.take(hidden)
            stream.residual = stream.residual + value * stream.params[0]
            return stream.residual * 2

        hidden = case.stream.pend(filled(1), (gate,))
        boundary = AttentionBoundary((doubling.planned(gated),), (doubling.leave,))
        assert boundary.prepare(hidden, case.batch).eq(expected).all()
        assert case.stream.state is StreamState.WRITTEN
        assert case.stream.handle is None


def test_r05_a_sum_completed_by_hand_is_not_done_again() -> None:
    """Completed early, the next stage only adds: residual 5s after one sum."""
    case = Case()
    hidden = case.stack.complete_output(case.owed(), case.batch)

    assert hidden.eq(2).all()
    assert case.stream.form is Form.COMPLETED
    assert ATTENTION.bind(case.norm).prepare(hidden, case.batch).eq(10).all()
    assert case.stream.residual.eq(5).all()
    assert case.log == ["sum", "norm"]


@pytest.mark.parametrize("form", ["planned", "completed", "written"])
@pytest.mark.parametrize("boundary", [ATTENTION, doubling.MIXER, FFN])
def test_prepare_returns_what_the_read_makes(boundary: Any, form: str) -> None:
    """Twice the residual of 5s, whatever the stream was like, and not the residual."""
    case = Case()
    hidden: Any = case.owed()
    if form == "completed":
        hidden = case.stack.complete_output(hidden, case.batch)
    if form == "written":
        hidden = case.stack.fold(hidden, case.batch)

    assert boundary.bind(case.norm).prepare(hidden, case.batch).eq(10).all()
    assert case.stream.residual.eq(5).all()


def test_r08_a_snapshot_sums_a_copy() -> None:
    """5s; the value stays 1s, the residual 3s, and the sum is still owed."""
    case = Case()
    hidden = case.owed()

    assert case.stack.snapshot(hidden, case.batch).eq(5).all()
    assert case.stream.value.eq(1).all()
    assert case.stream.residual.eq(3).all()
    assert case.stream.state is StreamState.PENDING
    assert case.stream.handle is hidden
    assert ATTENTION.bind(case.norm).prepare(hidden, case.batch).eq(10).all()


def test_r09_a_handle_is_not_a_tensor() -> None:
    """Arithmetic and indexing are TypeErrors; see test_stream for every other use."""
    hidden = Case().owed()
    with pytest.raises(TypeError, match="owes a sum"):
        hidden + 1  # type: ignore[operator]
    with pytest.raises(TypeError, match="owes a sum"):
        hidden[0]  # type: ignore[index]


def test_r10_completing_twice_runs_one_sum() -> None:
    """The second call returns the same object."""
    case = Case()
    first = case.stack.complete_output(case.owed(), case.batch)
    assert case.stack.complete_output(first, case.batch) is first
    assert first.eq(2).all()
    assert case.log == ["sum"]


def test_r12_the_old_handle_is_refused_after_completing() -> None:
    """So is a clone of the completed tensor."""
    case = Case()
    hidden = case.owed()
    complete = case.stack.complete_output(hidden, case.batch)

    for wrong in (hidden, complete.clone()):
        for use in (case.stack.complete_output, case.stack.fold, case.stack.snapshot):
            with pytest.raises(BoundaryError, match=FOREIGN):
                use(wrong, case.batch)
        with pytest.raises(BoundaryError, match=FOREIGN):
            ATTENTION.bind(case.norm).prepare(wrong, case.batch)
    assert case.log == ["sum"]


def test_r17_handles_of_two_microbatches_do_not_mix() -> None:
    """Swapped handles are refused by every accessor and boundary, and both streams are kept."""
    first, second = Case(), Case()
    one, two = first.owed(), second.owed(10.0)

    for case, wrong in ((first, two), (second, one)):
        uses: list[Callable[[Any, Any], Any]] = [
            case.stack.complete_output,
            case.stack.fold,
            case.stack.snapshot,
            case.stack.take_output,
            lambda hidden, batch, case=case: case.stack.add_to_output(hidden, batch, filled(7)),
            lambda hidden, batch, case=case: case.stack.norm(hidden, batch, case.norm),
            ATTENTION.bind(case.norm).prepare,
            FFN.bind(case.norm).prepare,
        ]
        for use in uses:
            with pytest.raises(BoundaryError, match=FOREIGN):
                use(wrong, case.batch)
    assert first.stack.norm(one, first.batch, first.norm).eq(10).all()
    assert second.stack.norm(two, second.batch, second.norm).eq(46).all()


def test_r17_a_second_contribution_is_refused() -> None:
    """The first one is kept, its access included."""
    case = Case()
    hidden = case.owed()
    with pytest.raises(BoundaryError, match="a contribution is already pending"):
        doubling.pend(filled(9), case.batch)
    assert case.stack.complete_output(hidden, case.batch).eq(2).all()


def test_r18_after_folding_the_residual_itself_is_read() -> None:
    """The old handle is refused; the written residual is read without an update."""
    case = Case()
    hidden = case.owed()
    residual = case.stack.fold(hidden, case.batch)

    assert residual.eq(5).all()
    assert case.stream.state is StreamState.WRITTEN
    assert case.stack.fold(residual, case.batch) is residual
    assert case.stack.complete_output(residual, case.batch) is residual
    with pytest.raises(BoundaryError, match=FOREIGN):
        ATTENTION.bind(case.norm).prepare(hidden, case.batch)
    assert FFN.bind(case.norm).prepare(residual, case.batch).eq(10).all()
    assert case.stream.residual.eq(5).all()
    assert case.log == ["sum", "norm"]


def test_folding_after_completing_does_one_sum() -> None:
    """Completed, shown and folded: 5s each time, and one sum in all."""
    case = Case()
    hidden = case.stack.complete_output(case.owed(), case.batch)

    assert case.stack.snapshot(hidden, case.batch).eq(5).all()
    assert case.stack.fold(hidden, case.batch).eq(5).all()
    assert case.log == ["sum"]


def test_written_discards_what_is_pending() -> None:
    """Compute that made the whole residual: no sum runs, the old handle is refused."""
    case = Case()
    hidden = case.owed()
    residual = filled(20)

    assert case.stack.written(residual, case.batch) is residual
    with pytest.raises(BoundaryError, match=FOREIGN):
        case.stack.complete_output(hidden, case.batch)
    assert ATTENTION.bind(case.norm).prepare(residual, case.batch).eq(40).all()
    assert case.log == ["norm"]


def test_written_takes_a_tensor_of_a_started_stack() -> None:
    """An unfinished output is no residual; nothing is written before the start."""
    case = Case()
    with pytest.raises(BoundaryError, match="fold it instead"):
        case.stack.written(case.owed(), case.batch)  # type: ignore[arg-type]
    case.batch.release()
    with pytest.raises(BoundaryError, match=NOT_STARTED):
        case.stack.written(filled(1), case.batch)


def test_written_before_the_first_stage() -> None:
    """An entry reads a written stream without entering it."""
    case = Case()
    hidden = case.stack.written(filled(4), case.batch)
    assert ENTRY.bind(case.norm).prepare(hidden, case.batch).eq(8).all()
    assert case.stream.residual.eq(4).all()


@pytest.mark.parametrize("use", ["snapshot", "fold"])
@pytest.mark.parametrize("completed", [False, True])
def test_r28_a_nonlinear_update_is_neither_shown_nor_folded(use: str, completed: bool) -> None:
    """The error names what is missing, and the sum has not run."""
    case = Case()
    case.residual()
    hidden: Any = doubling.leave_nonlinear(filled(1), case.batch)
    if completed:
        hidden = case.stack.complete_output(hidden, case.batch)
    log = list(case.log)

    with pytest.raises(BoundaryError, match=f"^{use} requires a plain residual update$"):
        getattr(case.stack, use)(hidden, case.batch)
    assert case.log == log
    assert case.stream.handle is hidden


def test_r29_a_snapshot_without_a_residual_is_a_copy() -> None:
    """Before the first stage; zeroing the input later does not change it."""
    case = Case()
    hidden = filled(1)
    shown = case.stack.snapshot(hidden, case.batch)
    hidden.zero_()
    assert shown.eq(1).all()


@pytest.mark.parametrize("form", ["pending", "written", "kept"])
def test_a_snapshot_is_storage_of_its_own(form: str) -> None:
    """Writing over the stream afterwards does not reach it."""
    case = Case()
    hidden: Any = case.pending(0.0)
    if form == "written":
        hidden = case.stack.fold(hidden, case.batch)
    if form == "kept":
        residual = case.stream.residual
        case.stream.take(hidden)
        hidden = case.stream.keep(residual, doubling.Access(fold=doubling.same))
    shown = case.stack.snapshot(hidden, case.batch)
    hidden.fill_(-1)
    case.stream.residual.fill_(-1)
    assert shown.eq(3).all()


def test_rm1_a_residual_in_a_sum_is_added_by_one_rank() -> None:
    """a0 + a1 + r, where folding on every rank before the sum would give a0 + a1 + 2r."""
    case = Case()
    assert case.stack.fold(case.owed(1.0, 3.0), case.batch).eq(1 + 1 + 3).all()


def test_without_access_functions_the_accessors_say_so() -> None:
    """Boundaries of an older compiler still run a plain forward; using an output is refused."""
    case = Case()
    case.residual()
    old = AttentionBoundary(
        (doubling.planned(doubling.after_sum),), (lambda hidden, batch: batch.stream.owe(hidden),)
    )
    hidden = old.finish(filled(1), case.batch)
    for use in (case.stack.complete_output, case.stack.fold, case.stack.snapshot):
        with pytest.raises(BoundaryError, match="compile them again"):
            use(hidden, case.batch)
    with pytest.raises(BoundaryError, match="compile them again"):
        case.stack.add_to_output(hidden, case.batch, filled(1))
    assert old.bind(case.norm).prepare(hidden, case.batch).eq(10).all()

    written = case.stack.written(filled(1), case.batch)
    with pytest.raises(BoundaryError, match="compile it again"):
        old.bind(case.norm).prepare(written, case.batch)
    assert add(filled(1), written).eq(2).all()
