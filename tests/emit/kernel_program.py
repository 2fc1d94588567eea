"""Runs a generated `kernels.py` on whatever device there is, and compares; exits 1 on a difference.

Its own process because Triton decides at import whether it interprets. Arguments: the file, and 1
if the norm is to see the rounded sum; then perhaps row counts in place of the usual ones, and
dtypes by name. It needs torch, Triton and `boundaryc.runtime` alone.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from boundaryc import runtime

ROWS = (0, 1, 3, 17)
SCALE = 0.22
OTHER = {"eps": 0.25, "offset": -0.5, "rounded": True, "output_eps": 0.5, "output_offset": 0.25}
"""What a call says whose norm is not the stack's."""
ULP = {torch.float64: 2**-50, torch.float32: 2**-21, torch.float16: 2**-10, torch.bfloat16: 2**-7}
"""Allowed error, relative to the value and at least 1: a unit in the last place or two."""
NORMS = ("biased_layer_norm", "layer_norm", "rms_norm")
DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


def main(path: str, rounded: bool, rows: tuple[int, ...], dtypes: list[torch.dtype]) -> None:
    """Compares every function for every dtype and row count."""
    if DEVICE == "cpu":
        _convert_exactly()
    spec = importlib.util.spec_from_file_location("kernels", path)
    assert spec is not None
    assert spec.loader is not None
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    offset = _number(getattr(kernels, "OFFSET", 0.0))
    own = {"eps": _number(kernels.EPS), "offset": offset, "rounded": rounded}
    own |= {f"output_{name}": own[name] for name in ("eps", "offset")}
    for kernel in every_kernel(kernels):
        if kernel.launcher.many is not None:
            kernel.launcher.many = kernel.launcher.many._replace(rows=3)  # both forms of a kernel
        given = {name: value for name, value in OTHER.items() if name in kernel.taken}
        for norm in (own, own | given)[: 1 + bool(given)]:
            for dtype in dtypes:
                for count in rows:
                    for weight_dtype in (dtype, torch.float32):
                        for indexed in (False, True)[: 1 + kernel.finalizes]:
                            compare(kernel, count, dtype, weight_dtype, norm, indexed=indexed)
        refuses(kernel)
        if kernel.name == "add_rms_norm" and rows == ROWS:
            drifts_not(kernel)
            if offset == 1:
                adds_in_float32(kernel)
        sys.stdout.write(f"{kernel.name} agrees\n")


class Kernel:
    """A function of the module, and what its name says that it does."""

    def __init__(self, kernels: Any, name: str) -> None:
        self.name, self.call, self.width = name, getattr(kernels, name), kernels.WIDTH.value
        self.finalizes = name.startswith("finalize")
        first, adds, rest = f"_{name}".removeprefix("_finalize").partition("_add")
        self.launcher = vars(kernels)[f"_{name.upper()}"]
        self.adds, self.static = bool(adds), "static" in name
        self.addition = "_addition" in rest
        self.output_norm = first[1:] if adds and first != "_scaled" else ""
        self.norm = next((kind for kind in NORMS if kind in (rest if adds else name)), "")
        self.format = next((form for form in ("fp8", "int8") if form in name), "")
        self.grouped, self.keeps = "group128" in name, "and_norm" in name
        self.taken = inspect.signature(self.call).parameters
        kinds = (self.output_norm, self.norm)
        self.params = sum(1 + ("biased" in kind) for kind in kinds if kind)


def every_kernel(kernels: Any) -> Iterator[Kernel]:
    """All that the module has."""
    for name in sorted(vars(kernels)):
        if f"_{name.upper()}_OPERATOR" in vars(kernels):
            yield Kernel(kernels, name)


def _number(constant: Any) -> float:
    return float(getattr(constant, "value", constant))


def adds_in_float32(kernel: Kernel) -> None:
    """1 + 2**-8 has no bfloat16, which is what the weight is."""
    ones = torch.ones(1, kernel.width, device=DEVICE)
    weight = torch.full((kernel.width,), 2.0**-8, dtype=torch.bfloat16, device=DEVICE)
    found = kernel.call(ones, ones, weight, eps=1e-30)[0]
    assert found.unique().tolist() == [1 + 2.0**-8]


