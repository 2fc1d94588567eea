"""The residual stream: its states, and what it refuses."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

from boundaryc.runtime import BoundaryError, OwedOutput, ResidualStream, StreamState

NOT_STARTED = "^start the layer stack before entering a stage$"
FOREIGN = (
    "^output does not belong to this residual stream; "
    "change layer outputs through boundary accessors$"
)


def written() -> ResidualStream:
    """A stream that holds a residual and nothing pending."""
    stream = ResidualStream()
    stream.residual = stream.enter(torch.zeros(2, 3))
    return stream


def test_states_of_a_forward() -> None:
    """Initial, written, pending and back."""
    stream = ResidualStream()
    assert stream.state is StreamState.INITIAL
    hidden = torch.ones(2, 3)
    assert stream.enter(hidden) is hidden
    assert stream.state is StreamState.WRITTEN

    contribution, gate = torch.ones(2, 3), torch.ones(3)
    handle = stream.owe(contribution, (gate,))
    assert stream.state is StreamState.PENDING
    assert isinstance(handle, OwedOutput)
    assert stream.take(handle) is contribution
    assert stream.params == (gate,)
    assert stream.state is StreamState.WRITTEN

    complete = torch.ones(2, 3)
    assert stream.pend(complete) is complete
    assert stream.state is StreamState.PENDING
    assert stream.take(complete) is complete
    assert stream.params == ()

    residual = torch.ones(2, 3)
    assert stream.keep(residual) is residual
    assert stream.state is StreamState.WRITTEN
    assert stream.take(residual) is residual


def test_nothing_runs_before_start() -> None:
    """Without a started stream every stage is refused."""
    x = torch.ones(1)
    for call in ("enter", "take", "owe", "pend", "keep"):
        with pytest.raises(BoundaryError, match=NOT_STARTED):
            getattr(ResidualStream(StreamState.UNSTARTED), call)(x)
    with pytest.raises(BoundaryError, match="its first stage is prepared once in a forward"):
        written().enter(x)
    with pytest.raises(BoundaryError, match="prepare the stage before finishing it"):
        ResidualStream().owe(x)


def test_the_stack_is_entered_and_written_on_its_rows() -> None:
    """By a tensor, with both numbers where they differ; without them nothing is known."""
    stream = ResidualStream(rows=3)
    for call, what in (("expect", "input"), ("write", "written residual")):
        with pytest.raises(BoundaryError, match=f"{what} has 2 rows, and this batch has 3"):
            getattr(stream, call)(torch.ones(2, 4))
    with pytest.raises(BoundaryError, match="the stack's input is a tensor"):
        stream.expect(None)  # type: ignore[arg-type]
    assert stream.state is StreamState.INITIAL
    stream.expect(torch.ones(3, 4))
    assert ResidualStream().write(torch.ones(2, 4)).shape == (2, 4)


def test_only_the_object_handed_out_is_taken_back_and_once() -> None:
    """Equal values, other streams' handles and second uses are foreign."""
    stream, other = written(), written()
    x = torch.ones(2, 3)
    handle, foreign = stream.owe(x), other.owe(x)

    for value in (x, x.clone(), foreign, OwedOutput()):
        with pytest.raises(BoundaryError, match=FOREIGN):
            stream.take(value)
    assert stream.state is StreamState.PENDING
    assert stream.take(handle) is x
    with pytest.raises(BoundaryError, match=FOREIGN):
        stream.take(handle)
    with pytest.raises(BoundaryError, match=FOREIGN):
        ResidualStream().take(x)


@pytest.mark.parametrize("first", ["owe", "pend", "keep"])
@pytest.mark.parametrize("second", ["owe", "pend", "keep"])
def test_a_second_output_is_refused(first: str, second: str) -> None:
    """One output waits at a time, and it is not lost."""
    stream = written()
    x = torch.ones(2, 3)
    handle = getattr(stream, first)(x)

    with pytest.raises(BoundaryError, match="a contribution is already pending"):
        getattr(stream, second)(torch.zeros(2, 3))
    assert stream.take(handle) is x


USES: list[Callable[[Any], object]] = [
    lambda owed: owed.shape,
    lambda owed: owed.to(torch.float32),
    lambda owed: hasattr(owed, "dtype"),
    lambda owed: setattr(owed, "grad", 1),
    lambda owed: delattr(owed, "grad"),
    lambda owed: owed[0],
    lambda owed: operator.setitem(owed, 0, 1),
    len,
    bool,
    int,
    float,
    iter,
    list,
    abs,
    operator.neg,
    operator.invert,
    lambda owed: 1 in owed,
    lambda owed: owed + 1,
    lambda owed: 1 + owed,
    lambda owed: operator.iadd(owed, 1),  # type: ignore[no-untyped-call]
    lambda owed: owed - 1,
    lambda owed: 1 - owed,
    lambda owed: owed * 2,
    lambda owed: 2 * owed,
    lambda owed: owed / 2,
    lambda owed: 2 / owed,
    lambda owed: owed // 2,
    lambda owed: owed % 2,
    lambda owed: owed**2,
    lambda owed: owed @ torch.ones(3),
    lambda owed: owed & 1,
    lambda owed: owed | 1,
    lambda owed: owed ^ 1,
    lambda owed: owed << 1,
    lambda owed: owed >> 1,
    lambda owed: owed < 1,
    lambda owed: owed == 1,
    lambda owed: owed != 1,
    lambda owed: torch.ones(3) + owed,
    lambda owed: torch.ones(3) @ owed,
    lambda owed: torch.ones(3) * owed,
    torch.relu,
    lambda owed: torch.add(torch.ones(3), owed),
    lambda owed: torch.cat([owed, owed]),
    lambda owed: torch.nn.functional.linear(owed, torch.ones(3, 3)),
    lambda owed: torch.tensor(owed),
    lambda owed: torch.ones(3).copy_(owed),
    pickle.dumps,
]


@pytest.mark.parametrize("use", USES)
def test_an_owed_output_is_not_a_tensor(use: Callable[[Any], object]) -> None:
    """Every use raises TypeError; keeping, passing and identity are all that is left."""
    owed = written().owe(torch.ones(3))

    with pytest.raises(TypeError, match="still owes a sum"):
        use(owed)
    assert {owed: 1}[owed] == 1
    assert owed is owed
    assert "OwedOutput" in repr(owed)
