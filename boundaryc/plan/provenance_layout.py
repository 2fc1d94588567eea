"""Where token rows belong on a mesh, counted from leaf sizes alone.

Ranks have lexicographic coordinates over the atoms, outermost first. The *leaf* of a rank is the
run of tokens at its full coordinates; tokens are numbered in rank order. A set of atoms is an
integer mask whose bit ``i`` is atom ``i``.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod


@lru_cache(maxsize=4096)
def keys(sizes: tuple[int, ...], mask: int) -> tuple[int, ...]:
    """Return for each rank the lexicographic index of its coordinates on the atoms of ``mask``.

    >>> keys((2, 2), 0b01)
    (0, 0, 1, 1)
    """
    found = []
    for rank in range(prod(sizes)):
        index, scale, rest = 0, 1, rank
        for atom in reversed(range(len(sizes))):
            rest, coordinate = divmod(rest, sizes[atom])
            if mask >> atom & 1:
                index += coordinate * scale
                scale *= sizes[atom]
        found.append(index)
    return tuple(found)


@lru_cache(maxsize=4096)
def groups(sizes: tuple[int, ...], axes: int) -> tuple[tuple[int, ...], ...]:
    """Return the groups of ranks that differ on ``axes`` only, members in rank order.

    >>> groups((2, 2), 0b01)
    ((0, 2), (1, 3))
    """
    every = (1 << len(sizes)) - 1
    buckets: dict[int, list[int]] = {}
    for rank, key in enumerate(keys(sizes, every & ~axes)):
        buckets.setdefault(key, []).append(rank)
    return tuple(tuple(bucket) for bucket in buckets.values())


class Layout:
    """A mesh with one leaf of tokens a rank.

    ``sizes`` are the sizes of the atoms, outermost first; ``counts`` the tokens of each rank's
    leaf. Raises ``ValueError`` where there is not exactly one count a rank.
    """

    __slots__ = ("_tokens", "counts", "every", "sizes", "world")

    def __init__(self, sizes: tuple[int, ...], counts: tuple[int, ...]) -> None:
        self.sizes = sizes
        self.counts = counts
        self.world = prod(sizes)
        self.every = (1 << len(sizes)) - 1
        if len(counts) != self.world:
            raise ValueError(f"{len(counts)} leaf counts for {self.world} ranks")
        self._tokens: dict[int, tuple[tuple[int, ...], ...]] = {}

    def tokens(self, rows: int) -> tuple[tuple[int, ...], ...]:
        """Return for each rank the tokens of the leaves that agree with it on ``rows``."""
        known = self._tokens.get(rows)
        if known is not None:
            return known
        held: dict[int, list[int]] = {}
        first = 0
        index = keys(self.sizes, rows)
        for rank, count in enumerate(self.counts):
            held.setdefault(index[rank], []).extend(range(first, first + count))
            first += count
        shared = {key: tuple(tokens) for key, tokens in held.items()}
        known = tuple(shared[key] for key in index)
        self._tokens[rows] = known
        return known

    def turned(
        self, held: tuple[tuple[int, ...], ...], shards: int, turn: int
    ) -> tuple[tuple[int, ...], ...]:
        """Return rows with each block that is whole over ``shards`` turned by ``turn`` places.

        Token order stands for any fixed permutation of a block that is not its own inverse; a turn
        by one place is one for blocks of three rows and more.
        """
        block = keys(self.sizes, self._outside(shards))
        owners = self.owners()
        result = []
        for tokens in held:
            blocks: dict[int, list[int]] = {}
            for token in tokens:
                blocks.setdefault(block[owners[token]], []).append(token)
            result.append(
                tuple(token for part in blocks.values() for token in part[turn:] + part[:turn])
            )
        return tuple(result)

    def _outside(self, shards: int) -> int:
        """Return the atoms outside all of ``shards``: what tells one block from another."""
        return (shards & -shards) - 1

    def parts(self, group: tuple[int, ...], rows: int) -> tuple[int, ...]:
        """Count the rows of each member of ``group`` when the value is cut over ``rows``."""
        tokens = self.tokens(rows)
        return tuple(len(tokens[rank]) for rank in group)

    def owners(self) -> tuple[int, ...]:
        """Return for each token the rank whose leaf it is in."""
        return tuple(rank for rank, count in enumerate(self.counts) for _ in range(count))
