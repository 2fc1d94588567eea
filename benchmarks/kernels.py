"""Generated row-wise kernels on a GPU, beside a copy of the same bytes and what others offer.

    python -m benchmarks.kernels --family add_norm [--out benchmarks/results]

Renders the kernels of one family for each width, compares them with the torch path, and times them
in CUDA graphs. Up to 128 rows a launch finds its rows in the cache; above, launches walk through
more memory than the cache has. A cell is the median of several replays, in microseconds a launch.
Beside ours: a copy that reads and writes as many bytes, the plain add and norm, torch.compile of
the torch path until `--seconds` have passed, and Liger where that can be imported.
`python -m benchmarks.kernel_table` makes tables of the results.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.two_reductions import two_reductions
from boundaryc.emit.norms import Norms
from boundaryc.emit.render import render
from boundaryc.emit.rowwise import norm_view
from boundaryc.language.model import NormSpec
from boundaryc.plan.kernels import KERNELS, RowKernel
from boundaryc.runtime import launching

WIDTHS = (2048, 4096, 5120, 7168, 8192, 16384)
ROWS = (1, 16, 128, 1024, 8192, 32768)
EPS = 1e-6
HOT = 128
"""Up to so many rows the inputs of a launch are in the cache."""
WALK = 320 << 20
"""Bytes through which launches over more rows walk."""

EXPERTS = 8
"""Rows of experts for each token, anywhere among those of all."""

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
    def share(self) -> float:
        """Its bytes as a share of the plain kernel's."""
        return (self.read + self.written) / 8

    @property
    def parts(self) -> RowKernel:
        """What the kernel does."""
        return KERNELS[self.kernel]

    @property
    def extra(self) -> tuple[float, ...]:
        """What a call is given behind the tensors."""
        return (0.22,) if self.scaled else ()


PLAIN = Family("add_rms_norm", 4, 4)
FAMILIES = {
    "add_norm": PLAIN,
    "scaled_add_norm": Family("add_rms_norm", 4, 4, scaled=True),
    "rounded_add_norm": Family("add_rms_norm", 4, 4, rounded=True),
    "norm": Family("rms_norm", 2, 2),
    "sandwich": Family("rms_add_rms_norm", 4, 4),
    "sandwich_fp8": Family("rms_add_rms_norm_fp8", 4, 3),
    "post_norm": Family("rms_add", 4, 2),
    "to_fp8": Family("to_fp8", 2, 1),
    "post_addition": Family("add_addition_rms_norm", 6, 4),
    "finalize": Family("finalize_add_rms_norm", 2 * EXPERTS + 2, 4),
    "finalize_fp8": Family("finalize_add_rms_norm_fp8", 2 * EXPERTS + 2, 3),
    "add_layer_norm": Family("add_layer_norm", 4, 4),
    "add_norm_fp8": Family("add_rms_norm_fp8", 4, 3),
    "add_norm_fp8_static": Family("add_rms_norm_fp8_static", 4, 3),
    "add_norm_fp8_group128": Family("add_rms_norm_fp8_group128", 4, 3),
    "add_norm_int8": Family("add_rms_norm_int8", 4, 3),
    "hyper": Family("hyper_update_read_rms_norm", 10, 10),
    "hyper_fp8": Family("hyper_update_read_rms_norm_fp8", 10, 9),
}


@dataclass(frozen=True, slots=True)
class Modules:
    """The generated modules of a family: what stacks call, and the same without kernels."""

    kernels: Any
    ours: Case
    in_torch: Case


def modules_of(family: Family, width: int, folder: Path) -> Modules:
    """The generated modules for rows of ``width`` columns, imported from ``folder``."""
    spec = NormSpec("rms", EPS, "rounded" if family.rounded else "fp32", 0.0)
    view = norm_view("benchmark", width, Norms(spec), needs={family.kernel}, scaled=family.scaled)
    sys.path.insert(0, str(folder))
    found = []
    for _ in "12":
        name = f"benchmark_{next(_NUMBERS)}"
        (folder / name).mkdir()
        for module in ("kernels", "rowwise"):
            text = render(f"{module}.py.jinja", view)
            (folder / name / f"{module}.py").write_text(text, encoding="utf-8")
        found.append(importlib.import_module(f"{name}.rowwise"))
    sys.path.remove(str(folder))
    ours, in_torch = found
    in_torch.KERNELS = False
    return Modules(ours.kernels, _case(family, ours), _case(family, in_torch))


_NUMBERS = count()


def _case(family: Family, module: Any) -> Case:
    function = getattr(module, family.kernel)
    return lambda given: function(*given, *family.extra)


