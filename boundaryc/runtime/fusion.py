"""Fused sums: who may do a sum together with the plain add and the norm behind it.

A provider of an engine offers candidates for the boundaries of a stack, each of which is a sum,
then an addition to the residual, then a norm, all on the same rows. The first candidate that takes
a batch does all three; where none does, the boundary does what it does without any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from boundaryc.runtime.batch import Batch
from boundaryc.runtime.collectives import Collective
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.finalize import ExpertRows
from boundaryc.runtime.handoffs import HandoffOutput, taken
from boundaryc.runtime.mesh import Axes
from boundaryc.runtime.owed import OwedOutput
from boundaryc.runtime.rowwise import Accumulate

Fused = tuple[Tensor, Tensor]
"""``(input, residual)``: the norm of the updated residual, and that residual, [rows, width]."""

Run = Callable[[Tensor | HandoffOutput, Tensor, Tensor, Collective, Batch[Any, Any]], Fused | None]
"""``(contribution, residual, weight, group, batch) -> Fused``, or None: see `FusedInput`."""

SumKernel = Callable[[Tensor, Tensor, Tensor, Tensor, list[int]], Fused]
"""``(contribution, residual, weight, table, call) -> Fused``: a generated one, see `SumLimits`."""


@dataclass(frozen=True, slots=True)
class FusionPlan:
    """A sum, a plain add and a norm between two stages: what a kernel must know before it runs.

    ``input`` is what the norm is for: attention, which any token mixer is called here, an FFN, or
    the end of the stack. The sum is owed over the group labelled ``sum_group``, which is empty
    where there is none; rows are cut over the atoms ``rows``. The norm is the consumer's:
    ``weight_offset`` is added to its weight, and
    ``accumulate`` says where the sum that is normed is rounded. ``sparse``: the producer is a MoE.
    ``finalize``: the producer may hand on what it has not finalised; ``all_reduce``: the sum is the
    producer's own, and a fused kernel alone may end it later. ``kernel``: what was generated for
    `SymmetricSums`, where the file names it and there is a device for it.
    """

    producer: str
    consumer: str
    input: Literal["attention", "ffn", "norm"]
    sum_group: str
    rows: Axes
    hidden_size: int
    eps: float
    accumulate: Accumulate = "fp32"
    weight_offset: float = 0.0
    sparse: bool = False
    finalize: bool = False
    all_reduce: bool = False
    kernel: SumKernel | None = None

    @property
    def terminal(self) -> bool:
        """Whether the stack ends behind it, in its final norm."""
        return self.input == "norm"


@dataclass(frozen=True, slots=True)
class FusedInput:
    """One candidate: ``run`` completes the sum over ``sum_group`` and does the add and the norm.

    ``run`` is given what the stage left, which may be a `HandoffOutput`, the residual and the
    norm's weight [width], the group of the sum, and the batch. It returns None, before it has
    written anything or started a collective, for what it does not take; else what it returns is
    the boundary's, and no later call may write it. It may write over contribution and residual,
    never over the weight. All ranks of the group decide alike: shapes, dtypes and ``batch.facts``
    are equal there. Residuals of more than ``max_bytes`` or of another ``dtype`` are not offered to
    it, and weights of another dtype than the residual's only where it takes ``any_weight``.
    """

    name: str
    sum_group: str
    run: Run
    max_bytes: int | None = None
    any_weight: bool = False
    dtype: torch.dtype | None = None

    def refusal(self, rows: int, residual: Tensor, weight: Tensor) -> str | None:
        """Why it is not offered ``rows`` rows of such a residual, or None."""
        size = rows * residual.shape[1] * residual.dtype.itemsize
        if self.max_bytes is not None and size > self.max_bytes:
            return f"{size} bytes are more than {self.max_bytes}"
        if self.dtype not in (None, residual.dtype):
            return f"the residual is {residual.dtype}, and it takes {self.dtype}"
        if weight.dtype is not residual.dtype and not self.any_weight:
            return f"the weight is {weight.dtype}, the residual {residual.dtype}"
        return None


class FusedAttentionInput(FusedInput):
    """A candidate for the input of attention, or of another token mixer."""

    __slots__ = ()


class FusedMlpInput(FusedInput):
    """A candidate for the input of an FFN."""

    __slots__ = ()


class FusionProvider(Protocol):
    """What an engine offers; `FusingStack.attach` asks it for candidates, exits ask it per batch.

    What it answers for a batch it decides from ``batch.facts`` and what is derived from them: all
    ranks must answer alike.
    """

    def attention_input(self, plan: FusionPlan) -> Sequence[FusedAttentionInput]:
        """Candidates for the input of a token mixer, in the order in which they are tried."""

    def ffn_input(self, plan: FusionPlan) -> Sequence[FusedMlpInput]:
        """Candidates for the input of an FFN, in the order in which they are tried."""

    def can_defer_finalize(self, plan: FusionPlan, batch: Batch[Any, Any]) -> bool:
        """Whether a MoE may hand on what it has not finalised; asked where ``plan.finalize``."""

    def can_defer_all_reduce(self, plan: FusionPlan, batch: Batch[Any, Any]) -> bool:
        """Whether a stage may leave the sum it keeps otherwise; asked where ``plan.all_reduce``."""


class FusedBoundary:
    """The fused ways across one boundary of a stack on one rank; none until some are offered.

    ``own``: kernels of the stack finish rows of experts that no candidate before them takes.
    """

    __slots__ = ("_inputs", "_late", "_providers", "group", "own", "plan")

    def __init__(self, plan: FusionPlan, group: Collective, *, own: bool = False) -> None:
        self.plan = plan
        self.group = group
        self.own = own
        self._providers: tuple[FusionProvider, ...] = ()
        self._inputs: tuple[FusedInput, ...] = ()
        self._late: tuple[FusedInput, ...] = ()

    def offer(
        self, providers: Sequence[FusionProvider], late: Sequence[FusionProvider] = ()
    ) -> None:
        """Takes the candidates of ``providers`` for this boundary in place of those before.

        Those of ``late`` come behind the kernels of the stack.
        """
        self._providers = (*providers, *late)
        self._inputs, self._late = self._candidates(providers), self._candidates(late)

    def _candidates(self, providers: Sequence[FusionProvider]) -> tuple[FusedInput, ...]:
        found: list[FusedInput] = []
        for provider in providers:
            if self.plan.input == "attention":
                found += provider.attention_input(self.plan)
            elif self.plan.input == "ffn":
                found += provider.ffn_input(self.plan)
        # One that completes another sum would leave this one, or do it twice.
        return tuple(one for one in found if one.sum_group == self.plan.sum_group)

    def complete(
        self, value: Tensor | HandoffOutput, batch: Batch[Any, Any], weight: Tensor
    ) -> Fused | None:
        """The input and the residual, from the first candidate that takes ``value``; else None.

        The caller has taken ``value`` from the stream. What a candidate raises goes through: a sum
        that was started is not started again.
        """
        takes = self._inputs
        if not (self.own and isinstance(value, ExpertRows)):
            takes += self._late
        if not takes:
            return None
        residual = batch.stream.residual
        if residual.shape[0] == 0:
            return None  # on all ranks of the group: they hold the same rows
        for candidate in takes:
            if candidate.refusal(residual.shape[0], residual, weight) is None:
                done = candidate.run(value, residual, weight, self.group, batch)
                if done is not None:
                    return _checked(done, residual, candidate)
        return None

    def defers_finalize(self, batch: Batch[Any, Any]) -> bool:
        """Whether the producer may hand on what it has not finalised in this batch."""
        if not self.plan.finalize or batch.global_rows == 0:
            return False
        asked = any(one.can_defer_finalize(self.plan, batch) for one in self._providers)
        return asked or self.own

    def defers_all_reduce(self, batch: Batch[Any, Any]) -> bool:
        """Whether the producer leaves the sum that it keeps otherwise."""
        if not self.plan.all_reduce or batch.global_rows == 0:
            return False
        return any(one.can_defer_all_reduce(self.plan, batch) for one in self._providers)

    def explain(self, batch: Batch[Any, Any], residual: Tensor, weight: Tensor) -> list[str]:
        """What becomes of each candidate in ``batch``, a line each, in order.

        ``residual`` and ``weight`` stand for those of the boundary: their width and dtypes count.
        """
        rows = batch.rows_on(self.plan.rows)
        found = []
        for candidate in (*self._inputs, *self._late):
            why = candidate.refusal(rows, residual, weight) if rows else "there are no rows"
            found.append(f"{candidate.name}: {'tried' if why is None else f'not tried, {why}'}")
        return found


def _checked(done: Fused, residual: Tensor, candidate: FusedInput) -> Fused:
    if done[0].shape != residual.shape or done[1].shape != residual.shape:
        shapes = " and ".join(str(list(one.shape)) for one in done)
        raise BoundaryError(
            f"the fused candidate {candidate.name!r} returned shapes {shapes} for a residual of "
            f"shape {list(residual.shape)}"
        )
    return done


def fusing(
    prepare: Callable[..., Any],
    after: Callable[..., Any] | None,
    finalized: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """A function that goes on from what an exit deferred: fused, or settled and then ``prepare``.

    ``after`` does what is left behind a fused kernel; None where nothing is. ``finalized`` goes on
    from rows of experts that no candidate took; None where no kernel of the stack does.
    """

    def crossed(hidden: Tensor | OwedOutput, batch: Batch[Any, Any], *read: Any) -> Any:
        work, value = taken(hidden, batch)
        done = work.fused.complete(value, batch, read[0].weight)
        if done is None and finalized is not None and isinstance(value, ExpertRows):
            return finalized(value, batch, *read)
        if done is None:
            return prepare(work.done(value, batch), batch, *read)
        prepared, batch.stream.residual = done
        return prepared if after is None else after(prepared, batch, *read)

    return crossed
