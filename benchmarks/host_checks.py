"""What the checks on the hot path cost, each by itself: nanoseconds, beside an empty statement."""

from __future__ import annotations

import timeit
from types import SimpleNamespace
from typing import Any

import torch

RUNS, REPEATS = 50_000, 9
CHECKS = {
    "the stage is the next one": "stream.due is not at.here",
    "the output is the one that was left": "hidden is not stream.handle",
    "nothing is to be shown": "shows",
    "the output is a tensor": "type(hidden) is not Tensor",
    "the exit is open, of this forward": "exit.phase is not phase or stream is not exit.stream",
    "the residual has the output's shape": "residual.shape != shape",
    "the weight has the rows' width": "weight.numel() != shape[-1]",
}
"""Statements of generated functions and of the runtime, as they are written there."""


def costs() -> dict[str, float]:
    """Nanoseconds of every check where nothing is wrong, the least of several repeats."""
    names = _names()
    empty = _least("pass", names)
    return {what: _least(f"if {check}: raise", names) - empty for what, check in CHECKS.items()}


def _names() -> dict[str, Any]:
    hidden, weight = torch.ones(4, 64), torch.ones(64)
    place, phase = object(), object()
    stream = SimpleNamespace(due=place, handle=hidden)
    return {
        "hidden": hidden,
        "residual": torch.ones(4, 64),
        "weight": weight,
        "shape": hidden.shape,
        "Tensor": torch.Tensor,
        "stream": stream,
        "at": SimpleNamespace(here=place),
        "shows": {},
        "exit": SimpleNamespace(phase=phase, stream=stream),
        "phase": phase,
    }


def _least(statement: str, names: dict[str, Any]) -> float:
    # As locals, which a function's names are.
    setup = "; ".join(f"{name} = _given[{name!r}]" for name in names)
    found = timeit.repeat(statement, setup, number=RUNS, repeat=REPEATS, globals={"_given": names})
    return min(found) / RUNS * 1e9


def table() -> list[str]:
    """Markdown."""
    lines = ["| check | ns |", "|---|---|"]
    return [*lines, *(f"| {what} | {cost:.0f} |" for what, cost in costs().items())]
