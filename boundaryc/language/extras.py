"""`extras`: what a model adds to the output of certain layers."""

from __future__ import annotations

from collections.abc import Mapping

from boundaryc.language.captures import layers_of
from boundaryc.language.context import Context
from boundaryc.language.layers import Layers
from boundaryc.language.model import Extra, Stage
from boundaryc.language.reader import Path
from boundaryc.language.schema import StackShape


def resolve_extras(
    shape: StackShape, stages: Mapping[str, Stage], layers: Layers, context: Context
) -> tuple[Extra, ...]:
    """The extra contributions of a stack with these layers by name; errors go to `context`.

    `layers` is empty after an error in them, and then no index is called wrong.
    """
    streams = shape.residual is not None and shape.residual.streams > 1
    found = []
    for name, entry in sorted(shape.extras.items()):
        path: Path = ("extras", name)
        context.name("extra", name, path)
        after = layers_of(entry.after, len(layers), (*path, "after"), context)
        idle = [layer for layer in after if not layers[layer]]
        if idle:
            message = f"layer {idle[0]} has no stage, so there is no output to add `{name}` to"
            help_ = "name the layer before it"
            context.report("BC213", (*path, "after"), message, help_, key=True)
        written = _written(shape, stages, layers, after) if streams and not idle else None
        if written is not None:
            message = (
                f"`{written}` ends a layer with the residual written, and nothing is added to one "
                "of several streams"
            )
            help_ = "name another layer"
            context.report("BC213", (*path, "after"), message, help_, key=True)
        found.append(Extra(name, after))
    return tuple(found)


def _written(
    shape: StackShape, stages: Mapping[str, Stage], layers: Layers, after: tuple[int, ...]
) -> str | None:
    """The first stage whose update has run where an extra is to be added behind it."""
    for layer in after:
        stage = stages.get(layers[layer][-1])
        declared = shape.operations.get(stage.update) if stage else None
        early = declared is not None and "at_producer" in declared.facts
        ends = not shape.terminal.norm and not any(layers[layer + 1 :])
        if stage is not None and (early or ends):
            return stage.name
    return None
