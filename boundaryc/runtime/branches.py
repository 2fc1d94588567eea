"""Boundaries of a branch: where its input comes from, and where its output is added.

A branch begins with the input that was read for the stage it is beside, takes the residual along,
and ends in `merge_branch`, which adds both outputs once and leaves the sum to the next boundary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, Self

from torch import Tensor

from boundaryc.runtime.additive import bare
from boundaryc.runtime.batch import Batch
from boundaryc.runtime.boundaries import (
    AttentionBoundary,
    FfnBoundary,
    Leaves,
    LeavesT,
    MixerBoundary,
    _Boundary,
)
from boundaryc.runtime.crossing import Prepares, Resumes
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.exits import BESIDE, BranchExit, Exits, check_output
from boundaryc.runtime.owed import BranchOutput, OwedOutput
from boundaryc.runtime.pipeline import Entrance
from boundaryc.runtime.places import Position

Merges = tuple[Callable[..., Tensor | OwedOutput], ...]
"""``(hidden, beside, batch, *update_params) -> output``, one per column: adds two outputs."""

_NOT_PREPARE = "a prepared branch must enter through branch_input, not prepare"


class _Prepared(_Boundary[LeavesT]):
    """The first stage of a branch."""

    __slots__ = ()

    def _ready(self) -> None:
        """What is generated for it takes no output, see `branch_input`."""

    def prepare(self, *args: Any, **kwargs: Any) -> NoReturn:
        """BoundaryError: what this stage takes has been read for the stage beside the branch."""
        raise BoundaryError(_NOT_PREPARE)

    def branch_input(
        self, source: _Boundary[Any], hidden: Tensor, batch: Batch[Any, Any]
    ) -> Tensor:
        """The input that ``source`` prepared on the rows of this stage; the residual comes along.

        ``hidden`` is what ``source.prepare`` returned; it is not changed, and ``source`` may still
        compute on it. BoundaryError where ``source`` was not prepared just before.
        """
        stream = batch.stream
        stream.reach(source.position)
        stream.passed(source.position, batch.plan)
        stream.reach(self.position)
        taken: Tensor = self._prepare[batch.plan](hidden, batch)
        stream.entered(self)
        return taken


class PreparedAttentionBoundary(_Prepared[Leaves], AttentionBoundary):
    """An attention with which a branch begins."""

    __slots__ = ()


class PreparedMixerBoundary(_Prepared[Exits], MixerBoundary):
    """A mixer with which a branch begins."""

    __slots__ = ()


class PreparedFfnBoundary(_Prepared[Exits], FfnBoundary):
    """An FFN with which a branch begins."""

    __slots__ = ()


class _Beside(_Boundary[LeavesT]):
    """A stage with a branch beside it, and the merge of both."""

    __slots__ = ()

    def __init__(
        self,
        prepare: Prepares,
        leave: LeavesT,
        *,
        merge: Merges,
        resume: Resumes = (),
        read: tuple[Any, ...] = (),
        update: tuple[Any, ...] = (),
        position: Position | None = None,
        entrance: Entrance | None = None,
    ) -> None:
        super().__init__(
            prepare,
            leave,
            resume=resume,
            read=read,
            update=update,
            position=position,
            entrance=entrance,
        )
        self._merge = merge

    def _with(
        self,
        *,
        read: tuple[Any, ...] = (),
        update: tuple[Any, ...] = (),
        position: Position | None,
        entrance: Entrance | None,
    ) -> Self:
        return type(self)(
            self._prepare,
            self._leave,
            merge=self._merge,
            resume=self._resume,
            read=read,
            update=update,
            position=position,
            entrance=entrance,
        )

    def merge_branch(
        self, hidden: BranchOutput, beside: BranchOutput, batch: Batch[Any, Any]
    ) -> Tensor | OwedOutput:
        """Adds the output ``hidden`` of the branch's last stage and that of this one, ``beside``.

        Each is taken once; the model passes the result on, whose update is this stage's.
        BoundaryError where one of them is something else.
        """
        return self._merge[batch.plan](hidden, beside, batch, *self._update)


class BesideAttentionBoundary(_Beside[Leaves], AttentionBoundary):
    """An attention that always leaves a partial sum, with a branch beside it."""

    __slots__ = ()

    def finish(self, hidden: Tensor, batch: Batch[Any, Any], /, **terms: Tensor) -> NoReturn:
        """BoundaryError: the output is placed for the merge, and the stream is the branch's."""
        raise BoundaryError(BESIDE)

    def branch_output(
        self, hidden: Tensor, batch: Batch[Any, Any], /, **terms: Tensor
    ) -> BranchOutput:
        """Places this stage's contribution where the branch's output will be: for `merge_branch`.

        ``terms`` are as for `AttentionBoundary.finish`.
        """
        check_output(hidden)
        stream = batch.stream
        outer, stream.bare = stream.bare, bare(hidden, terms, kept=batch.checks)
        output: BranchOutput = self._leave[batch.plan](  # type: ignore[assignment]
            hidden, batch, *self._update, **terms
        )
        stream.bare = outer
        return output


class BesideMixerBoundary(_Beside[Exits], MixerBoundary):
    """A mixer that obeys the exit's decision, with a branch beside it."""

    __slots__ = ()

    _exit = BranchExit
    if TYPE_CHECKING:

        def exit(self, batch: Batch[Any, Any]) -> BranchExit:
            """The exit of this batch: a context manager around compute, then `branch_output`."""


class BesideFfnBoundary(_Beside[Exits], FfnBoundary):
    """An FFN that obeys the exit's decision, with a branch beside it."""

    __slots__ = ()

    _exit = BranchExit
    if TYPE_CHECKING:

        def exit(self, batch: Batch[Any, Any]) -> BranchExit:
            """The exit of this batch: a context manager around compute, then `branch_output`."""
