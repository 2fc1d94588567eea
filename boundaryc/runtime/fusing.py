"""Stacks with fusion providers: exits that may leave their work to a fused kernel, and the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

from torch import Tensor

from boundaryc.runtime.batch import Batch, GroupsT, RowsT
from boundaryc.runtime.boundaries import FfnBoundary
from boundaryc.runtime.captures import Capture
from boundaryc.runtime.collectives import GroupProvider
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.exits import FfnExit, check_output
from boundaryc.runtime.finalize import ExpertRows, finished
from boundaryc.runtime.fusion import FusedBoundary, FusionProvider
from boundaryc.runtime.handoffs import Deferred, HandoffOutput, settle, taken
from boundaryc.runtime.owed import OwedOutput
from boundaryc.runtime.stack import WHOLE, Stack
from boundaryc.runtime.stream import Form, ResidualStream
from boundaryc.runtime.table import LayerT

BUILTIN = "builtin"
"""The provider that nobody attaches: the stack's own kernels."""


class FusingFfnExit(FfnExit):
    """The exit of an FFN that may leave its finalize or its sum to a fused kernel.

    Where it leaves the sum, ``fuse_mlp_allreduce`` says so.
    """

    __slots__ = ("_fused", "_leaves_sum", "defer_moe_finalize")

    def ask(self) -> None:
        """Asks who may do what this exit decides, before compute sees its flags."""
        batch, asked = self._batch, self._decision.fused
        fused = self._fused = None if asked is None else asked(batch)
        self._leaves_sum = fused is not None and fused.defers_all_reduce(batch)
        if self._leaves_sum:
            self.fuse_mlp_allreduce = self.skips_reduction = True
        self.defer_moe_finalize = fused is not None and fused.defers_finalize(batch)

    def _sum(self, hidden: Tensor) -> Tensor:
        return hidden if self._leaves_sum else super()._sum(hidden)

    def finish(self, hidden: Tensor | HandoffOutput) -> Tensor | OwedOutput:
        """As `Exit.finish`; also takes a hand-off, where ``defer_moe_finalize`` asked for one."""
        if self._leaves_sum:
            return self._finish(cast(Tensor, hidden))
        return super().finish(cast(Tensor, hidden))

    def _leave(self, hidden: Tensor | HandoffOutput) -> Tensor | OwedOutput:
        if not (self._leaves_sum or isinstance(hidden, HandoffOutput)):
            return super()._leave(hidden)
        assert self._fused is not None
        decision = self._decision
        complete = finished(decision.finalize)
        update = self._boundary._update
        work = Deferred(self._fused, decision.reduce, decision.leave, update, complete)
        return self._batch.stream.defer(hidden, work)

    def _check_output(self, hidden: object) -> None:
        if not (self.defer_moe_finalize and isinstance(hidden, HandoffOutput)):
            check_output(hidden)


class FusingFfnBoundary(FfnBoundary):
    """Boundary of an FFN whose exit may leave its work to a fused kernel."""

    __slots__ = ()

    _exit = FusingFfnExit

    def exit(self, batch: Batch[Any, Any]) -> FusingFfnExit:
        """The exit of this batch: a context manager around compute, then its ``finish``."""
        found = cast(FusingFfnExit, super().exit(batch))
        found.ask()
        return found


class HandoffNorm(Protocol):
    """A final norm that finishes hand-offs."""

    def finalize(self, handoff: HandoffOutput, residual: Tensor, gamma: Tensor) -> Tensor | None:
        """Finalize, sum, residual add and norm with the weight ``gamma`` [width], as one.

        None, before it has written anything or started a collective, where it does not take
        ``handoff``, on all ranks alike.
        """


class FusingGroups(Protocol):
    """The groups of a topology with fused boundaries."""

    @property
    def fused(self) -> tuple[FusedBoundary, ...]:
        """Every boundary that providers may take."""


