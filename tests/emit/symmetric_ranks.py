"""What only a GPU can show of `symmetric_kernels.py`: ranks on one, or on one each; exits 1 if off.

    python -m tests.emit.symmetric_ranks streams FILE...
    python -m tests.emit.symmetric_ranks processes RANKS FILE...

FILEs are generated, one for each width. ``streams``: ranks are streams of one process, whose
kernels run at the same time, and no symmetric memory is needed. ``processes``: each rank is a
process with torch's symmetric memory, on a GPU of its own where there are so many, else all on the
first, where they take turns. Needs torch, Triton and `boundaryc.runtime`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from boundaryc.runtime import (
    BoundaryError,
    FusedBoundary,
    FusionPlan,
    Mesh,
    SumLimits,
    SumWorkspace,
    SymmetricSums,
    TorchGroups,
)
from tests.emit.symmetric_sums import contributions, expected, imported

ROWS = (1, 3, 17, 128)
CALLS = 200
NORM = {"eps": 1e-6}
ULP = {torch.float32: 2**-21, torch.bfloat16: 2**-7}
SECONDS = 240
LOOKS = 20_000
"""Of a block for a rank that does not come."""


def limits_of(ranks: int, width: int, dtype: torch.dtype, shots: int, blocks: int) -> SumLimits:
    """Limits with which all sums of up to 128 rows are done in so many shots."""
    once = max(ROWS) if shots == 1 else 0
    return SumLimits(ranks, width, dtype, max(ROWS), once, blocks)


def compare(found: Sequence[Tensor], limits: SumLimits, rows: int, call: int) -> None:
    """Near float64, and the sums exactly as torch makes them."""
    exact, wanted = expected(limits, rows, call, NORM, "cuda")
    for one, right in zip(found, exact, strict=True):
        error = ((one.double() - right).abs() / right.abs().clamp(min=1)).max().item()
        assert error <= ULP[limits.dtype], (limits, rows, error)
    assert torch.equal(found[1], wanted[1]), (limits, rows, "the sums differ from torch's")


def each_way(widths: Sequence[int], ranks: int, blocks: int) -> list[tuple[int, SumLimits]]:
    """The index of a file, and the limits that are tried with it."""
    found = [
        (at, limits_of(ranks, width, torch.bfloat16, shots, blocks))
        for at, width in enumerate(widths)
        for shots in (1, 2)
    ]
    return [*found, (0, replace(found[0][1], dtype=torch.float32))]


class Streams:
    """Ranks as streams of this process; the blocks of all of them must run at the same time."""

    def __init__(self, kernel: Any, limits: SumLimits, patience: int = 20_000_000) -> None:
        size = limits.memory_bytes
        memory = [torch.zeros(size, dtype=torch.uint8, device="cuda") for _ in range(limits.ranks)]
        addresses = [part.data_ptr() for part in memory]
        self.kernel, self.limits = kernel, limits
        self.spaces = [
            SumWorkspace(limits, rank, part, addresses, patience=patience)
            for rank, part in enumerate(memory)
        ]
        self.streams = [torch.cuda.Stream() for _ in memory]

    def burst(
        self, calls: Sequence[tuple[list[Tensor], Tensor, Tensor]], leave_out: int | None = None
    ) -> list[list[tuple[Tensor, Tensor]]]:
        """Calls in a row on every rank but one that is left out; ranks wait for kernels alone."""
        current, found = torch.cuda.current_stream(), []
        for stream in self.streams:
            stream.wait_stream(current)
        for parts, residual, weight in calls:
            found.append([])
            for space, stream in zip(self.spaces, self.streams, strict=True):
                if space.rank != leave_out:
                    part = parts[space.rank]
                    call = space.call(part.shape[0])
                    with torch.cuda.stream(stream):
                        done = self.kernel(part, residual, weight, space.table, call)
                    found[-1].append(done)
        for stream in self.streams:
            current.wait_stream(stream)
        return found


def streams(files: Sequence[str]) -> None:
    """Everything with ranks as streams."""
    modules = [imported(file) for file in files]
    widths = [module.WIDTH.value for module in modules]
    for ranks in (2, 4):
        for at, limits in each_way(widths, ranks, blocks=32):
            world = Streams(modules[at].sum_add_rms_norm, limits)
            for call, rows in enumerate(ROWS):
                (every,) = world.burst([contributions(limits, rows, call, "cuda")])
                for found in every:
                    compare(found, limits, rows, call)
            _repeated_streams(world)
            _replayed_streams(world)
            say(f"streams, {ranks} ranks, {limits.width} columns, {_way(limits)}: agree")
        _absent_streams(modules[0].sum_add_rms_norm, ranks, widths[0])


def _repeated_streams(world: Streams) -> None:
    limits, differ = world.limits, torch.zeros((), dtype=torch.int64, device="cuda")
    for first in range(0, CALLS, 20):
        calls = [(ROWS[call * 7 % 4], call) for call in range(first, first + 20)]
        given = [contributions(limits, rows, call, "cuda") for rows, call in calls]
        for (rows, call), every in zip(calls, world.burst(given), strict=True):
            wanted = expected(limits, rows, call, NORM, "cuda")[1]
            for found in every:
                differ += (found[1] != wanted[1]).sum()
    assert differ.item() == 0, f"{differ.item()} numbers differ in {CALLS} calls"


def _replayed_streams(world: Streams) -> None:
    """A graph of three calls, so that a replay begins where the other half is to be written."""
    limits, rows = world.limits, 17
    given = contributions(limits, rows, 0, "cuda")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        every = world.burst([given] * 3)
    for call in range(20):
        for held, new in zip((*given[0], *given[1:]), _flat(limits, rows, call), strict=True):
            held.copy_(new)
        graph.replay()
        for found in (one for ranks in every for one in ranks):
            compare(found, limits, rows, call)
    started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    started.record()
    for _ in range(20):
        graph.replay()
    ended.record()
    torch.cuda.synchronize()
    say(f"  {started.elapsed_time(ended) / 60 * 1000:.1f} us a call in a graph, {rows} rows")


def _absent_streams(kernel: Any, ranks: int, width: int) -> None:
    for shots in (1, 2):
        limits = limits_of(ranks, width, torch.bfloat16, shots, 32)
        world = Streams(kernel, limits, LOOKS)
        begun = time.monotonic()
        (found,) = world.burst([contributions(limits, 17, 0, "cuda")], leave_out=1)
        torch.cuda.synchronize()
        took = time.monotonic() - begun
        for one, space in zip(found, (world.spaces[0], *world.spaces[2:]), strict=True):
            _absence(one, space)
        say(f"an absent rank is reported, {_way(limits)}: {took / LOOKS * 1e6:.2f} us a look")


def _absence(found: tuple[Tensor, Tensor], space: SumWorkspace) -> None:
    assert all(bool(part.isnan().all()) for part in found), "numbers without a rank"
    try:
        space.check()
    except BoundaryError as error:
        assert "in vain for rank(s) 1 of" in str(error), str(error)  # noqa: PT017 - no pytest there
        return
    raise AssertionError("an absent rank was not reported")


def processes(ranks: int, files: Sequence[str]) -> None:
    """Starts the ranks and waits for them; the error of the first that fails."""
    with tempfile.NamedTemporaryFile() as store:
        words = [sys.executable, "-m", "tests.emit.symmetric_ranks", "rank"]
        environment = {**os.environ, "TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES": "1"}
        started = [
            subprocess.Popen([*words, str(rank), str(ranks), store.name, *files], env=environment)
            for rank in range(ranks)
        ]
        until = time.monotonic() + SECONDS
        while any(one.poll() is None for one in started):
            if time.monotonic() > until or any(one.poll() for one in started):
                break
            time.sleep(0.05)
        time.sleep(0.5)
        for one in started:
            if one.poll() is None:
                one.kill()
                one.wait()
    codes = [one.returncode for one in started]
    assert codes == [0] * ranks, codes


def rank_main(rank: int, ranks: int, store: str, files: Sequence[str]) -> None:
    """One rank with torch's symmetric memory."""
    alone = torch.cuda.device_count() >= ranks
    torch.cuda.set_device(rank if alone else 0)
    backend = "nccl" if alone else "gloo"  # NCCL refuses two ranks on a GPU
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=ranks)
    mesh = Mesh((("attn_tp", ranks, "attn_tp"),))
    group: Any = TorchGroups(device="cuda").collective(mesh, ("attn_tp",))
    modules = [imported(file) for file in files]
    widths = [module.WIDTH.value for module in modules]
    for at, limits in each_way(widths, ranks, blocks=128):
        space = SumWorkspace.allocate(group, limits)
        kernel = modules[at].sum_add_rms_norm
        for call, rows in enumerate(ROWS):
            found = _sum(kernel, space, contributions(limits, rows, call, "cuda"))
            compare(found, limits, rows, call)
            _equal(group, found)
        took = _repeated(kernel, space)
        _replayed(kernel, space)
        if rank == 0:
            say(
                f"{backend}, {ranks} ranks, {limits.width} columns, {_way(limits)}: agree, "
                f"{took * 1000:.2f} ms a call"
            )
    _default(group, modules[0])
    _absent(group, modules[0].sum_add_rms_norm, widths[0])
    if rank == 0:
        say(f"{backend}, {ranks} ranks: large batches are declined, an absent rank is reported")
    dist.barrier()
    dist.destroy_process_group()


