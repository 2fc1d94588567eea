"""`extras`: what a model adds to the output of certain layers."""

from __future__ import annotations

from boundaryc.language.captures import layers_of
from boundaryc.language.context import Context
from boundaryc.language.layers import Layers
from boundaryc.language.model import Extra
from boundaryc.language.reader import Path
from boundaryc.language.schema import StackShape


def resolve_extras(shape: StackShape, layers: Layers, context: Context) -> tuple[Extra, ...]:
    """The extra contributions of a stack with these layers by name; errors go to `context`.

    `layers` is empty after an error in them, and then no index is called wrong.
    """
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
        found.append(Extra(name, after))
    return tuple(found)
