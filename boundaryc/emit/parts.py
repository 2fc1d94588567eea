"""Modules of functions: one where it is short enough, else one for each stage.

What a module has to say is collected as blocks. Each knows the module that it belongs to where one
alone would be too long for a reader, so that names and statements are the same either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from boundaryc.emit.drafts import Draft
from boundaryc.emit.imports import module_imports
from boundaryc.emit.layout_text import WIDTH
from boundaryc.emit.views import Lines
from boundaryc.plan.result import StackPlan

LONGEST = 400
"""Lines that a module may have before it is divided."""
AROUND = 40
"""Lines of a module beside its blocks and what is told of each boundary: header, title, imports."""


MARGIN = 5
"""Columns beside a whole name where it stands alone on a line, with the comma behind it."""


@dataclass(frozen=True, slots=True)
class Block:
    """A function or a constant: its name, its lines, and the stage in whose module it may be.

    ``stage`` is None for what belongs to all stages. ``records`` are names of the runtime that it
    is written with, ``names`` those of other blocks; a function has a ``draft`` as well.
    """

    name: str
    lines: Lines
    stage: str | None
    draft: Draft | None = None
    records: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A module: its name, the stage that it is about, None for all, and its blocks."""

    module: str
    stage: str | None
    blocks: tuple[Block, ...]


def divided(module: str, word: str, blocks: Sequence[Block], *, told: int = 0) -> tuple[Part, ...]:
    """``blocks`` as one module, or as one for each stage and one for the rest.

    ``word`` stands between the names of the module and of a stage; ``told`` are further lines. It
    is one where whole names of the parts would not fit on a line.
    """
    whole = (Part(module, None, tuple(blocks)),)
    if AROUND + told + _lines(blocks) <= LONGEST:
        return whole
    by_stage: dict[str | None, list[Block]] = {None: []}
    for block in blocks:
        by_stage.setdefault(block.stage, []).append(block)
    parts = tuple(
        Part(module if stage is None else f"{module}_{word}_{stage}", stage, tuple(own))
        for stage, own in by_stage.items()
        if own or stage is None
    )
    qualified = max(len(f"{home}.{name}") for name, home in homes(parts).items())
    return parts if MARGIN + qualified <= WIDTH else whole


def _lines(blocks: Iterable[Block]) -> int:
    return sum(len(block.lines) + 2 for block in blocks)


def homes(parts: Iterable[Part]) -> dict[str, str]:
    """The module of every block, by its name."""
    return {block.name: part.module for part in parts for block in part.blocks}


def part_imports(plan: StackPlan, part: Part, home: Mapping[str, str]) -> Lines:
    """What a part imports; ``home`` has the module of every name that blocks may use."""
    own = {block.name for block in part.blocks}
    local: dict[str, set[str]] = {}
    for name in {name for block in part.blocks for name in block.names} - own:
        local.setdefault(f".{home[name]}", set()).add(name)
    drafts = [block.draft for block in part.blocks if block.draft]
    records = {record for block in part.blocks for record in block.records}
    return module_imports(plan, drafts, records, local)
