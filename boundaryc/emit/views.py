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


@dataclass(frozen=True, slots=True)
class LayerView:
    """One class of ``layers.py``."""

    name: str
    doc: str
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
    hash: str
    imports: Lines
    columns: Lines
    boundaries: tuple[Lines, ...]
    layers: tuple[Lines, ...]
    tables: tuple[Lines, ...]
    by_policy: Lines


@dataclass(frozen=True, slots=True)
class StackView:
    """``__init__.py`` of a stack."""

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


@dataclass(frozen=True, slots=True)
class NormView:
    """The functions of one kind of norm in ``rowwise.py`` and ``kernels.py``.

    ``alone`` and ``added``: the norm of a tensor and that of a sum are called. ``centred``: the
    mean is subtracted. ``passed`` and ``add_passed`` are what goes on to a kernel.
    """

    name: str
    centred: bool
    biased: bool
    head: Lines
    add_head: Lines
    passed: str
    add_passed: str
    in_torch: Lines
    add_in_torch: Lines
    jit: Lines
    add_jit: Lines
    alone: bool
    added: bool


@dataclass(frozen=True, slots=True)
class RowwiseView:
    """``rowwise.py`` and ``kernels.py`` of a stack.

    ``offset`` is empty where weights are used as they are. ``own_eps``, ``own_offset`` and
    ``may_round``: calls may say what eps is, what the offset is, and whether the sum is seen
    rounded.
    """

    name: str
    title: str
    width: int
    eps: str
    offset: str
    block: int
    warps: int
    masked: bool
    rounded: bool
    may_round: bool
    scaled: bool
    own_eps: bool
    own_offset: bool
    norms: tuple[NormView, ...]
