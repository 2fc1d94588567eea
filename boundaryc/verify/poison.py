"""Memory that was never written shows in every result that it reaches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def poisoned_allocations() -> Iterator[None]:
    """Fills every uninitialised tensor with NaN while it is open."""
    before = torch.are_deterministic_algorithms_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]
