"""Captures: showing a model's residual to someone who keeps it.

``capture(value, *, owned=False)``: a borrowed value may be written later in the same forward, so
whoever keeps it copies it. Nothing else will write an owned one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from boundaryc.runtime.left import Move
from boundaryc.runtime.stream import Form


class Capture(Protocol):
    """A callback that is shown a value: ``(value, *, owned=False)``."""

    def __call__(self, value: Tensor, *, owned: bool = False) -> None:
        """Keeps ``value``, a copy of it unless ``owned``."""


class Collector(Protocol):
    """An object with such a callback."""

    def capture(self, value: Tensor, *, owned: bool = False) -> None:
        """Keeps ``value``, a copy of it unless ``owned``."""


class AuxHiddenStateList(list[Tensor]):
    """The captures of one forward, in order."""

    def capture(self, value: Tensor, *, owned: bool = False) -> None:
        """Appends ``value``, a copy of it unless ``owned``."""
        self.append(value if owned else value.clone())


@dataclass(frozen=True, slots=True)
class CaptureMove:
    """How a residual gets to the rows on which it is captured; ``move`` None: it is there.

    ``owned``: the residual is new and everything that follows leaves its storage alone, as long as
    the stack itself made it. ``allocates``: the move collects rows in storage of its own, whoever
    made the residual. Either way nothing else will write what is shown.
    """

    move: Move | None = None
    owned: bool = False
    allocates: bool = False

    def show(self, residual: Tensor, batch: Any, capture: Capture) -> None:
        """Moves ``residual`` and shows it. All ranks call this alike: a collective may run."""
        moved = residual if self.move is None else self.move(residual, batch)
        own = self.owned and batch.stream.form is not Form.WRITTEN  # else it may be the model's
        capture(moved, owned=self.allocates or own)


BORROWED = CaptureMove()
"""The residual itself, which the next stage may write."""
