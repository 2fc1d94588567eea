"""Captures: what is shown, when, how often, and to whom its storage belongs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import (
    AttentionBoundary,
    AuxHiddenStateList,
    BoundaryError,
    CaptureMove,
    FfnBoundary,
    MixerBoundary,
    Resume,
    StreamState,
)
from tests.runtime import doubling
from tests.runtime.doubling import ATTENTION, ENTRY, FFN, MIXER, Case, filled


class Watching(AuxHiddenStateList):
    """A collector that writes into the case's log and remembers who owned what."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.case = case
        self.owned: list[bool] = []
        self.storage: list[Tensor] = []

    def capture(self, value: Tensor, *, owned: bool = False) -> None:
        """As the list's."""
        self.case.log.append("capture")
        self.owned.append(owned)
        self.storage.append(value)
        super().capture(value, owned=owned)


@pytest.mark.parametrize("boundary", [ATTENTION, MIXER])
def test_r13_a_capture_follows_the_sum_and_the_norm(boundary: Any) -> None:
    """One sum, one norm, then 5s; what is borrowed was copied, so zeroing it changes nothing."""
    case = Case()
    aux = Watching(case)

    prepared = boundary.bind(case.norm).prepare(case.owed(), case.batch, capture_output=aux.capture)

    assert prepared.eq(10).all()
    assert case.log == ["sum", "norm", "capture"]
    assert aux.owned == [False]
    case.stream.residual.zero_()
    assert aux[0].eq(5).all()


def test_r13_the_main_output_is_completed_unfused() -> None:
    """A boundary that fuses its sum with the rest does not do so when it is captured."""
    case = Case()

    def fused(hidden: Any, batch: Any, norm: Any) -> Tensor:
        case.log.append("fused")
        return doubling.after_sum(hidden, batch, norm)

    boundary = AttentionBoundary(
        (doubling.planned(fused),), (doubling.leave,), resume=doubling.RESUME
    )
    boundary.bind(case.norm).prepare(case.owed(), case.batch, capture_output=Watching(case).capture)
    assert case.log == ["sum", "norm", "capture"]


def test_r14_an_extra_addition_comes_after_the_capture() -> None:
    """Captured 5s, residual 12s, compute input 24s, one sum."""
    case = Case()
    aux = Watching(case)

    prepared = ATTENTION.bind(case.norm).prepare(
        case.owed(),
        case.batch,
        capture_output=aux.capture,
        post_residual_addition=filled(7),
    )

    assert prepared.eq(24).all()
    assert case.stream.residual.eq(12).all()
    assert aux[0].eq(5).all()
    assert case.log == ["sum", "capture", "norm"]


def test_a_residual_made_only_for_the_capture_is_owned() -> None:
    """With an extra addition the captured sum is nobody else's; a written stream's is not."""
    case = Case()
    aux = Watching(case)
    boundary = ATTENTION.bind(case.norm)
    boundary.prepare(
        case.owed(), case.batch, capture_output=aux.capture, post_residual_addition=filled(7)
    )
    case.stream.residual.fill_(-1)
    assert aux.owned == [True]
    assert aux[0] is aux.storage[0]
    assert aux[0].eq(5).all()

    residual = case.stack.written(filled(2), case.batch)
    boundary.prepare(
        residual, case.batch, capture_output=aux.capture, post_residual_addition=filled(7)
    )
    residual.fill_(-1)
    assert aux.owned == [True, False]
    assert aux[1].eq(2).all()


def moved(case: Case, move: CaptureMove, where: str) -> AttentionBoundary:
    """A boundary whose captures move."""
    resume = Resume(
        written=doubling.after_written, completed=doubling.after_complete, **{where: move}
    )
    boundary = AttentionBoundary(
        (doubling.planned(doubling.after_sum),), (doubling.leave,), resume=(resume,)
    )
    return boundary.bind(case.norm)


def gather(residual: Tensor, batch: Any) -> Tensor:
    """The rows of both ranks."""
    return batch.groups.tp.all_gather(residual)  # type: ignore[no-any-return]


def test_a_capture_move_that_gathers_is_owned() -> None:
    """The gathered rows are new storage: kept without a copy."""
    case = Case()
    aux = Watching(case)
    boundary = moved(case, CaptureMove(gather, allocates=True), "producer")

    boundary.prepare(case.owed(), case.batch, capture_output=aux.capture)

    assert case.log == ["sum", "norm", "gather", "capture"]
    assert aux[0] is aux.storage[0]
    case.stream.residual.zero_()
    assert aux[0].eq(5).all()
    assert aux[0].shape == (4, 4)


