"""`extras`: what a model adds to the output of certain layers."""

from __future__ import annotations

from boundaryc.language.captures import layers_of
from boundaryc.language.context import Context
from boundaryc.language.fusion import update_at_producer
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
        elif written := [layer for layer in after if _leaves_streams(shape, layers, layer)]:
            message = f"after layer {written[0]} there is no output to add `{name}` to, but streams"
            help_ = "name other layers, or let that update run in the next stage"
            context.report("BC213", (*path, "after"), message, help_, key=True)
        found.append(Extra(name, after))
    return tuple(found)


def _leaves_streams(shape: StackShape, layers: Layers, layer: int) -> bool:
    """Whether what leaves a layer is a residual of several streams, with the output in it."""
    if shape.residual is None or shape.residual.streams == 1:
        return False
    if not (shape.terminal.norm or any(layers[layer + 1 :])):
        return True  # the last update of a stack without a norm runs at its producer
    last = shape.stages.get(layers[layer][-1])
    return last is not None and update_at_producer(last, shape)
