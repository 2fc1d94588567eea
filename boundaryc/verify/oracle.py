"""The meaning of a stack, computed directly: one rank, float64, no planner and no topology.

Written from the definition of a decoder stack with residual operations: the residual starts as the
stack's input; every stage reads its input from the residual, computes, and its update adds the
contribution; the final norm reads what is left. The first stage of a branch computes on what was
read for the stage beside it; the outputs of that one and of the branch's last are added, and its
update adds them to the residual that the branch left. Nothing is imported that plans or moves rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from boundaryc.language.model import NormSpec, OperationDecl, Stack, Stage
from boundaryc.verify.fixture import Fixture, Parameter, Place, bias_beside
from boundaryc.verify.quantized import Quantized, quantized


@dataclass(frozen=True, slots=True)
class Reference:
    """What every stage of a forward must see, all tokens together in order.

    ``inputs`` and ``residuals`` [tokens, width] are for the moment at which the stage computes:
    what it computes on, and the stream behind it. ``outputs`` and ``updated`` are for the moment
    before it: the output that reaches it, and the residual with that output. The end of the stack
    is a place too, see `end`. A stage with a quantised input computes on what that stands for;
    ``quantized`` has its parts. ``sums`` and ``written`` are what each stage leaves: its output
    without a transform, and the residual with it and with what a model adds to it. ``shown`` is
    what captures take: the residual behind a stage's input without a post-residual addition.
    """

    inputs: dict[Place, Tensor]
    residuals: dict[Place, Tensor]
    outputs: dict[Place, Tensor]
    updated: dict[Place, Tensor]
    output: Tensor
    quantized: dict[Place, Quantized] = field(default_factory=dict)
    sums: dict[Place, Tensor] = field(default_factory=dict)
    written: dict[Place, Tensor] = field(default_factory=dict)
    shown: dict[Place, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Changes:
    """What a model does to the stream between stages, by the place before which it does so.

    ``extras`` are added to the output that is to be added to the residual, ``additions`` to the
    residual afterwards; each [tokens, width].
    """

    extras: Mapping[Place, Tensor] = field(default_factory=dict)
    additions: Mapping[Place, Tensor] = field(default_factory=dict)


NONE = Changes()


def end(stack: Stack) -> Place:
    """The place behind the last stage."""
    return Place(len(stack.layers), "final")


def interpret(
    stack: Stack, fixture: Fixture, tokens: Tensor, requests: list[int], changes: Changes = NONE
) -> Reference:
    """Runs ``stack`` on ``tokens`` [n, width], which belong to requests of the given lengths."""
    meaning = _Meaning(stack)
    found = Reference({}, {}, {}, {}, torch.empty(0))
    residual, output, before, last = tokens, tokens, None, None
    branch, waiting = stack.branch, tokens
    places = [Place(index, name) for index, layer in enumerate(stack.layers) for name in layer]
    for place in [*places, end(stack)]:
        if branch and before and before.stage == branch.stages[-1]:
            output, before = waiting + output, Place(before.layer, branch.beside)
        early = before is not None and meaning.at_producer(stack.stage(before.stage))
        extra = _extra(stack, fixture, last, tokens)
        if extra is not None and not early:
            output = output + extra
        if place in changes.extras:
            output = output + changes.extras[place]
        forks = branch is not None and place.stage == branch.stages[0]
        if before is None:
            residual = output
        elif not forks:
            params = fixture.weights[before].params
            residual = meaning.update(stack.stage(before.stage), output, residual, params)
            found.written[before] = residual
            residual = residual if extra is None or not early else residual + extra
        found.outputs[place], found.updated[place] = output, residual
        if place in changes.additions:
            residual = residual + changes.additions[place]
        found.shown[place] = residual
        if before is not None and place != end(stack) and stack.stage(place.stage).post_addition:
            residual = residual + fixture.addition(place, tokens)
        found.residuals[place] = residual
        if place == end(stack):
            break
        stage, params = stack.stage(place.stage), fixture.weights[place].params
        if not forks:  # else x is what was read for the stage beside it
            x = meaning.read(stage, residual, params)
        if stage.quantize is not None:
            parts = found.quantized[place] = quantized(stage.quantize, x, params)
            x = parts.numbers
        found.inputs[place] = x
        last = place
        computed = found.sums[place] = _computed(stage, place, fixture, x.split(requests))
        output, before = meaning.transform(stage, computed, params), place
        if branch and place.stage == branch.beside:
            waiting = output
    ends = normalised(residual, fixture.final, stack.norm) if stack.terminal.norm else residual
    return replace(found, output=ends)


def _extra(stack: Stack, fixture: Fixture, place: Place | None, tokens: Tensor) -> Tensor | None:
    """All that the stack file's extras add behind the stage at ``place``, if they do."""
    if place is None or place.stage != stack.layers[place.layer][-1]:
        return None
    named = [extra.name for extra in stack.extras if place.layer in extra.layers]
    added = [fixture.extra(place, name, tokens) for name in named]
    return torch.stack(added).sum(0) if added else None


