"""What a model may do around a branch, and what is refused, on one rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import BoundaryError, BranchOutput, SingleGroups
from boundaryc.verify.modules import forget, import_package
from tests.verify.subjects import compiled

TEXT = """\
boundaryc: 1
stack: sample
hidden_size: 4
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention, read: raw}
  experts: {kind: ffn, sparse: true, read: raw}
  dense: {kind: ffn}
  look: {kind: attention, read: raw}
  last: {kind: ffn, read: raw}
layers: {count: 2, default: [attention, experts]}
branch: {beside: experts, stages: [dense, look, last]}
topologies: {tp1: {tp: 1}}
"""
PARALLEL = """\
boundaryc: 1
stack: sample
hidden_size: 4
norm: {kind: rms, eps: 1.0e-6}
stages: {attention: {kind: attention, read: raw, additive: {bias: rank0}}, mlp: {kind: ffn}}
layers: {count: 2, default: [attention]}
branch: {beside: attention, stages: [mlp]}
topologies: {tp1: {tp: 1}}
"""


class _Case:
    """A stack at the point where the experts of its first layer were prepared."""

    def __init__(self, package: Any) -> None:
        self.stack = package.load("tp1", SingleGroups())
        self.batch = self.stack.batch(rows_per_dp=[3], padding="unpadded", mode="prefill")
        self.at, self.next = (self.stack.layer(index).bind() for index in (0, 1))
        self.stack.start(self.batch)
        hidden = self.at.attention.prepare(_filled(5), self.batch)
        hidden = self.at.attention.finish(_filled(0), self.batch)
        self.hidden = self.at.experts.prepare(hidden, self.batch)

    def routed(self, value: float = 1) -> BranchOutput:
        """The output of the experts, placed."""
        with self.at.experts.exit(self.batch) as exit_:
            pass
        output: BranchOutput = exit_.branch_output(_filled(value))
        return output

    def ended(self, value: float = 2) -> BranchOutput:
        """The output of the branch; its other stages add 10 and 100 to the residual."""
        self.at.dense.branch_input(self.at.experts, self.hidden, self.batch)
        hidden = _left(self.at.dense, self.batch, 10)
        self.at.look.prepare(hidden, self.batch)
        hidden = self.at.look.finish(_filled(100), self.batch)
        self.at.last.prepare(hidden, self.batch)
        output: BranchOutput = _left(self.at.last, self.batch, value)
        return output


def _filled(value: float) -> Tensor:
    return torch.full((3, 4), float(value), dtype=torch.float64)


def _left(boundary: Any, batch: Any, value: float) -> Any:
    with boundary.exit(batch) as exit_:
        pass
    return exit_.finish(_filled(value))


@pytest.fixture
def case() -> Iterator[_Case]:
    package = import_package(compiled(TEXT)[1], "sample")
    yield _Case(package)
    forget(package)


def test_a_merge_adds_both_outputs_once(case: _Case) -> None:
    """1 + 2 = 3 is left to the next stage, which adds it to the residual of the branch."""
    hidden = case.at.experts.merge_branch(case.ended(2), case.routed(1), case.batch)

    assert hidden.eq(3).all()
    assert case.batch.stream.residual.eq(115).all()
    assert case.next.attention.prepare(hidden, case.batch).eq(118).all()


def test_the_stage_beside_a_branch_may_be_computed_first(case: _Case) -> None:
    """Its output waits outside the stream, whatever the stages of the branch do to that."""
    routed = case.routed(1)

    assert case.at.experts.merge_branch(case.ended(2), routed, case.batch).eq(3).all()


def test_s19_a_prepared_branch_is_not_entered_through_prepare(case: _Case) -> None:
    with pytest.raises(BoundaryError) as refused:
        case.at.dense.prepare(case.hidden, case.batch)

    assert str(refused.value) == "a prepared branch must enter through branch_input, not prepare"
    assert case.at.experts.merge_branch(case.ended(), case.routed(), case.batch).eq(3).all()


def test_the_first_stage_of_a_branch_takes_what_was_read(case: _Case) -> None:
    """It has no norm of its own, so none is bound, and its input is what the experts got."""
    given = case.at.dense.branch_input(case.at.experts, case.hidden, case.batch)

    assert given.eq(5).all()
    with pytest.raises(TypeError, match="dense"):
        case.stack.layer(0).bind(dense=object())


def test_a_branch_begins_once_and_behind_its_source(case: _Case) -> None:
    with pytest.raises(BoundaryError, match="does not come"):
        case.at.dense.branch_input(case.at.attention, case.hidden, case.batch)
    case.at.dense.branch_input(case.at.experts, case.hidden, case.batch)
    with pytest.raises(BoundaryError, match="does not come"):
        case.at.dense.branch_input(case.at.experts, case.hidden, case.batch)


def test_an_output_is_merged_once(case: _Case) -> None:
    ended, routed = case.ended(), case.routed()
    case.at.experts.merge_branch(ended, routed, case.batch)
    for one, other in ((ended, routed), (routed, ended)):
        with pytest.raises(BoundaryError, match="that waits to be merged"):
            case.at.experts.merge_branch(one, other, case.batch)


def test_only_the_two_outputs_of_this_branch_are_merged(case: _Case) -> None:
    """Neither in the other order, nor an output twice, nor those of another forward."""
    ended, routed = case.ended(), case.routed()
    for one, other in ((routed, ended), (ended, ended), (routed, routed), (ended, _filled(1))):
        with pytest.raises(BoundaryError, match="that waits to be merged"):
            case.at.experts.merge_branch(one, other, case.batch)
    assert case.at.experts.merge_branch(ended, routed, case.batch).eq(3).all()
    case.stack.start(case.batch)
    with pytest.raises(BoundaryError, match="that waits to be merged"):
        case.at.experts.merge_branch(ended, routed, case.batch)


def test_a_branch_that_is_not_merged_leads_nowhere(case: _Case) -> None:
    """No boundary and no accessor takes an output that waits to be merged."""
    ended, routed = case.ended(), case.routed()
    for one in (ended, routed):
        with pytest.raises(BoundaryError, match="does not belong to this residual stream"):
            case.next.attention.prepare(one, case.batch)
        for accessor in (case.stack.complete_output, case.stack.fold, case.stack.snapshot):
            with pytest.raises(BoundaryError, match="does not belong to this residual stream"):
                accessor(one, case.batch)
        with pytest.raises(TypeError):
            one + 1


def test_the_stage_beside_a_branch_is_placed_once(case: _Case) -> None:
    case.routed()
    with pytest.raises(BoundaryError, match="an output of `experts` already waits"):
        case.routed()


def test_the_stage_beside_a_branch_does_not_finish(case: _Case) -> None:
    """Its exit places the output; `finish` would put it in the way of the branch."""
    with (
        case.at.experts.exit(case.batch) as exit_,
        pytest.raises(BoundaryError, match="close the exit"),
    ):
        exit_.branch_output(_filled(1))
    with pytest.raises(BoundaryError, match="through branch_output and merge_branch"):
        exit_.finish(_filled(1))
    exit_.branch_output(_filled(1))
    with pytest.raises(BoundaryError, match="already finished"):
        exit_.branch_output(_filled(1))


def test_a_failed_computation_is_not_placed(case: _Case) -> None:
    exit_ = case.at.experts.exit(case.batch)
    with pytest.raises(ZeroDivisionError), exit_:
        raise ZeroDivisionError
    with pytest.raises(BoundaryError, match="the computation of this exit failed"):
        exit_.branch_output(_filled(1))


def test_a_partial_stage_beside_a_branch() -> None:
    """It places its output, additive terms and all, through the boundary."""
    package = import_package(compiled(PARALLEL)[1], "sample")
    stack = package.load("tp1", SingleGroups())
    batch = stack.batch(rows_per_dp=[3], padding="unpadded", mode="prefill")
    at = stack.layer(0).bind()
    stack.start(batch)
    hidden = at.attention.prepare(_filled(5), batch)
    with pytest.raises(BoundaryError, match="through branch_output and merge_branch"):
        at.attention.finish(_filled(1), batch, bias=_filled(0))
    with pytest.raises(TypeError, match="bias"):
        at.attention.branch_output(_filled(1), batch)
    placed = at.attention.branch_output(_filled(1), batch, bias=torch.full((4,), 0.5))
    at.mlp.branch_input(at.attention, hidden, batch)
    hidden = at.attention.merge_branch(_left(at.mlp, batch, 2), placed, batch)
    forget(package)

    assert hidden.eq(3.5).all()
    assert batch.stream.residual.eq(5).all()
