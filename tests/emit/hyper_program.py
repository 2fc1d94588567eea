"""Runs a generated `hyper_kernels.py` on whatever device there is; exits 1 on a difference.

Its own process because Triton decides at import whether it interprets. Arguments: the file, row
counts and dtypes by name.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from kernel_program import DEVICE, ULP, _convert_exactly
from torch import Tensor

from boundaryc import runtime

OTHER = {"eps": 0.25, "offset": -0.5}
"""What a call says whose norm is not the stack's."""


@dataclass(frozen=True, slots=True)
class Hyper:
    """Parameters of a stage."""

    fn: Tensor
    base: Tensor
    scale: Tensor

    def to(self, dtype: torch.dtype) -> Hyper:
        """In another dtype."""
        return Hyper(self.fn.to(dtype), self.base.to(dtype), self.scale.to(dtype))


def main(path: str, rows: tuple[int, ...], dtypes: list[torch.dtype]) -> None:
    """Compares every function for every dtype and row count."""
    if DEVICE == "cpu":
        _convert_exactly()
    kernels = imported(path)
    for operator in sorted(name for name in vars(kernels) if name.endswith("_OPERATOR")):
        name = operator.removeprefix("_").removesuffix("_OPERATOR").lower()
        poison(kernels, f"_made_by_{name}")
        for dtype in dtypes:
            for count in rows:
                Case(kernels, name, count, dtype).compare()
        refuses(kernels, name)
        sys.stdout.write(f"{name} agrees\n")


