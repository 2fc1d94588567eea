"""What an engine's collective must give, for the simulated coordinators and the real ones."""

from __future__ import annotations

from typing import Any

import torch

SIZES: tuple[tuple[int, int], ...] = ((2, 2), (3, 0), (1, 4), (0, 0))
"""Rows of the two ranks: even, one without any, uneven, none at all."""


def moved(
    ours: Any, rank: int, rows: tuple[int, int], sizes: tuple[int, int] | None, dtype: torch.dtype
) -> list[str]:
    """What ``ours`` did wrong for ``rank`` of two, where ranks have ``rows`` of 8 columns.

    ``sizes`` is what it is told of these: None where they are equal.
    """
    whole = torch.arange(sum(rows) * 8).view(-1, 8).to(dtype)
    own, total = whole.split(list(rows))[rank], 2 * whole + 1
    small = torch.float8_e4m3fn
    checks = {
        "all_gather": (ours.all_gather(own, sizes), whole),
        "reduce_scatter": (ours.reduce_scatter(whole + rank, sizes), total.split(list(rows))[rank]),
        "all_reduce": (ours.all_reduce(whole + rank), total),
        "float8": (ours.all_gather(own.to(small), sizes), whole.to(small)),
    }
    return [
        f"{name} of {sizes} {dtype}"
        for name, (found, expected) in checks.items()
        if found.dtype is not expected.dtype or not torch.equal(found.double(), expected.double())
    ]
