"""Contracts of stages: who publishes through what, flags, replicated components, recoveries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from boundaryc.runtime import (
    Additive,
    BoundaryError,
    ExitDecision,
    FfnBoundary,
    FfnExit,
    MixerBoundary,
    MixerExit,
    OwedOutput,
)
from tests.runtime import doubling
from tests.runtime.doubling import ATTENTION, FFN, MIXER, Case, filled

SCATTERED = ExitDecision(
    fuse_mlp_allreduce=False,
    mlp_reduce_scatter=True,
    reduce=doubling.same,
    leave=doubling.pend,
    adds_tail=lambda batch: batch.groups.tp.rank == 0,
)


@pytest.mark.parametrize(
    ("decision", "fused", "skips"),
    [(doubling.OWED, True, True), (doubling.SUMMED, False, False)],
)
def test_a_mixers_exit_publishes_one_decision(
    decision: ExitDecision, fused: bool, skips: bool
) -> None:
    """``skips_reduction`` says what ``fuse_mlp_allreduce`` says, through ``batch.exit``."""
    case = Case()
    boundary = MixerBoundary((doubling.planned(doubling.after_sum),), (decision,)).bind(case.norm)
    hidden = boundary.prepare(case.owed(), case.batch)

    with boundary.exit(case.batch) as out:
        assert case.batch.exit is out
        assert isinstance(out, MixerExit)
        assert (out.fuse_mlp_allreduce, out.skips_reduction) == (fused, skips)
        hidden = out.reduce_output(hidden)
    assert case.batch.exit is None
    assert isinstance(out.finish(hidden), OwedOutput) is fused
    assert case.log == ["sum", "norm"] + ["sum"] * (not skips)


def test_a_partial_stage_has_no_exit_and_others_no_finish() -> None:
    """Each contract has one way out; the wrong one says which is right."""
    case = Case()
    with pytest.raises(BoundaryError, match="through finish, not exit"):
        ATTENTION.exit(case.batch)
    for boundary in (FFN, MIXER):
        with pytest.raises(BoundaryError, match=r"through exit\(\): finish the exit instead"):
            boundary.finish(filled(1), case.batch)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("scatters", [False, True])
def test_a_local_tail_enters_once(rank: int, scatters: bool) -> None:
    """After its own sum every rank adds it; to a sum the boundary owns exactly one rank does."""
    case = Case()
    case.batch.groups.tp.rank = rank
    boundary = FfnBoundary(
        (doubling.planned(doubling.after_sum),), (SCATTERED if scatters else doubling.SUMMED,)
    )
    out = boundary.exit(case.batch)

    assert out.adds_tail is (rank == 0 or not scatters)
    partial, tail = filled(1), filled(5)
    if out.skips_reduction:
        others = filled(2) + (0 if out.adds_tail else tail)
        total = partial + (tail if out.adds_tail else 0) + others
    else:
        total = filled(3) + tail
    assert total.eq(8).all()


def test_an_exit_without_a_tail_refuses_to_name_a_rank() -> None:
    """A replicated component of a stage that declared none would enter a deferred sum unseen."""
    out = FFN.exit(Case().batch)
    assert isinstance(out, FfnExit)
    with pytest.raises(BoundaryError, match="reduction: local_tail"):
        _ = out.adds_tail


def added(hidden: torch.Tensor, batch: Any, *, bias: torch.Tensor) -> torch.Tensor:
    """What an exit adds before the sum."""
    return hidden + bias


def unchanged(hidden: torch.Tensor, batch: Any, *, bias: torch.Tensor) -> torch.Tensor:
    """What it adds afterwards."""
    return hidden


BIASED = replace(doubling.SUMMED, before_sum=added, after_sum=unchanged)


def biased() -> tuple[Case, FfnExit]:
    """An open exit of a stage with one additive term, which compute sums itself."""
    case = Case()
    boundary = FfnBoundary((doubling.planned(doubling.after_sum),), (BIASED,)).bind(case.norm)
    boundary.prepare(case.owed(), case.batch)
    return case, boundary.exit(case.batch)


@pytest.mark.parametrize("own", [False, True])
def test_a_declared_term_is_given_to_the_exit(own: bool) -> None:
    """In one call, or around a sum of compute's own: (1 + 5), doubled."""
    case, out = biased()
    with out:
        if own:
            hidden = doubling.summed(out.before_sum(filled(1), bias=filled(5)), case.batch)
            hidden = out.after_sum(hidden, bias=filled(5))
        else:
            hidden = out.reduce_output(filled(1), bias=filled(5))
    assert hidden.eq(12).all()
    assert out.finish(hidden) is hidden


def test_a_declared_term_cannot_be_left_out() -> None:
    """Neither all of it, nor what comes after the sum; nor can it be added twice."""
    for adds in (FfnExit.reduce_output, lambda out, x: out.before_sum(x, bias=x)):
        _, out = biased()
        with out:
            hidden = adds(out, filled(1))
        with pytest.raises(BoundaryError, match="additive terms that compute has not added"):
            out.finish(hidden)
    _, out = biased()
    with out:
        out.reduce_output(filled(1), bias=filled(5))
        for again in (out.reduce_output, out.before_sum, out.after_sum):
            with pytest.raises(BoundaryError, match=r"added once|reduced already"):
                again(filled(1), bias=filled(5))


