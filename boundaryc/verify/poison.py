"""Memory that was never written shows in every result that it reaches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

WARN = 1
"""The mode of `torch.use_deterministic_algorithms(True, warn_only=True)`.

That function also imports torch.compile's machinery, which takes as long as torch itself.
"""


@contextmanager
def poisoned_allocations() -> Iterator[None]:
    """Fills every uninitialised tensor with NaN while it is open."""
    before = torch.get_deterministic_debug_mode()
    fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.set_deterministic_debug_mode(WARN)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)
        torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]
