"""Boundaries and exits: flags, the scope of an exit, and what a failed one leaves behind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import (
    AttentionBoundary,
    BoundaryError,
    Column,
    ExitDecision,
    FfnBoundary,
    Mesh,
    OwedOutput,
    SingleGroups,
    Stack,
    Table,
)
from tests.runtime.doubling import planned


class Nothing:
    """Groups and rows of a topology with one rank."""

    def __init__(self, source: object) -> None:
        self.source = source


def enter(hidden: Tensor, batch: Any) -> Tensor:
    """Start the residual; a raw read."""
    batch.stream.residual = batch.stream.enter(hidden)
    return hidden


def add_scaled(hidden: Tensor | OwedOutput, batch: Any, scale: Tensor) -> Tensor:
    """Complete, add with the producer's gate, read scaled."""
    stream = batch.stream
    contribution = stream.take(hidden)
    for gate in stream.params:
        contribution = contribution * gate
    stream.residual = stream.residual + contribution
    return stream.residual * scale


def leave(hidden: Tensor, batch: Any, *params: Any) -> OwedOutput:
    """Leave a sum to the next stage, with the update's parameters."""
    return batch.stream.owe(hidden, params)


def pend(hidden: Tensor, batch: Any) -> Tensor:
    """Leave a complete contribution."""
    return batch.stream.pend(hidden)


def double(hidden: Tensor, batch: Any) -> Tensor:
    """The sum over a group whose members are all equal to this one."""
    return hidden * 2


DEFER = ExitDecision(
    fuse_mlp_allreduce=True, mlp_reduce_scatter=False, reduce=lambda x, _: x, leave=leave
)
SCATTER = ExitDecision(
    fuse_mlp_allreduce=False, mlp_reduce_scatter=True, reduce=lambda x, _: x, leave=pend
)
LOCAL = ExitDecision(fuse_mlp_allreduce=False, mlp_reduce_scatter=False, reduce=double, leave=pend)
ENTERED = FfnBoundary((planned(enter),), (DEFER,))


class OneRank(Stack[Nothing, Nothing, FfnBoundary]):
    """A stack of FFNs on one rank."""

    mesh = Mesh(())
    columns = (Column("ordinary"),)
    groups_type = Nothing
    rows_type = Nothing
    tables = {"auto": Table(layers=((2, ENTERED),), norm=(add_scaled,))}  # noqa: RUF012


def started(rows: int = 2) -> tuple[OneRank, Any]:
    """A stack and a batch whose forward has started."""
    stack = OneRank(SingleGroups())
    batch = stack.batch(rows_per_dp=[rows], padding="unpadded", mode="decode")
    stack.start(batch)
    return stack, batch


@pytest.mark.parametrize(
    ("decision", "flags", "reduced"),
    [
        (DEFER, (True, False, True), 1.0),
        (SCATTER, (False, True, True), 1.0),
        (LOCAL, (False, False, False), 2.0),
    ],
)
def test_flags_and_the_sum_that_compute_does(
    decision: ExitDecision, flags: tuple[bool, bool, bool], reduced: float
) -> None:
    """Flags, the compute-side sum and the completion come from one decision."""
    _, batch = started()
    boundary = FfnBoundary((planned(enter),), (decision,))
    boundary.prepare(torch.ones(2, 3), batch)

    with boundary.exit(batch) as out:
        assert batch.exit is out
        assert (out.fuse_mlp_allreduce, out.mlp_reduce_scatter, out.skips_reduction) == flags
        assert out.defer_moe_finalize is False
        hidden = out.reduce_output(torch.ones(2, 3))

    assert batch.exit is None
    assert hidden.eq(reduced).all()
    output = out.finish(hidden)
    assert isinstance(output, OwedOutput) == decision.fuse_mlp_allreduce
    assert batch.stream.take(output) is hidden


def test_exits_nest_and_are_restored() -> None:
    """An inner exit hides the outer one; both are undone, in failure too."""
    _, batch = started()
    boundary = FfnBoundary((planned(enter),), (DEFER,))
    outer, inner = boundary.exit(batch), boundary.exit(batch)

    with outer:
        with pytest.raises(ZeroDivisionError), inner:  # noqa: PT012
            assert batch.exit is inner
            raise ZeroDivisionError
        assert batch.exit is outer
    assert batch.exit is None


def test_finish_runs_once_after_a_good_computation() -> None:
    """Not before, not inside, not after a failure, and not twice."""
    _, batch = started()
    boundary = FfnBoundary((planned(enter),), (DEFER,))
    boundary.prepare(torch.ones(2, 3), batch)
    failed, good = boundary.exit(batch), boundary.exit(batch)

    with pytest.raises(BoundaryError, match="run the computation inside the exit"):
        good.finish(torch.ones(2, 3))
    with pytest.raises(ZeroDivisionError), failed:
        raise ZeroDivisionError
    with pytest.raises(BoundaryError, match="the computation of this exit failed"):
        failed.finish(torch.ones(2, 3))
    with good, pytest.raises(BoundaryError, match="close the exit before finishing it"):
        good.finish(torch.ones(2, 3))
    with pytest.raises(BoundaryError, match="an exit is entered once"), good:
        pass
    assert batch.exit is None
    output = good.finish(torch.ones(2, 3))
    with pytest.raises(BoundaryError, match="this exit is already finished"):
        good.finish(torch.ones(2, 3))
    assert isinstance(batch.stream.take(output), Tensor)