def _computed(stage: Stage, place: Place, fixture: Fixture, requests: Sequence[Tensor]) -> Tensor:
    """The whole output of a stage for its input, request by request."""
    mixes = stage.kind != "ffn"
    output = torch.cat([fixture.contribution(place, x, mixes=mixes) for x in requests])
    if stage.reduction == "local_tail":
        output = output + fixture.tail(place, torch.cat(list(requests)))
    for term in fixture.terms(place, stage, torch.cat(list(requests))).values():
        output = output + term
    return output


def normalised(x: Tensor, weight: Tensor, norm: NormSpec) -> Tensor:
    """The rows x [rows, width], each over its root mean square, times weight [width] and offset.

    A layer norm takes the mean from each row before; one with a bias adds it in the end.
    """
    if norm.kind == "none":
        return x
    if norm.kind == "layer":
        x = x - x.mean(dim=-1, keepdim=True)
    factor = weight + norm.weight_offset
    found = x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + norm.eps) * factor
    return found + bias_beside(weight) if norm.bias else found


class _Meaning:
    """Reads, transforms and updates by name, as their definitions say."""

    def __init__(self, stack: Stack) -> None:
        self._norm_of = stack.norm_of
        self._declared = {declared.name: declared for declared in stack.operations}

    def read(self, stage: Stage, residual: Tensor, params: dict[str, Tensor]) -> Tensor:
        if stage.read == "norm":
            return normalised(residual, params["norm"], self._norm_of(stage.name))
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

    def at_producer(self, stage: Stage) -> bool:
        """Whether the stage's update has run when its layer ends."""
        declared = self._declared.get(stage.update)
        return declared is not None and "at_producer" in declared.facts

    def transform(self, stage: Stage, output: Tensor, params: dict[str, Tensor]) -> Tensor:
        declared = stage.transform
        if declared is None:
            return output
        if declared.name == "scale":
            assert declared.scale is not None
            return declared.scale * output
        if declared.name == "norm":
            return normalised(output, params["output_norm"], self._norm_of(stage.name))
        return _call(self._declared[declared.name], params, output)


class OperationError(Exception):
    """A custom operation that cannot be imported, or that does not run; the message names it."""


def load_operation(declared: OperationDecl) -> Callable[..., Any]:
    """The function that a custom operation names, imported. OperationError where there is none."""
    module, _, name = declared.call.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (Exception, SystemExit) as problem:  # importing runs the user's code
        raise OperationError(_told(declared, "cannot be imported", problem)) from problem
    if not callable(function):
        kind = type(function).__name__
        raise OperationError(f"{_named(declared)} cannot be called: it is of type {kind}")
    return function  # type: ignore[no-any-return]


def _call(declared: OperationDecl, params: dict[str, Tensor], *values: Tensor) -> Tensor:
    function = load_operation(declared)
    given = [Parameter(params[name]) for name in declared.params]
    try:
        # An operation may write over what it is given; what the oracle keeps must stay.
        result = function(*(value.clone() for value in values), *given)
    except (Exception, SystemExit) as problem:  # the user's code
        raise OperationError(_told(declared, "failed", problem)) from problem
    if not isinstance(result, Tensor):
        kind = type(result).__name__
        raise OperationError(f"{_named(declared)} returned no tensor but an object of type {kind}")
    if result.shape != values[0].shape:
        seen, asked = list(result.shape), list(values[0].shape)
        raise OperationError(f"{_named(declared)} returned shape {seen} for {asked}")
    return result


def _named(declared: OperationDecl) -> str:
    return f"operation `{declared.name}` ({declared.call})"


def _told(declared: OperationDecl, what: str, problem: BaseException) -> str:
    return f"{_named(declared)} {what}: {type(problem).__name__}: {problem}"
