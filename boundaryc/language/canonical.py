"""A stack's meaning as text, for hashing and comparing."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

from boundaryc.language.model import Stack

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def canonical(stack: Stack) -> str:
    """The stack as JSON that depends on nothing but what the file means.

    Comments, line ends, spelling of numbers, defaults written out and the order of keys make no
    difference; layers, the order of their stages and of an operation's params do. Runs of equal
    layers are written once, so that the text of a deep stack stays short. Drafts are in it, each as
    its own text says. Ends with a newline.
    """
    return json.dumps(_meaning(stack), sort_keys=True, separators=(",", ":")) + "\n"


def _meaning(stack: Stack) -> dict[str, object]:
    return {**_fields(stack), "language": 1, "layers": _runs(stack.layers)}


def _fields(value: DataclassInstance) -> dict[str, object]:
    """The fields that have a meaning, without newer ones (`model.QUIET`) at their defaults."""
    return {
        field.name: _plain(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if field.compare
        and not (field.metadata.get("quiet") and getattr(value, field.name) == field.default)
    }


def _plain(value: object) -> object:
    if isinstance(value, Stack):
        return _meaning(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _runs(layers: tuple[tuple[str, ...], ...]) -> list[tuple[int, tuple[str, ...]]]:
    """Equal consecutive layers as (how many, stages)."""
    runs: list[tuple[int, tuple[str, ...]]] = []
    for layer in layers:
        if runs and runs[-1][1] == layer:
            runs[-1] = (runs[-1][0] + 1, layer)
        else:
            runs.append((1, layer))
    return runs
