"""Generated row-wise kernels on a GPU, beside a copy of the same bytes and what others offer.

    python -m benchmarks.kernels --family add_norm [--out benchmarks/results]

Renders the kernels of one family for each width, compares them with the torch path, and times them
in CUDA graphs. Up to 128 rows a launch finds its rows in the cache; above, launches walk through
more memory than the cache has. A cell is the median of several replays, in microseconds a launch.
Beside ours: a copy that reads and writes as many bytes, torch.compile of the torch path, and Liger
where that can be imported. `python -m benchmarks.kernel_table` makes tables of the results.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from boundaryc import runtime
from boundaryc.emit.norms import Norms
from boundaryc.emit.render import render
from boundaryc.emit.rowwise import norm_view
from boundaryc.language.model import NormSpec

WIDTHS = (2048, 4096, 5120, 7168, 8192, 16384)
ROWS = (1, 16, 128, 1024, 8192, 32768)
EPS = 1e-6
HOT = 128
"""Up to so many rows the inputs of a launch are in the cache."""
WALK = 320 << 20
"""Bytes through which launches over more rows walk."""

Case = Callable[[list[Tensor]], object]


@dataclass(frozen=True, slots=True)
class Family:
    """A kernel, and how many bytes it reads and writes for each number of a row."""

    kernel: str
    read: int
    written: int
    scaled: bool = False
    rounded: bool = False

    @property
    def adds(self) -> bool:
        """Whether there is a residual."""
        return self.kernel.startswith("add_")


FAMILIES = {
    "add_norm": Family("add_rms_norm", 4, 4),
    "scaled_add_norm": Family("add_rms_norm", 4, 4, scaled=True),
    "rounded_add_norm": Family("add_rms_norm", 4, 4, rounded=True),
    "norm": Family("rms_norm", 2, 2),
    "add_layer_norm": Family("add_layer_norm", 4, 4),
    "add_norm_fp8": Family("add_rms_norm_fp8", 4, 3),
    "add_norm_fp8_static": Family("add_rms_norm_fp8_static", 4, 3),
    "add_norm_fp8_group128": Family("add_rms_norm_fp8_group128", 4, 3),
    "add_norm_int8": Family("add_rms_norm_int8", 4, 3),
    "hyper": Family("hyper_update_read_rms_norm", 10, 10),
    "hyper_fp8": Family("hyper_update_read_rms_norm_fp8", 10, 9),
}


def kernels_of(family: Family, width: int, folder: Path) -> Any:
    """The generated module with the kernel of a family, imported."""
    spec = NormSpec("rms", EPS, "rounded" if family.rounded else "fp32", 0.0)
    view = norm_view("benchmark", width, Norms(spec), needs={family.kernel}, scaled=family.scaled)
    return imported(render("kernels.py.jinja", view), folder / f"{family.kernel}_{width}.py")


def imported(text: str, path: Path) -> Any:
    """``text`` as a module, which has to be a file for Triton."""
    path.write_text(text, encoding="utf-8")
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def in_torch(family: Family) -> Case:
    """The same in torch, as the generated code does it without kernels."""

    def call(given: list[Tensor]) -> object:
        x, residual, weight, *step = given
        if not family.adds:
            return runtime.rms_norm(x, weight, EPS)
        add_norm = runtime.add_layer_norm if "layer" in family.kernel else runtime.add_rms_norm
        scale = 0.22 if family.scaled else None
        rounding: runtime.Accumulate = "rounded" if family.rounded else "fp32"
        out, total = add_norm(x, residual, weight, EPS, scale, rounding)
        if "int8" in family.kernel:
            return (*runtime.quantize_int8(out), total)
        if "static" in family.kernel:
            return (*runtime.quantize_fp8(out, "static", step[0]), total)
        if "fp8" in family.kernel:
            by = "group128" if "group128" in family.kernel else "token"
            return (*runtime.quantize_fp8(out, by), total)  # type: ignore[arg-type]
        return out, total

    return call


def ours(family: Family, module: Any) -> Case:
    """The generated function."""
    function = getattr(module, family.kernel)
    extra = (0.22,) if family.scaled else ()
    if family.adds:
        return lambda given: function(*given, *extra)
    return lambda given: function(given[0], given[2])


def liger() -> Case | None:
    """Liger's kernel of a residual addition and an RMS norm."""
    try:
        from liger_kernel.ops.fused_add_rms_norm import fused_add_rms_norm_forward as forward
    except ImportError:
        return None
    return lambda given: forward(given[0], given[1], given[2], EPS, 0.0, "llama")


