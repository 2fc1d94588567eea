"""Runs generated `symmetric_kernels.py` on ranks that are processes; exits 1 on a difference.

They share one mapping, and kernels are interpreted, so there need be no GPU. Its own process as
Triton decides at import whether it interprets. Arguments: the files, of which the first is run on
two ranks and the others on four.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from boundaryc import runtime
from boundaryc.runtime import BoundaryError, FusedBoundary, FusionPlan, SumLimits, SumWorkspace
from tests.emit.kernel_program import _convert_exactly, close
from tests.emit.symmetric_sums import OWN, contributions, expected, imported

ROWS = (1, 17, 3, 5)
"""Of calls in a row; up to three are one-shot, and a block has up to five."""
LIMITS = {"rows": 17, "one_shot_rows": 3, "blocks": 4}
SECONDS = 300
LONG = 1_000_000


@dataclass(frozen=True, slots=True)
class Rank:
    """One rank, with its boundary and the place where it leaves what all ranks must agree on."""

    rank: int
    boundary: FusedBoundary
    limits: SumLimits
    norm: dict[str, Any]
    left: Tensor

    def sum(self, rows: int, call: int) -> tuple[Tensor, Tensor] | None:
        """The boundary of one call."""
        parts, residual, weight = contributions(self.limits, rows, call)
        batch: Any = SimpleNamespace(stream=SimpleNamespace(residual=residual))
        return self.boundary.complete(parts[self.rank], batch, weight)


def every_call(rank: Rank) -> None:
    """Each right in float64, sums exactly those of torch; what is too large is declined."""
    for call, rows in enumerate(ROWS):
        found = rank.sum(rows, call)
        assert found is not None
        exact, wanted = expected(rank.limits, rows, call, rank.norm)
        close(found[0], exact[0], rank.limits.dtype)
        close(found[1], exact[1], rank.limits.dtype)
        assert torch.equal(found[1], wanted[1]), (rows, "the sums differ from torch's")
        bits = torch.cat(found).flatten().view(torch.uint8)
        rank.left[call, : bits.numel()] = bits
        assert rank.sum(LIMITS["rows"] + 1, call) is None, "more rows than there is memory for"


def one_is_late(rank: Rank) -> None:
    """The others wait."""
    for call in range(2):
        time.sleep(0.2 * (rank.rank == 1))
        found = rank.sum(3, call)
        assert found is not None
        assert torch.equal(found[1], expected(rank.limits, 3, call, rank.norm)[1][1])


def one_is_absent(rank: Rank, rows: int) -> None:
    """The results of the other are no numbers, and its next call raises."""
    if rank.rank == 1:
        return
    found = rank.sum(rows, 0)
    assert found is not None
    assert all(bool(part.isnan().all()) for part in found)
    with pytest.raises(BoundaryError, match=r"rank 0 of 2 has waited in vain for rank\(s\) 1 of"):
        rank.sum(rows, 1)


def one_gives_up(rank: Rank) -> None:
    """A rank that has not waited for the other sends it no numbers, so that neither has any."""
    time.sleep(1.0 * (rank.rank == 1))
    found = rank.sum(5, 0)
    assert found is not None
    assert bool(found[0].isnan().all())


def on_ranks(
    kernel: Any,
    limits: SumLimits,
    norm: dict[str, Any],
    run: Callable[[Rank], None],
    *patience: int,
) -> None:
    """Runs every rank in a process of its own, and compares what they leave.

    ``patience`` of each rank, or of all.
    """
    size = -(-limits.memory_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = [torch.frombuffer(mmap.mmap(-1, size), dtype=torch.uint8) for _ in range(limits.ranks)]
    most = 2 * limits.max_bytes
    left = torch.frombuffer(mmap.mmap(-1, limits.ranks * len(ROWS) * most), dtype=torch.uint8)
    left = left.view(limits.ranks, len(ROWS), most)
    children = []
    for rank in range(limits.ranks):
        child = os.fork()
        if not child:
            addresses = [part.data_ptr() for part in memory]
            looks = patience[rank % len(patience)]
            workspace = SumWorkspace(limits, rank, memory[rank], addresses, patience=looks)
            sums = runtime.SymmetricSums({"tp": workspace})
            plan = FusionPlan(
                producer="attention",
                consumer="mlp",
                input="ffn",
                sum_group="tp",
                rows=(),
                hidden_size=limits.width,
                eps=norm["eps"],
                kernel=kernel,
            )
            group: Any = SimpleNamespace(rank=rank, size=limits.ranks)
            boundary = FusedBoundary(plan, group)
            boundary.offer([sums])
            _child(partial(run, Rank(rank, boundary, limits, norm, left[rank])))
        children.append(child)
    _wait(children)
    assert bool((left == left[0]).all()), "ranks differ"


def _child(run: Callable[[], None]) -> None:
    try:
        run()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _wait(children: list[int]) -> None:
    """Until all have ended, and no longer than a failed or a hanging one lets them."""
    codes: dict[int, int] = {}
    until = time.monotonic() + SECONDS
    while len(codes) < len(children) and time.monotonic() < until and not any(codes.values()):
        for child in children:
            if child not in codes and (ended := os.waitpid(child, os.WNOHANG))[0]:
                codes[child] = ended[1]
        time.sleep(0.01)
    for child in children:
        if child not in codes:
            os.kill(child, 9)
            os.waitpid(child, 0)
    assert list(codes.values()) == [0] * len(children), codes


def in_a_graph(kernels: Any, limits: SumLimits) -> None:
    """torch.compile knows what it returns without a rank."""
    with FakeTensorMode():
        x, table = torch.empty(5, limits.width), torch.empty(3, dtype=torch.int64)
        given = [x, x.bfloat16(), torch.empty(limits.width), table, limits.call(5, 0, 1)]
        out, total = vars(kernels)["_SUM_ADD_RMS_NORM_OPERATOR"](*given)
    assert (out.dtype, total.dtype) == (torch.float32, torch.bfloat16)
    assert out.shape == total.shape == x.shape


def main(paths: list[str]) -> None:
    """Every file."""
    _convert_exactly()
    torch.set_num_threads(1)
    for path in paths:
        kernels = imported(path)
        width, ranks = kernels.WIDTH.value, 2 if path == paths[0] else 4
        varies = "eps" in kernels.sum_add_rms_norm.__annotations__
        norm = OWN if varies else {"eps": 1e-6}
        kernel = partial(kernels.sum_add_rms_norm, **norm if varies else {})
        limits = SumLimits(ranks, width, torch.bfloat16, **LIMITS)
        if not varies:
            in_a_graph(kernels, limits)
        on_ranks(kernel, limits, norm, every_call, LONG)
        sys.stdout.write(f"{width} columns, {ranks} ranks: agree\n")
        if ranks == 2:
            limits = SumLimits(2, width, torch.float32, **LIMITS)
            on_ranks(kernel, limits, norm, one_is_late, LONG)
            for rows in (2, 5):
                on_ranks(kernel, limits, norm, partial(one_is_absent, rows=rows), 5)
            on_ranks(kernel, limits, norm, one_gives_up, 0, LONG)
            sys.stdout.write("a late rank is waited for, an absent one reported\n")


if __name__ == "__main__":
    main(sys.argv[1:])
