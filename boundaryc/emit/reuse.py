"""Functions that several topologies and variants of a stack have in common are drafted once.

A draft names groups and rows by the mesh and knows nothing else of a topology, so it is the same
on all meshes that give the same names. What it needs of the layout is kept with it and put into the
scope of every topology that has it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar

from boundaryc.emit.scope import Scope
from boundaryc.plan.result import Boundary
from boundaryc.topology import Mesh, naming
from boundaryc.topology.contracts import regime

Found = TypeVar("Found")


class Reuse:
    """What has been drafted for one stack."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[object, Scope]] = {}

    def drafted(self, key: Hashable, scope: Scope, make: Callable[[Scope], Found]) -> Found:
        """What ``make`` gives for a scope, or has given for one of the same names and ``key``.

        What says how many ranks a group has is for one topology alone.
        """
        whole = (naming(scope.mesh), key)
        if whole in self._known:
            found, used = self._known[whole]
        else:
            used = Scope(scope.mesh)
            found = make(used)
            if not used.sized:
                self._known[whole] = found, used
        scope.add(used)
        return found  # type: ignore[return-value]  # a key belongs to one kind of draft


def place(variant: str, mesh: Mesh, boundary: Boundary) -> Hashable:
    """What the functions of a boundary depend on, beside the stack and the names of a mesh."""
    demands = regime(variant, mesh)
    form = boundary.facts._replace(sizes=(), even=0, scatter=0, scatter_by_size=False)
    rows = (demands.rows, demands.attention_in)
    return rows, boundary.edge, boundary.start, boundary.goal, boundary.path.ops, form
