"""Outputs used between stages on four gloo ranks, against one rank without boundaries."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import (
    CopiedCollective,
    SingleCollective,
    Sizes,
    WideCollective,
    quantized_all_reduce,
)
from tests.gloo.pool import shared_pool
from tests.runtime.access_ranks import EXTRA
from tests.runtime.model import LAYERS, reference, streams

MODES = (
    "plain",
    "complete",
    "fold",
    "complete and fold",
    "snapshot",
    "written",
    "add",
    "capture",
    "last layer outputs",
    "addition",
    "capture with addition",
)
STAGES = [(layer, kind) for layer in range(LAYERS) for kind in (0, 1)]


def added_to(mode: str) -> dict[tuple[int, int], float]:
    """After which stages a mode adds something."""
    if mode == "add":
        return dict.fromkeys(STAGES, EXTRA)
    if mode.endswith("addition"):
        return {(layer, 1): EXTRA for layer in range(LAYERS - 1)}
    return {}


def shown_of(mode: str, tokens: tuple[int, int], dp: int) -> list[Tensor]:
    """What a mode shows, in order."""
    states = [state[dp] for state in streams(tokens, added_to(mode))]
    if mode in ("snapshot", "written"):
        return states[:-1]
    after_ffn = states[1:-1:2]
    if mode in ("capture", "capture with addition"):
        shift = EXTRA if mode != "capture" else 0.0
        inputs = [entered(tokens, dp), *(state - shift for state in after_ffn[:-1])]
        return [*inputs, after_ffn[-1]]
    if mode == "last layer outputs":
        return [entered(tokens, dp), *after_ffn[:-1]]
    return []


def entered(tokens: tuple[int, int], dp: int) -> Tensor:
    """The stack's input."""
    from tests.runtime.model import Weights

    return Weights().embed(dp, tokens[dp])


def sums(census: list[str]) -> int:
    """How many collectives add something up, in full or the first half of it."""
    return sum(not call.startswith("all_gather") for call in census)


