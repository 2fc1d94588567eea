"""The built-in fusion provider: sums, adds and norms in one kernel over symmetric memory.

An engine allocates it once, after loading, and attaches it as ``symmetric_memory``. It owns the
memory into which the ranks of a group write for each other.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.compiler import is_compiling

from boundaryc.runtime.collectives import Collective
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.fusion import (
    Fused,
    FusedAttentionInput,
    FusedBoundary,
    FusedInput,
    FusedMlpInput,
    FusionPlan,
    SumKernel,
)
from boundaryc.runtime.handoffs import HandoffOutput
from boundaryc.runtime.sum_limits import BLOCKS, LINE_BYTES, SumLimits

if TYPE_CHECKING:
    from boundaryc.runtime.batch import Batch
    from boundaryc.runtime.fusing import AnyFusingStack

InputT = TypeVar("InputT", bound=FusedInput)

PATIENCE = 50_000_000
"""How often a block looks for the others: for 20 seconds on an H200."""


class SumWorkspace:
    """The memory of one rank of a group, and where that of the others is.

    ``memory``, uint8 of at least ``limits.memory_bytes``, is zero before any rank calls a kernel;
    ``addresses`` are those of all ranks' memory, in group order, as this rank's device sees it. The
    calls of one rank run one after the other, so on one stream. ``kept`` lives as long as this.
    """

    __slots__ = ("_kept", "_late", "_patience", "limits", "memory", "rank", "table")

    def __init__(
        self,
        limits: SumLimits,
        rank: int,
        memory: Tensor,
        addresses: Sequence[int],
        *,
        patience: int = PATIENCE,
        kept: object = None,
    ) -> None:
        if memory.dtype != torch.uint8 or memory.numel() < limits.memory_bytes:
            raise ValueError(f"a workspace is {limits.memory_bytes} bytes of uint8")
        if len(addresses) != limits.ranks or any(address % LINE_BYTES for address in addresses):
            raise ValueError(f"memory of {limits.ranks} ranks begins at multiples of {LINE_BYTES}")
        self.limits, self.rank, self.memory = limits, rank, memory
        self._kept, self._patience = kept, patience
        # The kernel writes it and the host reads it, without waiting for the kernel.
        self._late = torch.zeros((), dtype=torch.int32, pin_memory=memory.is_cuda)
        table = [*addresses, self._late.data_ptr()]
        self.table = torch.tensor(table, dtype=torch.int64).to(memory.device)

    @classmethod
    def allocate(
        cls, group: Collective, limits: SumLimits, *, patience: int = PATIENCE
    ) -> SumWorkspace:
        """Symmetric memory on the current CUDA device; all ranks of ``group`` call it together."""
        from torch.distributed import _symmetric_memory as symmetric

        process_group = _process_group(group)
        assert process_group is not None
        device = torch.device("cuda", torch.cuda.current_device())
        memory = symmetric.empty(limits.memory_bytes, dtype=torch.uint8, device=device)
        memory.zero_()
        torch.cuda.synchronize()  # before another rank may write
        handle = symmetric.rendezvous(memory, process_group)
        bases = [int(base) for base in handle.buffer_ptrs]
        # An allocation may have a part of a larger one, on every rank another.
        own = memory.data_ptr() - bases[group.rank]
        starts = group.all_gather(torch.tensor([[own]], device=device)).flatten().tolist()
        addresses = [base + int(start) for base, start in zip(bases, starts, strict=True)]
        return cls(limits, group.rank, memory, addresses, patience=patience, kept=handle)

    def call(self, rows: int) -> list[int]:
        """What a kernel is told of a sum of so many rows."""
        return self.limits.call(rows, self.rank, self._patience)

    def check(self) -> None:
        """BoundaryError if a rank did not come to a sum, whose result was NaN.

        It waits for nothing: it tells of sums that are over. Where graphs are replayed, an engine
        calls it now and then.
        """
        late = int(self._late)
        if late:
            absent = [rank for rank in range(self.limits.ranks) if late >> rank & 1]
            raise BoundaryError(
                f"rank {self.rank} of {self.limits.ranks} has waited in vain for rank(s) "
                f"{', '.join(map(str, absent))} of its group in a sum over symmetric memory"
            )


class SymmetricSums:
    """A `FusionProvider` of the kernels that are generated for ``symmetric_memory``.

    ``workspaces`` are those of this rank, by the label of their group.
    """

    def __init__(self, workspaces: Mapping[str, SumWorkspace]) -> None:
        self.workspaces = dict(workspaces)

    @classmethod
    def allocate(
        cls,
        stack: AnyFusingStack,
        *,
        dtype: torch.dtype,
        rows: int | None = None,
        patience: int = PATIENCE,
    ) -> SymmetricSums:
        """With memory for the sums of ``stack``, whose hidden states are of ``dtype``.

        All ranks of a stage call it together, on their CUDA device. ``rows``: no more than so many
        are summed, for less memory; ``patience``: how often a block looks for the others. A group
        has none where a rank has no kernel or no process group, where its ranks are on several
        hosts, or their number is none of `sum_limits.ONE_SHOT_BYTES`. BoundaryError where ranks of
        a group state another ``dtype`` or other ``rows``.
        """
        found: dict[str, SumWorkspace] = {}
        offered = [one for one in stack.fused if not one.plan.terminal]
        for label in dict.fromkeys(one.plan.sum_group for one in offered):
            every = [one for one in offered if one.plan.sum_group == label]
            limits = _agreed(every, dtype, rows)
            if limits is not None:
                found[label] = SumWorkspace.allocate(every[0].group, limits, patience=patience)
        return cls(found)

    def attention_input(self, plan: FusionPlan) -> Sequence[FusedAttentionInput]:
        """The kernel, where the group of the sum has memory."""
        return self._candidates(plan, FusedAttentionInput)

    def ffn_input(self, plan: FusionPlan) -> Sequence[FusedMlpInput]:
        """The kernel, where the group of the sum has memory."""
        return self._candidates(plan, FusedMlpInput)

    def can_defer_finalize(self, plan: FusionPlan, batch: Batch[Any, Any]) -> bool:
        """False: no kernel finalises."""
        return False

    def can_defer_all_reduce(self, plan: FusionPlan, batch: Batch[Any, Any]) -> bool:
        """Whether the kernel takes the rows of ``batch``."""
        return any(
            0 < batch.rows_on(plan.rows) <= self.workspaces[one.sum_group].limits.rows
            for one in self._candidates(plan, FusedMlpInput)
        )

    def check(self) -> None:
        """As `SumWorkspace.check`, of all of them."""
        for workspace in self.workspaces.values():
            workspace.check()

    def _candidates(self, plan: FusionPlan, kind: type[InputT]) -> Sequence[InputT]:
        workspace = self.workspaces.get(plan.sum_group)
        if workspace is None or plan.kernel is None or workspace.limits.width != plan.hidden_size:
            return ()
        limits = workspace.limits
        return (
            kind(
                "symmetric_memory",
                plan.sum_group,
                partial(_run, plan.kernel, workspace),
                max_bytes=limits.max_bytes,
                any_weight=True,
                dtype=limits.dtype,
            ),
        )


def _run(
    kernel: SumKernel,
    workspace: SumWorkspace,
    contribution: Tensor | HandoffOutput,
    residual: Tensor,
    weight: Tensor,
    group: Collective,
    batch: Batch[Any, Any],
) -> Fused | None:
    """See `FusedInput`; whether it runs depends on types, dtypes and rows, equal on all ranks."""
    if isinstance(contribution, HandoffOutput) or contribution.dtype is not residual.dtype:
        return None
    if not is_compiling():
        workspace.check()
    rows = contribution.shape[0]
    return kernel(contribution, residual, weight, workspace.table, workspace.call(rows))


def _agreed(
    boundaries: Sequence[FusedBoundary], dtype: torch.dtype, rows: int | None
) -> SumLimits | None:
    """The limits of one group's sums, the same on all of its ranks, or None on all of them."""
    group, width = boundaries[0].group, boundaries[0].plan.hidden_size
    able = _process_group(group) is not None
    able = able and all(one.plan.kernel is not None for one in boundaries)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    blocks = _processors() if able else 0
    stated = [_number(_host()), _number(f"{dtype} {rows}"), blocks]
    every = group.all_gather(torch.tensor([stated], device=device)).tolist()
    if any(one[1] != stated[1] for one in every):
        raise BoundaryError(
            f"the ranks of a group state other dtypes or rows than {dtype} and {rows} for their "
            "sums over symmetric memory"
        )
    blocks = min(BLOCKS, *(one[2] for one in every))
    if not blocks or any(one[0] != stated[0] for one in every):
        return None
    return SumLimits.of(group.size, width, dtype, rows=rows, blocks=blocks)


def _process_group(group: Collective) -> dist.ProcessGroup | None:
    """What torch calls the group, where its collectives are torch's or say what it is."""
    return getattr(group, "process_group", None)


def _processors() -> int:
    """How many blocks run at once at least: one on each multiprocessor."""
    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


def _host() -> str:
    """The same in all processes of a machine, and in no other's."""
    booted = Path("/proc/sys/kernel/random/boot_id")
    return booted.read_text() if booted.exists() else socket.gethostname()


def _number(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:7], "big")