def inputs(family: Family, rows: int, width: int) -> list[list[Tensor]]:
    """Sets of arguments; several together are more than the cache holds."""
    size = rows * width * (family.read + family.written)
    count = 1 if rows <= HOT else max(2, -(-WALK // size))
    weight = torch.randn(width, device="cuda").to(torch.bfloat16)
    step = [torch.tensor(0.02, device="cuda")] if "static" in family.kernel else []

    def random() -> Tensor:
        return torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)

    return [[random(), random(), weight, *step] for _ in range(count)]


def timed(call: Case, sets: list[list[Tensor]], launches: int) -> float:
    """Microseconds of a call in a graph of ``launches``, the median of its replays."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for given in sets[:3]:
            call(given)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    kept = []
    with torch.cuda.graph(graph, stream=stream):
        for index in range(launches):
            kept.append(call(sets[index % len(sets)]))
            if len(kept) > 1:
                kept.pop(0)
    found = []
    for _ in range(3):
        graph.replay()
    for _ in range(15):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in "12")
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) * 1000 / launches)
    return statistics.median(found)


def launches_for(size: int) -> int:
    """So many that a replay takes about a millisecond, and at least two."""
    return max(4, min(200, int(3e9 / max(size, 1))))


def copied(rows: int, width: int, family: Family) -> float:
    """Microseconds of a copy that reads and writes as many bytes in sum."""
    half = rows * width * (family.read + family.written) // 2
    count = 1 if rows <= HOT else max(2, -(-WALK // (2 * half)))
    # As float64: a copy of more than 2**31 single bytes is slow.
    sets = [
        (
            torch.rand(half // 8, dtype=torch.float64, device="cuda"),
            torch.empty(half // 8, dtype=torch.float64, device="cuda"),
        )
        for _ in range(count)
    ]
    return timed(
        lambda pair: pair[1].copy_(pair[0]), [list(pair) for pair in sets], launches_for(2 * half)
    )


def checked(call: Case, reference: Case, given: list[Tensor]) -> None:
    """Fails where the kernel is not what torch makes, but for a last place."""
    found, wanted = call(given), reference(given)
    results = found if isinstance(found, tuple) else (found,)
    expected = wanted if isinstance(wanted, tuple) else (wanted,)
    if len(given) == 4:  # a scale that was given is no result of the kernel
        expected = tuple(part for part in expected if part.dim())
    assert len(results) == len(expected)
    for one, other in zip(results, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        torch.testing.assert_close(one.float(), other.float(), rtol=0.13, atol=0.13)
    assert torch.equal(results[-1], expected[-1]) or len(results) == 1, "the sums differ"


def host_cost(family: Family, module: Any, width: int) -> dict[str, float]:
    """Microseconds that the CPU spends on a call for one row, with nothing to do for the GPU.

    "function" is ours as generated code calls it; "triton" does the same checks and allocations and
    then launches as Triton does, "operator" is our function through torch.library.
    """
    given = inputs(family, 1, width)[0]
    given = given if family.adds else [given[0], given[2]]
    extra = (0.22,) if family.scaled else ()
    name = f"_{family.kernel.upper()}"
    kernel, operator = getattr(module, name), getattr(module, f"{name}_OPERATOR")
    function, allocated = (
        getattr(module, f"{prefix}{family.kernel}") for prefix in ("", "_made_by_")
    )
    strides = [part.stride(0) for part in given if part.dim() == 2]
    early = module._starts_early(0)
    rest = (*strides, *extra, module._accumulate(tuple(given)), early)
    warps = module.WARPS_TO_QUANTIZE if hasattr(module, "TINY") else module.WARPS
    options = {"num_warps": warps, "launch_pdl": early, "enable_fp_fusion": False}

    def triton() -> None:
        for part in given[: 1 + family.adds]:
            module._check(part, given[1 + family.adds])
        made = allocated(*given)
        kernel[(1,)](*given, *(made if isinstance(made, tuple) else (made,)), *rest, **options)

    made = function(*given, *extra)
    made = made if isinstance(made, tuple) else (made,)
    launch = (kernel, warps, tuple(given), made, extra)
    cases: dict[str, Callable[[], object]] = {
        "function": lambda: function(*given, *extra),
        "triton": triton,
        "operator": lambda: operator(*given, *extra),
        "launch alone": lambda: module._launch(*launch),
        "triton launch alone": lambda: kernel[(1,)](*given, *made, *rest, **options),
    }
    return {case: round(on_host(call), 2) for case, call in cases.items()}


def on_host(call: Callable[[], object]) -> float:
    """Microseconds of a call until it returns."""
    for _ in range(200):
        call()
    samples = []
    for _ in range(40):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(50):
            call()
        samples.append((time.perf_counter() - begin) / 50 * 1e6)
    return statistics.median(samples)


def measured(
    name: str, widths: tuple[int, ...], counts: tuple[int, ...], folder: Path
) -> Iterator[dict[str, Any]]:
    """One record for each width and row count."""
    family = FAMILIES[name]
    reference = in_torch(family)
    for width in widths:
        module = kernels_of(family, width, folder)
        cases: dict[str, Case] = {"ours": ours(family, module)}
        other = liger() if name == "add_norm" else None
        if other is not None:
            cases["liger"] = other
        for rows in counts:
            torch._dynamo.reset()
            cases["compile"] = torch.compile(reference, dynamic=False)
            sets = inputs(family, rows, width)
            checked(cases["ours"], reference, sets[0])
            size = rows * width * (family.read + family.written)
            cells = {"copy": copied(rows, width, family)}
            cells |= {case: timed(call, sets, launches_for(size)) for case, call in cases.items()}
            yield {"width": width, "rows": rows, **{k: round(v, 3) for k, v in cells.items()}}
            del sets
            torch.cuda.empty_cache()


def main() -> int:
    """Measures one family and writes its file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--family", choices=FAMILIES, required=True)
    parser.add_argument("--widths", default=",".join(map(str, WIDTHS)))
    parser.add_argument("--rows", default=",".join(map(str, ROWS)))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    asked = parser.parse_args()
    widths = tuple(int(width) for width in asked.widths.split(","))
    counts = tuple(int(rows) for rows in asked.rows.split(","))
    import triton

    records = []
    with tempfile.TemporaryDirectory() as folder:
        family = FAMILIES[asked.family]
        if family.kernel.startswith("hyper"):
            from benchmarks import hyper

            records = list(hyper.measured(family, hyper.WIDTHS, hyper.ROWS, Path(folder)))
            host = hyper.host_cost(family, 4096, Path(folder))
        else:
            for record in measured(asked.family, widths, counts, Path(folder)):
                print(record, flush=True)
                records.append(record)
            host = host_cost(family, kernels_of(family, 4096, Path(folder)), 4096)
    print(host)
    found = {
        "family": asked.family,
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "command": f"python -m benchmarks.kernels --family {asked.family}",
        "host": host,
        "cells": records,
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / f"{asked.family}.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
