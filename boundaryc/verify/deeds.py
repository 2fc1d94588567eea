"""What a model does with an output between two stages, drawn at random and equal on all ranks."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from boundaryc.operations import Operation
from boundaryc.plan.result import StackPlan
from boundaryc.verify.fixture import Place
from boundaryc.verify.oracle import Changes, end

Act = Literal["complete", "add", "snapshot", "fold", "write", "add to written", "show", "collect"]

ACCESSORS: tuple[Act, ...] = ("complete", "complete", "add")
"""What every output allows; completing twice is completing once."""
PLAIN: tuple[tuple[Act, ...], ...] = (
    (),
    ("snapshot",),
    ("fold",),
    ("fold", "write"),
    ("snapshot", "fold", "add to written"),
)
"""What an output allows besides whose update is an addition."""
WRITTEN: tuple[tuple[Act, ...], ...] = (
    (),
    ("complete", "snapshot"),
    ("fold",),
    ("add to written",),
    ("snapshot", "fold", "write"),
)
"""What is done with a stream whose update ran at the producer: its output is the residual."""

OF_STREAMS: tuple[tuple[Act, ...], ...] = ((), ("complete", "snapshot"), ("fold",))
"""The same where the residual has several streams, to which an extra contribution is not added."""


@dataclass(frozen=True, slots=True)
class Deeds:
    """What happens before each place, in order, and how it changes what the oracle must say.

    "show" and "collect" happen while the place is entered.
    """

    acts: Mapping[Place, tuple[Act, ...]]
    changes: Changes


def draw(plan: StackPlan, width: int, tokens: int, seed: int, *, partial: bool) -> Deeds:
    """Deeds at about two places of three; ``partial``: the stack's input owes a sum."""
    stack, rng = plan.stack, random.Random(seed)
    normal = torch.Generator().manual_seed(seed)

    def some() -> Tensor:
        return torch.randn(tokens, width, generator=normal, dtype=torch.float64)

    acts: dict[Place, tuple[Act, ...]] = {}
    extras: dict[Place, Tensor] = {}
    additions: dict[Place, Tensor] = {}
    producer: str | None = None
    places = [Place(index, name) for index, layer in enumerate(stack.layers) for name in layer]
    branch = stack.branch
    for place in [*places, end(stack)]:
        if branch is not None and place.stage == branch.stages[0]:
            acts[place], producer = (), place.stage  # there is no output before it
            continue
        if branch is not None and producer == branch.stages[-1]:
            producer = branch.beside
        if producer is None:
            chosen = () if partial else _before_the_stack(rng, enters=stack.residual is not None)
        else:
            update = plan.operations[stack.stage(producer).update]
            ends_written = place == end(stack) and not stack.terminal.norm
            written = ends_written or update.facts.at_producer
            chosen = _after(update, rng, stack.streams, written=written)
        acts[place] = (*chosen, *_entering(rng))
        if "add" in chosen:
            extras[place] = some()
        if "write" in chosen or "add to written" in chosen:
            additions[place] = some()
        producer = place.stage
    return Deeds(acts, Changes(extras, additions))


def _before_the_stack(rng: random.Random, *, enters: bool) -> tuple[Act, ...]:
    """``enters``: an operation makes the residual, of which a written one has no need."""
    found: tuple[tuple[Act, ...], ...]
    found = ((), ("snapshot",), ("add",), ("complete", "add"), ("write",))
    return rng.choice(found[:-1] if enters else found)


def _after(
    update: Operation, rng: random.Random, streams: int, *, written: bool
) -> tuple[Act, ...]:
    """What may be done with an output that ``update`` is to add to the residual, or has."""
    if written:
        return rng.choice(WRITTEN if streams == 1 else OF_STREAMS)
    early: list[Act] = []
    for act in ACCESSORS:
        if rng.random() < 0.4:
            early.append(act)
    then: tuple[Act, ...] = ()
    if update.call is None or update.facts.plain_add:
        then = rng.choice(PLAIN)
    return (*early, *then)


def _entering(rng: random.Random) -> tuple[Act, ...]:
    found: tuple[tuple[Act, ...], ...]
    found = ((), (), ("show",), ("collect",), ("show", "collect"))
    return rng.choice(found)
