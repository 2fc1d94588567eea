"""What every rank holds whole and a sum must hold once: when a rank adds it, as statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boundaryc.emit.layout_text import listed
from boundaryc.emit.scope import Scope
from boundaryc.language.model import Additive

ADDS = "add_term"
"""The runtime's function that adds a term."""
CHECKS = "check_term"
"""The runtime's function that refuses, on another rank, a term that could not be added."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Who adds which terms of an output that owes a sum over ``owes``; 0 where it owes none.

    ``inside``: compute does the sum itself, so that there is a moment after it.
    """

    terms: tuple[Additive, ...]
    owes: int
    inside: bool

    @property
    def first(self) -> list[str]:
        """Terms that only the first rank of the sum adds, before it."""
        return self._with("rank0") + ([] if self.inside else self._with("after_sum"))

    @property
    def divided(self) -> list[str]:
        """Terms that every rank adds a part of, before the sum."""
        return self._with("divided")

    @property
    def after(self) -> list[str]:
        """Terms that every rank adds to the sum."""
        return self._with("after_sum") if self.inside else []

    def _with(self, multiplicity: str) -> list[str]:
        return [term.name for term in self.terms if term.multiplicity == multiplicity]


def helpers(lines: Sequence[str]) -> set[str]:
    """The runtime's functions that statements about terms call."""
    return {name for name in (ADDS, CHECKS) if any(f"{name}(" in line for line in lines)}


def keywords(terms: Sequence[Additive]) -> tuple[str, ...]:
    """The parameters that take the terms, by keyword only."""
    return ("*", *(f"{term.name}: Tensor" for term in terms)) if terms else ()


def added_before(shares: Shares, scope: Scope) -> list[str]:
    """The statements that add to this rank's ``hidden`` what belongs there before the sum."""
    if not shares.owes:
        return [added(name) for name in (*shares.first, *shares.divided)]
    group, size = scope.group(shares.owes), scope.size(shares.owes)
    lines = [added(name, size) for name in shares.divided]
    if shares.first:
        lines.append(f"if groups.{group}.rank == 0:")
        lines += [f"    {added(name)}" for name in shares.first]
        lines += ["else:", *(f"    {CHECKS}(hidden, {name})" for name in shares.first)]
    return lines


def added(name: str, parts: int = 1) -> str:
    """The statement that adds a term to ``hidden``, or one of ``parts`` of it."""
    return f"hidden = {ADDS}(hidden, {name}{f', {parts}' if parts > 1 else ''})"


def told_before(shares: Shares, scope: Scope) -> str:
    """What `added_before` does, for people."""
    if not shares.owes:
        names = [*shares.first, *shares.divided]
        return f"Adds {listed(names)} to the complete output." if names else ""
    group, size = scope.group(shares.owes), scope.size(shares.owes)
    sentences = []
    if shares.divided:
        sentences.append(f"Every rank of {group} adds 1/{size} of {listed(shares.divided)}.")
    if shares.first:
        sentences.append(f"The first rank of {group} adds {listed(shares.first)}.")
    return " ".join(sentences)
