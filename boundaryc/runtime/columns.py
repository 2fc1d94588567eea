"""Which batches a column of the tables serves, and the rows that a rank has of a batch."""

from __future__ import annotations

from dataclasses import dataclass

from boundaryc.runtime.facts import Mode
from boundaryc.runtime.mesh import Axes


@dataclass(frozen=True, slots=True)
class Column:
    """Which batches one column of the tables serves.

    Batches of ``variant`` whose cuts over every atom of ``even`` have equal sizes, whose embeddings
    are ``entry``, which have at most ``max_rows`` padded rows in all DP groups together, and whose
    mode is ``mode``; None is any. The first column that fits is taken, so narrower ones come first.
    ``row_multiple`` belongs to the variant: padded rows of a DP group are a multiple of it.
    """

    variant: str
    even: Axes = ()
    row_multiple: int = 1
    entry: str = "complete"
    max_rows: int | None = None
    mode: Mode | None = None

    def fits(self, variant: str, entry: str, even: frozenset[str], rows: int, mode: Mode) -> bool:
        """Whether this column serves such a batch of ``rows`` padded rows."""
        return (
            self.variant == variant
            and self.entry == entry
            and even.issuperset(self.even)
            and (self.max_rows is None or rows <= self.max_rows)
            and self.mode in (None, mode)
        )


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of one rank: ``padded`` of them, of which the first ``real`` are tokens.

    ``first`` is the group's token at which they start, where they are consecutive ones.
    """

    padded: int
    real: int
    first: int = 0
