"""What generated kernels share: checks of their arguments, launches, and operators of torch.

Triton is only handed through: the kernels are those of a generated module, which imports it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from boundaryc.runtime.finalize import check_expert_rows

Function = TypeVar("Function", bound=Callable[..., object])


class Many(NamedTuple):
    """From so many rows on a kernel has these warps, and threads at most so many registers."""

    rows: int
    warps: int
    registers: int | None = None


class Launcher:
    """Launches one kernel, a program for each row.

    ``warps`` are those of a program, ``registers`` a thread's at most where rows are of 16 bits;
    ``many`` says what both are for many rows.

    ``kernel`` takes inputs, outputs, the distances of rows, the constants of a call, whether sums
    are in float64, and whether it may start before the kernel before it has ended. With ``many`` it
    also takes whether there are as many rows.
    """

    __slots__ = ("_found", "kernel", "many", "registers", "warps")

    def __init__(
        self, kernel: Any, warps: int, registers: int | None = None, many: Many | None = None
    ) -> None:
        self.kernel, self.warps, self.registers, self.many = kernel, warps, registers, many
        self._found: dict[object, Any] = {}

    @property
    def compiled(self) -> int:
        """For how many kinds of arguments it is launched without a look at each."""
        return len(self._found)

    def __call__(
        self, inputs: tuple[Tensor, ...], made: tuple[Tensor, ...], constants: tuple[float, ...]
    ) -> None:
        """Launches it over all rows of what it makes; the first inputs have rows.

        Triton looks at every argument of a call to find the machine code for it. Where all inputs
        begin at 16 bytes and have rows a multiple of 16 values apart, the key here says all that
        differs, and a kernel that has run before is launched at once.
        """
        rows, device = made[0].shape[0], inputs[0].get_device()
        strides, types = [], []
        addresses, apart = 0, 0
        for part in inputs:
            addresses |= part.data_ptr()
            types.append(part.dtype)
            if part.dim() == 2:
                stride = part.stride(0)
                strides.append(stride)
                apart |= stride
        early, wide = starts_early(device), torch.float64 in types[: len(strides)]
        many = () if self.many is None else (rows >= self.many.rows,)
        arguments = (*inputs, *made, *strides, *constants, wide, early, *many)
        key: object = None
        if not addresses % 16 and not apart % 16 and apart < 2**31:
            key = (device, *types, *constants, *many)
            found = self._found.get(key)
            if found is not None:
                found[rows, 1, 1](*arguments)
                return
        warps, registers = self.warps, self.registers
        if self.many is not None and rows >= self.many.rows:
            _, warps, registers = self.many
        registers = registers if types[0].itemsize <= 2 else None
        options = {"num_warps": warps, "maxnreg": registers, "launch_pdl": early}
        found = self.kernel[(rows,)](*arguments, **options, enable_fp_fusion=False)
        if key is not None and found is not None:
            self._found[key] = found


@cache
def starts_early(device: int) -> bool:
    """Whether a kernel on a CUDA device may start before the one before it has ended."""
    return device >= 0 and torch.cuda.get_device_capability(device) >= (9, 0)


def check_rows(width: int, rows: tuple[Tensor, ...], params: tuple[Tensor, ...]) -> None:
    """Refuses what a kernel would read past the end of: ValueError.

    ``rows`` are of one shape, [rows, width] of adjacent values, ``params`` [width].
    """
    shape = rows[0].shape
    for part in rows:
        if part.dim() != 2 or part.shape[1] != width or part.stride(1) != 1:
            raise ValueError(f"expected rows of {width} adjacent values, not {tuple(part.shape)}")
        if part.shape != shape:
            raise ValueError(f"rows of {tuple(shape)} meet rows of {tuple(part.shape)}")
    for part in params:
        if part.shape != (width,) or not part.is_contiguous():
            raise ValueError(f"expected a weight of {width} values, not {tuple(part.shape)}")


def check_experts(
    width: int,
    x: Tensor,
    gates: Tensor,
    index: Tensor | None,
    shared: Tensor | None,
    residual: Tensor | None = None,
) -> None:
    """Refuses rows of experts that are not those of a batch like ``residual``: ValueError."""
    check_expert_rows(x, gates, index, shared)
    for part in (x, shared):
        if part is not None and (part.shape[1] != width or part.stride(1) != 1):
            raise ValueError(f"expected rows of {width} adjacent values, not {tuple(part.shape)}")
    if residual is not None and residual.shape[0] != gates.shape[0]:
        raise ValueError(f"weights of {gates.shape[0]} rows meet {residual.shape[0]} of residual")


def expert_inputs(
    x: Tensor, gates: Tensor, index: Tensor | None, shared: Tensor | None
) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[int, bool, bool]]:
    """What a kernel takes of them, absent ones replaced, and what its call is specialised on."""
    flat = gates.reshape(-1)
    places = flat if index is None else index.reshape(-1)
    form = (gates.shape[1], index is not None, shared is not None)
    return (x if shared is None else shared, flat, places), form


def check_input_scale(scale: Tensor) -> None:
    """Refuses a scale that a static quantisation cannot read: ValueError."""
    if scale.dtype != torch.float32 or scale.dim():
        raise ValueError("a static `input_scale` is a float32 tensor []")


def operator(function: Function, made: Callable[..., object], schema: str) -> Function:
    """``function`` as an operator of torch, which torch.compile takes by what it returns.

    ``made`` makes that of the same arguments; ``schema`` are the types of both.
    """
    name = f"{function.__module__.replace('.', '_')}::{function.__name__}"
    registered: Any = torch.library.custom_op(name, function, mutates_args=(), schema=schema)
    registered.register_fake(made)
    found: Function = registered
    return found
