"""FlashInfer's all-reduce + residual + RMSNorm, as SGLang wraps it: a fusion provider.

The wrapper is `flashinfer_allreduce_residual_rmsnorm` of SGLang 0.5.23; it owns the workspaces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from boundaryc.runtime.collectives import Collective
from boundaryc.runtime.fusion import (
    Fused,
    FusedAttentionInput,
    FusedInput,
    FusedMlpInput,
    FusionPlan,
)
from boundaryc.runtime.handoffs import HandoffOutput

if TYPE_CHECKING:
    from boundaryc.runtime.batch import Batch

InputT = TypeVar("InputT", bound=FusedInput)

Kernel = Callable[..., tuple[Tensor | None, Tensor | None]]
"""SGLang's wrapper: both None, before it has written or sent anything, where it declines."""

MAX_ROWS = 2048
"""The most rows that SGLang fuses, for which its workspaces are made."""

DTYPES = (torch.bfloat16, torch.float16)
VECTOR = 8
"""Values in the 16 bytes that one access of the kernel has."""


class FlashInferSums:
    """A `FusionProvider` of sums over SGLang's attention TP group and its experts' group.

    ``attention`` and ``experts`` are the coordinators on which SGLang makes the two workspaces: a
    sum behind attention goes through the first, one behind an FFN through the second, and only
    where it is over exactly these ranks. Before the first batch SGLang's
    `pre_initialize_workspaces` is called on all ranks; graphs may capture what follows.

    The kernel rounds the sum, and the residual with it, to their dtype before the norm reads it: it
    is offered boundaries of stacks whose norm says `accumulate: rounded`, and of no weight offset.
    Batches of several attention DP groups, 0 rows or more than ``max_rows``, and tensors on the CPU
    are declined, as by SGLang.
    """

    def __init__(
        self,
        attention: Any,
        experts: Any,
        *,
        kernel: Kernel | None = None,
        max_rows: int = MAX_ROWS,
        device: str = "cuda",
    ) -> None:
        if kernel is None:
            from sglang.srt.layers import flashinfer_comm_fusion

            kernel = flashinfer_comm_fusion.flashinfer_allreduce_residual_rmsnorm
        self._attention, self._experts = attention, experts
        self._kernel, self._max_rows, self._device = kernel, max_rows, device

    @classmethod
    def of_process(cls) -> FlashInferSums:
        """With the groups of this process, once SGLang has made them."""
        from sglang.srt.layers.moe.utils import post_experts_reduction_group
        from sglang.srt.runtime_context import get_parallel

        return cls(get_parallel().attn_tp_group, post_experts_reduction_group())

    def attention_input(self, plan: FusionPlan) -> Sequence[FusedAttentionInput]:
        """The kernel, for the sum that an FFN leaves."""
        return self._candidates(plan, FusedAttentionInput, self._experts, attention=False)

    def ffn_input(self, plan: FusionPlan) -> Sequence[FusedMlpInput]:
        """The kernel, for the sum that a token mixer leaves."""
        return self._candidates(plan, FusedMlpInput, self._attention, attention=True)

    def can_defer_finalize(self, plan: FusionPlan, batch: Batch[Any, Any]) -> bool:
        """False: SGLang's deferred finalize includes the sum, boundaryc's leaves it."""
        return False

    def can_defer_all_reduce(self, plan: FusionPlan, batch: Batch[Any, Any]) -> bool:
        """Whether the kernel takes the rows of ``batch``."""
        return self._offered(plan) and self._takes(batch.rows_on(plan.rows), batch)

    def _candidates(
        self, plan: FusionPlan, kind: type[InputT], coordinator: Any, *, attention: bool
    ) -> Sequence[InputT]:
        if not self._offered(plan):
            return ()
        run = partial(self._run, plan.eps, coordinator, attention)
        return (kind("flashinfer", plan.sum_group, run),)

    @staticmethod
    def _offered(plan: FusionPlan) -> bool:
        plain = plan.accumulate == "rounded" and plan.weight_offset == 0.0
        return plain and plan.sum_group != "" and plan.hidden_size % VECTOR == 0

    def _takes(self, rows: int, batch: Batch[Any, Any]) -> bool:
        return len(batch.facts.rows_per_dp) == 1 and 0 < rows <= self._max_rows

    def _run(
        self,
        eps: float,
        coordinator: Any,
        attention: bool,
        contribution: Tensor | HandoffOutput,
        residual: Tensor,
        weight: Tensor,
        group: Collective,
        batch: Batch[Any, Any],
    ) -> Fused | None:
        """See `FusedInput`; what decides is equal on all ranks of the group."""
        if isinstance(contribution, HandoffOutput) or contribution.device.type != self._device:
            return None
        if contribution.dtype is not residual.dtype or residual.dtype not in DTYPES:
            return None
        same = getattr(group, "process_group", None) is coordinator.device_group
        if not same or not self._takes(contribution.shape[0], batch):
            return None
        normed, updated = self._kernel(
            input_tensor=contribution.contiguous(),
            residual=residual.contiguous(),
            weight=weight.contiguous(),
            eps=eps,
            max_token_num=self._max_rows,
            use_attn_tp_group=attention,
        )
        return None if normed is None or updated is None else (normed, updated)
