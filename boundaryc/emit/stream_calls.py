"""Operations on a residual of several streams in generated code: calls of kernels' functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from boundaryc.emit import quantized
from boundaryc.emit.calls import Calls
from boundaryc.emit.kernel_calls import Tensors
from boundaryc.plan import ops
from boundaryc.plan.stream_kernels import StreamKernel, stream_kernel


class StreamCall(NamedTuple):
    """A statement, what it does in words, and how many operations that were.

    ``residual`` is what the residual is called behind it.
    """

    function: str
    statement: str
    words: tuple[str, ...]
    operations: int
    residual: str


def stream_call(
    operations: Sequence[ops.Operation], calls: Calls, names: Tensors
) -> StreamCall | None:
    """The call for what ``operations`` begin with, None where that is nothing for streams."""
    if not operations:
        return None
    if isinstance(operations[0], ops.Enter):
        if calls.enter is None or calls.enter.name != "hyper_enter":
            return None
        made = f"{names.written} = hyper_enter(stream.enter({names.value}))"
        return StreamCall("hyper_enter", made, ("enter",), 1, names.written)
    found = stream_kernel(operations, calls.update, calls.read, calls.norm.function, calls.quantize)
    if found is None:
        return None
    kernel, count = found
    words = [calls.update.name] if kernel.updates and calls.update else []
    words += [calls.read.name, "norm"] if kernel.reads else []
    words += [quantized.said(kernel.quantize)] if kernel.quantize else []
    statement = _statement(kernel, calls, names)
    residual = names.written if kernel.updates else names.residual
    return StreamCall(kernel.name, statement, tuple(words), count, residual)


def _statement(kernel: StreamKernel, calls: Calls, names: Tensors) -> str:
    given = [names.value] if kernel.updates else []
    given += [names.residual]
    if kernel.updates:  # several arguments where none follow
        given += ["stream.kept" if kernel.reads else "*stream.kept"]
    given += ["hyper"] if kernel.reads == "mixed" else []
    results: list[str] = []
    if kernel.reads:
        given += calls.norm.params("norm")
        results = [names.value]
    if kernel.quantize is not None:
        given += [f"{name}.input_scale" for name in kernel.quantize.params]
        results = [*quantized.returned(kernel.quantize, names.value)]
    results += [names.written] if kernel.updates else []
    results += ["stream.kept"] if kernel.reads == "mixed" else []
    own = calls.norm.own if kernel.reads else ""
    return f"{', '.join(results)} = {kernel.name}({', '.join(given)}{own})"
