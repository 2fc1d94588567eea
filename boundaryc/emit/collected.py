"""Functions of one topology as they are collected: drafts, where they are used, their names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from boundaryc.emit.between import AccessDraft, Between, ResumeDraft
from boundaryc.emit.crossings import Crossing, name_of
from boundaryc.emit.drafts import Draft, Drafts, ExitDraft
from boundaryc.emit.layout_text import listed
from boundaryc.emit.parts import Part
from boundaryc.emit.scope import Scope
from boundaryc.emit.shown import shown
from boundaryc.graph.build import Edge
from boundaryc.language.model import Stack
from boundaryc.plan.alike import Case, Followed
from boundaryc.plan.result import TopologyPlan

DraftT = TypeVar("DraftT", Draft, ExitDraft, AccessDraft, ResumeDraft)


class Use(NamedTuple):
    """One place that needs a function: an edge, wherever one table of its variant is followed.

    ``table`` is an index into the variant's ``followed``.
    """

    edge: Edge
    table: int


@dataclass(slots=True)
class Named(Generic[DraftT]):
    """A draft with its uses and, in the end, its name; ``crossings`` are the ways that it is."""

    draft: DraftT
    uses: list[Use] = field(default_factory=list)
    how: str = ""
    name: str = ""
    when: tuple[str, ...] = ()
    crossings: list[Crossing] = field(default_factory=list)

    @property
    def base(self) -> str:
        """The name it would like."""
        return name_of(self.crossings) if self.crossings else self.draft.base

    def following(self, stack: Stack) -> str:
        """What comes after the stage whose exit this is, for people."""
        names = distinct(use.edge.consumer for use in self.uses)
        return listed([shown(stack, name) for name in names], "or")


@dataclass(slots=True)
class VariantFunctions:
    """The functions of one batch variant, in the order in which a forward meets them.

    ``followed`` are the different tables of the variant, what `auto` does on even batches first.
    ``beside`` are those for a model that uses outputs between stages; ``accesses`` and ``resumes``
    are what they make up. ``drafts`` has the functions of each use, ``between`` those beside them,
    ``scope`` what all of them need. ``parts`` and ``parts_beside`` are the modules of both,
    ``homes`` and ``homes_beside`` say in which of them a name is; ``texts`` has a module without
    its docstring. ``told`` is what is sent at each boundary. ``names`` are whole names that have
    been asked for, by the identities of drafts and of what is beside them.
    """

    variant: str
    followed: tuple[Followed, ...]
    scope: Scope
    drafts: dict[Use, Drafts] = field(default_factory=dict)
    between: dict[Use, Between] = field(default_factory=dict)
    functions: dict[tuple[object, ...], Named[Draft]] = field(default_factory=dict)
    exits: dict[tuple[object, ...], Named[ExitDraft]] = field(default_factory=dict)
    beside: dict[tuple[object, ...], Named[Draft]] = field(default_factory=dict)
    accesses: dict[tuple[object, ...], Named[AccessDraft]] = field(default_factory=dict)
    resumes: dict[tuple[object, ...], Named[ResumeDraft]] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    parts_beside: tuple[Part, ...] = ()
    homes: dict[str, str] = field(default_factory=dict)
    homes_beside: dict[str, str] = field(default_factory=dict)
    told: tuple[str, ...] = ()
    texts: dict[str, str] = field(default_factory=dict)
    names: dict[tuple[int, int], Mapping[str, str]] = field(default_factory=dict)

    def cases(self, uses: Iterable[Use]) -> set[Case]:
        """The batches and policies in which a function with these uses runs somewhere."""
        tables = {use.table for use in uses}
        return {case for table in tables for case in self.followed[table].cases}


@dataclass(slots=True)
class TopologyFunctions:
    """Everything one topology needs; ``tables`` has for each case the table that is followed.

    It is an index into what its variant follows. ``order`` are the edges, those first that the
    stack meets again and again; ``policies`` begin with what `auto` stands for.
    """

    plan: TopologyPlan
    scope: Scope
    variants: dict[str, VariantFunctions]
    tables: dict[Case, int]
    order: tuple[Edge, ...]
    policies: tuple[str, ...]

    def add(self, known: VariantFunctions) -> None:
        """Adds a variant, which other topologies may have too."""
        self.variants[known.variant] = known
        for number, followed in enumerate(known.followed):
            self.tables.update(dict.fromkeys(followed.cases, number))
        self.scope.add(known.scope)

    def followed(self, policy: str) -> tuple[int, ...]:
        """The tables that are followed under a policy: all is the same where these are."""
        return tuple(self.tables[Case(policy, i)] for i in range(len(self.plan.columns)))

    def use(self, edge: Edge, column: int, policy: str) -> tuple[VariantFunctions, Use]:
        """What runs at a boundary in batches of one kind under one policy, and of which variant."""
        known = self.variants[self.plan.columns[column].variant]
        return known, Use(edge, self.tables[Case(policy, column)])

    def needs(self) -> set[str]:
        """The names that its functions call, of row-wise functions and of others."""
        return {
            need
            for variant in self.variants.values()
            for named in (*variant.functions.values(), *variant.beside.values())
            for need in named.draft.needs
        }


def distinct(names: Iterable[str]) -> list[str]:
    """Each name once, in alphabetical order."""
    return sorted(set(names))