class FusingStack(Stack[GroupsT, RowsT, LayerT]):
    """A stack whose file declares ``fusion``; ``providers`` are their names in order.

    ``fusion`` False: nobody is asked, whatever is attached and whatever the policy is.
    """

    providers: tuple[str, ...] = ()

    def __init__(
        self,
        groups: GroupProvider,
        *,
        policy: str = "auto",
        layers: range | None = None,
        fusion: bool = True,
    ) -> None:
        super().__init__(groups, policy=policy, layers=layers)
        self.fusion = fusion
        self._attached: dict[str, FusionProvider] = {}
        self._runs = False
        for boundary in () if fusion else self.fused:
            boundary.own = False

    def attach(self, name: str, provider: FusionProvider) -> None:
        """Attaches the provider that the file calls ``name``, before the first batch.

        One that is not attached is passed over. ValueError for another name, BoundaryError where
        there was a batch already.
        """
        engines = [one for one in self.providers if one != BUILTIN]
        if name not in engines:
            known = ", ".join(engines) or "none"
            raise ValueError(f"no fusion provider is called {name!r}; the file names: {known}")
        if self._runs:
            raise BoundaryError("fusion providers are attached before the first batch")
        self._attached[name] = provider
        found = [self._attached[one] for one in engines if one in self._attached]
        first = self.providers.index(BUILTIN) if BUILTIN in self.providers else len(engines)
        before = sum(one in self._attached for one in self.providers[:first])
        if self.fusion:
            for boundary in self.fused:
                boundary.offer(found[:before], found[before:])

    @property
    def fused(self) -> tuple[FusedBoundary, ...]:
        """Every boundary that providers may take."""
        return cast(FusingGroups, self.groups).fused

    def explain_fusion(
        self, batch: Batch[GroupsT, RowsT], residual: Tensor, weight: Tensor
    ) -> dict[str, list[str]]:
        """What becomes of each candidate in ``batch``, by boundary; see `FusedBoundary.explain`."""
        return {
            f"{one.plan.producer} to {one.plan.consumer} over {one.plan.sum_group}": one.explain(
                batch, residual, weight
            )
            for one in self.fused
        }

    def batch(self, *, rows_per_dp: Sequence[int], **facts: Any) -> Batch[GroupsT, RowsT]:
        """As `Stack.batch`; no provider is attached afterwards."""
        self._runs = True
        return super().batch(rows_per_dp=rows_per_dp, **facts)

    def start(self, batch: Batch[GroupsT, RowsT]) -> None:
        """As `Stack.start`; ranks with other providers are told apart too."""
        if self._check is not None:
            stated = {"fusion": self.fusion, "providers": sorted(self._attached)}
            self._check.compare("a forward", stated)
        super().start(batch)

    def norm(
        self,
        hidden: Tensor | OwedOutput,
        batch: Batch[GroupsT, RowsT],
        *read: Any,
        skip_empty: bool = True,
        capture_output: Capture | None = None,
        handoff_norm: HandoffNorm | None = None,
    ) -> Tensor:
        """As `Stack.norm`; ``handoff_norm`` may finish a hand-off of the last stage.

        Without it, where it declines, and on ranks without rows, the hand-off is completed before
        the norm, or together with it by kernels of the stack. BoundaryError for ``capture_output``
        beside it where a hand-off arrives; the stream is kept.
        """
        stream = batch.stream
        if stream.form is Form.DEFERRED:
            stream.check(hidden)
            stream.ended(self._end, "the final norm", WHOLE)
            if handoff_norm is not None and capture_output is not None:
                raise BoundaryError(
                    "capture_output and handoff_norm exclude each other: a fused final norm shows "
                    "no residual"
                )
            if handoff_norm is None or read == (None,) or batch.stack_rows == 0:
                if handoff_norm is not None or not _finishes(stream, batch):
                    hidden = settle(hidden, batch)
            else:
                (norm,) = read  # only a plain norm is left a hand-off
                work, value = taken(hidden, batch)
                out = _finalized(handoff_norm, value, stream.residual, norm.weight)
                if out is not None:
                    batch.release()
                    return out
                hidden = work.done(value, batch)
        return super().norm(
            hidden, batch, *read, skip_empty=skip_empty, capture_output=capture_output
        )


def _finishes(stream: ResidualStream, batch: Batch[Any, Any]) -> bool:
    """Whether the way to the final norm finishes what waits, with kernels of the stack."""
    own = cast(Deferred, stream.deferred).fused.own
    return own and isinstance(stream.value, ExpertRows) and batch.stack_rows > 0


def _finalized(
    norm: HandoffNorm, value: Tensor | HandoffOutput, residual: Tensor, gamma: Tensor
) -> Tensor | None:
    return norm.finalize(value, residual, gamma) if isinstance(value, HandoffOutput) else None


AnyFusingStack = FusingStack[Any, Any, Any]
"""A stack of any topology with fusion providers."""
