"""The meaning of a stack, computed directly: one rank, float64, no planner and no topology.

Written from the definition of a decoder stack with residual operations: the residual starts as the
stack's input; every stage reads its input from the residual, computes, and its update adds the
contribution; the final norm reads what is left. Nothing is imported that plans or moves rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor

from boundaryc.language.model import NormSpec, OperationDecl, Stack, Stage
from boundaryc.verify.fixture import Fixture, Parameter, Place


@dataclass(frozen=True, slots=True)
class Reference:
    """What every stage of a forward must see, all tokens together in order.

    ``inputs`` and ``residuals`` [tokens, width] are for the moment at which the stage computes:
    what it computes on, and the stream behind it.
    """

    inputs: dict[Place, Tensor]
    residuals: dict[Place, Tensor]
    output: Tensor


def interpret(stack: Stack, fixture: Fixture, tokens: Tensor, requests: list[int]) -> Reference:
    """Runs ``stack`` on ``tokens`` [n, width], which belong to requests of the given lengths."""
    meaning = _Meaning(stack)
    residual = tokens.clone()
    inputs: dict[Place, Tensor] = {}
    residuals: dict[Place, Tensor] = {}
    for index, layer in enumerate(stack.layers):
        for name in layer:
            place, stage = Place(index, name), stack.stage(name)
            params = fixture.weights[place].params
            x = meaning.read(stage, residual, params)
            inputs[place], residuals[place] = x, residual
            contribution = torch.cat(
                [
                    fixture.contribution(place, part, mixes=stage.kind == "attention")
                    for part in x.split(requests)
                ]
            )
            contribution = meaning.transform(stage, contribution, params)
            residual = meaning.update(stage, contribution, residual, params)
    return Reference(inputs, residuals, rms_norm(residual, fixture.final, stack.norm))


def rms_norm(x: Tensor, weight: Tensor, norm: NormSpec) -> Tensor:
    """The rows x [rows, width], each over its root mean square, times the weight [width]."""
    return x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + norm.eps) * weight


class _Meaning:
    """Reads, transforms and updates by name, as their definitions say."""

    def __init__(self, stack: Stack) -> None:
        self._norm = stack.norm
        self._declared = {declared.name: declared for declared in stack.operations}

    def read(self, stage: Stage, residual: Tensor, params: dict[str, Tensor]) -> Tensor:
        if stage.read == "norm":
            return rms_norm(residual, params["norm"], self._norm)
        if stage.read == "raw":
            return residual
        return _call(self._declared[stage.read], params, residual)

    def update(
        self, stage: Stage, contribution: Tensor, residual: Tensor, params: dict[str, Tensor]
    ) -> Tensor:
        if stage.update == "add":
            return residual + contribution
        if stage.update == "scaled_add":
            assert stage.update_scale is not None
            return residual + stage.update_scale * contribution
        return _call(self._declared[stage.update], params, contribution, residual)

    def transform(self, stage: Stage, output: Tensor, params: dict[str, Tensor]) -> Tensor:
        declared = stage.transform
        if declared is None:
            return output
        if declared.name == "scale":
            assert declared.scale is not None
            return declared.scale * output
        if declared.name == "norm":
            return rms_norm(output, params["output_norm"], self._norm)
        return _call(self._declared[declared.name], params, output)


def _call(declared: OperationDecl, params: dict[str, Tensor], *values: Tensor) -> Tensor:
    module, _, name = declared.call.partition(":")
    function: Callable[..., Tensor] = getattr(import_module(module), name)
    return function(*values, *(Parameter(params[name]) for name in declared.params))
