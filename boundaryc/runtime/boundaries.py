"""The boundary of one stage as the model sees it: prepare, then finish or exit.

A boundary is unbound in the generated tables; ``bind`` gives it the parameters of one layer. They
are kept by reference and read at call time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from boundaryc.runtime.batch import Batch
from boundaryc.runtime.exits import Exits, FfnExit, Leave
from boundaryc.runtime.stream import OwedOutput

Prepare = Callable[..., Tensor]
"""``(hidden, batch, *read_params) -> input``: everything between two stages after the hand-off."""

Prepares = tuple[Prepare, ...]
"""One ``Prepare`` per column."""

Leaves = tuple[Leave, ...]
"""One ``Leave`` per column."""


class Norm(Protocol):
    """The parameters of a norm: any module with a ``weight`` [width]."""

    @property
    def weight(self) -> Tensor:
        """Scale of each column, [width]."""


class AttentionBoundary:
    """Boundary of a stage that always leaves a partial sum: ``prepare``, compute, ``finish``."""

    __slots__ = ("_leave", "_prepare", "_read", "_update")

    def __init__(
        self,
        prepare: Prepares,
        leave: Leaves,
        *,
        read: tuple[Any, ...] = (),
        update: tuple[Any, ...] = (),
    ) -> None:
        self._prepare = prepare
        self._leave = leave
        self._read = read
        self._update = update

    def bind(self, *read: Any, update: tuple[Any, ...] = ()) -> AttentionBoundary:
        """This boundary with one layer's parameters: of its read and of its update."""
        return AttentionBoundary(self._prepare, self._leave, read=read, update=update)

    def prepare(self, hidden: Tensor | OwedOutput, batch: Batch[Any, Any]) -> Tensor:
        """The stage's input, from what the previous stage handed out."""
        return self._prepare[batch.plan](hidden, batch, *self._read)

    def finish(self, hidden: Tensor, batch: Batch[Any, Any]) -> Tensor | OwedOutput:
        """Registers the stage's contribution; the model passes the result on."""
        return self._leave[batch.plan](hidden, batch, *self._update)


class FfnBoundary:
    """Boundary of a stage that obeys the exit's decision: ``prepare``, compute inside ``exit``."""

    __slots__ = ("_exits", "_prepare", "_read", "_update")

    def __init__(
        self,
        prepare: Prepares,
        exits: Exits,
        *,
        read: tuple[Any, ...] = (),
        update: tuple[Any, ...] = (),
    ) -> None:
        self._prepare = prepare
        self._exits = exits
        self._read = read
        self._update = update

    def bind(self, *read: Any, update: tuple[Any, ...] = ()) -> FfnBoundary:
        """This boundary with one layer's parameters: of its read and of its update."""
        return FfnBoundary(self._prepare, self._exits, read=read, update=update)

    def prepare(self, hidden: Tensor | OwedOutput, batch: Batch[Any, Any]) -> Tensor:
        """The stage's input, from what the previous stage handed out."""
        return self._prepare[batch.plan](hidden, batch, *self._read)

    def exit(self, batch: Batch[Any, Any]) -> FfnExit:
        """The exit of this batch: a context manager around compute, then ``finish``."""
        return FfnExit(self._exits[batch.plan], batch, self._update)
