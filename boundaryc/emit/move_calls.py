"""Moves of rows on one rank as calls in generated code."""

from __future__ import annotations

from boundaryc.emit import quantized
from boundaryc.language.model import Quantize
from boundaryc.plan.row_moves import quantising


def moved(name: str, value: str, place: str) -> str:
    """The call of a move."""
    return f"{name}({value}, rows.{place})"


def moved_and_quantised(quantize: Quantize, value: str, order: str) -> tuple[str, str]:
    """The function that moves rows to token order and quantises them, and its statement."""
    name = quantising(quantize)
    given = [value, f"rows.{order}", *(f"{param}.input_scale" for param in quantize.params)]
    results = ", ".join(quantized.returned(quantize, value))
    return name, f"{results} = {name}({', '.join(given)})"