@pytest.mark.parametrize("policy", ["ar", "rs", "rsv"])
@pytest.mark.parametrize(
    ("tokens", "padding"),
    [((2, 5), "sum_len"), ((3, 0), "sum_len"), ((0, 0), "sum_len"), ((1, 2), "max_len")],
)
def test_every_accessor_at_every_boundary(
    tokens: tuple[int, int], padding: str, policy: str
) -> None:
    """Right outputs and right streams, the same collectives on all ranks, empty ones included.

    This is AX-1 and AX-2 too: what is captured is the updated residual, equal on all ranks of a
    group, whatever the producer left; completing early and capturing cost no sum.
    """
    results = shared_pool().run(
        "tests.runtime.access_ranks:accessed", policy, tokens, padding, MODES
    )

    for place, mode in enumerate(MODES):
        final = streams(tokens, added_to(mode))[-1]
        census = results[0][place][2]
        for rank, result in enumerate(results):
            output, shown, log = result[place]
            assert log == census, mode
            torch.testing.assert_close(output, final[rank // 2], rtol=0, atol=1e-11)
            expected = shown_of(mode, tokens, rank // 2)
            assert len(shown) == len(expected), mode
            for state, right in zip(shown, expected, strict=True):
                torch.testing.assert_close(state, right, rtol=0, atol=1e-11)
    plain = [results[0][place][2] for place in range(len(MODES))]
    count = dict(zip(MODES, map(sums, plain), strict=True))
    free = ("complete", "fold", "complete and fold", "add", "capture", "last layer outputs")
    assert {count[mode] for mode in (*free, "addition")} == {count["plain"]}
    # A declared sum runs on a copy for each snapshot of an output that owes one: all but the last.
    assert count["snapshot"] == count["plain"] + 2 * LAYERS - 1


def test_the_reference_agrees_with_itself() -> None:
    """The streams' last state is the reference's output."""
    for one, other in zip(reference((2, 5)), streams((2, 5), {})[-1], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_rd5_sums_accumulate_wider_than_bfloat16() -> None:
    """65536 + 3 x 200 is 66048; rounded at every addition it would stay 65536. So with 100."""
    results = shared_pool().run("tests.runtime.access_ranks:wide_sums")
    assert results == [([66048.0], [66048.0])] * 4


class Narrow:
    """A group that rounds to bfloat16 at every addition, with the partials of RD-5."""

    rank = 0
    size = 4

    def all_reduce(self, x: Tensor) -> Tensor:
        """``x`` and three times 200."""
        for _ in range(3):
            x = x + torch.full_like(x, 200.0)
        return x

    def all_gather(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """As it is."""
        return x

    def reduce_scatter(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """Own rows of the sum."""
        return self.all_reduce(x)[: len(x) // 4]


def test_rd5_a_group_that_rounds_at_every_step_is_made_wide() -> None:
    """The accumulation is part of the contract, not of a backend's tuning."""
    x = torch.full((4, 1), 65536.0, dtype=torch.bfloat16)
    assert Narrow().all_reduce(x)[0, 0].item() == 65536
    wide = WideCollective(Narrow())
    for result in (wide.all_reduce(x), wide.reduce_scatter(x)):
        assert result.dtype is torch.bfloat16
        assert result[0, 0].item() == 66048
    assert wide.all_gather(x) is x
    counts = torch.tensor([2**40 + 1])
    assert wide.all_reduce(counts).dtype is torch.int64


@pytest.mark.parametrize("members", [2, 4])
@pytest.mark.parametrize("form", ["int8", "fp8"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("rows", [0, 3, 8])
def test_qc1_a_quantised_sum_has_no_cliff(
    dtype: torch.dtype, rows: int, form: str, members: int
) -> None:
    """Blocks far below and above 128 / 65504 in one row: each within 1 % of its largest value.

    An fp8 is off by a sixteenth of itself at most.
    """
    peaks = (1e-3, 1.0, 0.00195, 1e-6, 0.0, 300.0)
    results = shared_pool().run("tests.runtime.access_ranks:quantized", dtype, rows, peaks, form,
                                members)  # fmt: skip

    for quantised, plain, everyone in results:
        assert quantised.dtype is dtype
        assert everyone.equal(quantised.repeat(members, 1))
        for mine, exact in zip(quantised.double().split(128, 1), plain.split(128, 1), strict=True):
            largest = exact.abs().amax(-1, keepdim=True)
            rounding = torch.finfo(dtype).eps / 2 + 6e-8 / largest.clamp(min=1e-9)
            allowed = 0.01 * largest if form == "int8" else exact.abs() / 16 + 1e-5 * largest
            assert ((mine - exact).abs() <= allowed + rounding * largest).all()


def test_a_group_of_one_has_nothing_to_quantise() -> None:
    """What is not sent keeps its precision."""
    x = torch.rand(3, 200)
    assert quantized_all_reduce(x, SingleCollective()).equal(x)


def test_al2_two_sums_in_flight_do_not_share_storage() -> None:
    """Both of a group's sums are right after the second one ran."""
    for first, second, shared in shared_pool().run("tests.runtime.access_ranks:two_sums"):
        assert not shared
        assert first.eq(2).all()
        assert second.eq(20).all()


class Reusing:
    """A group whose sums all lie in one communication buffer."""

    rank = 0
    size = 2

    def __init__(self) -> None:
        self.buffer = torch.zeros(2, 4)

    def all_reduce(self, x: Tensor) -> Tensor:
        """Twice ``x``, in the buffer."""
        return self.buffer.copy_(x * 2)

    def all_gather(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """``x``, in the buffer."""
        return self.buffer.copy_(x)

    reduce_scatter = all_gather


@pytest.mark.parametrize("call", ["all_reduce", "all_gather", "reduce_scatter"])
def test_al2_a_reused_communication_buffer_is_copied_out_of(call: str) -> None:
    """Without the wrapper the second result overwrites the first."""
    for group, distinct in ((Reusing(), False), (CopiedCollective(Reusing()), True)):
        first: Any = getattr(group, call)(torch.ones(2, 4))
        getattr(group, call)(torch.full((2, 4), 10.0))
        assert bool(first.le(2).all()) is distinct


@pytest.mark.parametrize("tokens", [(2, 5), (0, 3)])
def test_after_every_misuse_the_next_forward_is_right(tokens: tuple[int, int]) -> None:
    """On all ranks: the documented error, then the same stack and batch run as ever."""
    foreign = "output does not belong to this residual stream"
    errors = ("computing", "this exit is already finished", foreign, foreign, foreign)
    expected = reference(tokens)
    results = shared_pool().run("tests.runtime.access_ranks:recovered", tokens)
    for rank, result in enumerate(results):
        assert len(result) == len(errors)
        for (error, output, log), text in zip(result, errors, strict=True):
            assert error.startswith(text)
            torch.testing.assert_close(output, expected[rank // 2], rtol=0, atol=1e-11)
            assert log == results[0][0][2]
