"""The built-in fusion provider: which sums it takes, and that all ranks of a group decide alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from boundaryc.runtime import (
    BoundaryError,
    FusedBoundary,
    FusionPlan,
    HandoffOutput,
    NcclCollective,
    SumLimits,
    SumWorkspace,
    SymmetricSums,
    WideCollective,
    symmetric,
)
from boundaryc.runtime.sum_limits import LINE_BYTES, ONE_SHOT_BYTES, TWO_SHOT_BYTES

BF16 = torch.bfloat16


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("width", [4096, 7168])
def test_bytes_decide_on_the_way(ranks: int, width: int) -> None:
    """One-shot to the last byte of its limit, then two-shot to that of its own, then neither."""
    limits = SumLimits.of(ranks, width, BF16)
    assert limits is not None

    row = 2 * width
    assert limits.one_shot_rows * row <= ONE_SHOT_BYTES[ranks] < (limits.one_shot_rows + 1) * row
    assert limits.rows * row <= TWO_SHOT_BYTES[ranks] < (limits.rows + 1) * row
    assert limits.call(limits.one_shot_rows, 0, 1)[0] == 1
    assert limits.call(limits.one_shot_rows + 1, 0, 1)[0] == 2
    assert limits.max_bytes == limits.rows * row


@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize("rows", [None, 1, 100, 128, 129, 1000])
def test_memory_has_room_for_every_slot(ranks: int, rows: int | None) -> None:
    """The places of both ways lie behind each other and within the memory, each row in its own."""
    limits = SumLimits.of(ranks, 4096, BF16, rows=rows)
    assert limits is not None
    row, end = 2 * limits.width, limits.blocks * LINE_BYTES
    ways = [(limits.one_shot_rows, 2 * ranks), (limits.rows, 2 * 2)]
    for most, halves in ways[: 1 + (limits.rows > limits.one_shot_rows)]:
        shots, _, blocks, _, first, slots, depth, _ = limits.call(most, 0, 1)
        assert first >= end
        end = first + halves * slots * row
        grid = min(most, blocks)
        taken = {at % grid * depth + at // grid for at in range(most)}
        assert len(taken) == most
        assert max(taken) < slots, shots
    assert end <= limits.memory_bytes


@pytest.mark.parametrize(
    ("ranks", "width", "dtype", "rows"),
    [
        *((3, 64, BF16, None), (16, 64, BF16, None), (2, 100, BF16, None), (2, 64, BF16, 0)),
        *((2, 64, torch.float64, None), (8, 8388608, torch.float32, None)),
    ],
)
def test_there_is_no_kernel(ranks: int, width: int, dtype: torch.dtype, rows: int | None) -> None:
    """Numbers of ranks without a limit, rows that threads cannot move, dtypes, no rows."""
    assert SumLimits.of(ranks, width, dtype, rows=rows) is None


def test_rows_that_cannot_be_cut_are_sent_whole() -> None:
    """72 columns in eight pieces do not begin at 16 bytes: there is no two-shot sum."""
    limits = SumLimits.of(8, 72, BF16)

    assert limits is not None
    assert limits.rows == limits.one_shot_rows


class Handed(HandoffOutput):
    """An output that is not finished."""

    def complete(self) -> Tensor:
        """Never called."""
        raise AssertionError


def boundary_of(limits: SumLimits) -> tuple[FusedBoundary, SymmetricSums, list[list[int]]]:
    """A boundary with the provider, whose kernel notes what it is told."""
    called: list[list[int]] = []

    def kernel(
        x: Tensor, residual: Tensor, weight: Tensor, table: Tensor, call: list[int]
    ) -> tuple[Tensor, Tensor]:
        called.append(call)
        return x, residual

    memory = torch.zeros(limits.memory_bytes, dtype=torch.uint8)
    sums = SymmetricSums({"tp": SumWorkspace(limits, 1, memory, [0] * limits.ranks, patience=7)})
    plan = FusionPlan(
        "attention", "mlp", "ffn", "tp", (), limits.width, 1e-6, all_reduce=True, kernel=kernel
    )
    group: Any = SimpleNamespace(rank=1, size=limits.ranks)
    boundary = FusedBoundary(plan, group)
    boundary.offer([sums])
    return boundary, sums, called


def crossed(boundary: FusedBoundary, value: Any, residual: Tensor) -> bool:
    """Whether a candidate took it; the weight is of another dtype."""
    batch: Any = SimpleNamespace(stream=SimpleNamespace(residual=residual))
    return boundary.complete(value, batch, torch.ones(residual.shape[1])) is not None


def test_what_it_does_not_take_it_declines_before_it_begins() -> None:
    """Rows by their number, dtypes of either input, hand-offs: the kernel is not called."""
    limits = SumLimits(2, 64, BF16, rows=5, one_shot_rows=2, blocks=4)
    boundary, _, called = boundary_of(limits)

    def rows(count: int, dtype: torch.dtype = BF16) -> Tensor:
        return torch.zeros(count, 64, dtype=dtype)

    assert [crossed(boundary, rows(count), rows(count)) for count in (0, 1, 2, 3, 5, 6)] == [
        *(False, True, True, True, True, False)
    ]
    assert [call[0] for call in called] == [1, 1, 2, 2]
    assert all(call[1:4] == [2, 4, 1] and call[-1] == 7 for call in called)
    assert not crossed(boundary, rows(1, torch.float16), rows(1, torch.float16))
    assert not crossed(boundary, rows(1, torch.float32), rows(1))
    assert not crossed(boundary, Handed(), rows(1))
    assert len(called) == 4


def test_it_says_why() -> None:
    """In words, from what decides."""
    boundary, _, _ = boundary_of(SumLimits(2, 64, BF16, rows=5, one_shot_rows=2, blocks=4))
    weight = torch.ones(64)

    def said(rows: int, dtype: torch.dtype) -> list[str]:
        batch: Any = SimpleNamespace(rows_on=lambda axes: rows)
        return boundary.explain(batch, torch.zeros(1, 64, dtype=dtype), weight)

    assert said(5, BF16) == ["symmetric_memory: tried"]
    assert said(6, BF16) == ["symmetric_memory: not tried, 768 bytes are more than 640"]
    assert said(1, torch.float32) == [
        "symmetric_memory: not tried, the residual is torch.float32, and it takes torch.bfloat16"
    ]


def test_an_exit_may_leave_what_it_takes() -> None:
    """A sum that compute keeps otherwise, by the rows of the batch; no finalize."""
    boundary, sums, _ = boundary_of(SumLimits(2, 64, BF16, rows=5, one_shot_rows=2, blocks=4))

    def batch_of(rows: int) -> Any:
        return SimpleNamespace(rows_on=lambda axes: rows, global_rows=rows)

    batches = [batch_of(rows) for rows in (0, 5, 6)]
    assert [boundary.defers_all_reduce(batch) for batch in batches] == [False, True, False]
    assert not any(sums.can_defer_finalize(boundary.plan, batch) for batch in batches)


def test_an_absent_rank_is_named() -> None:
    """What a kernel reports raises before the next one starts."""
    boundary, sums, called = boundary_of(SumLimits(4, 64, BF16, rows=5, one_shot_rows=2))
    sums.check()
    sums.workspaces["tp"]._late.fill_(0b1001)

    rows = torch.zeros(1, 64, dtype=BF16)
    with pytest.raises(BoundaryError, match=r"rank 1 of 4 has waited in vain for rank\(s\) 0, 3"):
        crossed(boundary, rows, rows)
    assert called == []


def test_memory_must_fit() -> None:
    """Less of it, another dtype, addresses of fewer ranks or within a line are refused."""
    limits = SumLimits(2, 64, BF16, rows=5, one_shot_rows=2, blocks=4)
    memory = torch.zeros(limits.memory_bytes, dtype=torch.uint8)
    for part, addresses in (
        (memory[1:], [0, 0]),
        (memory.view(torch.int8), [0, 0]),
        (memory, [0]),
        (memory, [0, 64]),
    ):
        with pytest.raises(ValueError, match=r"workspace is|memory of 2 ranks"):
            SumWorkspace(limits, 0, part, addresses)


class Said:
    """A group of two, of which the other states something else where ``other`` says so."""

    rank, size = 0, 2

    def __init__(
        self, other: dict[int, int] | None = None, process_group: object = "group"
    ) -> None:
        self.other = other or {}
        if process_group is not None:
            self.process_group = process_group

    def all_gather(self, stated: Tensor) -> Tensor:
        """Its own statement, and the other's."""
        theirs = stated.clone()
        for place, value in self.other.items():
            theirs[0, place] = value
        return torch.cat([stated, theirs])


