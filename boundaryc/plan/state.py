"""What the planner knows at one point of a boundary, and the facts that do not change along it.

Sets of mesh atoms are integer masks; bit 0 is the *outermost* atom, so "outer" means "lower bit".
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from math import prod
from typing import NamedTuple

NO_RESIDUAL = -1
"""The residual rows of a state that has no residual yet (the entry of a stack)."""


class Phase(IntEnum):
    """What the value of a state is."""

    INITIAL = 0  # the stack's input: there is no residual yet
    CONTRIBUTION = 1  # a producer's output, its update not applied
    STREAM = 2  # the residual itself, written
    INPUT = 3  # what the consumer's read returned


class State(NamedTuple):
    """One typed point of a boundary; a tuple, because planning hashes and copies so many.

    A value never owes a sum over an atom that its rows are sharded on: ``rows & owes == 0``.
    In the stream phase the value is the residual, so ``rows == residual``.
    """

    phase: Phase
    rows: int
    owes: int
    residual: int
    joined: bool = False  # the partial already carries the residual
    transform: bool = False  # a declared transform has not run yet
    handed_off: bool = False  # the producer's exit code is behind us
    unrounded: bool = False  # the stream is a sum that the read must see before it is rounded
    captured: int = 0  # which of the declared captures have been taken, as bits
    by_token: bool = False  # rows whole over the shards are in token order, not in shard order
    quantized: bool = False  # the input is values and scales


class Widths(NamedTuple):
    """Bytes per token row of what a boundary moves; ``quantized`` is what is made of the input.

    ``taken`` and ``kept`` are what moves with the residual: what the producer's read has kept for
    its update, and what the consumer's read keeps.
    """

    contribution: int
    residual: int
    input: int
    quantized: int
    taken: int = 0
    kept: int = 0


class EdgeFacts(NamedTuple):
    """Everything about an edge that its operations may look at; equal on all ranks.

    Facts that widen what a plan may do default to false where they are declared; the planner
    itself has no defaults.
    """

    sizes: tuple[int, ...]  # of the atoms, outermost first
    even: int  # atoms over which this batch's cuts have equal sizes
    shards: int  # atoms whose parts interleave tokens, so that shard and token order differ
    scatter: int  # atoms over which the contribution's sum may end in a reduce-scatter
    scatter_by_size: bool  # such a scatter takes one size per rank even where all are equal
    may_defer: bool  # an owed sum may cross the hand-off
    complete_on: int | None  # rows on which a complete value must be handed off (end of a stack)
    joins_sum: bool  # the residual may be added to a partial
    update_at_producer: bool  # the update runs before the hand-off
    carries: bool  # the read sees the update's sum unrounded, so nothing comes between the two
    transform_linear: bool  # a pending transform may run on a partial
    captures: tuple[int, ...]  # rows on which the residual that is read must be kept
    read_on: int | None  # the only rows on which the read has what it needs
    read_local: int  # atoms the rows of the read must be sharded over
    read_whole: int  # atoms the rows of the read must not be sharded over
    quantized_sum: int  # bytes of a row of a sum that may travel quantised; 0 where none may
    quantized_tensors: int  # with rows, of a quantised input: values, scales; 0 where it is none
    widths: Widths
    merges: bool = False  # the hand-off is the end: what is handed off is added to another output
    update_on: int | None = None  # the only rows on which the update has what it needs
    given_on: int = 0  # the rows of what an operation is given in every batch
    taken_tensors: int = 0  # that move with the residual before the update
    kept_tensors: int = 0  # that move with it after the read

    @property
    def every(self) -> int:
        """All atoms of the mesh."""
        return (1 << len(self.sizes)) - 1

    def variable(self, axes: int, *, scatter: bool = False) -> bool:
        """Whether a move over ``axes`` needs one size per rank: it is uneven, or asked to."""
        return bool(axes & ~self.even) or (scatter and self.scatter_by_size)

    def size(self, axes: int) -> int:
        """The number of ranks in a group over ``axes``."""
        return ranks_of(self.sizes, axes)


@cache
def ranks_of(sizes: tuple[int, ...], axes: int) -> int:
    """The number of ranks in a group over ``axes`` of a mesh of these sizes."""
    return prod(size for index, size in enumerate(sizes) if axes >> index & 1)


def keeps_order(moved: int, finer: int, every: int) -> bool:
    """Whether a move over ``moved`` delivers rows in canonical order.

    ``finer`` are the rows of the finer side. The atoms it leaves whole lie inside each leaf that is
    moved, so every moved atom must be outside all of them.

    >>> keeps_order(0b01, finer=0b01, every=0b11)  # outer atom moved, inner one whole
    True
    >>> keeps_order(0b10, finer=0b10, every=0b11)  # the outer atom is whole: rows would interleave
    False
    """
    whole = every & ~finer
    return whole == 0 or moved < (whole & -whole)