def drifts_not(kernel: Kernel) -> None:
    """72 additions in bfloat16: the mean signed error is within half a per cent of float64."""
    generator = torch.Generator().manual_seed(2)
    weight = torch.ones(kernel.width, device=DEVICE)
    exact = torch.zeros(17, kernel.width, dtype=torch.float64, device=DEVICE)
    residual = exact.to(torch.bfloat16)
    for _ in range(72):
        x = torch.rand(exact.shape, generator=generator).to(torch.bfloat16).to(DEVICE)
        residual = kernel.call(x, residual, weight)[-1]
        exact += x.double()
    error = ((residual.double() - exact) / exact).mean().item()
    assert abs(error) < 0.005, error


def compare(
    kernel: Kernel,
    rows: int,
    dtype: torch.dtype,
    weight_dtype: torch.dtype,
    norm: dict[str, Any],
    *,
    indexed: bool,
) -> None:
    """One shape; inputs are parts of larger tensors, so their rows are further apart.

    ``indexed``: rows of experts are where an index says, and a shared one is added to them.
    """
    generator, width = torch.Generator().manual_seed(rows), kernel.width
    wide = torch.randn(2, rows + 1, width + 3, generator=generator, dtype=torch.float64)
    x, residual = (part[1:, :width].to(dtype).to(DEVICE) for part in wide)
    if not kernel.adds:
        x = wide[0].to(dtype).to(DEVICE)[1:, :width]
    drawn = (torch.randn(width, generator=generator, dtype=torch.float64) for _ in range(4))
    params = [param.to(weight_dtype).to(DEVICE) for param in drawn][: kernel.params]
    step = torch.tensor(0.013, device=DEVICE)
    more = torch.randn(rows + 1, width + 3, generator=generator)[1:, :width].to(dtype).to(DEVICE)
    before = x.clone(), residual.clone(), more.clone()

    lead: list[Any] = experts(rows, width, dtype, indexed) if kernel.finalizes else [x]
    rowwise = [*[residual] * kernel.adds, *[more] * kernel.addition]
    tensors = [*lead, *rowwise, *params, *([step] if kernel.static else [])]
    scale = SCALE if "scale" in kernel.taken else 1.0
    own = {name: norm[name] for name in kernel.taken if name in norm}
    own |= {"scale": scale} if "scale" in kernel.taken else {}
    poison(kernel, rows, dtype)
    found = kernel.call(*tensors, **own)
    results = [found] if isinstance(found, Tensor) else list(found)
    contribution, left, stored = x, list(params), x
    if kernel.finalizes:
        contribution = runtime.finalize(*lead)
        close(contribution, finalized(*lead), dtype)
        if not kernel.adds:
            assert torch.equal(results[0], contribution), "not the bits of the torch path"
    if kernel.output_norm:
        exact, left = normed(kernel.output_norm, x.double(), left, norm, "output_")
        contribution = exact.to(dtype)
    exact = contribution.double()
    if kernel.adds:
        exact = exact * scale + residual.double()
        stored = total = results.pop()
        wanted = runtime.add(contribution, residual, scale if scale != 1 else None)
        if kernel.addition:
            exact, wanted = wanted.double() + more.double(), runtime.add(more, wanted)
        if not (kernel.addition and kernel.output_norm):  # two roundings, one of them of a norm
            close(total, exact, dtype)
        same(total, wanted, exactly=not kernel.output_norm)
        # A norm of the contribution may have been rounded the other way; then go on from there.
        seen = torch.where(total == wanted, exact, total.double())
        rounded = norm["rounded"] or kernel.addition
        exact = total.double() if rounded or not kernel.norm else seen
    if kernel.norm:
        exact, _ = normed(kernel.norm, exact, left, norm)
        stored = None
        if not kernel.format or kernel.keeps:
            stored = results[-1]
            close(stored, exact, dtype)
    if kernel.format:
        quantised(kernel, results, exact, step, stored, ULP[dtype])
    assert torch.equal(x, before[0]), "x was overwritten"
    assert torch.equal(residual, before[1]), "residual was overwritten"
    assert torch.equal(more, before[2]), "the addition was overwritten"


