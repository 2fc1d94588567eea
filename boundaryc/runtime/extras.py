"""Extra contributions of the stack file: what a model adds to the output of certain layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.compiler import is_compiling

from boundaryc.runtime.access import add_to_output, changeable
from boundaryc.runtime.owed import OwedOutput
from boundaryc.runtime.places import ANY

if TYPE_CHECKING:
    from boundaryc.runtime.batch import Batch

Extras = tuple[tuple[str, int, int], ...]
"""Extra contributions by name, each with a range of layers that it follows, both ends included."""


def after(extras: Extras, layer: int) -> tuple[str, ...]:
    """The names of what is added to the output of ``layer``."""
    return tuple(name for name, first, last in extras if first <= layer <= last)


def add_extras(
    hidden: Tensor | OwedOutput,
    batch: Batch[Any, Any],
    given: Mapping[str, Tensor | None],
    extras: Extras,
    *,
    travels: bool,
) -> Tensor | OwedOutput:
    """Adds what is ``given`` to an output; see `Stack.add_extras`.

    ``travels``: the output is the last before a pipeline cut, where its form depends on nothing
    that is given.
    """
    stream = batch.stream
    stream.check(hidden)
    _expect(given, stream.extras, extras, placed=stream.at != ANY and not is_compiling())
    if travels:
        hidden = changeable(hidden, batch)
    for extra in given.values():
        if extra is not None:
            hidden = add_to_output(hidden, batch, extra)
    stream.extras = ()
    return hidden


def _expect(
    given: Mapping[str, Tensor | None], here: tuple[str, ...], extras: Extras, *, placed: bool
) -> None:
    """TypeError for names that are not added here; ``placed``: it is known which these are."""
    known = here if placed else tuple(dict.fromkeys(name for name, _, _ in extras))
    unknown = sorted({*given} - {*known})
    missing = sorted({*here} - {*given}) if placed else []
    if unknown:
        there = ", ".join(known) or "nothing"
        raise TypeError(f"{', '.join(unknown)}: not added to this output; the stack file: {there}")
    if missing:
        raise TypeError(f"missing: {', '.join(missing)}; None for one that this batch is without")
