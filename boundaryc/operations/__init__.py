"""Residual operations: what an update, a read, a transform or an entry means and promises."""

from boundaryc.operations.registry import (
    BUILTIN,
    Facts,
    Operation,
    registry,
    transform_operation,
)

__all__ = ["BUILTIN", "Facts", "Operation", "registry", "transform_operation"]
