"""The meshes and batches on which the checker tries a plan."""

from __future__ import annotations

from math import prod

from boundaryc.plan.provenance_layout import keys


def size_vectors(atoms: int) -> tuple[tuple[int, ...], ...]:
    """Return meshes of ``atoms`` atoms: all of size 2, all of size 3, and the two mixtures in turn.

    >>> size_vectors(2)
    ((2, 2), (3, 3), (2, 3), (3, 2))
    """
    vectors = [
        (2,) * atoms,
        (3,) * atoms,
        tuple(2 + index % 2 for index in range(atoms)),
        tuple(3 - index % 2 for index in range(atoms)),
    ]
    return tuple(dict.fromkeys(vectors))


def count_vectors(sizes: tuple[int, ...], even: int) -> tuple[tuple[int, ...], ...]:
    """Return leaf counts of the batches to try, one entry a rank each.

    Even, uneven, uneven with every other leaf empty, all empty but the last, all empty. A count
    never depends on the coordinates of the atoms of ``even``: whatever the rows, cuts over those
    atoms have equal sizes. Where every atom is even, so are all batches.
    """
    every = (1 << len(sizes)) - 1
    free = keys(sizes, every & ~even)
    last = max(free)
    vectors = [
        (2,) * prod(sizes),
        tuple(_uneven(key) for key in free),
        tuple(_uneven(key) if key % 2 else 0 for key in free) if last else (1,) * len(free),
        tuple(3 if key == last else 0 for key in free),
        (0,) * len(free),
    ]
    return tuple(dict.fromkeys(vectors))


def _uneven(key: int) -> int:
    """Return between 1 and 5 tokens, without a pattern that follows the mesh."""
    return 1 + (key * key * 3 + key * 2 + key // 3) % 5
