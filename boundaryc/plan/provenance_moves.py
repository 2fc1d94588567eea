"""What each move of rows does to provenance: plain positions and counts, no typing rule.

A rank holds ``Rows``: a token and a mark for each row. A mark packs one counter for the residual
and one for each partial of the owed sum into an integer, so adding rows is adding integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from boundaryc.plan.provenance_layout import Layout, groups, keys


class Reason(StrEnum):
    """What a fault is about."""

    AXES = "the operation names no atom of the mesh, or one the mesh does not have"
    COLLECTIVE = "the members of a group do not run the same collective on the same rows"
    TOKENS_ADDED = "rows of different tokens are added"
    COUNTED_TWICE = "a partial or the residual is counted more than once"
    UNEVEN = "a fixed-size move meets parts of different sizes"
    ROW_COUNT = "a rank does not hold the rows that the sizes of the move say"
    SUM_MISSING = "something other than a sum or a move sees an incomplete sum"
    PHASE = "the operation does not apply to what the value is at this point"
    TRANSFORM = "the declared transform runs not exactly once, or on a partial or on the residual"
    RESIDUAL = "there is no residual here to move or to use"
    RESIDUAL_ROWS = "the residual and the value are not on matching rows"
    JOIN = "the residual may not join this sum"
    READ_ROWS = "the read does not see the rows it declares"
    HAND_OFF = "the hand-off happens not exactly once"
    HAND_OFF_STATE = "the value may not cross the hand-off like this"
    UNFINISHED = "the plan ends before the input is read"
    CAPTURE = "a capture is not the written residual on its declared rows, once"
    QUANTIZED_SUM = "a sum travels quantised in part, undeclared, or not in its producer's exit"
    QUANTIZED = "the input is quantised not exactly once, or summed afterwards"
    MERGE = "what is merged is not the whole output, once, on the rows and with the sum declared"
    ORDER = "rows are permuted that are not whole over the shards"
    INPUT_ROWS = "a rank ends with other input rows, or in another order, than declared"
    FINAL_RESIDUAL = "a rank ends with other residual rows, or in another order, than declared"


class BrokenPlanError(Exception):
    """An operation that cannot run or gives a wrong row; ``found`` says on which ranks."""

    def __init__(self, found: dict[Reason, tuple[int, ...]]) -> None:
        super().__init__(", ".join(found))
        self.found = found


def require(ranks: Iterable[int], reason: Reason) -> None:
    """Raise ``BrokenPlanError`` unless ``ranks``, the offenders, is empty."""
    bad = tuple(ranks)
    if bad:
        raise BrokenPlanError({reason: bad})


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows that one rank holds: their tokens and their marks, in order."""

    tokens: tuple[int, ...]
    marks: tuple[int, ...]

    def part(self, start: int, stop: int) -> Rows:
        """Return the rows from ``start`` up to ``stop``."""
        return Rows(self.tokens[start:stop], self.marks[start:stop])


Held = tuple[Rows, ...]
"""The rows of every rank. Ranks that hold the same rows may share one object."""


class Marks:
    """How many times the residual and each of ``partials`` partials are in a row.

    Every counter must be below the world size, so it has room for one more sum over all ranks;
    ``twice`` is asked after each.
    """

    __slots__ = ("_ones", "_width", "complete", "written")

    RESIDUAL = 1

    def __init__(self, partials: int, world: int) -> None:
        self._width = (world + 1).bit_length()
        self.complete = sum(self.partial(index) for index in range(partials))
        self.written = self.complete + self.RESIDUAL
        self._ones = self.written

    def partial(self, index: int) -> int:
        """Return the mark of a row that holds partial ``index`` once."""
        return 1 << (self._width * (index + 1))

    def twice(self, marks: Sequence[int]) -> bool:
        """Tell whether anything is counted more than once in one of ``marks``."""
        return any(mark & ~self._ones for mark in set(marks))


Move = Callable[[tuple[int, ...], tuple[Rows, ...]], tuple[Rows, ...]]


def _grouped(layout: Layout, axes: int, held: Held, move: Move) -> Held:
    """Run ``move`` on every group over ``axes``; collect what breaks in any of them."""
    after = list(held)
    broken: dict[Reason, list[int]] = {}
    for group in groups(layout.sizes, axes):
        try:
            results = move(group, tuple(held[rank] for rank in group))
        except BrokenPlanError as error:
            for reason, ranks in error.found.items():
                broken.setdefault(reason, []).extend(ranks)
            continue
        for rank, rows in zip(group, results, strict=True):
            after[rank] = rows
    if broken:
        raise BrokenPlanError({reason: tuple(sorted(ranks)) for reason, ranks in broken.items()})
    return tuple(after)


