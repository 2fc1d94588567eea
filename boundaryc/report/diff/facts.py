"""What a stack declares, as keys and words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from boundaryc.emit.runs import consecutive, runs

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from boundaryc.language.model import Stack

ITEMS: Mapping[str, str] = {
    "topology": "topologies",
    "stage": "stages",
    "operation": "operations",
    "capture": "captures",
    "extra": "extras",
}
"""What there are several of in a stack, each with a name: the word for one, and the field."""

_APART = {"name", "layers", "variants", "drafts", *ITEMS.values()}
"""Fields of a stack that are compared in their own way."""

_KEYS = {"policy_auto": "policy.auto", "two_batch": "overlap.two_batch"}
"""Fields whose key in a stack file is another."""


def settings(stack: Stack) -> dict[str, str]:
    """What a stack says of itself as a whole: keys of its file, and what they mean."""
    return {
        key: text
        for field in dataclasses.fields(stack)
        if field.compare and field.name not in _APART
        for key, text in _said(_KEYS.get(field.name, field.name), getattr(stack, field.name))
    }


def items(stack: Stack, of: str) -> dict[str, dict[str, str]]:
    """The facts of all things of one kind, a key of `ITEMS`, by name."""
    return {one.name: facts(one) for one in getattr(stack, ITEMS[of])}


def facts(value: DataclassInstance) -> dict[str, str]:
    """Every fact of something that has a name, defaults too; its name is none."""
    return {
        key: text
        for field in dataclasses.fields(value)
        if field.compare and field.name != "name"
        for key, text in _said(field.name, getattr(value, field.name))
    }


def summary(value: DataclassInstance) -> str:
    """What is worth saying of something new: all but defaults, and sizes and lists of nothing."""
    usual = {
        field.name: field.default
        for field in dataclasses.fields(value)
        if field.default is not dataclasses.MISSING
    }
    return ", ".join(
        f"{key} {text}"
        for field in dataclasses.fields(value)
        if field.name != "name" and getattr(value, field.name) != usual.get(field.name, ...)
        for key, text in _said(field.name, getattr(value, field.name))
        if text not in ("false", "none") and (text != "1" or key == "layers")
    )


def _said(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """A key with what is below it; nothing for None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            if field.compare:
                yield from _said(f"{key}.{field.name}", getattr(value, field.name))
    elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
        for one in value:
            yield from ((f"{key}.{one.name}.{inner}", text) for inner, text in facts(one).items())
    elif value is not None:
        yield key, _word(value)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, frozenset):
        return ", ".join(sorted(value)) or "none"
    if isinstance(value, tuple) and value and isinstance(value[0], int):
        return numbers(value)
    if isinstance(value, tuple):
        return ", ".join(_pair(one) for one in value) or "none"
    return str(value)


def _pair(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def numbers(layers: tuple[int, ...]) -> str:
    """Ascending numbers: ``2, 20-37``."""
    return ", ".join(
        str(first) if first == last else f"{first}-{last}" for first, last in consecutive(layers)
    )


def layers(stack: Stack) -> str:
    """The layers, what repeats once: ``attention, mlp; (attention, experts) x47``."""
    words = []
    for run in runs([", ".join(layer) or "nothing" for layer in stack.layers]):
        inside = "; ".join(run.names)
        words.append(inside if run.count == 1 else f"({inside}) x{run.count}")
    return "; ".join(words)
