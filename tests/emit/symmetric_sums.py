"""Sums over ranks with the add and the norm behind them: random numbers, and what they make."""

from __future__ import annotations

import importlib.util
from typing import Any

import torch
from torch import Tensor

from boundaryc import runtime
from boundaryc.runtime import SumLimits

OWN = {"eps": 0.25, "offset": -0.5, "rounded": True}
"""A norm that is not the stack's."""


def imported(path: str) -> Any:
    """A generated module, from its file."""
    spec = importlib.util.spec_from_file_location("symmetric_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def contributions(
    limits: SumLimits, rows: int, call: int, device: str = "cpu"
) -> tuple[list[Tensor], Tensor, Tensor]:
    """What the ranks leave, the residual [rows, width] and the norm's weight of a call."""
    generator = torch.Generator(device).manual_seed(1000 * rows + call)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    parts = [drawn(rows, limits.width).to(limits.dtype) for _ in range(limits.ranks)]
    return parts, drawn(rows, limits.width).to(limits.dtype), drawn(limits.width)


def expected(
    limits: SumLimits, rows: int, call: int, norm: dict[str, Any], device: str = "cpu"
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The norm and the updated residual: exact, in float64, and as torch makes them.

    What travels is rounded, also in exact numbers: they go on from the sum as it is rounded.
    """
    parts, residual, weight = contributions(limits, rows, call, device)
    wide = parts[0].float()
    for part in parts[1:]:
        wide = wide + part.float()
    summed = wide.to(limits.dtype)
    rounded = "rounded" if norm.get("rounded") else "fp32"
    offset = norm.get("offset", 0.0)
    wanted = runtime.add_rms_norm(
        summed, residual, weight, norm["eps"], accumulate=rounded, offset=offset
    )
    total = summed.double() + residual.double()
    seen = wanted[1].double() if norm.get("rounded") else total
    scale = torch.rsqrt(seen.square().mean(-1, keepdim=True) + norm["eps"])
    return (seen * scale * (weight.double() + offset), total), wanted