def experts(rows: int, width: int, dtype: torch.dtype, indexed: bool) -> list[Any]:
    """Rows of three experts a token, their weights, and where they are; what is not used is NaN."""
    generator = torch.Generator().manual_seed(rows)
    gates = torch.rand(rows, 3, generator=generator).to(DEVICE)
    wide = torch.randn(3 * rows + 5, width + 3, generator=generator, dtype=torch.float64)
    wide = wide.to(dtype).to(DEVICE)
    if not indexed:
        return [wide[5:, :width], gates, None, None]
    index = torch.randperm(3 * rows + 4, generator=generator)[: 3 * rows].view(rows, 3).to(DEVICE)
    gates[1::2, 1] = torch.nan
    used = index.clone()
    used[1::2, 1] = -1
    unused = torch.ones(3 * rows + 4, dtype=torch.bool, device=DEVICE)
    unused[used[used >= 0]] = False
    wide[1:][unused] = torch.nan
    wide[0] = torch.nan  # where -1 would be
    shared = torch.randn(rows, width, generator=generator).to(dtype).to(DEVICE)
    return [wide[1:, :width], gates, used.to(torch.int32), shared]


def finalized(x: Tensor, gates: Tensor, index: Tensor | None, shared: Tensor | None) -> Tensor:
    """The sum of what experts have, in float64."""
    places = torch.arange(x.shape[0], device=DEVICE).view(gates.shape) if index is None else index
    held = (places >= 0).unsqueeze(2)
    parts = torch.where(held, x.double()[places.clamp(min=0).long()] * gates.unsqueeze(2), 0.0)
    total = parts.sum(dim=1)
    return total if shared is None else total + shared.double()


def same(total: Tensor, wanted: Tensor, *, exactly: bool) -> None:
    """Fails where a sum is not the torch path's.

    ``exactly`` False: what was added is a norm, in which float32 may round a few values of 16 bits
    the other way than float64.
    """
    differ = int((total != wanted).sum())
    few = total.numel() if total.dtype.itemsize > 2 else 1 + total.numel() // 500
    assert differ <= (0 if exactly else few), f"{differ} of {total.numel()} sums differ"


def poison(kernel: Kernel, rows: int, dtype: torch.dtype) -> None:
    """Fills memory that results may be given with what is none of them."""
    held = [torch.full((rows, kernel.width), torch.nan, dtype=dtype, device=DEVICE) for _ in "123"]
    del held


def quantised(
    kernel: Kernel,
    results: list[Tensor],
    exact: Tensor,
    step: Tensor,
    stored: Tensor | None,
    ulp: float,
) -> None:
    """Near what was quantised in float64, and exactly what torch makes where that is ``stored``."""
    values, scales = results[0], step if kernel.static else results[1]
    numbers = runtime.dequantize(values, scales)
    largest = 448.0 if kernel.format == "fp8" else 127.0
    spread = (
        scales
        if scales.dim() == 0
        else scales.repeat_interleave(kernel.width // scales.shape[1], dim=1)
    )
    wanted = exact.clamp(-largest * spread, largest * spread)
    unit = spread * (2**-10 if kernel.format == "fp8" else 0.5)
    near = unit + wanted.abs() * (2**-4 if kernel.format == "fp8" else 0.0)
    error = (numbers.double() - wanted).abs() - near * 1.01 - ulp * exact.abs().clamp(min=1)
    assert not error.numel() or error.max().item() <= 0, (kernel.name, error.max().item())
    if stored is None:
        return
    if kernel.format == "int8":
        torch_values, torch_scales = runtime.quantize_int8(stored)
    elif kernel.static:
        torch_values, torch_scales = runtime.quantize_fp8(stored, "static", step)
    else:
        by = "group128" if kernel.grouped else "token"
        torch_values, torch_scales = runtime.quantize_fp8(stored, by)
    assert torch.equal(scales, torch_scales), "scales are not the torch path's"
    same = values.view(torch.uint8) == torch_values.view(torch.uint8)
    assert bool(same.all()), f"{kernel.name}: {int((~same).sum())} values are not the torch path's"


def normed(
    kind: str, x: Tensor, params: list[Tensor], norm: dict[str, Any], of: str = ""
) -> tuple[Tensor, list[Tensor]]:
    """The norm in float64, and the parameters that are left."""
    if "layer" in kind or "biased" in kind:
        x = x - x.mean(-1, keepdim=True)
    factor, *params = params
    wide = factor.double() + norm[f"{of}offset"]
    found = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + norm[f"{of}eps"]) * wide
    if "biased" not in kind:
        return found, params
    return found + params[0].double(), params[1:]


