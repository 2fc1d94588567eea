"""The operations that one stack may use."""

from __future__ import annotations

from collections.abc import Mapping

from boundaryc.language.model import Stack
from boundaryc.operations.registry import Facts, Operation, hyper_connections, registry


def declared_operations(stack: Stack) -> Mapping[str, Operation]:
    """The registry of a stack: built-ins and what its file declares."""
    built_in: tuple[Operation, ...] = ()
    if (many := stack.residual) is not None and many.streams > 1:
        built_in = hyper_connections(many.streams, many.iterations, many.eps, stack.norm.eps)
    own = (
        Operation(
            declared.name,
            declared.role,
            Facts(
                **dict.fromkeys(declared.facts, True),
                read_local=declared.read_local,
                read_whole=declared.read_whole,
                state=declared.state,
                streams=declared.streams,
            ),
            declared.params,
            declared.call,
        )
        for declared in stack.operations
    )
    return registry((*built_in, *own))
