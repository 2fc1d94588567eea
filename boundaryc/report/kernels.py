"""Which kernel or function does each operation of a boundary, as the generated code has it."""

from __future__ import annotations

from collections.abc import Iterator

from boundaryc.emit.calls import Calls
from boundaryc.emit.kernel_calls import Tensors, fusible, kernel_of
from boundaryc.emit.stream_calls import stream_call
from boundaryc.plan import ops
from boundaryc.plan.kernels import grouped
from boundaryc.plan.row_moves import TO_SHARDS, TO_TOKENS, quantising

_NAMES = Tensors("", "", "")


def kernels(
    operations: tuple[ops.Operation, ...], calls: Calls
) -> Iterator[tuple[tuple[ops.Operation, ...], str]]:
    """The operations in order, those of one kernel together, with what does them.

    That is empty for what is a collective or a view, ``torch`` for a few operations of torch's.
    """
    while operations:
        streams = stream_call(operations, calls, _NAMES)
        if streams is not None:
            count, name = streams.operations, streams.function
        else:
            count, name = _of_one_stream(operations, calls)
        yield operations[:count], name
        operations = operations[count:]


def _of_one_stream(operations: tuple[ops.Operation, ...], calls: Calls) -> tuple[int, str]:
    """How many operations what comes first does, and its name."""
    if calls.quantize and operations[:2] == (ops.Reorder(to_tokens=True), ops.Quantize()):
        return 2, quantising(calls.quantize)
    group = grouped(operations, fusible(calls))[0]
    kernel = kernel_of(group, calls)
    return (len(group), kernel.name) if kernel else (1, _alone(group[0], calls))


def _alone(op: ops.Operation, calls: Calls) -> str:
    match op:
        case ops.Read():
            normed = calls.norm.function if calls.read.facts.plain_norm else ""
            return calls.read.call or normed
        case ops.Update():
            return (calls.update.call if calls.update else None) or "torch"
        case ops.Transform() if calls.transform is not None:
            normed = calls.output_norm.function if calls.transform.name == "output_norm" else ""
            return calls.transform.call or normed or "torch"
        case ops.Reorder(to_tokens):
            return TO_TOKENS if to_tokens else TO_SHARDS
        case ops.Quantize() | ops.Join():
            return "torch"
        case _:
            return ""
