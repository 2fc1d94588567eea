"""Compiles a function of a generated `hyper_kernels.py` with torch, and counts the graphs.

Its own process because Triton decides at import whether it interprets. Argument: the file.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from hyper_program import Case, imported
from torch import Tensor
from torch._dynamo.utils import counters

NAME = "hyper_update_read_rms_norm"


def main(path: str) -> None:
    """Three graphs for five numbers of rows: for none, for one, and for any other."""
    kernels = imported(path)
    function = getattr(kernels, NAME)
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in (5, 0, 1, 3, 17):
        given = arguments(kernels, rows)
        for found, wanted in zip(compiled(*given), function(*given), strict=True):
            assert found.dtype == wanted.dtype
            assert torch.equal(found, wanted)
    assert counters["stats"]["unique_graphs"] <= 3, counters["stats"]


def arguments(kernels: Any, rows: int) -> list[Tensor]:
    """Random ones."""
    case = Case(kernels, NAME, rows, torch.bfloat16)
    hyper = [case.hyper.fn, case.hyper.base, case.hyper.scale]
    return [case.x, case.residual, case.mix, case.post, *hyper, case.weight]


if __name__ == "__main__":
    main(sys.argv[1])
