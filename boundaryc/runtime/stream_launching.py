"""What generated kernels for several streams share: launches over grids, and rows of any shape."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from boundaryc.runtime.launching import starts_early


class GridLauncher:
    """Launches one kernel; ``warps`` are those of a program, ``registers`` a thread's at most.

    ``kernel`` takes tensors, then numbers, then constants, and whether it may start before the
    kernel before it has ended. It is specialised on no number that is an int.
    """

    __slots__ = ("_found", "kernel", "registers", "warps")

    def __init__(self, kernel: Any, warps: int, registers: int | None = None) -> None:
        self.kernel, self.warps, self.registers = kernel, warps, registers
        self._found: dict[object, Any] = {}

    def __call__(
        self,
        grid: tuple[int, int],
        tensors: tuple[Tensor, ...],
        numbers: tuple[float, ...] = (),
        constants: tuple[float, ...] = (),
    ) -> None:
        """Launches it on the device of the tensors, which are of adjacent values.

        Triton looks at every argument of a call to find the machine code for it. Where all tensors
        begin at 16 bytes, the key here says all that differs, and a kernel that has run before is
        launched at once.
        """
        device, addresses = tensors[0].get_device(), 0
        early = starts_early(device)
        for part in tensors:
            addresses |= part.data_ptr()
        key: object = None
        if not addresses % 16:
            fixed = [number for number in numbers if type(number) is not int]
            key = (device, *[part.dtype for part in tensors], *fixed, *constants)
            found = self._found.get(key)
            if found is not None:
                found[grid[0], grid[1], 1](*tensors, *numbers, *constants, early)
                return
        options = {"num_warps": self.warps, "maxnreg": self.registers, "launch_pdl": early}
        options["enable_fp_fusion"] = False
        found = self.kernel[grid](*tensors, *numbers, *constants, early, **options)
        if key is not None and found is not None:
            self._found[key] = found


def raw(part: Tensor) -> Tensor:
    """``part`` as it moves without arithmetic: values of one byte as bytes."""
    return part.view(torch.uint8) if part.dtype.itemsize == 1 else part


def adjacent(part: Tensor, *sizes: int) -> Tensor:
    """``part`` [rows, *sizes] with all values adjacent; ValueError for another shape."""
    if tuple(part.shape[1:]) != sizes:
        wanted = " x ".join(map(str, sizes))
        raise ValueError(f"expected rows of {wanted} values, not {tuple(part.shape)}")
    return part.contiguous()
