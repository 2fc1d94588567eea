"""The error a model sees when it breaks the protocol of the boundaries."""

from __future__ import annotations


class BoundaryError(RuntimeError):
    """A call that the boundaries cannot honour: wrong order, wrong object or unsupported batch."""
