"""The families of `python -m benchmarks.kernels` for a residual of four streams.

"ours" is the pass over rows alone: update, read, norm, and quantisation in one kernel, with
coefficients that are given. "whole" is the function that generated code calls, which computes those
of the read first. "compile" is torch.compile of the same as "ours", for any number of rows.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.kernels import (
    EPS,
    HOT,
    WALK,
    Case,
    Family,
    checked,
    copied,
    launches_for,
    on_host,
    timed,
)
from boundaryc import runtime
from boundaryc.emit.norms import Norms
from boundaryc.emit.render import render
from boundaryc.emit.stream_views import StreamsView, hyper_view
from boundaryc.language.model import NormSpec, Residual

WIDTHS = (4096, 5120, 7168)
ROWS = (1, 16, 128, 1024, 2048, 8192)
STREAMS = 4
NUMBERS = (2 + STREAMS) * STREAMS


def view_of(family: Family, width: int) -> StreamsView:
    """What the module of a family is rendered of."""
    residual = Residual("hyper_connections", STREAMS, "hyper_enter", "hyper_mean", 20, EPS)
    norms = Norms(NormSpec("rms", EPS, "fp32", 0.0))
    return hyper_view("benchmark", width, residual, norms, needs={family.kernel})


def module_of(family: Family, width: int, folder: Path) -> tuple[Any, StreamsView]:
    """The generated module, and its view."""
    view = view_of(family, width)
    text = render("hyper_kernels.py.jinja", view)
    return imported(text, folder / f"{family.kernel}_{width}.py"), view


def imported(text: str, path: Path) -> Any:
    """``text`` as a module, which has to be a file for Triton."""
    path.write_text(text, encoding="utf-8")
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[path.stem] = module
    found.loader.exec_module(module)
    return module


def ours(module: Any, view: StreamsView) -> Case:
    """The pass over rows, of (x, residual, mix, post, weight, pre)."""
    (kernel,) = view.kernels
    name = kernel.name
    launched, allocated = getattr(module, f"_{name.upper()}"), getattr(module, f"_made_by_{name}")

    def call(given: list[Tensor]) -> tuple[Tensor, ...]:
        made: tuple[Tensor, ...] = allocated(given[1])[:-2]
        launched((given[1].shape[0], 1), (*given, *made))
        return made

    return call


def in_torch(family: Family) -> Case:
    """The same in torch."""

    def call(given: list[Tensor]) -> tuple[Tensor, ...]:
        x, residual, mix, post, weight, pre = given
        streams = runtime.hyper_update(x, residual, mix, post)
        out = runtime.rms_norm(runtime.hyper._mean(streams, pre), weight, EPS)
        if "fp8" in family.kernel:
            return (*runtime.quantize_fp8(out, "token"), streams)
        return out, streams

    return call


def whole(module: Any, family: Family, width: int) -> Case:
    """The generated function, coefficients of the read included."""
    function = getattr(module, family.kernel)
    fn = torch.randn(NUMBERS, STREAMS * width, device="cuda") / width
    base, scale = torch.randn(NUMBERS, device="cuda"), torch.ones(3, device="cuda")
    return lambda given: function(*given[:4], fn, base, scale, given[4])


def inputs(rows: int, width: int, family: Family) -> list[list[Tensor]]:
    """Sets of arguments; several together are more than the cache holds."""
    size = rows * width * (family.read + family.written)
    count = 1 if rows <= HOT else max(2, -(-WALK // size))
    weight = torch.randn(width, device="cuda").to(torch.bfloat16)

    def one() -> list[Tensor]:
        like = {"device": "cuda", "dtype": torch.bfloat16}
        x = torch.randn(rows, width, **like)  # type: ignore[call-overload]
        residual = torch.randn(rows, STREAMS, width, **like)  # type: ignore[call-overload]
        mix = torch.rand(rows, STREAMS**2, device="cuda") / STREAMS
        post, pre = (torch.rand(rows, STREAMS, device="cuda") for _ in "12")
        return [x, residual, mix, post, weight, pre]

    return [one() for _ in range(count)]


def measured(
    family: Family, widths: tuple[int, ...], counts: tuple[int, ...], folder: Path
) -> Iterator[dict[str, Any]]:
    """One record for each width and row count of those that are asked for and measured here."""
    reference = in_torch(family)
    for width in widths:
        module, view = module_of(family, width, folder)
        torch._dynamo.reset()
        cases = {
            "ours": ours(module, view),
            "compile": torch.compile(reference, dynamic=True),
            "whole": whole(module, family, width),
        }
        for rows in counts:
            sets = inputs(rows, width, family)
            checked(cases["ours"], reference, sets[0], adds=True)
            size = rows * width * (family.read + family.written)
            cells = {"copy": copied(rows, width, family)}
            cells |= {case: timed(call, sets, launches_for(size)) for case, call in cases.items()}
            yield {"width": width, "rows": rows, **{k: round(v, 3) for k, v in cells.items()}}
            del sets
            torch.cuda.empty_cache()


def host_cost(family: Family, width: int, folder: Path) -> dict[str, float]:
    """Microseconds that the CPU spends on a call for one row, with nothing to do for the GPU."""
    module, view = module_of(family, width, folder)
    (given,) = inputs(1, width, family)
    row, function = ours(module, view), whole(module, family, width)
    cases: dict[str, Callable[[], object]] = {
        "row kernel": lambda: row(given),
        "whole function": lambda: function(given),
    }
    return on_host(cases)