def agreed(group: Said, *, kernel: Any = print) -> SumLimits | None:
    """What the ranks of a group agree on."""
    plan = FusionPlan("attention", "mlp", "ffn", "tp", (), 4096, 1e-6, kernel=kernel)
    boundary: Any = SimpleNamespace(plan=plan, group=group)
    return symmetric._agreed([boundary], BF16, 100)


def test_hg7_all_ranks_of_a_group_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """vllm-project/vllm#43616: on the fewest blocks; on none where one cannot or is elsewhere."""
    monkeypatch.setattr(symmetric, "_processors", lambda: 132)

    found = agreed(Said())
    assert found == SumLimits.of(2, 4096, BF16, rows=100)
    assert agreed(Said({2: 40})) == SumLimits.of(2, 4096, BF16, rows=100, blocks=40)
    assert agreed(Said({2: 0})) is None
    assert agreed(Said({0: 1})) is None
    assert agreed(Said(process_group=None)) is None
    assert agreed(Said(), kernel=None) is None
    with pytest.raises(BoundaryError, match=r"other dtypes or rows than torch.bfloat16 and 100"):
        agreed(Said({1: 1}))


def test_groups_say_what_torch_calls_them() -> None:
    """Also inside of another; an engine's own that does not has no sums over symmetric memory."""
    inner: Any = NcclCollective.__new__(NcclCollective)
    inner._group = "group"
    inner.rank, inner.size = 0, 2

    assert WideCollective(inner).process_group == "group"
    assert WideCollective(SimpleNamespace(rank=0, size=2)).process_group is None  # type: ignore[arg-type]
