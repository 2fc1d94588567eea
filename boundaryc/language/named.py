"""Reads and updates that go together under one name, spelled out before anything is resolved.

`sandwich` is a norm before the stage and one of its output before that is added, `post_norm` only
the latter. What is left of them is a read, a transform and an addition, with all that these allow.
"""

from __future__ import annotations

from boundaryc.language.context import Context
from boundaryc.language.reader import Path
from boundaryc.language.residual import DEFAULT_REDUCTION
from boundaryc.language.schema import StageShape

READ_OF = {"post_norm": "raw", "sandwich": "norm"}
"""What a stage with an update of this name reads."""


def spelled_out(entry: StageShape) -> StageShape:
    """The same stage without such names; one that `check_named` refuses has no transform."""
    if entry.update not in READ_OF:
        return entry.model_copy(update={"read": "norm"}) if entry.read in READ_OF else entry
    name = str(entry.update)
    changed: dict[str, object] = {"read": READ_OF[name], "update": "add", "transform": "norm"}
    if _decides(entry):
        changed["transform"] = None
    changed |= {"joins_sum": "never", "quantized_sum": None, "before_reduce_scatter": False}
    copied = entry.model_copy(update=changed)
    copied.model_fields_set.difference_update({"before_reduce_scatter", "transform"})
    return copied


def check_named(entry: StageShape, path: Path, context: Context) -> None:
    """Reports what does not go with a read or an update of these names."""
    name = entry.update
    if entry.read in READ_OF and entry.read != name:
        message = f"`read: {entry.read}` goes with `update: {entry.read}`"
        help_ = f"write that too, or `read: {READ_OF[entry.read]}`, which is the same read"
        context.report("BC213", (*path, "read"), message, help_)
    if name not in READ_OF:
        return
    if "read" in entry.model_fields_set and entry.read not in READ_OF:
        message = f"`update: {name}` has a read of its own"
        context.report("BC213", (*path, "read"), message, "remove `read`", key=True)
    if _decides(entry):
        message = f"a scoped {entry.kind} cannot have its output normalised: its exit decides on it"
        help_ = "use `update: add`, or make the stage an attention with a partial sum"
        context.report("BC213", (*path, "update"), message, help_)
    asked = {
        "transform": entry.transform is not None,
        "before_reduce_scatter": entry.before_reduce_scatter,
        "joins_sum": entry.joins_sum == "allow",
        "quantized_sum": entry.quantized_sum is not None,
    }
    for key in (key for key, used in asked.items() if used):
        message = f"`update: {name}` normalises the complete output, so `{key}` does not go with it"
        context.report("BC213", (*path, key), message, f"remove `{key}`", key=True)


def _decides(entry: StageShape) -> bool:
    """Whether a token mixer obeys its exit, which leaves no moment for a transform."""
    reduction = entry.reduction or DEFAULT_REDUCTION[entry.kind]
    return entry.kind != "ffn" and reduction == "scoped"
