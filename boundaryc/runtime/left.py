"""How a stage leaves its output to the next one, and what a model may do with it in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from boundaryc.runtime.owed import OwedOutput

Move = Callable[[Tensor, Any], Tensor]
"""``(value, batch) -> value``: a generated function that moves or sums rows of one tensor."""


@dataclass(frozen=True, slots=True)
class Access:
    """What the model may do with an output between two stages; the producer's exit leaves it.

    The functions read ``batch.stream``'s residual and params and leave the stream alone; the
    first two and ``fold_completed`` may overwrite what they are given.

    ``complete`` finishes the owed sum on the value's own rows; None where nothing is owed.
    ``fold`` turns the value as it was left into the written residual on the stack's rows, and
    ``fold_completed`` does so from a value that ``complete`` finished; None where nothing is owed,
    as ``fold`` serves both. ``spread`` moves rows like the stack's to the value's rows, for extra
    contributions; None where these are the same rows. ``plain``: the pending update is an addition,
    scaled or not, so that the residual can be shown and folded without its producer.
    """

    complete: Move | None = None
    fold: Move | None = None
    fold_completed: Move | None = None
    spread: Move | None = None
    plain: bool = True


@dataclass(frozen=True, slots=True)
class Left:
    """The end of a stage that does nothing but leave its output: with its sum, or complete.

    ``access`` is what the model may do with it.
    """

    owes: bool
    access: Access | None = None

    def __call__(self, hidden: Tensor, batch: Any) -> Tensor | OwedOutput:
        """Leaves ``hidden`` in the batch's stream."""
        leave = batch.stream.owe if self.owes else batch.stream.pend
        output: Tensor | OwedOutput = leave(hidden, access=self.access)
        return output
