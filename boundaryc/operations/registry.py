"""The registry of residual operations.

Built-ins and the operations that a YAML file declares are entries of one kind: a name, a role, the
facts that the planner may rely on, and how they are called. Nothing downstream asks whether an
operation is built in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Facts:
    """What an operation promises. Facts that widen what the planner may do default to false."""

    plain_add: bool = False
    plain_norm: bool = False
    row_wise: bool = False
    linear: bool = False
    at_producer: bool = False
    outlives_producer: bool = False
    joins_sum: bool = False
    quantized_sum: bool = False
    read_local: frozenset[str] = frozenset()
    read_whole: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Operation:
    """One entry of the registry.

    ``call`` is ``package.module:function`` for an operation from outside the package and None for
    a built-in, whose code the emitter knows by ``name``. ``params`` are bound by the model.
    """

    name: str
    role: str
    facts: Facts = field(default_factory=Facts)
    params: tuple[str, ...] = ()
    call: str | None = None


BUILTIN: tuple[Operation, ...] = (
    Operation("identity", "enter", Facts(row_wise=True)),
    Operation(
        "add",
        "update",
        Facts(plain_add=True, row_wise=True, outlives_producer=True, quantized_sum=True),
    ),
    Operation("scaled_add", "update", Facts(row_wise=True, outlives_producer=True)),
    Operation("scale", "transform", Facts(row_wise=True, linear=True)),
    Operation("output_norm", "transform", Facts(row_wise=True), params=("output_norm",)),
    Operation("norm", "read", Facts(plain_norm=True, row_wise=True), params=("norm",)),
    Operation("raw", "read", Facts(row_wise=True)),
)


def transform_operation(name: str) -> str:
    """The registry's name of a transform: a norm of the output is not the norm that is read."""
    return "output_norm" if name == "norm" else name


def registry(declared: Iterable[Operation] = ()) -> Mapping[str, Operation]:
    """Built-in and declared operations by name.

    Raises ValueError for a declared operation that takes a built-in's name.
    """
    table = {operation.name: operation for operation in BUILTIN}
    for operation in declared:
        if operation.name in table:
            raise ValueError(f"operation {operation.name!r} is declared twice")
        table[operation.name] = operation
    return table
