"""Runs a generated `kernels.py` on whatever device there is, and compares; exits 1 on a difference.

Its own process because Triton decides at import whether it interprets. Arguments: the file, and 1
if the norm is to see the rounded sum.
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


def main(path: str, rounded: bool) -> None:
    """Compares every entry point for every dtype and row count."""
    spec = importlib.util.spec_from_file_location("kernels", path)
    assert spec is not None
    assert spec.loader is not None
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    own = {"eps": kernels.EPS, "offset": getattr(kernels, "OFFSET", 0.0), "rounded": rounded}
    taken = inspect.signature(kernels.add_rms_norm).parameters
    given = {name: value for name, value in OTHER.items() if name in taken}
    for norm in (own, own | given)[: 1 + bool(given)]:
        for dtype in ULP:
            for rows in ROWS:
                for weight_dtype in (dtype, torch.float32):
                    compare(kernels, rows, dtype, weight_dtype, norm)
    if own["offset"] == 1:
        adds_in_float32(kernels)
    refuses(kernels)


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
    kernels: Any, rows: int, dtype: torch.dtype, weight_dtype: torch.dtype, norm: dict[str, Any]
) -> None:
    """One shape; inputs are parts of larger tensors, so their rows are further apart."""
    generator = torch.Generator().manual_seed(rows)
    wide = torch.randn(2, rows + 1, kernels.WIDTH + 3, generator=generator, dtype=torch.float64)
    x, residual = (part[1:, : kernels.WIDTH].to(dtype).to(DEVICE) for part in wide)
    strided = wide[0].to(dtype).to(DEVICE)[1:, : kernels.WIDTH]
    weight = torch.randn(kernels.WIDTH, generator=generator, dtype=torch.float64)
    weight = weight.to(weight_dtype).to(DEVICE)
    before = x.clone(), residual.clone()

    alone, summed = (
        {name: norm[name] for name in inspect.signature(function).parameters if name in norm}
        for function in (kernels.rms_norm, kernels.add_rms_norm)
    )
    close(kernels.rms_norm(strided, weight, **alone), normed(x.double(), weight, norm), dtype)
    scale = (SCALE,) if SCALED in inspect.signature(kernels.add_rms_norm).parameters else ()
    y, total = kernels.add_rms_norm(x, residual, weight, *scale, **summed)
    exact = x.double() * (SCALE if scale else 1) + residual.double()
    close(total, exact, dtype)
    close(y, normed(total.double() if norm["rounded"] else exact, weight, norm), dtype)
    assert torch.equal(x, before[0]), "x was overwritten"
    assert torch.equal(residual, before[1]), "residual was overwritten"


def normed(x: Tensor, weight: Tensor, norm: dict[str, Any]) -> Tensor:
    """The norm in float64."""
    factor = weight.double() + norm["offset"]
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + norm["eps"]) * factor


def close(found: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Fails where a value is further off than its dtype explains."""
    assert found.dtype == dtype
    assert found.shape == expected.shape
    error = (found.double() - expected).abs() / expected.abs().clamp(min=1)
    assert not error.numel() or error.max().item() <= ULP[dtype], (dtype, error.max().item())


def refuses(kernels: Any) -> None:
    """Wrong shapes are errors, not reads past the end."""
    weight = torch.ones(kernels.WIDTH, device=DEVICE)
    wrong = torch.ones(2, kernels.WIDTH + 1, device=DEVICE)
    right = torch.ones(2, kernels.WIDTH, device=DEVICE)
    for call in (
        lambda: kernels.rms_norm(wrong, weight),
        lambda: kernels.rms_norm(right, weight[1:]),
        lambda: kernels.add_rms_norm(right, right[1:], weight),
    ):
        try:
            call()
        except ValueError:
            continue
        raise AssertionError("a wrong shape was accepted")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] == "1")
