"""`captures`: which residuals are kept, by the side of a layer on which they are."""

from __future__ import annotations

from boundaryc.language.context import Context
from boundaryc.language.layers import layer_range
from boundaryc.language.model import Capture
from boundaryc.language.reader import Path
from boundaryc.language.schema import StackShape


def resolve_captures(shape: StackShape, count: int, context: Context) -> tuple[Capture, ...]:
    """The captures of a stack of `count` layers by name; errors go to `context`.

    `count` is 0 after an error in the layers, and then no index is called wrong.
    """
    found = []
    for name, entry in sorted(shape.captures.items()):
        path: Path = ("captures", name)
        context.name("capture", name, path)
        if entry.travels and shape.pipeline is None:
            message = f"`{name}` travels, and there are no pipeline stages"
            help_ = "declare `pipeline`, or remove `travels`"
            context.report("BC213", (*path, "travels"), message, help_, key=True)
        if entry.travels and entry.rows == "input":
            _check_inputs(name, shape, context)
        if entry.after is not None and entry.before is not None:
            message = f"`{name}` says both `after` and `before`"
            help_ = "after a layer is before the next one: keep one of the two"
            other: tuple[Path, str] = ((*path, "after"), "the other one")
            context.report("BC213", (*path, "before"), message, help_, key=True, other=other)
        elif entry.after is not None:
            layers = layers_of(entry.after, count, (*path, "after"), context)
            found.append(Capture(name, layers, "after", entry.rows, entry.travels))
        elif entry.before is not None:
            layers = layers_of(entry.before, count, (*path, "before"), context)
            found.append(Capture(name, layers, "before", entry.rows, entry.travels))
        else:
            message = f"`{name}` says neither `after` nor `before`"
            help_ = "write the layers it is about, like {after: [2, 20]}"
            context.report("BC102", path, message, help_, key=True)
    return tuple(found)


def _check_inputs(name: str, shape: StackShape, context: Context) -> None:
    """Reports inputs of which some are scattered and others are not: one payload says one thing."""
    whole = [one for one, entry in shape.stages.items() if not entry.gathers_tp_input]
    if not whole or "input_scattered" not in shape.variants:
        return
    message = f"`{name}` travels on the rows of inputs, which are scattered but for some stages"
    help_ = "write `rows: producer`, or remove `travels`"
    other: tuple[Path, str] = (("stages", whole[0], "gathers_tp_input"), "a stage that takes all")
    context.report("BC213", ("captures", name, "travels"), message, help_, key=True, other=other)


def layers_of(items: list[int | str], count: int, path: Path, context: Context) -> tuple[int, ...]:
    """The layers that a list of indices and inclusive ranges names, ascending.

    `count` is 0 after an error in the layers, and then there are none. Errors go to `context`.
    """
    owner: dict[int, int] = {}
    for index, item in enumerate(items):
        here = (*path, index)
        if isinstance(item, str) and item.isdigit():
            message = f'"{item}" is a string and not a layer'
            context.report("BC206", here, message, "write the number without quotes")
            continue
        for layer in layer_range(str(item), count, here, context) if count else ():
            if layer in owner:
                message = f"layer {layer} is named twice"
                other: tuple[Path, str] = ((*path, owner[layer]), "named here first")
                help_ = "ranges include both ends; name each layer once"
                context.report("BC206", here, message, help_, other=other)
                break
            owner[layer] = index
    return tuple(sorted(owner))
