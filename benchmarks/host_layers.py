"""The decoder layers whose host time `benchmarks.host` measures: generated ones and hand-written.

Compute is free: attention and FFN hand back what they are given. Collectives are free too: a null
group returns tensors of the right shape and sends nothing.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import Tensor

from boundaryc.runtime import MappedGroups, SingleGroups

ROOT = Path(__file__).resolve().parent.parent
LAYERS = 36
EPS = 1e-6


@dataclass(frozen=True, slots=True)
class Case:
    """One stack on one topology: which example, which FFN its layers have, what a layer sends."""

    name: str
    stack: str
    ffn: str
    topology: str
    sums: bool = False
    moves: bool = False

    @property
    def data_parallel(self) -> int:
        """Number of attention DP groups."""
        return 4 if self.topology.endswith("dp4") else 1


CASES = (
    Case("dense tp1", "qwen3", "mlp", "tp1"),
    Case("dense tp4", "qwen3", "mlp", "tp4", sums=True),
    Case("dense tp4 attn_dp4", "qwen3", "mlp", "tp4_dp4", moves=True),
    Case("moe tp1", "qwen3_moe", "experts", "tp1"),
    Case("moe tp4", "qwen3_moe", "experts", "tp4", sums=True),
    Case("moe tp4 attn_dp4", "qwen3_moe", "experts", "tp4_dp4"),
)


def compiled(folder: Path, width: int) -> None:
    """Compiles the two examples into ``folder``, with `LAYERS` layers of ``width`` columns."""
    for name in ("qwen3", "qwen3_moe"):
        text = (ROOT / f"examples/{name}/stack.yaml").read_text()
        text = text.replace("count: 4", f"count: {LAYERS}")
        text = text.replace("hidden_size: 64", f"hidden_size: {width}")
        source = folder / f"{name}.yaml"
        source.write_text(text)
        command = (sys.executable, "-m", "boundaryc", "compile", "-q", source, "--out", folder)
        subprocess.run(command, cwd=ROOT, check=True)


class Norm:
    """A norm's weight."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight


class NullGroup:
    """Four ranks that send nothing: ``whole`` are the rows of all of them, ``own`` of this one."""

    rank, size = 0, 4

    def __init__(self, whole: Tensor, own: Tensor) -> None:
        self.whole, self.own = whole, own

    def all_reduce(self, x: Tensor) -> Tensor:
        """``x`` itself."""
        return x

    def all_gather(self, x: Tensor, sizes: tuple[int, ...] | None = None) -> Tensor:
        """The rows of all."""
        return self.whole

    def reduce_scatter(self, x: Tensor, sizes: tuple[int, ...] | None = None) -> Tensor:
        """This rank's rows."""
        return self.own


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """What a person writes for the norm."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + EPS)
    return (wide * weight).to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """What a person writes for the norm of a sum, and that sum."""
    wide = x.float() + residual  # torch widens it
    normed = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + EPS)
    return (normed * weight).to(x.dtype), wide.to(residual.dtype)


def null_norm(x: Tensor, weight: Tensor) -> Tensor:
    """A norm that does no work."""
    return x


def null_add_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Another one."""
    return x, residual


Norms = tuple[Callable[..., Tensor], Callable[..., tuple[Tensor, Tensor]]]
Forward = Callable[[], tuple[Tensor, Tensor]]

HAND_WRITTEN: Norms = (rms_norm, add_rms_norm)
NULL: Norms = (null_norm, null_add_norm)


