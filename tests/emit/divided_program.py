"""Runs modules of kernels that are divided beside those that are whole; exits 1 on a difference.

Its own process because Triton decides at import whether it interprets. Argument: a folder with the
folders `whole` and `divided`, which have the same modules.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from hyper_program import Case
from kernel_program import DEVICE, _convert_exactly
from torch import Tensor


def main(folder: str) -> None:
    """Every function for a few rows; what is divided has no other functions."""
    sys.path.insert(0, folder)
    if DEVICE == "cpu":
        _convert_exactly()
    for module in ("kernels", "hyper_kernels"):
        assert len(list(Path(folder, "divided").glob(f"{module}_of_*.py"))) > 2
        whole, divided = (importlib.import_module(f"{at}.{module}") for at in ("whole", "divided"))
        operators = [name for name in vars(whole) if name.endswith("_OPERATOR")]
        assert divided.__all__ == sorted(name[1:-9].lower() for name in operators)
        for name in divided.__all__:
            given = arguments(whole, name)
            wanted, found = getattr(whole, name)(**given), getattr(divided, name)(**given)
            for one, other in zip(parts(found), parts(wanted), strict=True):
                assert torch.equal(one.view(torch.uint8), other.view(torch.uint8)), name


def arguments(kernels: Any, name: str) -> dict[str, Tensor]:
    """Random ones by the names of parameters; those that have a value of their own are left out."""
    streams = getattr(kernels, "STREAMS", SimpleNamespace(value=2))
    case = Case(SimpleNamespace(STREAMS=streams, WIDTH=kernels.WIDTH), name, 3, torch.bfloat16)
    known = {**vars(case), **asdict(case.hyper), "input_scale": case.step}
    if not name.startswith("hyper"):
        known["residual"] = case.x.flip(0)
    taken = inspect.signature(getattr(kernels, name)).parameters.values()
    return {one.name: known[one.name] for one in taken if one.default is one.empty}


def parts(made: Any) -> tuple[Tensor, ...]:
    """What a function returns, one by one."""
    return made if isinstance(made, tuple) else (made,)


if __name__ == "__main__":
    main(sys.argv[1])
