"""What the runtime's tests run on real ranks."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from boundaryc.runtime import (
    BoundaryError,
    Collective,
    GroupProvider,
    Mesh,
    Sizes,
    TorchGroups,
)
from boundaryc.runtime.handshake import CHECK_VARIABLE
from boundaryc.runtime.trace import TRACE_VARIABLE
from tests.runtime import sample
from tests.runtime.model import LAYERS, WIDTH, Norm, Weights


@cache
def groups(stage_size: int | None) -> TorchGroups:
    """The groups of this process, made once."""
    return TorchGroups(stage_size=stage_size)


def piece(rank: int, rows: int, tail: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Numbers that no other rank has."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randn((rows, *tail), generator=generator, dtype=torch.float64).to(dtype)


def strided(x: Tensor) -> Tensor:
    """The same numbers in storage that is not contiguous."""
    return torch.stack([x, x], dim=-1)[..., 0]


def call(
    rank: int,
    mesh: Mesh,
    axes: tuple[str, ...],
    method: str,
    rows: Sequence[int],
    sizes: Sizes | None,
    options: dict[str, Any],
) -> tuple[Tensor, int, int]:
    """One collective on this rank's piece of ``rows[rank]`` rows; its result, rank and size."""
    stage_size = options.get("stage_size")
    collective = groups(stage_size).collective(mesh, axes)
    x = piece(rank, rows[rank], options.get("tail", (3,)), options.get("dtype", torch.float64))
    if options.get("strided"):
        x = strided(x)
    if method == "all_reduce":
        result = collective.all_reduce(x)
    elif method == "all_gather":
        result = collective.all_gather(x, sizes)
    else:
        result = collective.reduce_scatter(x, sizes)
    # fp8 has no arithmetic: compare it as the numbers it stands for.
    return result.to(torch.float64), collective.rank, collective.size


