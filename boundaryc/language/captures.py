"""`captures`: which residuals are kept, by the side of a layer on which they are."""

from __future__ import annotations

from boundaryc.language.context import Context
from boundaryc.language.layers import layer_range
from boundaryc.language.model import Capture
from boundaryc.language.reader import Path
from boundaryc.language.schema import CaptureShape


def resolve_captures(
    entries: dict[str, CaptureShape], count: int, context: Context, *, cuts: bool
) -> tuple[Capture, ...]:
    """The captures of a stack of `count` layers by name; errors go to `context`.

    `count` is 0 after an error in the layers, and then no index is called wrong. `cuts` says
    whether the stack has pipeline stages.
    """
    found = []
    for name, entry in sorted(entries.items()):
        path: Path = ("captures", name)
        context.name("capture", name, path)
        if entry.travels and not cuts:
            message = f"`{name}` travels, and there are no pipeline stages"
            help_ = "declare `pipeline`, or remove `travels`"
            context.report("BC213", (*path, "travels"), message, help_, key=True)
        if entry.after is not None and entry.before is not None:
            message = f"`{name}` says both `after` and `before`"
            help_ = "after a layer is before the next one: keep one of the two"
            other: tuple[Path, str] = ((*path, "after"), "the other one")
            context.report("BC213", (*path, "before"), message, help_, key=True, other=other)
        elif entry.after is not None:
            layers = _layers(entry.after, count, (*path, "after"), context)
            found.append(Capture(name, layers, "after", entry.rows, entry.travels))
        elif entry.before is not None:
            layers = _layers(entry.before, count, (*path, "before"), context)
            found.append(Capture(name, layers, "before", entry.rows, entry.travels))
        else:
            message = f"`{name}` says neither `after` nor `before`"
            help_ = "write the layers it is about, like {after: [2, 20]}"
            context.report("BC102", path, message, help_, key=True)
    return tuple(found)


def _layers(items: list[int | str], count: int, path: Path, context: Context) -> tuple[int, ...]:
    """The layers that a list of indices and inclusive ranges names, ascending."""
    owner: dict[int, int] = {}
    for index, item in enumerate(items):
        here = (*path, index)
        if isinstance(item, str) and item.isdigit():
            message = f'"{item}" is a string and not a layer'
            context.report("BC206", here, message, "write the number without quotes")
            continue
        for layer in layer_range(str(item), count, here, context) if count else ():
            if layer in owner:
                message = f"layer {layer} is captured twice"
                other: tuple[Path, str] = ((*path, owner[layer]), "named here first")
                help_ = "ranges include both ends; name each layer once"
                context.report("BC206", here, message, help_, other=other)
                break
            owner[layer] = index
    return tuple(sorted(owner))
