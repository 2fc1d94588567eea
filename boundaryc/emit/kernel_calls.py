"""Several row-wise operations side by side in generated code: one call of a kernel's function."""

from __future__ import annotations

from typing import NamedTuple

from boundaryc.emit import quantized
from boundaryc.emit.calls import Calls
from boundaryc.emit.norms import NormCall
from boundaryc.language.model import Quantize
from boundaryc.plan import ops
from boundaryc.plan.kernels import Fusible, RowKernel


class Tensors(NamedTuple):
    """What a function calls the value, the residual that it finds, and the one that it makes."""

    value: str
    residual: str
    written: str


def fusible(calls: Calls) -> Fusible:
    """Which operations around a boundary a kernel has parts for."""
    adds = calls.update is not None and not calls.update.call
    return Fusible(adds, calls.read.facts.plain_norm, calls.quantize is not None)


def kernel_of(
    group: tuple[ops.Operation, ...], norm: NormCall, quantize: Quantize | None
) -> RowKernel:
    """The kernel that does a group of neighbours; ``quantize`` is the consumer's."""
    adds = isinstance(group[0], ops.Update)
    return RowKernel(norm.function, adds, quantize if isinstance(group[-1], ops.Quantize) else None)


def fused(
    kernel: RowKernel, norm: NormCall, param: str, names: Tensors, scale: float | None
) -> str:
    """The statement that calls ``kernel``; ``param`` are the norm's parameters.

    ``scale`` is the factor of what is added, if it has one.
    """
    given = [names.value if kernel.adds else names.residual]
    given += [names.residual] if kernel.adds else []
    given += norm.params(param)
    results: tuple[str, ...] = (names.value,)
    if kernel.quantize is not None:
        given += [f"{name}.input_scale" for name in kernel.quantize.params]
        results = quantized.returned(kernel.quantize, names.value)
    own = norm.own
    if kernel.adds:
        given += [] if scale is None else [repr(scale)]
        own += norm.summed
        results += (names.written,)
    return f"{', '.join(results)} = {kernel.name}({', '.join(given)}{own})"