def liger() -> Case | None:
    """Liger's kernel of a residual addition and an RMS norm."""
    try:
        from liger_kernel.ops.fused_add_rms_norm import fused_add_rms_norm_forward as forward
    except ImportError:
        return None
    return lambda given: forward(given[0], given[1], given[2], EPS, 0.0, "llama")


def inputs(family: Family, rows: int, width: int) -> list[list[Tensor]]:
    """Sets of arguments; several together are more than the cache holds."""
    parts, size = family.parts, rows * width * (family.read + family.written)
    sets = 1 if rows <= HOT else max(2, -(-WALK // size))
    norms = [kind for kind in (parts.output_norm, parts.norm) if kind]
    weights = [torch.randn(width, device="cuda").to(torch.bfloat16) for _ in norms]
    step = [torch.tensor(0.02, device="cuda")] if "static" in family.kernel else []

    def random() -> Tensor:
        return torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)

    def given() -> list[Tensor]:
        others = [random() for _ in range(parts.adds + parts.addition)]
        if not parts.finalize:
            return [random(), *others]
        experts = torch.randn(rows * EXPERTS, width, device="cuda", dtype=torch.bfloat16)
        gates = torch.rand(rows, EXPERTS, device="cuda")
        index = torch.randperm(rows * EXPERTS, device="cuda").view(rows, EXPERTS)
        return [experts, gates, index, None, *others]  # type: ignore[list-item]

    return [[*given(), *weights, *step] for _ in range(sets)]


def timed(call: Case, sets: list[list[Tensor]], launches: int) -> float:
    """Microseconds of a call in a graph of ``launches``, the median of its replays."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
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
    pairs = 1 if rows <= HOT else max(2, -(-WALK // (2 * half)))
    # As float64: a copy of more than 2**31 single bytes is slow.
    sets = [
        (
            torch.rand(half // 8, dtype=torch.float64, device="cuda"),
            torch.empty(half // 8, dtype=torch.float64, device="cuda"),
        )
        for _ in range(pairs)
    ]
    return timed(
        lambda pair: pair[1].copy_(pair[0]), [list(pair) for pair in sets], launches_for(2 * half)
    )


def checked(call: Case, reference: Case, given: list[Tensor], *, adds: bool) -> None:
    """Fails where the kernel is not what torch makes, but for a last place.

    ``adds``: what it adds is no norm, so that the sum is torch's.
    """
    found, wanted = call(given), reference(given)
    results = found if isinstance(found, tuple) else (found,)
    expected = wanted if isinstance(wanted, tuple) else (wanted,)
    assert len(results) == len(expected)
    for one, other in zip(results, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        torch.testing.assert_close(one.float(), other.float(), rtol=0.13, atol=0.13)
    if adds:
        assert torch.equal(results[-1], expected[-1]), "the sums differ"


def host_cost(family: Family, kernels: Any, width: int) -> dict[str, float]:
    """Microseconds that the CPU spends on a call for one row, with nothing to do for the GPU.

    "function" is ours as generated code calls it; "triton" does the same checks and allocations and
    then launches as Triton does, "operator" is our function through torch.library.
    """
    given, extra = inputs(family, 1, width)[0], family.extra
    name, parts = f"_{family.kernel.upper()}", family.parts
    launcher, operator = getattr(kernels, name), getattr(kernels, f"{name}_OPERATOR")
    function, allocated = (
        getattr(kernels, f"{prefix}{family.kernel}") for prefix in ("", "_made_by_")
    )
    if parts.finalize:
        calls = {"function": function, "operator": operator}
        return on_host({word: partial(call, *given, *extra) for word, call in calls.items()})
    rows = given[: 1 + parts.adds + parts.addition]
    weights = [part for part in given[len(rows) :] if part.dim()]
    early = launching.starts_early(0)
    many = () if launcher.many is None else (False,)
    rest = (*[part.stride(0) for part in rows], *extra, False, early, *many)
    options = {"num_warps": launcher.warps, "launch_pdl": early, "enable_fp_fusion": False}
    options["maxnreg"] = launcher.registers

    def triton() -> None:
        launching.check_rows(width, tuple(rows), tuple(weights))
        made = allocated(*given)
        made = made if isinstance(made, tuple) else (made,)
        launcher.kernel[(1,)](*given, *made, *rest, **options)

    made = function(*given, *extra)
    made = made if isinstance(made, tuple) else (made,)
    launch = (tuple(given), made, extra)
    return on_host(
        {
            "function": lambda: function(*given, *extra),
            "triton": triton,
            "operator": lambda: operator(*given, *extra),
            "launch alone": lambda: launcher(*launch),
            "triton launch alone": lambda: launcher.kernel[(1,)](*given, *made, *rest, **options),
        }
    )


def on_host(cases: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Microseconds of each call until it returns, medians of samples taken in turns."""
    for call in cases.values():
        for _ in range(200):
            call()
    samples: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(60):
        for name, call in cases.items():
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(50):
                call()
            samples[name].append((time.perf_counter() - begin) / 50 * 1e6)
    return {name: round(statistics.median(found), 2) for name, found in samples.items()}


def measured(
    name: str, widths: tuple[int, ...], counts: tuple[int, ...], folder: Path, seconds: float
) -> Iterator[dict[str, Any]]:
    """One record for each width and row count; "compile" is missing once ``seconds`` are over."""
    family, end = FAMILIES[name], time.monotonic() + seconds
    for width in widths:
        modules = modules_of(family, width, folder)
        other = liger() if name == "add_norm" else None
        plain = modules_of(PLAIN, width, folder) if name != "add_norm" else None
        for rows in counts:
            sets = inputs(family, rows, width)
            adds = family.parts.adds and family.parts.output_norm is None
            checked(modules.ours, modules.in_torch, sets[0], adds=adds)
            size = rows * width * (family.read + family.written)
            cells = {"copy": copied(rows, width, family)}
            cells["ours"] = timed(modules.ours, sets, launches_for(size))
            if other is not None:
                cells["liger"] = timed(other, sets, launches_for(size))
            if time.monotonic() < end:
                torch._dynamo.reset()
                compiled = torch.compile(modules.in_torch, dynamic=False)
                cells["compile"] = timed(compiled, sets, launches_for(size))
            del sets
            if plain is not None:
                cells["add_norm"] = timed_plain(plain.ours, rows, width)
            if plain is not None and family.parts.quantize is None and family.share != 1:
                more = max(1, round(rows * family.share))
                cells["same_bytes"] = timed_plain(plain.ours, more, width)
            if plain is not None and name == "sandwich":
                twice = partial(two_reductions, warps=plain.kernels._ADD_RMS_NORM.warps)
                cells["two_reductions"] = timed_plain(twice, rows, width)
            yield {"width": width, "rows": rows, **{k: round(v, 3) for k, v in cells.items()}}
            torch.cuda.empty_cache()


def timed_plain(plain: Case, rows: int, width: int) -> float:
    """Microseconds of the plain kernel."""
    return timed(plain, inputs(PLAIN, rows, width), launches_for(rows * width * 8))


def chosen(text: str | None, otherwise: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes that an option lists, or those that are measured without it."""
    return tuple(map(int, text.split(","))) if text else otherwise


def main() -> int:
    """Measures one family and writes its file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--family", choices=FAMILIES, required=True)
    parser.add_argument("--widths", help="instead of those of the family")
    parser.add_argument("--rows", help="instead of those of the family")
    parser.add_argument("--seconds", type=float, default=400, help="for torch.compile")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    asked = parser.parse_args()

    records = []
    with tempfile.TemporaryDirectory() as folder:
        family = FAMILIES[asked.family]
        if family.kernel.startswith("hyper"):
            from benchmarks import hyper

            sizes = chosen(asked.widths, hyper.WIDTHS), chosen(asked.rows, hyper.ROWS)
            found = hyper.measured(family, *sizes, Path(folder))
        else:
            sizes = chosen(asked.widths, WIDTHS), chosen(asked.rows, ROWS)
            found = measured(asked.family, *sizes, Path(folder), asked.seconds)
        for record in found:
            print(record, flush=True)
            records.append(record)
        if family.kernel.startswith("hyper"):
            host = hyper.host_cost(family, 4096, Path(folder))
        else:
            host = host_cost(family, modules_of(family, 4096, Path(folder)).kernels, 4096)
    print(host)
    import triton

    result = {
        "family": asked.family,
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "command": command(parser, asked),
        "host": host,
        "cells": records,
    }
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / f"{asked.family}.json").write_text(json.dumps(result, indent=1) + "\n")
    return 0


def command(parser: argparse.ArgumentParser, asked: argparse.Namespace) -> str:
    """What was asked for, without the folder of results."""
    own = {name: value for name, value in vars(asked).items() if value != parser.get_default(name)}
    words = [f"--{name} {value}" for name, value in own.items() if name != "out"]
    return f"python -m benchmarks.kernels {' '.join(words)}"


if __name__ == "__main__":
    sys.exit(main())