class Subject:
    """One case, generated and hand-written, on the same tensors; ``folder`` as `compiled` left it.

    All forwards start at ``x`` [tokens, width] and end with the last FFN's output, whose update has
    not run, and the residual.
    """

    def __init__(self, case: Case, folder: Path, width: int, tokens: int) -> None:
        torch.manual_seed(7)
        self.case, dtype = case, torch.bfloat16
        self.x = torch.randn(tokens, width).to(dtype)
        whole = torch.randn(tokens * case.data_parallel, width).to(dtype)
        self.group = NullGroup(whole, torch.randn(tokens, width).to(dtype))
        names = ("tp", "attn_tp", "attn_dp")
        null = MappedGroups(0, dict.fromkeys(names, self.group))
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
        package = importlib.import_module(case.stack)
        stack = package.load(case.topology, SingleGroups() if case.topology == "tp1" else null)
        self.stack = stack
        # The first layer of the MoE is a dense one: of both stacks it is left out.
        weights = [[torch.rand(width).to(dtype) for _ in "ab"] for _ in range(LAYERS)]
        self.weights = weights
        self.layers = []
        for index, (first, second) in enumerate(weights):
            unbound = stack.layer(index)
            ffn = case.ffn if hasattr(unbound, case.ffn) else "mlp"
            bound = unbound.bind(**{"attention": Norm(first), ffn: Norm(second)})
            self.layers.append((bound.attention, getattr(bound, ffn)))
        rows = [tokens] * case.data_parallel
        self.batch = stack.batch(rows_per_dp=rows, padding="max_len", mode="decode")
        self.modules = self._modules(package)

    def _modules(self, package: ModuleType) -> list[ModuleType]:
        """Every generated module of the topology that calls a norm."""
        prefix = f"{package.__name__}.{self.case.topology}."
        found = [module for name, module in sys.modules.items() if name.startswith(prefix)]
        return [module for module in found if hasattr(module, "add_rms_norm")]

    def norms(self) -> Norms:
        """The row-wise operations that the compiler wrote for this stack."""
        module = importlib.import_module(f"{self.case.stack}.rowwise")
        return module.rms_norm, module.add_rms_norm

    def use(self, norms: Norms) -> None:
        """Has the generated boundaries call ``norms``."""
        for module in self.modules:
            vars(module).update(rms_norm=norms[0], add_rms_norm=norms[1])

    def generated(self) -> tuple[Tensor, Tensor]:
        """The layers through the generated boundaries."""
        batch, hidden = self.batch, self.x
        self.stack.start(batch)
        for attention, ffn in self.layers:
            hidden = attention.prepare(hidden, batch)
            hidden = attention.finish(hidden, batch)
            hidden = ffn.prepare(hidden, batch)
            with ffn.exit(batch) as out:
                pass
            hidden = out.finish(hidden)
        stream = batch.stream
        return stream.check(hidden), stream.residual

    def straight(self, norms: Norms) -> Forward:
        """The same as a loop that a person writes for this stack on this topology."""
        first_norm, add_norm = norms
        start, layers = self.weights[0], self.weights[1:]
        group, x = self.group, self.x
        sums, moves = self.case.sums, self.case.moves
        dense_first = self.case.stack == "qwen3_moe" and self.case.data_parallel > 1

        def plain() -> tuple[Tensor, Tensor]:
            residual = x
            hidden = first_norm(x, start[0])
            hidden, residual = add_norm(hidden, residual, start[1])
            if dense_first:
                hidden = group.reduce_scatter(group.all_gather(hidden))
            for one, two in layers:
                hidden, residual = add_norm(hidden, residual, one)
                hidden, residual = add_norm(hidden, residual, two)
            return hidden, residual

        def summed() -> tuple[Tensor, Tensor]:
            residual = x
            hidden = first_norm(x, start[0])
            hidden = group.all_reduce(hidden)
            hidden, residual = add_norm(hidden, residual, start[1])
            for one, two in layers:
                hidden = group.all_reduce(hidden)
                hidden, residual = add_norm(hidden, residual, one)
                hidden = group.all_reduce(hidden)
                hidden, residual = add_norm(hidden, residual, two)
            return hidden, residual

        def moved() -> tuple[Tensor, Tensor]:
            residual = x
            hidden = first_norm(x, start[0])
            hidden, residual = add_norm(hidden, residual, start[1])
            hidden = group.all_gather(hidden)
            for one, two in layers:
                hidden = group.reduce_scatter(hidden)
                hidden, residual = add_norm(hidden, residual, one)
                hidden, residual = add_norm(hidden, residual, two)
                hidden = group.all_gather(hidden)
            return group.reduce_scatter(hidden), residual  # the last sum is finished by its exit

        return summed if sums else moved if moves else plain

    def calls(self) -> Counter[str]:
        """The Python functions that one layer in the middle of the stack calls, by name."""
        batch, hidden, at = self.batch, self.x, LAYERS // 2
        self.stack.start(batch)
        names: Counter[str] = Counter()

        def watch(frame: FrameType, event: str, _: Any) -> None:
            code = frame.f_code
            if event == "call":
                names[f"{Path(code.co_filename).name}:{code.co_qualname}"] += 1

        for index, (attention, ffn) in enumerate(self.layers):
            if index == at:
                sys.setprofile(watch)
            hidden = attention.prepare(hidden, batch)
            hidden = attention.finish(hidden, batch)
            hidden = ffn.prepare(hidden, batch)
            with ffn.exit(batch) as out:
                pass
            hidden = out.finish(hidden)
            if index == at:
                sys.setprofile(None)
        return names