def imported(path: str) -> Any:
    """The module."""
    spec = importlib.util.spec_from_file_location("hyper_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    kernels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernels)
    return kernels


def poison(kernels: Any, name: str) -> None:
    """Everything that is made has all bits set before it is written."""
    allocate: Callable[[Tensor], Any] = getattr(kernels, name)

    def filled(like: Tensor) -> Any:
        made = allocate(like)
        for part in made if isinstance(made, tuple) else (made,):
            part.view(torch.uint8).fill_(255)
        return made

    setattr(kernels, name, filled)


class Case:
    """One function with random arguments."""

    def __init__(self, kernels: Any, name: str, rows: int, dtype: torch.dtype) -> None:
        self.kernels, self.name, self.dtype = kernels, name, dtype
        self.n, self.width = kernels.STREAMS.value, kernels.WIDTH.value
        generator = torch.Generator().manual_seed(rows)

        def random(*sizes: int) -> Tensor:
            return torch.randn(*sizes, generator=generator, dtype=torch.float64).to(DEVICE)

        n, numbers = self.n, (2 + self.n) * self.n
        self.x = random(rows, self.width).to(dtype)
        self.residual = random(rows, n, self.width).to(dtype)
        self.mix, self.post = random(rows, n * n).float(), random(rows, n).float()
        fn = random(numbers, n * self.width) / (n * self.width) ** 0.5
        self.hyper = Hyper(fn, random(numbers), random(3).abs() + 0.5).to(torch.float32)
        self.weight, self.bias = random(self.width).float(), random(self.width).to(dtype)
        self.step = torch.tensor(0.013, device=DEVICE)

    def settings(self) -> dict[str, Any]:
        """Of a read."""
        own = self.kernels
        return {
            "iterations": own.ITERATIONS.value,
            "eps": own.BALANCE_EPS.value,
            "norm_eps": own.SHARED_EPS.value,
        }

    def compare(self) -> None:
        """Streams and the mixed row as torch makes them, coefficients near those in float64."""
        if self.name == "hyper_enter":
            found = self.kernels.hyper_enter(self.x)
            assert torch.equal(found, runtime.hyper_enter(self.x, streams=self.n))
            return
        given = [self.x, self.residual, self.mix, self.post]
        streams = self.residual
        if "update" in self.name:
            streams = runtime.hyper_update(*given)
        if self.name == "hyper_update":
            assert torch.equal(self.kernels.hyper_update(*given), streams), "the streams differ"
            return
        given = given if "update" in self.name else [self.residual]
        mean = "mean" in self.name
        given += [] if mean else [self.hyper.fn, self.hyper.base, self.hyper.scale]
        given += [self.weight, *([self.bias] if "biased" in self.name else [])]
        given += [self.step] if "static" in self.name else []
        own = OTHER if not isinstance(self.kernels.EPS, self.kernels.tl.constexpr) else {}
        if mean:
            mixed = runtime.hyper_mean(streams)
            found = [self.kernels.hyper_mean_rms_norm(*given, **own)]
        else:
            mixed, _ = runtime.hyper_read(streams, self.hyper, **self.settings())
            found = list(getattr(self.kernels, self.name)(*given, **own))
            self.coefficients(streams, found[-2:])
            found = self.with_own_coefficients(streams, given, own)
            found = found[:-2]
        if "update" in self.name:
            assert torch.equal(found.pop(), streams), "the streams differ"
        self.normed(found, mixed, own)

    def coefficients(self, streams: Tensor, found: list[Tensor]) -> None:
        """Those for the update, near those in float64."""
        wide = self.hyper.to(torch.float64)
        _, kept = runtime.hyper_read(streams.double(), wide, **self.settings())
        for one, other in zip(found, kept, strict=True):
            assert one.dtype == torch.float32
            torch.testing.assert_close(one.double(), other, rtol=2e-5, atol=2e-6)

    def with_own_coefficients(
        self, streams: Tensor, given: list[Tensor], own: dict[str, float]
    ) -> list[Tensor]:
        """The results with the weights of the mixed row as torch computes them."""
        n = self.n
        theirs = self.kernels._coefficients
        projected = runtime.hyper._projected(streams, self.hyper.fn, self.settings()["norm_eps"])
        pre = projected[:, :n] * self.hyper.scale[0] + self.hyper.base[:n]
        pre = torch.sigmoid(pre) + self.settings()["eps"]

        def coefficients(*given: Any) -> Tensor:
            computed = theirs(*given)
            torch.testing.assert_close(computed, pre, rtol=2e-5, atol=2e-6)
            return pre.contiguous()

        self.kernels._coefficients = coefficients
        found = list(getattr(self.kernels, self.name)(*given, **own))
        self.kernels._coefficients = theirs
        return found

    def normed(self, found: list[Tensor], mixed: Tensor, own: dict[str, float]) -> None:
        """The norm of the rounded row, but for its last place; what is quantised of it exactly."""
        offset = own.get("offset", _number(getattr(self.kernels, "OFFSET", 0.0)))
        eps = own.get("eps", _number(self.kernels.EPS))
        if "layer_norm" in self.name:
            bias = self.bias if "biased" in self.name else None
            wanted = runtime.layer_norm(mixed, self.weight, eps, offset, bias)
        else:
            wanted = runtime.rms_norm(mixed, self.weight, eps, offset)
        plain = found.pop() if "norm" in self.name.split("_and_")[-1] else None
        quantised = "fp8" in self.name or "int8" in self.name
        if plain is not None and (not quantised or self.name.endswith("_and_norm")):
            error = (plain.double() - wanted.double()).abs() / wanted.abs().clamp(min=1)
            assert not error.numel() or error.max().item() <= ULP[self.dtype], error.max()
            if self.dtype.itemsize == 2:  # or the last place depends on the order of the sum
                differ = (plain != wanted).sum().item()
                assert differ <= 2 + plain.numel() // 100, "the mixed row is not the torch path's"
            wanted = plain
        elif plain is not None:
            found.append(plain)
        if quantised:
            self.quantised(found, wanted, exact=self.name.endswith("_and_norm"))

    def quantised(self, found: list[Tensor], normed: Tensor, *, exact: bool) -> None:
        """As torch quantises the norm."""
        if "int8" in self.name:
            values, scales = runtime.quantize_int8(normed)
        elif "static" in self.name:
            values, scales = runtime.quantize_fp8(normed, "static", self.step)
        else:
            by = "group128" if "group128" in self.name else "token"
            values, scales = runtime.quantize_fp8(normed, by)  # type: ignore[arg-type]
        if "static" not in self.name:
            torch.testing.assert_close(found[1], scales, rtol=0 if exact else 2e-2, atol=0)
        wrong = (found[0].view(torch.uint8) != values.view(torch.uint8)).float().mean()
        assert wrong.nan_to_num() <= (0 if exact else 0.05), (self.name, wrong)


def _number(constant: Any) -> float:
    return float(getattr(constant, "value", constant))


def refuses(kernels: Any, name: str) -> None:
    """Another width is an error, not a read past the end."""
    case = Case(kernels, name, 2, torch.float32)
    case.x, case.residual = case.x[:, 1:], case.residual[..., 1:]
    given = [case.x, case.residual, case.mix, case.post]
    if name == "hyper_enter":
        given = given[:1]
    elif "update" not in name:
        given = given[1:2]
    if "read" in name:
        given += [case.hyper.fn, case.hyper.base, case.hyper.scale]
    if "norm" in name:
        given += [case.weight, *([case.bias] if "biased" in name else [])]
    given += [case.step] if "static" in name else []
    try:
        getattr(kernels, name)(*given)
    except ValueError:
        return
    raise AssertionError(f"{name} accepted a wrong shape")


if __name__ == "__main__":
    counts = tuple(int(count) for count in sys.argv[2].split(","))
    main(sys.argv[1], counts, [getattr(torch, name) for name in sys.argv[3].split(",")])
