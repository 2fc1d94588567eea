"""`norm` of the stack, and of a stage whose norm differs from it: what fits together in one."""

from __future__ import annotations

from boundaryc.language.context import Context
from boundaryc.language.model import NormSpec
from boundaryc.language.norm_shape import NormShape
from boundaryc.language.reader import Path

NONE = NormSpec("none", 0.0, "fp32")


def check_norm(shape: NormShape, path: Path, context: Context) -> None:
    """Reports keys at `path` that do not fit the kind of norm, and eps where it is missing."""
    if shape.kind == "none":
        for key in sorted(shape.model_fields_set - {"kind"}):
            message = f"`{key}` is about a norm, and `kind: none` is none"
            context.report("BC213", (*path, key), message, f"remove `{key}`", key=True)
    elif shape.eps is None:
        message = f"`eps` is missing in `{'.'.join(map(str, path))}`"
        help_ = f"add `eps`: {NormShape.model_fields['eps'].description}"
        context.report("BC102", path, message, help_, key=True)
    if shape.bias and shape.kind == "rms":
        message = "a norm of kind rms has no bias"
        context.report("BC213", (*path, "bias"), message, "remove `bias`", key=True)


def meant_norm(shape: NormShape) -> NormSpec:
    """The norm that a mapping without errors describes."""
    if shape.kind == "none" or shape.eps is None:
        return NONE
    offset = float(shape.weight_offset) + 0.0  # of -0.0 too
    return NormSpec(shape.kind, float(shape.eps), shape.accumulate, offset, shape.bias)