def test_a_residual_that_the_next_stage_leaves_alone_is_owned() -> None:
    """The certificate of the stages that follow is passed on: kept without a copy."""
    case = Case()
    aux = Watching(case)
    boundary = moved(case, CaptureMove(owned=True), "producer")

    boundary.prepare(case.owed(), case.batch, capture_output=aux.capture)
    hidden = boundary.finish(filled(1), case.batch)

    assert aux.owned == [True]
    assert aux[0] is case.stream.residual
    case.stack.norm(hidden, case.batch, case.norm)
    assert aux[0].eq(5).all()


@pytest.mark.parametrize("where", ["producer", "input"])
@pytest.mark.parametrize("way", ["fold", "written"])
def test_a_residual_that_the_model_wrote_is_borrowed(where: str, way: str) -> None:
    """The model holds that tensor: no certificate of the stack speaks for it."""
    case = Case()
    aux = Watching(case)
    boundary = moved(case, CaptureMove(owned=True), where)
    hidden = case.stack.fold(case.owed(), case.batch)
    if way == "written":
        hidden = case.stack.written(filled(5), case.batch)
    asked: dict[str, Any] = {"capture_output": aux.capture}
    if where == "input":
        asked = {"captured_last_layer_outputs": aux}

    boundary.prepare(hidden, case.batch, **asked)

    assert aux.owned == [False]
    hidden.zero_()
    assert aux[0].eq(5).all()


def test_gathered_rows_of_what_the_model_wrote_are_owned() -> None:
    """They are in storage of their own, whoever wrote the residual."""
    case = Case()
    aux = Watching(case)
    boundary = moved(case, CaptureMove(gather, allocates=True), "producer")
    hidden = case.stack.written(filled(5), case.batch)

    boundary.prepare(hidden, case.batch, capture_output=aux.capture)
    hidden.zero_()

    assert aux.owned == [True]
    assert aux[0].eq(5).all()


def test_a_collector_of_last_layer_outputs_takes_the_inputs_rows() -> None:
    """The same updated residual, after the stage's own gather; the main sum is not touched."""
    case = Case()
    aux = Watching(case)
    boundary = moved(case, CaptureMove(gather, allocates=True), "input")

    prepared = boundary.prepare(case.owed(), case.batch, captured_last_layer_outputs=aux)

    assert prepared.eq(10).all()
    assert case.log == ["sum", "norm", "gather", "capture"]
    assert aux[0].shape == (4, 4)
    assert aux[0].eq(5).all()


def test_at_the_entry_the_input_is_captured_before_enter() -> None:
    """Before anything ran; an addition after an update that does not exist is refused."""
    case = Case()
    aux = Watching(case)
    boundary = ENTRY.bind(case.norm)
    hidden = filled(1)

    with pytest.raises(BoundaryError, match="the stack's first stage has none"):
        boundary.prepare(hidden, case.batch, post_residual_addition=filled(7))
    assert boundary.prepare(hidden, case.batch, capture_output=aux.capture).eq(2).all()
    assert case.log == ["capture", "norm"]
    assert aux.owned == [False]
    assert aux.storage[0] is hidden


def test_a_partial_input_is_captured_complete() -> None:
    """IS-1: what enters still owes its sum; it is shown once the boundary has summed it."""
    case = Case()
    object.__setattr__(case.batch.facts, "embeddings", "partial")
    aux = Watching(case)

    def entered(hidden: Any, batch: Any, norm: Any) -> Any:
        batch.stream.residual = batch.stream.enter(hidden) * 2
        return batch.stream.residual

    boundary = AttentionBoundary(
        (doubling.planned(entered),), (doubling.leave,), resume=(Resume(entered),)
    ).bind(case.norm)

    assert boundary.prepare(filled(1), case.batch, capture_output=aux.capture).eq(2).all()
    assert aux[0].eq(2).all()
    assert aux.owned == [False]


@pytest.mark.parametrize("state", ["completed", "written", "complete"])
def test_captures_of_every_form_of_the_stream(state: str) -> None:
    """The captured residual is the updated one, and no sum is done twice."""
    case = Case()
    aux = Watching(case)
    hidden: Any = case.pending(2.0) if state == "complete" else case.owed()
    if state == "completed":
        hidden = case.stack.complete_output(hidden, case.batch)
    if state == "written":
        hidden = case.stack.fold(hidden, case.batch)
    boundary = (doubling.AFTER_COMPLETE if state == "complete" else ATTENTION).bind(case.norm)

    assert boundary.prepare(hidden, case.batch, capture_output=aux.capture).eq(10).all()
    assert aux[0].eq(5).all()
    assert case.log.count("sum") == (0 if state == "complete" else 1)


def test_an_ffn_takes_no_captures() -> None:
    """They belong to token mixers."""
    case = Case()
    with pytest.raises(TypeError, match="capture_output"):
        FFN.bind(case.norm).prepare(
            case.owed(),
            case.batch,
            capture_output=Watching(case).capture,  # type: ignore[call-arg]
        )


