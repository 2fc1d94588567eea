"""Runs a generated `kernels.py` on whatever device there is, and compares; exits 1 on a difference.

Its own process because Triton decides at import whether it interprets. Arguments: the file, and 1
if the norm is to see the rounded sum; then, where not all are wanted, one number of rows.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from typing import Any

import torch
from torch import Tensor

ROWS = (0, 1, 3, 17)
SCALED, SCALE = "scale", 0.22
OTHER = {"eps": 0.25, "offset": -0.5, "rounded": True}
"""What a call says whose norm is not the stack's."""
ULP = {torch.float64: 2**-50, torch.float32: 2**-21, torch.float16: 2**-10, torch.bfloat16: 2**-7}
"""Allowed error, relative to the value and at least 1: a unit in the last place or two."""
DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


def main(path: str, rounded: bool, every: tuple[int, ...]) -> None:
    """Compares every entry point for every dtype and row count."""
    spec = importlib.util.spec_from_file_location("kernels", path)
    assert spec is not None
    assert spec.loader is not None
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    own = {"eps": kernels.EPS, "offset": getattr(kernels, "OFFSET", 0.0), "rounded": rounded}
    for name in ("rms_norm", "layer_norm", "biased_layer_norm"):
        if not hasattr(kernels, name):
            continue
        pair = Pair(name, getattr(kernels, name), getattr(kernels, f"add_{name}"), kernels.WIDTH)
        given = {name: value for name, value in OTHER.items() if name in pair.taken}
        for norm in (own, own | given)[: 1 + bool(given)]:
            for dtype in (torch.float64, torch.bfloat16) if pair.centred else ULP:
                for rows in every[-2:] if pair.centred else every:
                    for weight_dtype in (dtype, torch.float32):
                        compare(pair, rows, dtype, weight_dtype, norm)
        refuses(pair)
        if own["offset"] == 1 and name == "rms_norm":
            adds_in_float32(kernels)


class Pair:
    """The norm of a tensor and that of a sum."""

    def __init__(self, name: str, alone: Any, summed: Any, width: int) -> None:
        self.alone, self.summed, self.width = alone, summed, width
        self.centred, self.biased = name != "rms_norm", name == "biased_layer_norm"
        self.taken = inspect.signature(summed).parameters


def adds_in_float32(kernels: Any) -> None:
    """1 + 2**-8 has no bfloat16, which is what the weight is."""
    ones = torch.ones(1, kernels.WIDTH, device=DEVICE)
    weight = torch.full((kernels.WIDTH,), 2.0**-8, dtype=torch.bfloat16, device=DEVICE)
    for found in (
        kernels.rms_norm(ones, weight, eps=1e-30),
        kernels.add_rms_norm(ones, ones, weight, eps=1e-30)[0],
    ):
        assert found.unique().tolist() == [1 + 2.0**-8]


def compare(
    pair: Pair, rows: int, dtype: torch.dtype, weight_dtype: torch.dtype, norm: dict[str, Any]
) -> None:
    """One shape; inputs are parts of larger tensors, so their rows are further apart."""
    generator, width = torch.Generator().manual_seed(rows), pair.width
    wide = torch.randn(2, rows + 1, width + 3, generator=generator, dtype=torch.float64)
    x, residual = (part[1:, :width].to(dtype).to(DEVICE) for part in wide)
    strided = wide[0].to(dtype).to(DEVICE)[1:, :width]
    params = [torch.randn(width, generator=generator, dtype=torch.float64) for _ in range(2)]
    params = [param.to(weight_dtype).to(DEVICE) for param in params[: 1 + pair.biased]]
    before = x.clone(), residual.clone()

    alone, summed = (
        {name: norm[name] for name in inspect.signature(function).parameters if name in norm}
        for function in (pair.alone, pair.summed)
    )
    close(pair.alone(strided, *params, **alone), normed(pair, x.double(), params, norm), dtype)
    scale = (SCALE,) if SCALED in pair.taken else ()
    y, total = pair.summed(x, residual, *params, *scale, **summed)
    exact = x.double() * (SCALE if scale else 1) + residual.double()
    close(total, exact, dtype)
    close(y, normed(pair, total.double() if norm["rounded"] else exact, params, norm), dtype)
    assert torch.equal(x, before[0]), "x was overwritten"
    assert torch.equal(residual, before[1]), "residual was overwritten"


def normed(pair: Pair, x: Tensor, params: list[Tensor], norm: dict[str, Any]) -> Tensor:
    """The norm in float64."""
    if pair.centred:
        x = x - x.mean(-1, keepdim=True)
    factor = params[0].double() + norm["offset"]
    found = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + norm["eps"]) * factor
    return found + params[1].double() if pair.biased else found


def close(found: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Fails where a value is further off than its dtype explains."""
    assert found.dtype == dtype
    assert found.shape == expected.shape
    error = (found.double() - expected).abs() / expected.abs().clamp(min=1)
    assert not error.numel() or error.max().item() <= ULP[dtype], (dtype, error.max().item())


def refuses(pair: Pair) -> None:
    """Wrong shapes are errors, not reads past the end."""
    weight = torch.ones(pair.width, device=DEVICE)
    wrong = torch.ones(2, pair.width + 1, device=DEVICE)
    right = torch.ones(2, pair.width, device=DEVICE)
    params = (weight,) * (1 + pair.biased)
    for call in (
        lambda: pair.alone(wrong, *params),
        lambda: pair.alone(right, *params[1:], weight[1:]),
        lambda: pair.summed(right, right[1:], *params),
    ):
        try:
            call()
        except ValueError:
            continue
        raise AssertionError("a wrong shape was accepted")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "1", tuple(map(int, sys.argv[3:])) or ROWS)
