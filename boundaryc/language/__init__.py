"""The YAML language: text in, a resolved `Stack` or diagnostics out."""

from __future__ import annotations

from boundaryc.language.canonical import canonical
from boundaryc.language.codes import CODES
from boundaryc.language.diagnostics import BoundarycError, Diagnostic, Label, Severity
from boundaryc.language.loader import load, loads
from boundaryc.language.model import (
    Additive,
    Branch,
    Capture,
    Extra,
    MoeSpec,
    NormSpec,
    OperationDecl,
    Quantize,
    Stack,
    Stage,
    TopologySpec,
    Transform,
)
from boundaryc.language.renderers import FORMATS, render
from boundaryc.language.spans import Position, Span

__all__ = [
    "CODES",
    "FORMATS",
    "Additive",
    "BoundarycError",
    "Branch",
    "Capture",
    "Diagnostic",
    "Extra",
    "Label",
    "MoeSpec",
    "NormSpec",
    "OperationDecl",
    "Position",
    "Quantize",
    "Severity",
    "Span",
    "Stack",
    "Stage",
    "TopologySpec",
    "Transform",
    "canonical",
    "load",
    "loads",
    "render",
]