def _sum(
    kernel: Any, space: SumWorkspace, given: tuple[list[Tensor], Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    parts, residual, weight = given
    part = parts[space.rank]
    found: tuple[Tensor, Tensor] = kernel(
        part, residual, weight, space.table, space.call(part.shape[0])
    )
    return found


def _equal(group: Any, found: tuple[Tensor, Tensor]) -> None:
    bits = torch.cat(found).view(torch.uint8)
    every = group.all_gather(bits.view(1, *bits.shape))
    assert bool((every == every[0]).all()), "ranks differ"


def _repeated(kernel: Any, space: SumWorkspace) -> float:
    """Seconds a call of many, with other numbers and row counts in each."""
    limits, differ = space.limits, torch.zeros((), dtype=torch.int64, device="cuda")
    begun = time.monotonic()
    for call in range(CALLS):
        rows = ROWS[call * 7 % 4]
        wanted = expected(limits, rows, call, NORM, "cuda")[1]
        found = _sum(kernel, space, contributions(limits, rows, call, "cuda"))
        differ += (found[1] != wanted[1]).sum()
    assert differ.item() == 0, f"{differ.item()} numbers differ in {CALLS} calls"
    space.check()
    return (time.monotonic() - begun) / CALLS


def _replayed(kernel: Any, space: SumWorkspace) -> None:
    limits, rows = space.limits, 17
    given = contributions(limits, rows, 0, "cuda")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        every = [_sum(kernel, space, given) for _ in range(3)]
    for call in range(5):
        for held, new in zip((*given[0], *given[1:]), _flat(limits, rows, call), strict=True):
            held.copy_(new)
        graph.replay()
        for found in every:
            compare(found, limits, rows, call)


def _default(group: Any, module: Any) -> None:
    """As an engine does it: allocated for a stack, with the limits that the runtime has."""
    width = module.WIDTH.value
    kernel = module.sum_add_rms_norm
    plan = FusionPlan("attention", "mlp", "ffn", "tp", (), width, NORM["eps"], kernel=kernel)
    boundary = FusedBoundary(plan, group)
    stack: Any = SimpleNamespace(fused=(boundary,))
    sums = SymmetricSums.allocate(stack, dtype=torch.bfloat16)
    boundary.offer([sums])
    (space,) = sums.workspaces.values()
    limits = space.limits
    for rows in (1, limits.one_shot_rows, limits.one_shot_rows + 1, limits.rows, limits.rows + 1):
        parts, residual, weight = contributions(limits, rows, 7, "cuda")
        batch: Any = SimpleNamespace(stream=SimpleNamespace(residual=residual))
        found = boundary.complete(parts[group.rank], batch, weight)
        if rows > limits.rows:
            assert found is None
            assert f"more than {limits.max_bytes}" in str(_offered(boundary, residual, weight))
        else:
            assert found is not None
            compare(found, limits, rows, 7)
    sums.check()


def _offered(boundary: FusedBoundary, residual: Tensor, weight: Tensor) -> list[str]:
    batch: Any = SimpleNamespace(rows_on=lambda rows: residual.shape[0])
    return boundary.explain(batch, residual, weight)


def _absent(group: Any, kernel: Any, width: int) -> None:
    for shots in (1, 2):
        limits = limits_of(group.size, width, torch.bfloat16, shots, 128)
        space = SumWorkspace.allocate(group, limits, patience=LOOKS)
        if group.rank != 1:
            found = _sum(kernel, space, contributions(limits, 17, 0, "cuda"))
            torch.cuda.synchronize()
            _absence(found, space)
        dist.barrier()


def _flat(limits: SumLimits, rows: int, call: int) -> list[Tensor]:
    parts, residual, weight = contributions(limits, rows, call, "cuda")
    return [*parts, residual, weight]


def _way(limits: SumLimits) -> str:
    kind = str(limits.dtype).removeprefix("torch.")
    return f"{kind}, {'one' if limits.one_shot_rows else 'two'}-shot"


def say(line: str) -> None:
    """Prints a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    mode, *rest = sys.argv[1:]
    runs: dict[str, Any] = {
        "streams": lambda: streams(rest),
        "processes": lambda: processes(int(rest[0]), rest[1:]),
        "rank": lambda: rank_main(int(rest[0]), int(rest[1]), rest[2], rest[3:]),
    }
    runs[mode]()