def test_a_failed_finish_leaves_the_batch_usable() -> None:
    """A completion that raises, then a whole forward of the same batch."""
    stack, batch = started()

    def broken(hidden: Tensor, batch: Any) -> Tensor:
        raise ConnectionError

    boundary = FfnBoundary(
        (planned(enter),),
        (
            ExitDecision(
                fuse_mlp_allreduce=True,
                mlp_reduce_scatter=False,
                reduce=double,
                leave=broken,
            ),
        ),
    )
    boundary.prepare(torch.ones(2, 3), batch)
    with boundary.exit(batch) as out:
        pass
    with pytest.raises(ConnectionError):
        out.finish(torch.ones(2, 3))

    stack.start(batch)
    attention = AttentionBoundary((planned(enter),), (leave,)).bind(update=(torch.tensor(3.0),))
    hidden = attention.finish(attention.prepare(torch.ones(2, 3), batch), batch)
    assert stack.norm(hidden, batch, torch.tensor(2.0)).eq(8.0).all()  # type: ignore[arg-type]


def test_parameters_are_read_at_call_time() -> None:
    """Binding keeps references: a parameter changed later is seen, the unbound one is not."""
    _, batch = started()
    unbound = AttentionBoundary((planned(add_scaled),), (leave,))
    scale = torch.tensor(2.0)
    bound = unbound.bind(scale)
    scale.fill_(5.0)
    batch.stream.residual = batch.stream.enter(torch.ones(2, 3))
    hidden = batch.stream.pend(torch.zeros(2, 3))

    with pytest.raises(TypeError, match="scale"):
        unbound.prepare(hidden, batch)
    assert bound.prepare(hidden, batch).eq(5.0).all()


def test_an_exit_leaves_its_updates_parameters() -> None:
    """The parameters of an FFN's update travel with what it owes."""
    _, batch = started()
    gate = torch.tensor(3.0)
    boundary = FfnBoundary((planned(enter),), (DEFER,)).bind(update=(gate,))
    boundary.prepare(torch.ones(2, 3), batch)
    with boundary.exit(batch) as out:
        pass
    output = out.finish(torch.ones(2, 3))

    assert batch.stream.take(output).eq(1.0).all()
    assert batch.stream.params[0] is gate


def test_norm_ends_the_stream() -> None:
    """After the final norm nothing runs before the next start."""
    stack, batch = started()
    batch.stream.residual = batch.stream.enter(torch.ones(2, 3))
    hidden = batch.stream.pend(torch.ones(2, 3))

    assert stack.norm(hidden, batch, torch.tensor(2.0)).eq(4.0).all()  # type: ignore[arg-type]
    with pytest.raises(BoundaryError, match=r"^start the layer stack before entering a stage$"):
        FfnBoundary((planned(enter),), (DEFER,)).prepare(torch.ones(2, 3), batch)
    with pytest.raises(BoundaryError, match=r"^start the layer stack before entering a stage$"):
        stack.norm(hidden, batch, torch.tensor(2.0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("owed", "skip_empty", "runs"),
    [(False, True, False), (False, False, True), (True, True, True), (True, False, True)],
)
def test_norm_of_a_batch_without_rows(owed: bool, skip_empty: bool, runs: bool) -> None:
    """A complete empty output may skip the norm; a sum that others wait in never does."""
    _, batch = started(0)
    ran = []

    def read(hidden: Tensor | OwedOutput, batch: Any, norm: object) -> Tensor:
        ran.append(norm)
        return batch.stream.take(hidden)

    class Empty(OneRank):
        tables = {"auto": Table(layers=((1, ENTERED),), norm=(read,))}  # noqa: RUF012

    stack = Empty(SingleGroups())
    stack.start(batch)
    batch.stream.residual = batch.stream.enter(torch.ones(0, 3))
    hidden = (batch.stream.owe if owed else batch.stream.pend)(torch.ones(0, 3))

    result = stack.norm(hidden, batch, None, skip_empty=skip_empty)  # type: ignore[arg-type]
    assert result.shape == (0, 3)
    assert bool(ran) is runs


def test_an_exit_belongs_to_its_forward() -> None:
    """Neither the next forward nor the end of this one lets it go on."""
    stack, batch = started()
    boundary = FfnBoundary((planned(enter),), (LOCAL,))
    boundary.prepare(torch.ones(2, 3), batch)
    with boundary.exit(batch) as old:
        pass
    stack.start(batch)
    boundary.prepare(torch.ones(2, 3), batch)

    with pytest.raises(BoundaryError, match="belongs to a forward that is over"):
        old.finish(torch.ones(2, 3))
    with boundary.exit(batch) as open_:
        stack.start(batch)
        with pytest.raises(BoundaryError, match="belongs to a forward that is over"):
            open_.reduce_output(torch.ones(2, 3))


def test_an_output_is_reduced_once_inside_its_exit() -> None:
    """Not before, not afterwards, and not what was reduced."""
    _, batch = started()
    boundary = FfnBoundary((planned(enter),), (LOCAL,))
    boundary.prepare(torch.ones(2, 3), batch)
    out = boundary.exit(batch)

    with pytest.raises(BoundaryError, match="enter it"):
        out.reduce_output(torch.ones(2, 3))
    with out:
        hidden = out.reduce_output(torch.ones(2, 3))
        with pytest.raises(BoundaryError, match="is reduced already"):
            out.reduce_output(hidden)
    with pytest.raises(BoundaryError, match="enter it"):
        out.reduce_output(hidden)
    for nothing in (None, (hidden,)):
        with pytest.raises(BoundaryError, match="a stage leaves a tensor, not a"):
            out.finish(nothing)  # type: ignore[arg-type]
    assert out.finish(hidden) is hidden
