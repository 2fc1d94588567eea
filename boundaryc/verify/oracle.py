"""The meaning of a stack, computed directly: one rank, float64, no planner and no topology.

Written from the definition of a decoder stack with residual operations: the residual starts as the
stack's input; every stage reads its input from the residual, computes, and its update adds the
contribution; the final norm reads what is left. The first stage of a branch computes on what was
read for the stage beside it; the outputs of that one and of the branch's last are added, and its
update adds them to the residual that the branch left. Nothing is imported that plans or moves rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from boundaryc.language.model import Stack, Stage
from boundaryc.verify.fixture import Fixture, Place
from boundaryc.verify.meaning import Meaning
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
    ``kept`` is what the read of a stage keeps for its update.
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
    kept: dict[Place, tuple[Tensor, ...]] = field(default_factory=dict)


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
    meaning = Meaning(stack, fixture.given(tokens))
    found = Reference({}, {}, {}, {}, torch.empty(0))
    residual, output, before, last = tokens, tokens, None, None
    branch, waiting = stack.branch, tokens
    places = [Place(index, name) for index, layer in enumerate(stack.layers) for name in layer]
    for place in [*places, end(stack)]:
        if branch and before and before.stage == branch.stages[-1]:
            output, before = waiting + output, Place(before.layer, branch.beside)
        early = before is not None and meaning.at_producer(stack.stage(before.stage))
        early |= place == end(stack) and not stack.terminal.norm
        extra = _extra(stack, fixture, last, tokens)
        if extra is not None and not early:
            output = output + extra
        if place in changes.extras:
            output = output + changes.extras[place]
        forks = branch is not None and place.stage == branch.stages[0]
        if before is None:
            residual = meaning.enter(output)
        elif not forks:
            params = fixture.weights[before].params
            kept = found.kept.get(before, ())
            residual = meaning.update(stack.stage(before.stage), output, residual, params, kept)
            found.written[before] = residual
            residual = residual if extra is None or not early else residual + extra
        found.outputs[place], found.updated[place] = output, residual
        if place in changes.additions:
            residual = residual + changes.additions[place]
        written = residual
        if before is not None and place != end(stack) and stack.stage(place.stage).post_addition:
            residual = residual + fixture.addition(place, tokens)
        found.residuals[place], found.shown[place] = residual, written
        if place == end(stack):
            break
        stage, params = stack.stage(place.stage), fixture.weights[place].params
        if not forks:  # else x is what was read for the stage beside it
            _, found.shown[place], _ = meaning.read(stage, written, params)
            x, residual, found.kept[place] = meaning.read(stage, residual, params)
            found.residuals[place] = residual
        if stage.quantize is not None:
            parts = found.quantized[place] = quantized(stage.quantize, x, params)
            x = parts.numbers
        found.inputs[place] = x
        last = place
        computed = found.sums[place] = _computed(stage, place, fixture, x.split(requests))
        output, before = meaning.transform(stage, computed, params), place
        if branch and place.stage == branch.beside:
            waiting = output
    ends = meaning.leave(residual, fixture) if stack.terminal.norm else residual
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
