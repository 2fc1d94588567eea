"""What the templates see: final text, nothing to compute."""

from __future__ import annotations

from dataclasses import dataclass

Lines = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModuleView:
    """A module that is a docstring, imports and blocks of code.

    ``blocks`` are separated by two empty lines; each is a function, a class or some constants.
    """

    doc: Lines
    imports: Lines
    blocks: tuple[Lines, ...]


@dataclass(frozen=True, slots=True)
class LayoutView:
    """``layout.py`` of a topology: lines of the mesh and of the two classes."""

    doc: Lines
    mesh: Lines
    group_slots: Lines
    groups: Lines
    group_doc: str
    row_slots: Lines
    rows: Lines
    row_doc: str
    sums: bool


@dataclass(frozen=True, slots=True)
class LayerView:
    """One class of ``layers.py``."""

    name: str
    doc: Lines
    fields: Lines
    head: Lines
    bind_doc: Lines
    checks: Lines
    arguments: Lines


@dataclass(frozen=True, slots=True)
class LayersView:
    """``layers.py`` of a stack."""

    stack: str
    imports: Lines
    layers: tuple[LayerView, ...]
    union: Lines


@dataclass(frozen=True, slots=True)
class TopologyView:
    """``__init__.py`` of a topology."""

    doc: Lines
    title: str
    stack: str
    topology: str
    captures: str
    entry: str
    segments: bool
    overlaps: bool
    providers: str
    base: str
    final_bias: bool
    travels: Lines
    extras: Lines
    imports: Lines
    columns: Lines
    boundaries: tuple[Lines, ...]
    layers: tuple[Lines, ...]
    tables: tuple[Lines, ...]
    by_policy: Lines


@dataclass(frozen=True, slots=True)
class StackView:
    """``__init__.py`` of a stack."""

    abi: int
    name: str
    layers: int
    pipeline: bool
    fusion: bool
    stack_type: str
    variants: Lines
    reasons: Lines
    policies: str
    exports: str
    layer_imports: Lines