def close(found: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Fails where a value is further off than its dtype explains."""
    assert found.dtype == dtype
    assert found.shape == expected.shape
    error = (found.double() - expected).abs() / expected.abs().clamp(min=1)
    assert not error.numel() or error.max().item() <= ULP[dtype], (dtype, error.max().item())


def refuses(kernel: Kernel) -> None:
    """Wrong shapes are errors, not reads past the end; so is a scale that is none."""
    weight = torch.ones(kernel.width, device=DEVICE)
    wrong = torch.ones(2, kernel.width + 1, device=DEVICE)
    right = torch.ones(2, kernel.width, device=DEVICE)
    params = [weight] * kernel.params
    step = [torch.ones((), device=DEVICE)] * kernel.static
    others = kernel.adds + kernel.addition
    if kernel.finalizes:
        refuses_experts(kernel, [*[right] * others, *params, *step])
        return
    cases = [
        [wrong, *[wrong] * others, *params, *step],
    ]
    if params:
        cases.append([right, *[right] * others, *params[1:], weight[1:], *step])
    if kernel.adds:
        cases.append([right, *[right] * (others - 1), right[1:], *params, *step])
    if kernel.static:
        cases.append([right, *[right] * others, *params, torch.ones(1, device=DEVICE)])
    refused(kernel, cases)


def refuses_experts(kernel: Kernel, rest: list[Tensor]) -> None:
    """The same of rows of experts for two tokens; ``rest`` is right."""
    rows, gates = torch.ones(6, kernel.width, device=DEVICE), torch.ones(2, 3, device=DEVICE)
    index = torch.zeros(2, 3, dtype=torch.int64, device=DEVICE)
    kernel.call(rows, gates, index, rows[:2], *rest)
    cases = [
        [rows[1:], gates, None, None],
        [rows, gates.to(torch.bfloat16), None, None],
        [rows, gates, index[:, 1:], None],
        [rows, gates, gates, None],
        [rows, gates, None, rows],
        [rows[:, 1:], gates, index, None],
        [rows[:, 1:].contiguous(), gates, index, None],
    ]
    if kernel.adds:
        cases.append([rows, gates[1:], index[1:], None])
    refused(kernel, [[*case, *rest] for case in cases])


def refused(kernel: Kernel, cases: list[list[Any]]) -> None:
    """Fails where one of ``cases`` is not."""
    for case in cases:
        try:
            kernel.call(*case)
        except ValueError:
            continue
        raise AssertionError(f"{kernel.name} accepted a wrong shape")


def _convert_exactly() -> None:
    """Rounds float32 as torch does: the interpreter loses the carry out of a mantissa.

    Until Triton 3.7 or later it also rounds what it multiplies before it adds.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    def fused(_: Any, x: Any, y: Any, z: Any) -> Any:
        exact = x.data.astype(np.float64) * y.data + z.data
        return interpreter.TensorHandle(exact.astype(x.data.dtype), x.dtype.scalar)

    if not hasattr(interpreter._interpreter, "fma_fp32"):
        interpreter.InterpreterBuilder.create_fma = fused
    theirs = interpreter._convert_float
    exact = {
        tl.float8e4nv: (torch.float8_e4m3fn, torch.uint8),
        tl.bfloat16: (torch.bfloat16, torch.uint16),
    }

    def convert(data: Any, source: Any, target: Any, mode: Any) -> Any:
        if source != tl.float32 or target not in exact:
            return theirs(data, source, target, mode)
        dtype, bits = exact[target]
        rounded = torch.from_numpy(np.ascontiguousarray(data)).to(dtype)
        return rounded.view(bits).numpy()

    interpreter._convert_float = convert


if __name__ == "__main__":
    counts = tuple(int(count) for count in sys.argv[3].split(",")) if len(sys.argv) > 3 else ROWS
    kinds = [getattr(torch, name) for name in sys.argv[4].split(",")] if len(sys.argv) > 4 else ULP
    main(sys.argv[1], sys.argv[2] == "1", counts, list(kinds))
