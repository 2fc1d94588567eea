"""A quantised input in generated code: the call that makes it, and its tensors by name."""

from __future__ import annotations

from boundaryc.language.model import Quantize

VALUES, SCALES = "values", "scales"
"""What a function calls them; the unquantised input keeps its name."""

_SHARES = {"token": "per token", "group128": "per 128 columns", "static": "by a static scale"}


def helper(quantize: Quantize) -> str:
    """The function of the runtime that quantises."""
    return f"quantize_{quantize.format}"


def made(quantize: Quantize, value: str) -> str:
    """The statement that makes values and scales of ``value``."""
    arguments = [value]
    if quantize.format == "fp8":
        arguments.append(f'"{quantize.scale}"')
    arguments += [f"{name}.input_scale" for name in quantize.params]
    return f"{VALUES}, {SCALES} = {helper(quantize)}({', '.join(arguments)})"


def said(quantize: Quantize) -> str:
    """The step in words."""
    return f"quantise to {quantize.format} {_SHARES[quantize.scale]}"


def returned(quantize: Quantize, value: str) -> tuple[str, ...]:
    """All that the stage is given, in order."""
    return (VALUES, SCALES, value) if quantize.keep else (VALUES, SCALES)


def with_rows(quantize: Quantize, value: str) -> dict[str, str]:
    """What a move of rows takes along, with words for each: all but a scale of the model's."""
    words = {VALUES: "the values", SCALES: "their scales", value: "the unquantised input"}
    static = {SCALES} if quantize.scale == "static" else set()
    return {name: words[name] for name in returned(quantize, value) if name not in static}