def test_a_term_that_is_not_declared_is_refused() -> None:
    """By an exit without any as by one with others."""
    _, out = biased()
    with out, pytest.raises(TypeError, match="shared"):
        out.reduce_output(filled(1), shared=filled(5))
    with pytest.raises(BoundaryError, match="additive terms that compute has not added"):
        out.finish(filled(1))
    _, out = biased()
    with out:
        with pytest.raises(TypeError, match="shared"):
            out.reduce_output(filled(1), shared=filled(5))
        hidden = out.reduce_output(filled(1), bias=filled(5))
    assert out.finish(hidden).eq(12).all()
    case = Case()
    FFN.bind(case.norm).prepare(case.owed(), case.batch)
    with FFN.exit(case.batch) as out:
        for add in (out.reduce_output, out.before_sum, out.after_sum):
            with pytest.raises(BoundaryError, match="declares no additive terms"):
                add(filled(1), bias=filled(5))


@pytest.mark.parametrize(
    ("multiplicity", "added"),
    [
        ("rank0", (5.0, 5.0)),
        ("rank0", (0.0, 0.0)),
        ("divided", (5.0, 5.0)),
        ("divided", (1.25, 1.25)),
        ("after_sum", (5.0, 0.0)),
    ],
)
def test_rm6_a_convention_is_checked_against_what_is_added(
    multiplicity: Any, added: tuple[float, float]
) -> None:
    """Added twice, divided twice, or not at all: the declared convention does not hold."""
    shares = [filled(value) for value in added]
    with pytest.raises(ValueError, match=f"bias is declared `{multiplicity}`"):
        Additive("bias", multiplicity).check(shares, filled(5.0))


def test_an_unknown_multiplicity_is_refused() -> None:
    """There is no untagged replicated term."""
    with pytest.raises(ValueError, match="one of rank0, divided, after_sum"):
        Additive("bias", "everywhere")  # type: ignore[arg-type]


def forward(case: Case) -> float:
    """A whole forward on the case's objects: 1 -> enter; attention 2 -> ffn 3 -> norm."""
    case.stack.start(case.batch)
    attention, ffn = doubling.ENTRY.bind(case.norm), FFN.bind(case.norm)
    hidden: Any = attention.prepare(filled(1), case.batch)
    hidden = attention.finish(filled(2), case.batch)
    hidden = ffn.prepare(hidden, case.batch)
    with ffn.exit(case.batch) as out:
        hidden = out.reduce_output(filled(3))
    hidden = out.finish(hidden)
    result = case.stack.norm(hidden, case.batch, case.norm)
    assert case.batch.exit is None
    return float(result[0, 0])


def compute_raises(case: Case, other: Case) -> None:
    """Compute inside an exit."""
    FFN.bind(case.norm).prepare(case.owed(), case.batch)
    with FFN.exit(case.batch):
        raise ZeroDivisionError("computing")


def finish_after_failure(case: Case, other: Case) -> None:
    """Finishing what failed."""
    out = FFN.exit(case.batch)
    with pytest.raises(ZeroDivisionError, match="computing"), out:
        raise ZeroDivisionError("computing")
    out.finish(filled(1))


def wrong_handle(case: Case, other: Case) -> None:
    """A rebound output."""
    case.owed()
    FFN.bind(case.norm).prepare(filled(1), case.batch)


def finish_twice(case: Case, other: Case) -> None:
    """An exit finished again."""
    FFN.bind(case.norm).prepare(case.owed(), case.batch)
    with FFN.exit(case.batch) as out:
        pass
    out.finish(filled(1))
    out.finish(filled(1))


def attention_finish_twice(case: Case, other: Case) -> None:
    """A contribution recorded again."""
    ATTENTION.bind(case.norm).prepare(case.owed(), case.batch)
    ATTENTION.finish(filled(1), case.batch)
    ATTENTION.finish(filled(1), case.batch)


def prepare_twice(case: Case, other: Case) -> None:
    """An output given to two stages."""
    hidden = case.owed()
    FFN.bind(case.norm).prepare(hidden, case.batch)
    FFN.bind(case.norm).prepare(hidden, case.batch)


def swapped(case: Case, other: Case) -> None:
    """Another microbatch's output."""
    case.owed()
    FFN.bind(case.norm).prepare(other.owed(), case.batch)


@pytest.mark.parametrize(
    ("breaks", "error", "text"),
    [
        (compute_raises, ZeroDivisionError, "computing"),
        (finish_after_failure, BoundaryError, "the computation of this exit failed"),
        (wrong_handle, BoundaryError, "does not belong to this residual stream"),
        (finish_twice, BoundaryError, "this exit is already finished"),
        (attention_finish_twice, BoundaryError, "a contribution is already pending"),
        (prepare_twice, BoundaryError, "does not belong to this residual stream"),
        (swapped, BoundaryError, "does not belong to this residual stream"),
    ],
)
def test_after_an_error_the_next_forward_is_right(
    breaks: Callable[[Case, Case], None], error: type[Exception], text: str
) -> None:
    """The documented error, then the same objects run as if nothing had happened."""
    case, other = Case(), Case()
    expected = forward(Case())
    with pytest.raises(error, match=text):
        breaks(case, other)

    assert forward(case) == forward(other) == expected == 2 * (1 + 4 + 6)
    assert [entry for entry in case.log[-5:] if entry == "sum"] == ["sum", "sum"]


def test_terms_are_traced_without_a_break() -> None:
    """In one call, and around a sum of compute's own: (1 + 5) and (2 + 5), doubled."""
    case, _ = biased()
    boundary = FfnBoundary((doubling.planned(doubling.after_sum),), (BIASED,))

    def compute() -> tuple[torch.Tensor, torch.Tensor]:
        with boundary.exit(case.batch) as out:
            hidden = out.reduce_output(filled(1), bias=filled(5))
        with boundary.exit(case.batch) as out:
            partial = doubling.summed(out.before_sum(filled(2), bias=filled(5)), case.batch)
            own = out.after_sum(partial, bias=filled(5))
        return hidden, own

    hidden, own = torch.compile(compute, backend="eager", fullgraph=True)()
    assert hidden.eq(12).all()
    assert own.eq(14).all()
