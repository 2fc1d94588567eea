"""Outputs that are not finished: what an exit left to a fused kernel, and how it is done without.

An exit may leave more than a sum to the next stage: the last steps of its producer's own work, such
as the finalize of a MoE, or a sum that only a fused kernel should end. The stream then carries what
the exit would have done. Whoever goes on first either has all of it done by one kernel, or settles
it: exactly what the exit would have done, once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor

from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.owed import OwedOutput
from boundaryc.runtime.stream import Form, ResidualStream

if TYPE_CHECKING:
    from boundaryc.runtime.batch import Batch
    from boundaryc.runtime.fusion import FusedBoundary

NOT_ASKED_FOR = (
    "this hand-off was not asked for: compute returns one only where the open exit says "
    "defer_moe_finalize"
)


class HandoffOutput(ABC):
    """Work that a stage has not done, in place of its output; a model derives its own.

    It holds whatever a fused kernel needs to finish it. No boundary looks inside.
    """

    __slots__ = ()

    @abstractmethod
    def complete(self) -> Tensor:
        """The output [rows, width], finished without a fused kernel.

        It is what compute would have returned with `Exit.reduce_output` still to be called: the
        rank's own part where a sum is owed. Called at most once, by all ranks or by none.
        """


@dataclass(frozen=True, slots=True)
class Deferred:
    """What an exit has not done: ``reduce`` is compute's sum, ``leave`` the end of the exit.

    ``update`` are the parameters that ``leave`` takes, ``fused`` is who may do all of it.
    ``complete`` finishes a hand-off, where that is not left to itself.
    """

    fused: FusedBoundary
    reduce: Callable[[Tensor, Any], Tensor]
    leave: Callable[..., Tensor | OwedOutput]
    update: tuple[Any, ...]
    complete: Callable[[HandoffOutput], Tensor] = HandoffOutput.complete

    def done(self, value: Tensor | HandoffOutput, batch: Batch[Any, Any]) -> Tensor | OwedOutput:
        """What the exit would have returned for ``value``, without a fused kernel."""
        if isinstance(value, HandoffOutput):
            value = self.complete(value)
        if not isinstance(value, Tensor):
            raise BoundaryError(f"a hand-off completes to a tensor, not a {type(value).__name__}")
        return self.leave(self.reduce(value, batch), batch, *self.update)


def taken(
    hidden: Tensor | OwedOutput, batch: Batch[Any, Any]
) -> tuple[Deferred, Tensor | HandoffOutput]:
    """The work that an exit deferred, and what for, out of the stream: it is done once."""
    stream = batch.stream
    value = cast("Tensor | HandoffOutput", stream.take(hidden))
    work, stream.deferred, stream.form = cast(Deferred, stream.deferred), None, Form.PLANNED
    return work, value


def settle(hidden: Tensor | OwedOutput, batch: Batch[Any, Any]) -> Tensor | OwedOutput:
    """Does what an exit deferred, without a fused kernel; what that exit would have returned.

    Another output is returned as it is. All ranks settle: a sum may be behind it.
    """
    if batch.stream.form is not Form.DEFERRED:
        return hidden
    work, value = taken(hidden, batch)
    return work.done(value, batch)


def unsettled_copy(hidden: Tensor | OwedOutput, batch: Batch[Any, Any]) -> ResidualStream:
    """A stream like this one whose ``hidden`` is a copy, to be settled in its place.

    BoundaryError for a `HandoffOutput`, which is finished once.
    """
    value: object = batch.stream.check(hidden)
    if isinstance(value, HandoffOutput):
        raise BoundaryError("a snapshot of a hand-off is not implemented: complete it first")
    return batch.stream.copied(cast(Tensor, value).clone())