class Recorder:
    """A collective that writes down what it is asked for."""

    def __init__(self, collective: Collective, label: str, log: list[str]) -> None:
        self._collective = collective
        self._label = label
        self._log = log
        self.rank = collective.rank
        self.size = collective.size

    def all_reduce(self, x: Tensor) -> Tensor:
        """As the wrapped one."""
        self._log.append(f"all_reduce({self._label})")
        return self._collective.all_reduce(x)

    def all_gather(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """As the wrapped one."""
        self._log.append(f"all_gather({self._label})")
        return self._collective.all_gather(x, sizes)

    def reduce_scatter(self, x: Tensor, sizes: Sizes | None = None) -> Tensor:
        """As the wrapped one."""
        self._log.append(f"reduce_scatter({self._label})")
        return self._collective.reduce_scatter(x, sizes)


class RecordingGroups:
    """Groups whose collectives write into one log."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._groups = groups(None)
        self.rank = self._groups.rank

    def collective(self, mesh: Mesh, axes: tuple[str, ...]) -> Collective:
        """The real group, recorded."""
        return Recorder(self._groups.collective(mesh, axes), mesh.label(axes), self.log)


def forward(
    rank: int, policy: str, tokens: Sequence[int], padding: Any, fail_first: bool
) -> tuple[Tensor, list[str], list[tuple[bool, bool]]]:
    """The sample's forward on one rank: real output rows, its collectives and its exits' flags."""
    provider = RecordingGroups()
    stack = sample.load("tp4_dp2", provider, policy=policy)
    batch = stack.batch(rows_per_dp=tokens, padding=padding, mode="prefill")
    model = Model(stack, rank)
    if fail_first:
        fail(model, batch)
        provider.log.clear()
    output, flags = model.forward(batch)
    assert batch.exit is None
    return output[: batch.real_rows], provider.log, flags


def fail(model: Model, batch: Any) -> None:
    """A forward whose first FFN raises."""
    try:
        model.forward(batch, failing=True)
    except ZeroDivisionError:
        return
    raise AssertionError("the seeded failure did not happen")


class Model:
    """Linear stages whose partial sums differ by rank, row and stage."""

    def __init__(self, stack: Any, rank: int) -> None:
        self.stack = stack
        self.rank = rank
        self.weights = Weights()
        self.layers = []
        for index in range(LAYERS):
            first, second = Norm(self.weights.norms[index, 0]), Norm(self.weights.norms[index, 1])
            layer = stack.layer(index)
            bound = (
                layer.bind(attention=first, mlp=second)
                if index == 0
                else layer.bind(attention=first, experts=second)
            )
            self.layers.append((bound.attention, bound.mlp if index == 0 else bound.experts))

    def forward(self, batch: Any, failing: bool = False) -> tuple[Tensor, list[tuple[bool, bool]]]:
        """The final norm's rows of this rank, and the flags of every exit."""
        flags = []
        self.stack.start(batch)
        dp, tp = divmod(self.rank, 2)
        real = self.weights.embed(dp, batch.real_rows)
        padding = real.new_zeros((batch.local_rows - batch.real_rows, WIDTH))
        hidden: Any = torch.cat([real, padding])
        for index, (attention, ffn) in enumerate(self.layers):
            hidden = attention.prepare(hidden, batch)
            hidden = attention.finish(hidden @ self.weights.attention[index, tp], batch)
            hidden = ffn.prepare(hidden, batch)
            with ffn.exit(batch) as out:
                assert batch.exit is out
                if failing:
                    raise ZeroDivisionError
                hidden = out.reduce_output(hidden @ self.weights.ffn[index, self.rank])
            flags.append((out.fuse_mlp_allreduce, out.mlp_reduce_scatter))
            hidden = out.finish(hidden)
        return self.stack.norm(hidden, batch, Norm(self.weights.final)), flags


def wrong_sizes(rank: int) -> list[str]:
    """The texts of what a group refuses before it communicates."""
    mesh = Mesh((("attn_tp", 4, "attn_tp"),))
    group = groups(None).collective(mesh, ("attn_tp",))
    texts = []
    for call_group in (
        lambda: group.all_gather(torch.zeros(2, 3), (1, 1, 1, 1)),
        lambda: group.reduce_scatter(torch.zeros(6, 3)),
        lambda: group.reduce_scatter(torch.zeros(6, 3), (1, 1, 1, 1)),
        lambda: groups(None).collective(Mesh((("attn_tp", 2, "attn_tp"),)), ("attn_tp",)),
        lambda: TorchGroups(stage_size=3),
    ):
        try:
            call_group()
        except ValueError as error:
            texts.append(str(error))
        except BoundaryError:
            texts.append("BoundaryError")
    return texts


def traced(rank: int, folder: str) -> tuple[list[str], str]:
    """A forward with the trace asked for; its collectives as seen below the trace."""
    os.environ[TRACE_VARIABLE] = folder
    try:
        provider = RecordingGroups()
        stack = sample.load("tp4_dp2", provider, policy="rsv")
    finally:
        del os.environ[TRACE_VARIABLE]
    batch = stack.batch(rows_per_dp=[2, 5], padding="sum_len", mode="prefill")
    Model(stack, rank).forward(batch)
    return provider.log, type(stack.groups.tp).__name__


class _Other(sample.tp4_dp2.Stack):
    """The sample, generated from something else."""

    __module__ = sample.tp4_dp2.Stack.__module__
    manifest_hash = "sha256:other"


class _Smaller(sample.tp4_dp2.Stack):
    """The sample on a topology of fewer ranks."""

    __module__ = sample.tp4_dp2.Stack.__module__
    topology = "tp2"
    mesh = Mesh((("attn_tp", 2, "attn_tp"),))


def checked(rank: int, odd: int, what: str) -> tuple[str, float]:
    """What rank ``odd`` alone does differently while handshakes are on; the error, and seconds."""
    began = time.monotonic()
    os.environ[CHECK_VARIABLE] = "1"
    try:
        _load_and_start(groups(None), what if rank == odd else "nothing")
    except BoundaryError as error:
        return str(error), time.monotonic() - began
    finally:
        del os.environ[CHECK_VARIABLE]
    return "", time.monotonic() - began


def _load_and_start(provider: GroupProvider, what: str) -> None:
    kind = {"manifest": _Other, "topology": _Smaller}.get(what, sample.tp4_dp2.Stack)
    policy = {"policy": "rs", "unknown policy": "fast"}.get(what, "rsv")
    layers = range(1, 3) if what == "layers" else None
    stack = kind(provider, policy=policy, layers=layers)
    rows = [4, 4] if what == "rows" else [2, 5]
    mode: Any = "decode" if what == "mode" else "prefill"
    stack.start(stack.batch(rows_per_dp=[2, 5], padding="sum_len", mode="prefill"))
    stack.start(stack.batch(rows_per_dp=rows, padding="sum_len", mode=mode))
