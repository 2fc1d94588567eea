"""The part of a sublayer's output that one rank computes, from the Hugging Face module itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from examples.common.parallel import Parallel, Part
from examples.hf.architecture import Sublayer
from examples.hf.float64 import Float64
from examples.hf.reference import Reference

Weights = dict[str, Tensor]

KEPT = 5000
"""Results that are kept: ranks and runs of one model often compute on the same bits again."""

NOTHING = Part(1, 2**20)
"""A part without experts and columns."""


class Parts:
    """Computes with the sublayers of a model for all ranks of a process.

    What lies in front of an output projection is computed once for the same bits of its input,
    whichever rank or run they are of; each rank takes its own columns of it.
    """

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._kept: dict[tuple[object, ...], Tensor] = {}
        self._experts: dict[tuple[nn.Module, Part, Part], Weights] = {}

    def mixed(self, sublayer: Sublayer, sequence: int, x: Tensor, part: Part) -> Tensor:
        """The part of a mixer's output for all tokens ``x`` [tokens, width] of a sequence."""
        first, *others = (
            self._projected(one, sequence, x * one.takes, part) * one.times
            for one in sublayer.producers
        )
        return sum(others, start=first)

    def dense(self, sublayer: Sublayer, x: Tensor, part: Part) -> Tensor:
        """The part of an FFN's output for any rows ``x`` [rows, width]."""
        return self._projected(sublayer, -1, x, part)

    def experts(self, sublayer: Sublayer, x: Tensor, parallel: Parallel) -> Tensor:
        """The part of the output of a mixture of experts for any rows ``x`` [rows, width].

        A tail of its output is in none of the parts.
        """
        if not x.shape[0]:
            return torch.zeros_like(x)
        part = self._of_experts(sublayer.module, x, parallel.experts, parallel.expert_columns)
        return part - self.tail(sublayer, x) if sublayer.tail else part.clone()

    def tail(self, sublayer: Sublayer, x: Tensor) -> Tensor:
        """What every rank has of the output of a mixture of experts for any rows ``x``."""
        return self._of_experts(sublayer.module, x, NOTHING, NOTHING) if x.shape[0] else x

    def _of_experts(self, module: nn.Module, x: Tensor, own: Part, columns: Part) -> Tensor:
        weights = (module, own, columns)
        if weights not in self._experts:
            self._experts[weights] = _own_experts(module, own, columns)

        def compute() -> Tensor:
            with torch.inference_mode(), Float64():
                y = functional_call(module, self._experts[weights], (x[None],))
            return _first(y).reshape(x.shape)

        return self._once((*weights, _bits(x)), compute)

    def _projected(self, sublayer: Sublayer, sequence: int, x: Tensor, part: Part) -> Tensor:
        module = sublayer.module
        output = module.get_submodule(sublayer.output)
        assert isinstance(output, nn.Linear)
        if not x.shape[0]:
            return torch.zeros_like(x)
        features = self._once(
            (module, sequence, _bits(x)), lambda: self._before(module, output, sequence, x)
        )
        columns = _columns(output.in_features, part)
        bias = output.bias if part.index == 0 else None
        return F.linear(features[:, columns], output.weight[:, columns], bias)

    def _once(self, key: tuple[object, ...], compute: Callable[[], Tensor]) -> Tensor:
        """What was computed for the same key before, or is now."""
        if key not in self._kept:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[key] = compute()
        return self._kept[key]

    def _before(self, module: nn.Module, output: nn.Module, sequence: int, x: Tensor) -> Tensor:
        """What a module gives to its output projection, [rows, columns]."""
        args: tuple[Any, ...] = (x[None],)
        kwargs: dict[str, Any] = {}
        if sequence >= 0:
            args, kwargs = self._reference.calls[sequence, module]
            if "hidden_states" in kwargs:
                kwargs = {**kwargs, "hidden_states": x[None]}
            else:
                args = (x[None], *args[1:])
        seen: list[Tensor] = []
        hook = output.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        with torch.inference_mode(), Float64():
            module(*args, **kwargs)
        hook.remove()
        return seen[0].reshape(x.shape[0], -1)


def partial_embedding(embedding: nn.Module, given: Tensor, part: Part) -> Tensor:
    """A rank's part of what enters a stack: of a linear map's input columns, else of its own."""
    if isinstance(embedding, nn.Linear):
        own = part.cut(embedding.in_features, "columns")
        return F.linear(given[:, own], embedding.weight[:, own])
    whole: Tensor = embedding(given)
    own = part.cut(whole.shape[1], "columns")
    share = torch.zeros_like(whole)
    share[:, own] = whole[:, own]
    return share


def _own_experts(module: nn.Module, own: Part, columns: Part) -> Weights:
    """The output weights of a mixture of experts, zero where they are other ranks'.

    Of routed experts ``own`` are this rank's, and of these ``columns``. Shared experts are cut by
    columns over all ranks of both.
    """
    whole = Part(own.index * columns.count + columns.index, own.count * columns.count)
    found: Weights = {}
    for name, weight in module.named_parameters():
        owner = name.rpartition(".")[0]
        if name.endswith("down_proj") and weight.dim() == 3:
            kept = torch.zeros_like(weight)
            mine, cut = _columns(weight.shape[0], own), _columns(weight.shape[2], columns)
            kept[mine, :, cut] = weight[mine, :, cut]
            found[name] = kept
        elif owner.endswith("down_proj"):
            kept = torch.zeros_like(weight)
            if weight.dim() == 2:
                cut = _columns(weight.shape[1], whole)
                kept[:, cut] = weight[:, cut]
            elif whole.index == 0:
                kept.copy_(weight)
            found[name] = kept
    return found


def _columns(count: int, part: Part) -> slice:
    """Some of ``count`` columns; they need not divide evenly."""
    return slice(count * part.index // part.count, count * (part.index + 1) // part.count)


def _bits(x: Tensor) -> bytes:
    return x.cpu().contiguous().numpy().tobytes()


def _first(output: Any) -> Tensor:
    found: Tensor = output[0] if isinstance(output, tuple) else output
    return found
