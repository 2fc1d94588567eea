"""Compiles the functions of a generated `kernels.py` with torch, and counts the graphs.

Its own process because Triton decides at import whether it interprets. Argument: the file.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.utils import counters

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
ROWS = (5, 0, 1, 3, 17, 9)


def main(path: str) -> None:
    """Three graphs for six numbers of rows: for none, for one, and any other; one machine code."""
    spec = importlib.util.spec_from_file_location("kernels", path)
    assert spec is not None
    assert spec.loader is not None
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    for operator in [name for name in vars(kernels) if name.endswith("_OPERATOR")]:
        name = operator.removeprefix("_").removesuffix("_OPERATOR")
        torch._dynamo.reset()
        counters.clear()
        function = getattr(kernels, name.lower())
        compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=True)
        for rows in ROWS:
            given = arguments(function, rows, kernels.WIDTH.value)
            for found, wanted in zip(compiled(*given), function(*given), strict=True):
                same(found, wanted)
        assert counters["stats"]["unique_graphs"] <= 3, (name, counters["stats"])
        compiled_for = vars(kernels)[f"_{name}"].compiled
        assert compiled_for == (0 if DEVICE == "cpu" else 1), "rows are part of a specialisation"


def arguments(function: Any, rows: int, width: int) -> list[Tensor]:
    """Random rows, parameters, and the scale of a static quantisation."""
    generator = torch.Generator().manual_seed(rows)
    given: list[Tensor] = []
    experts = 3 if "gates" in inspect.signature(function).parameters else 1
    for name, param in inspect.signature(function).parameters.items():
        if name in ("x", "residual", "addition", "shared"):
            count = rows * experts if name == "x" else rows
            given.append(torch.randn(count, width, generator=generator).to(torch.bfloat16))
        elif name == "gates":
            given.append(torch.rand(rows, experts, generator=generator))
        elif name == "index":
            given.append(torch.randperm(rows * experts, generator=generator).view(rows, experts))
        elif param.default is param.empty:
            given.append(torch.tensor(0.02) if name == "input_scale" else torch.ones(width))
    return [part.to(DEVICE) for part in given]


def same(found: Tensor, wanted: Any) -> None:
    """Fails where a result is another than without torch.compile."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert torch.equal(found.float(), wanted.float())


if __name__ == "__main__":
    main(sys.argv[1])
