"""Which kinds of batch really need a column of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from boundaryc.plan.result import Column


def merged(columns: Sequence[Column], behaviour: Callable[[int], object]) -> tuple[int, ...]:
    """The indexes of the columns to keep, in order.

    A batch belongs to the first column of its variant whose axes it cuts evenly. A column goes
    when each of its batches then finds another one with equal ``behaviour``.
    """
    kept = list(range(len(columns)))
    for index in range(len(columns)):
        fewer = [other for other in kept if other != index]
        if all(_same(columns, fewer, batch, behaviour) for batch in range(len(columns))):
            kept = fewer
    return tuple(kept)


def column_of(columns: Sequence[Column], kept: Sequence[int], batch: int) -> int | None:
    """The kept column that serves the batches described by ``columns[batch]``."""
    for index in kept:
        column = columns[index]
        if column.variant == columns[batch].variant and set(column.even) <= set(columns[batch].even):
            return index
    return None


def _same(
    columns: Sequence[Column],
    kept: Sequence[int],
    batch: int,
    behaviour: Callable[[int], object],
) -> bool:
    serves = column_of(columns, kept, batch)
    return serves is not None and behaviour(serves) == behaviour(batch)
