"""Several row-wise operations side by side in generated code: one call of a kernel's function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from boundaryc.emit import quantized
from boundaryc.emit.calls import Calls
from boundaryc.language.model import Quantize
from boundaryc.operations import Operation
from boundaryc.plan import ops
from boundaryc.plan.kernels import Fusible, NormKind, RowKernel


class Tensors(NamedTuple):
    """What a function calls the value, the residual that it finds, and the one that it makes."""

    value: str
    residual: str
    written: str


def fusible(calls: Calls) -> Fusible:
    """Which operations of an edge kernels have parts for."""
    return Fusible(
        update=calls.update is not None and not calls.update.call,
        read=calls.read.facts.plain_norm,
        quantize=calls.quantize is not None,
        transform=calls.transform is not None and calls.transform.name == "output_norm",
        raw=calls.read.call is None,
    )


def kernel_of(group: tuple[ops.Operation, ...], calls: Calls) -> RowKernel | None:
    """The kernel that does a group of neighbours; None where that is no shorter than without."""
    kinds = frozenset(map(type, group))
    kernel = _kernel(
        kinds,
        calls.norm.function if ops.Read in kinds and calls.read.facts.plain_norm else None,
        calls.quantize if ops.Quantize in kinds else None,
        calls.output_norm.function if ops.Transform in kinds else None,
    )
    if kernel == _SUM:
        return None if calls.scale is None else kernel
    alone = len(group) == 1 and kernel.quantize is None
    return None if alone else kernel


@lru_cache(maxsize=1024)
def _kernel(
    kinds: frozenset[type[ops.Operation]],
    norm: NormKind | None,
    quantize: Quantize | None,
    output_norm: NormKind | None,
) -> RowKernel:
    """What operations of these kinds are together; it looks at nothing else, in any stack."""
    if quantize is not None and norm is None:
        quantize = replace(quantize, keep=False)  # what is kept is there
    return RowKernel(
        norm,
        ops.Update in kinds,
        quantize,
        output_norm,
        addition=ops.Addition in kinds,
        finalize=ops.Finalize in kinds,
    )


_SUM = RowKernel(None, adds=True)
"""No kernel: without a factor it is the runtime's, and one pass already."""


def added(calls: Calls) -> str:
    """An update in words."""
    return "add" if calls.scale is None else f"add times {calls.scale!r}"


def fused(
    kernel: RowKernel,
    calls: Calls,
    names: Tensors,
    *,
    reads: bool,
    bound: Callable[[Operation], list[str]],
) -> tuple[list[str], list[str]]:
    """The statements that call ``kernel``, and their steps in words.

    ``reads``: the residual is read, if by no norm then as it is. ``bound`` are the producer's
    parameters for an operation by name.
    """
    raw = reads and kernel.norm is None
    words = ["finalize"] if kernel.finalize else []
    words += ["norm of the output"] if kernel.output_norm else []
    words += [added(calls)] if kernel.adds else []
    words += ["addition"] if kernel.addition else []
    words += ["norm"] if kernel.norm else ["read the residual"] if raw else []
    words += [quantized.said(kernel.quantize)] if kernel.quantize else []
    param = bound(calls.transform)[0] if kernel.output_norm and calls.transform else ""
    read = f"{names.value} = {names.written if kernel.adds else names.residual}"
    kept = kernel.quantize is None or (calls.quantize is not None and calls.quantize.keep)
    before = [read] if raw and not kernel.adds else []
    after = [read] if raw and kernel.adds and kept else []
    return [*before, _call(kernel, calls, names, param), *after], words


def _call(kernel: RowKernel, calls: Calls, names: Tensors, output_param: str) -> str:
    """The statement that calls ``kernel``; ``output_param`` are those of the output's norm."""
    given = [names.residual if kernel.norm and not kernel.adds else names.value]
    given = ["*experts.parts"] if kernel.finalize else given
    given += [names.residual] if kernel.adds else []
    given += ["addition"] if kernel.addition else []
    results: tuple[str, ...] = ()
    own = ""
    if kernel.output_norm is not None:
        given += calls.output_norm.params(output_param)
        own += calls.output_norm.own.replace(", ", ", output_")
    if kernel.norm is not None:
        given += calls.norm.params(calls.read.params[0])
        own += calls.norm.own + (calls.norm.summed if kernel.adds and not kernel.addition else "")
        results = (names.value,)
    if kernel.quantize is not None:
        given += [f"{name}.input_scale" for name in kernel.quantize.params]
        results = quantized.returned(kernel.quantize, names.value)
    if kernel.adds:
        given += [] if calls.scale is None else [repr(calls.scale)]
        results += (names.written,)
    return f"{', '.join(results)} = {kernel.name}({', '.join(given)}{own})"
