"""Functions that several topologies and variants of a stack have in common are drafted once.

A draft names groups and rows by the mesh and knows nothing else of a topology, so it is the same
on all meshes that give the same names. What it needs of the layout is kept with it and put into the
scope of every topology that has it. All functions of a variant are collected, named and written
once for all topologies on which its plans have one form, whatever the other variants are there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from boundaryc.emit.around import Around
from boundaryc.emit.scope import Known, Scope
from boundaryc.plan.alike import Followed, Forms
from boundaryc.plan.result import StackPlan, TopologyPlan
from boundaryc.topology import Mesh, naming
from boundaryc.topology.contracts import Regime

Found = TypeVar("Found")


class Library:
    """What has been drafted for any stack, by the names of a mesh, see `Scope.once`."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Known] = {}

    def scope(self, mesh: Mesh) -> Scope:
        """A scope that has it."""
        return Scope(mesh, self._known.setdefault(naming(mesh), Known()))


class Reuse:
    """What has been drafted for one stack; ``library`` has what serves others too.

    ``calls`` are the operations around its boundaries.
    """

    def __init__(self, plan: StackPlan, library: Library | None = None) -> None:
        self.calls = Around(plan)
        self.library = library or Library()
        self._known: dict[Hashable, tuple[object, Scope]] = {}
        self._forms = Forms()
        self._of_variants: dict[Hashable, object] = {}
        self._of_stack: dict[Hashable, object] = {}

    def of_variant(
        self,
        kind: str,
        topology: TopologyPlan,
        variant: str,
        make: Callable[[], Found],
        *,
        sized: Callable[[Found], bool] = lambda _: False,
    ) -> Found:
        """What ``make`` gives for a variant on a topology, or has given for an equal form of it.

        ``kind`` says what that is. Where it is ``sized`` it is for one topology alone.
        """
        key = (kind, variant, self._forms.of(topology, variant))
        if key in self._of_variants:
            return self._of_variants[key]  # type: ignore[return-value]  # a kind has one type
        found = make()
        if not sized(found):
            self._of_variants[key] = found
        return found

    def followed(
        self, topology: TopologyPlan, variant: str, policies: Iterable[str]
    ) -> tuple[Followed, ...]:
        """The different tables of a variant, see `Forms.followed`."""
        return self._forms.followed(topology, variant, policies)

    def of_stack(self, kind: str, make: Callable[[], Found], *values: Hashable) -> Found:
        """What ``make`` gives for the stack and ``values``; ``kind`` says what that is."""
        key = (kind, values)
        if key not in self._of_stack:
            self._of_stack[key] = make()
        return self._of_stack[key]  # type: ignore[return-value]  # a kind has one type

    def drafted(self, key: Hashable, scope: Scope, make: Callable[[Scope], Found]) -> Found:
        """What ``make`` gives for a scope, or has given for one of the same ``key``, see `place`.

        What says how many ranks a group has is for one topology alone.
        """
        if key in self._known:
            found, used = self._known[key]
        else:
            used = Scope(scope.mesh, scope.known)
            found = make(used)
            if not used.sized:
                self._known[key] = found, used
        scope.add(used)
        return found  # type: ignore[return-value]  # a key belongs to one kind of draft


def place(mesh: Mesh, demands: Regime) -> Hashable:
    """What the functions of a boundary depend on, beside the stack and the boundary's plan."""
    return naming(mesh), demands.rows, demands.attention_in