def test_last_layer_outputs_and_an_addition_do_not_combine() -> None:
    """What cannot be shown is refused, not dropped."""
    case = Case()
    hidden = case.owed()
    with pytest.raises(BoundaryError, match="cannot be combined"):
        ATTENTION.bind(case.norm).prepare(
            hidden,
            case.batch,
            captured_last_layer_outputs=Watching(case),
            post_residual_addition=filled(7),
        )
    assert case.stream.handle is hidden
    assert case.log == []


def test_capture_output_snapshots_a_declared_sum_on_a_copy() -> None:
    """The handle stays what it was and still owes its sum."""
    case = Case()
    hidden = case.owed()
    boundary = ATTENTION.bind(case.norm)

    after, shown = boundary.capture_output(hidden, case.batch)

    assert after is hidden
    assert shown.eq(5).all()
    assert case.stream.value.eq(1).all()
    assert boundary.prepare(after, case.batch).eq(10).all()


@pytest.mark.parametrize("policy", ["auto", "complete"])
def test_the_final_norm_captures_its_updated_residual_as_borrowed(policy: str) -> None:
    """Before the norm's weight, after the update; never owned."""
    case = Case(policy=policy)
    aux = Watching(case)
    hidden: Any = case.owed() if policy == "auto" else case.pending(2.0)

    result = case.stack.norm(hidden, case.batch, case.norm, capture_output=aux.capture)

    assert result.eq(10).all()
    assert aux[0].eq(5).all()
    assert aux.owned == [False]


def test_ax3_captures_keep_their_value_for_the_whole_forward() -> None:
    """Even where the next stages write the residual in place; twice with different inputs."""

    def in_place(hidden: Any, batch: Any, norm: Any) -> Tensor:
        stream = batch.stream
        stream.residual.add_(batch.groups.tp.all_reduce(stream.take(hidden)))
        stream.capture("aux", stream.residual)
        return norm(stream.residual)  # type: ignore[no-any-return]

    for first in (1.0, 4.0):
        case = Case()
        aux = AuxHiddenStateList()
        boundary = AttentionBoundary((doubling.planned(in_place),), (doubling.leave,)).bind(
            case.norm
        )
        ENTRY.bind(case.norm).prepare(filled(first), case.batch)
        for value in (10.0, 20.0, 30.0):
            boundary.prepare(doubling.leave(filled(value), case.batch), case.batch)
            aux.capture(case.stream.residual)
        assert len(aux) == 3
        assert all(map(torch.equal, aux, case.batch.captured("aux")))
        assert [int(value[0, 0]) for value in case.batch.captured("aux")] == [
            int(first) + 20,
            int(first) + 60,
            int(first) + 120,
        ]


def test_captures_of_the_stack_file_stay_until_the_next_start() -> None:
    """By name, in the order of the layers; a capture nobody declared is a KeyError."""
    case = Case()
    assert case.batch.captured("aux") == []
    hidden = case.owed()
    case.stream.capture("aux", case.stream.residual)
    owned = filled(8)
    case.stream.capture("aux", owned, owned=True)
    case.stack.written(filled(1), case.batch)
    case.stack.take_output(case.stream.handle, case.batch)

    assert case.stream.state is StreamState.UNSTARTED
    kept = case.batch.captured("aux")
    assert [int(value[0, 0]) for value in kept] == [3, 8]
    assert kept[1] is owned
    with pytest.raises(KeyError, match="no capture 'other' in this forward; there are: aux"):
        case.batch.captured("other")
    case.stack.start(case.batch)
    assert case.batch.captured("aux") == []
    assert hidden is not None


def test_ax9_an_owed_output_is_read_and_changed_through_accessors_only() -> None:
    """Read on a copy, replacing it is refused, adding to it applies once."""
    case = Case()
    hidden: Any = case.owed()
    shown = case.stack.snapshot(hidden, case.batch)
    with pytest.raises(TypeError, match="owes a sum"):
        hidden * 2
    with pytest.raises(BoundaryError, match="does not belong"):
        ATTENTION.bind(case.norm).prepare(shown, case.batch)
    hidden = case.stack.add_to_output(hidden, case.batch, filled(1))
    assert ATTENTION.bind(case.norm).prepare(hidden, case.batch).eq(12).all()


def test_generated_without_resume_captures_are_refused() -> None:
    """Where the rows of a residual are unknown nothing is shown."""
    case = Case()
    old = MixerBoundary((doubling.planned(doubling.after_sum),), (doubling.OWED,)).bind(case.norm)
    with pytest.raises(BoundaryError, match="compile it again"):
        old.prepare(case.owed(), case.batch, capture_output=Watching(case).capture)
    assert FfnBoundary((doubling.planned(doubling.after_sum),), (doubling.OWED,)).bind(case.norm)
    assert torch.is_tensor(case.stream.residual)