def _meet(group: tuple[int, ...], members: tuple[Rows, ...]) -> None:
    """Require of a sum that all members bring the same number of rows, of the same tokens.

    Ranks run in lockstep here, so agreement at each collective is agreement on their sequence. A
    rank without rows may skip a sum; then nobody in its group may have rows.
    """
    if len({len(rows.tokens) for rows in members}) > 1:
        raise BrokenPlanError({Reason.COLLECTIVE: group})
    if len({rows.tokens for rows in members}) > 1:
        raise BrokenPlanError({Reason.TOKENS_ADDED: group})


def _add(marks: Marks, group: tuple[int, ...], members: tuple[Rows, ...]) -> Rows:
    _meet(group, members)
    total = tuple(map(sum, zip(*(rows.marks for rows in members), strict=True)))
    if marks.twice(total):
        raise BrokenPlanError({Reason.COUNTED_TWICE: group})
    return Rows(members[0].tokens, total)


def _bounds(sizes: Sequence[int]) -> list[tuple[int, int]]:
    stops = list(accumulate(sizes))
    return [(stop - size, stop) for size, stop in zip(sizes, stops, strict=True)]


def all_reduce(layout: Layout, marks: Marks, held: Held, axes: int) -> Held:
    """Give every member of a group over ``axes`` the sum of what the members hold."""

    def move(group: tuple[int, ...], members: tuple[Rows, ...]) -> tuple[Rows, ...]:
        return (_add(marks, group, members),) * len(group)

    return _grouped(layout, axes, held, move)


def reduce_scatter(
    layout: Layout, marks: Marks, held: Held, axes: int, finer: int, variable: bool
) -> Held:
    """Sum over each group of ``axes``; each member keeps its part of the positions.

    Part sizes are the rows each member holds of a value cut over ``finer``.
    """

    def move(group: tuple[int, ...], members: tuple[Rows, ...]) -> tuple[Rows, ...]:
        whole = _add(marks, group, members)
        sizes = layout.parts(group, finer)
        if not variable and len(set(sizes)) > 1:
            raise BrokenPlanError({Reason.UNEVEN: group})
        if sum(sizes) != len(whole.tokens):
            raise BrokenPlanError({Reason.ROW_COUNT: group})
        return tuple(whole.part(start, stop) for start, stop in _bounds(sizes))

    return _grouped(layout, axes, held, move)


def all_gather(layout: Layout, held: Held, axes: int, finer: int, variable: bool) -> Held:
    """Give every member of a group over ``axes`` the rows of all members, in group order."""

    def move(group: tuple[int, ...], members: tuple[Rows, ...]) -> tuple[Rows, ...]:
        lengths = tuple(len(rows.tokens) for rows in members)
        if not variable and len(set(lengths)) > 1:
            raise BrokenPlanError({Reason.UNEVEN: group})
        if variable and lengths != layout.parts(group, finer):
            raise BrokenPlanError({Reason.ROW_COUNT: group})
        whole = Rows(
            tuple(token for rows in members for token in rows.tokens),
            tuple(mark for rows in members for mark in rows.marks),
        )
        return (whole,) * len(group)

    return _grouped(layout, axes, held, move)


def cut(layout: Layout, held: Held, axes: int, finer: int) -> Held:
    """Keep on each rank, by position, its own part over ``axes`` of the rows it holds."""

    def move(group: tuple[int, ...], members: tuple[Rows, ...]) -> tuple[Rows, ...]:
        sizes = layout.parts(group, finer)
        held_now = zip(group, members, strict=True)
        bad = [rank for rank, rows in held_now if len(rows.tokens) != sum(sizes)]
        require(bad, Reason.ROW_COUNT)
        pairs = zip(members, _bounds(sizes), strict=True)
        return tuple(rows.part(start, stop) for rows, (start, stop) in pairs)

    return _grouped(layout, axes, held, move)


def placed_sum(
    layout: Layout, marks: Marks, held: Held, gather: int, total: int, finer: int
) -> Held:
    """Sum over ``gather | total`` buffers in which each rank placed its rows.

    A rank's place follows from its coordinates on ``gather``. The rest of its buffer is holes; a
    hole plus a row is the row, so the ranks of one place add and the places are laid side by side.
    """
    place = keys(layout.sizes, gather)

    def move(group: tuple[int, ...], members: tuple[Rows, ...]) -> tuple[Rows, ...]:
        sizes = layout.parts(group, finer)
        pairs = zip(group, members, sizes, strict=True)
        require([rank for rank, rows, size in pairs if len(rows.tokens) != size], Reason.ROW_COUNT)
        places: dict[int, list[int]] = {}
        for index, rank in enumerate(group):
            places.setdefault(place[rank], []).append(index)
        sums = []
        for key in sorted(places):
            here = places[key]
            ranks = tuple(group[index] for index in here)
            sums.append(_add(marks, ranks, tuple(members[index] for index in here)))
        whole = Rows(
            tuple(token for rows in sums for token in rows.tokens),
            tuple(mark for rows in sums for mark in rows.marks),
        )
        return (whole,) * len(group)

    return _grouped(layout, gather | total, held, move)
