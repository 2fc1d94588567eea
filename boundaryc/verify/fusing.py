"""Fusion providers of simulated ranks: in torch, with the sum done by the provider itself.

What a provider takes it draws from what all ranks know, so that some batches are fused, some are
declined and some are never offered.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar
from zlib import crc32

import torch
from torch import Tensor

from boundaryc.language.model import BUILTIN, NormSpec
from boundaryc.runtime import (
    Collective,
    ExpertRows,
    FusedAttentionInput,
    FusedInput,
    FusedMlpInput,
    FusionPlan,
    HandoffOutput,
    SingleCollective,
)
from boundaryc.verify.binding import bound_last
from boundaryc.verify.scene import Cell, Scene

InputT = TypeVar("InputT", bound=FusedInput)


class FusionError(Exception):
    """Work that was handed on and is done twice."""


class Unfinished(HandoffOutput):
    """A rank's part of an output that it has not finished; it is finished once."""

    __slots__ = ("_parts",)

    def __init__(self, part: Tensor) -> None:
        self._parts = [part]

    def complete(self) -> Tensor:
        """The part. FusionError the second time."""
        if not self._parts:
            raise FusionError("a hand-off was completed twice")
        return self._parts.pop()


class TorchProvider:
    """A provider whose kernel is torch's; ``seed`` decides what it takes, with what ranks share."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def attention_input(self, plan: FusionPlan) -> Sequence[FusedAttentionInput]:
        """One that sums elsewhere, and the one that may take it."""
        return self._candidates(plan, FusedAttentionInput)

    def ffn_input(self, plan: FusionPlan) -> Sequence[FusedMlpInput]:
        """One that sums elsewhere, and the one that may take it."""
        return self._candidates(plan, FusedMlpInput)

    def can_defer_finalize(self, plan: FusionPlan, batch: Any) -> bool:
        """As drawn."""
        return self._takes("finalize", plan, batch)

    def can_defer_all_reduce(self, plan: FusionPlan, batch: Any) -> bool:
        """As drawn."""
        return self._takes("all_reduce", plan, batch)

    def _candidates(self, plan: FusionPlan, kind: type[InputT]) -> Sequence[InputT]:
        run = partial(self._run, plan)
        return (kind("elsewhere", "elsewhere", _elsewhere), kind("torch", plan.sum_group, run))

    def _run(
        self,
        plan: FusionPlan,
        contribution: Tensor | HandoffOutput,
        residual: Tensor,
        weight: Tensor,
        group: Collective,
        batch: Any,
    ) -> tuple[Tensor, Tensor] | None:
        if not self._takes("input", plan, batch):
            return None
        return summed(contribution, residual, weight + plan.weight_offset, group, plan.eps)

    def _takes(self, what: str, plan: FusionPlan, batch: Any) -> bool:
        facts = (self._seed, what, plan.producer, plan.consumer, batch.facts.rows_per_dp)
        return crc32(repr(facts).encode()) % 3 > 0


class TorchNorm:
    """A final norm that finishes hand-offs whose sum is over ``group``; see `TorchProvider`."""

    def __init__(self, group: Collective, norm: NormSpec, *, takes: bool) -> None:
        self._group, self._norm, self._takes = group, norm, takes

    def finalize(self, handoff: HandoffOutput, residual: Tensor, gamma: Tensor) -> Tensor | None:
        """The finished, summed, added and normed output, or None."""
        if not self._takes:
            return None
        gamma = gamma + self._norm.weight_offset
        return summed(handoff, residual, gamma, self._group, self._norm.eps)[0]


def _elsewhere(*given: object) -> None:
    """What completes another sum: FusionError, as this one would be left or done twice."""
    raise FusionError("a candidate was run that sums over another group")


def summed(
    contribution: Tensor | HandoffOutput,
    residual: Tensor,
    weight: Tensor,
    group: Collective,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """What a fused kernel leaves; it writes over the residual, as kernels do."""
    if isinstance(contribution, HandoffOutput):
        contribution = contribution.complete()
    residual += group.all_reduce(contribution)
    scale = torch.sqrt((residual * residual).mean(dim=-1, keepdim=True) + eps)
    return residual / scale * weight, residual


def attach(stack: Any, scene: Scene) -> Any:
    """``stack`` with its providers, if its file names some; the last of several is not there."""
    names = tuple(name for name in scene.subject.plan.stack.fusion if name != BUILTIN)
    for name in names[:-1] or names:
        stack.attach(name, TorchProvider(_seed(scene.cell, name)))
    return stack


def ended(exit_: Any, batch: Any, y: Tensor, terms: dict[str, Tensor]) -> Any:
    """What compute returns for its own part of an output: unfinished, where the exit asks so.

    On all ranks alike: in batches of an odd number of rows as rows of experts, in others as what
    only `TorchProvider` knows.
    """
    if not exit_.defer_moe_finalize:
        return exit_.reduce_output(y, **terms)
    return expert_rows(y) if batch.global_rows % 2 else Unfinished(y)


def expert_rows(y: Tensor) -> ExpertRows:
    """Rows of two experts and of a shared one whose sum is ``y``, in an order that is no token's.

    The second of every third token is on no rank; what is not used is no number.
    """
    tokens = y.shape[0]
    rows = y.new_full((2 * tokens + 1, y.shape[1]), torch.nan)
    weights = torch.tensor([0.5, 0.25], dtype=torch.float64).repeat(tokens, 1)
    index = torch.arange(2 * tokens, device=y.device).flip(0).view(tokens, 2)
    rows[index.flatten()] = y.repeat_interleave(2, dim=0)
    weights[::3, 0] = 0.75
    rows[index[::3, 1]] = torch.nan
    index[::3, 1] = -1
    return ExpertRows(rows, weights.to(y.device), index, y * 0.25)


def left(scene: Scene, stack: Any, batch: Any, hidden: Any) -> Tensor:
    """The stack's output, through the end that its file declares."""
    declared = scene.subject.plan.stack
    if not declared.terminal.norm:
        written: Tensor = stack.take_output(hidden, batch)
        return written
    options: dict[str, object] = {}
    draw = _seed(scene.cell, "final") % 3
    if declared.fusion and draw:
        # Where nothing waits there is nothing to finish, and no group to do it in.
        waiting = batch.stream.deferred
        group = waiting.fused.group if waiting else SingleCollective()
        options["handoff_norm"] = TorchNorm(group, declared.norm, takes=draw == 1)
    normed: Tensor = stack.norm(hidden, batch, *bound_last(scene.subject), **options)
    return normed


def _seed(cell: Cell, name: str) -> int:
    return crc32(f"{cell} {name}".encode())
