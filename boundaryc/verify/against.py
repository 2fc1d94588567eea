"""Finds the first boundary at which a run's residual leaves a reference model's hidden states.

A `Recorder` watches the boundaries of a real run; a reference model gives the stream that enters
each layer (``output_hidden_states`` of a transformers model, say). Comparing the two layer by layer
shows where a port goes wrong and how the error grows from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from boundaryc.language.model import Stack


class Recorder:
    """Keeps the residual with which every layer of one rank's run was entered.

    States are copies on the CPU, [rows, width], in the order of the layers; ``rows`` of them are
    kept, the real ones of the batch.
    """

    def __init__(self) -> None:
        self.states: list[Tensor] = []

    def watch(self, boundary: Any) -> Any:
        """A stage's boundary that records the residual each time it prepares."""
        return _Watched(boundary, self)

    def save(self, path: Path) -> None:
        """Writes the states with ``torch.save``, for ``boundaryc verify --observed``."""
        torch.save(self.states, path)


class _Watched:
    """A boundary that tells a recorder what it read, and is otherwise the boundary itself."""

    def __init__(self, boundary: Any, recorder: Recorder) -> None:
        self._boundary = boundary
        self._recorder = recorder

    def prepare(self, hidden: Any, batch: Any) -> Any:
        """The stage's input; the residual behind it is recorded."""
        result = self._boundary.prepare(hidden, batch)
        self._recorder.states.append(batch.stream.residual.detach().cpu().clone())
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._boundary, name)


@dataclass(frozen=True, slots=True)
class Growth:
    """How far a run is from its reference: one relative error for the entry of each layer.

    ``first`` is the first layer whose error exceeds ``tolerance``; None where none does.
    """

    errors: tuple[float, ...]
    tolerance: float

    @property
    def first(self) -> int | None:
        """The first layer that is entered with another residual."""
        return next((at for at, e in enumerate(self.errors) if not e <= self.tolerance), None)

    def lines(self, stack: Stack) -> list[str]:
        """The growth for people, and the boundary to look at."""
        lines = [
            f"layer {index:4}  error {error:.2e}{'  <- first' if index == self.first else ''}"
            for index, error in enumerate(self.errors)
        ]
        if self.first is None:
            return [*lines, f"all layers are entered within {self.tolerance:g}"]
        if self.first == 0:
            return [*lines, "the stack's input differs already"]
        before = stack.layers[self.first - 1]
        return [
            *lines,
            f"the residual differs first after layer {self.first - 1}: look at the boundaries of "
            f"{', '.join(before)} there (layers.{self.first - 1} of {stack.source})",
        ]


def compare_states(
    reference: Sequence[Tensor], observed: Sequence[Tensor], tolerance: float
) -> Growth:
    """Compares the states that enter each layer, [rows, width] each.

    ValueError where there are not equally many, or of other shapes. Errors are relative to the
    largest value of the reference at that layer (at least 1).
    """
    if len(reference) != len(observed):
        raise ValueError(f"{len(reference)} reference states, {len(observed)} observed ones")
    errors = []
    for layer, (right, seen) in enumerate(zip(reference, observed, strict=True)):
        if right.shape != seen.shape:
            raise ValueError(
                f"layer {layer}: the reference has {list(right.shape)}, the run {list(seen.shape)}"
            )
        scale = right.double().abs().max().clamp(min=1.0) if right.numel() else torch.ones(())
        distance = (seen.double() - right.double()).abs()
        errors.append(float(distance.max() / scale) if distance.numel() else 0.0)
    return Growth(tuple(errors), tolerance)


def read_states(path: Path) -> list[Tensor]:
    """The states in a file written by ``torch.save``: a list of tensors, read onto the CPU.

    ValueError for every other file.
    """
    try:
        states = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as problem:  # torch names no common type for a file that it cannot read
        first = str(problem).partition("\n")[0] or type(problem).__name__
        raise ValueError(f"{path} cannot be read by torch.load: {first}") from None
    if not isinstance(states, list) or not all(isinstance(one, Tensor) for one in states):
        raise ValueError(f"{path} does not hold a list of tensors")
    return states
