"""Which kinds of batch really need a column of their own."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from boundaryc.plan.result import Column


@dataclass(frozen=True, slots=True)
class Kind:
    """Batches that every column treats alike; ``few`` as the variant's threshold has it.

    ``mode`` is None where no column tells prefill from decode.
    """

    variant: str
    even: frozenset[str]
    entry: str
    few: bool
    mode: str | None

    def fits(self, column: Column) -> bool:
        """Whether the run-time choice, the first column that fits, may stop at ``column``.

        A column for many rows carries no bound: the one for few rows stands before it. One for
        decoding carries no mode: the one for prefills stands before it.
        """
        if column.mode == "prefill" and self.mode != "prefill":
            return False
        if (column.variant, column.entry) != (self.variant, self.entry):
            return False
        if not self.even.issuperset(column.even):
            return False
        return self.few or not column.few

    def planned_by(self, column: Column) -> bool:
        """Whether ``column`` is the one that was planned for these batches."""
        return (
            (column.variant, column.entry) == (self.variant, self.entry)
            and self.even == frozenset(column.even)
            and column.few in (None, self.few)
            and column.mode == self.mode
        )


def merged(columns: Sequence[Column], behaviours: Sequence[Hashable]) -> tuple[int, ...]:
    """The indexes of the columns to keep, in order; each has one of the ``behaviours``.

    A column goes when each of its batches then finds another one with an equal behaviour.
    """
    numbers: dict[Hashable, int] = {}
    alike = (numbers.setdefault(behaviour, len(numbers)) for behaviour in behaviours)
    return _merged(tuple(columns), tuple(alike))


@lru_cache(maxsize=1024)
def _merged(columns: tuple[Column, ...], alike: tuple[int, ...]) -> tuple[int, ...]:
    """The same, with numbers for behaviours: many topologies have the same kinds of batch."""
    kinds = {
        Kind(column.variant, frozenset(column.even), column.entry, few, column.mode)
        for column in columns
        for few in (True, False)
    }
    wanted = {
        kind: next(alike[i] for i, column in enumerate(columns) if kind.planned_by(column))
        for kind in kinds
    }
    kept = list(range(len(columns)))
    for index in range(len(columns)):
        fewer = [other for other in kept if other != index]
        if all(_finds(columns, fewer, kind, alike, want) for kind, want in wanted.items()):
            kept = fewer
    return tuple(kept)


def _finds(
    columns: Sequence[Column],
    kept: Sequence[int],
    kind: Kind,
    alike: Sequence[int],
    wanted: int,
) -> bool:
    """Whether batches of a kind find what was planned for them."""
    first = next((index for index in kept if kind.fits(columns[index])), None)
    return first is not None and alike[first] == wanted
