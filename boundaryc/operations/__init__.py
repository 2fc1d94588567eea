"""Residual operations: what an update, a read, a transform or an entry means and promises."""

from boundaryc.operations.registry import (
    BUILTIN,
    PARAM_TYPES,
    Facts,
    Operation,
    enter_operation,
    final_read,
    hyper_connections,
    registry,
    transform_operation,
)

__all__ = [
    "BUILTIN",
    "PARAM_TYPES",
    "Facts",
    "Operation",
    "enter_operation",
    "final_read",
    "hyper_connections",
    "registry",
    "transform_operation",
]
