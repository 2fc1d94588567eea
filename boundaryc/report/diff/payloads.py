"""What travels over the pipeline cuts of two plans."""

from __future__ import annotations

from boundaryc.emit.collected import TopologyFunctions
from boundaryc.emit.functions import topology_functions
from boundaryc.emit.transfer import HIDDEN, RESIDUAL, TransferDraft
from boundaryc.graph.build import Edge
from boundaryc.plan.result import StackPlan, TopologyPlan
from boundaryc.report.diff.breaks import PAYLOAD
from boundaryc.report.diff.grid import Side, differing
from boundaryc.report.diff.model import PayloadChange
from boundaryc.topology import Mesh

STATE = "state."


def payload_changes(before: StackPlan, after: StackPlan) -> tuple[PayloadChange, ...]:
    """The cuts over which other tensors travel; none where one of the plans has no cuts at all."""
    if None in (before.stack.pipeline, after.stack.pipeline):
        return ()
    found = differing(Side(before, _Reader(before).read), Side(after, _Reader(after).read), _both)
    return tuple(
        PayloadChange(name, was, now, tuple(places), PAYLOAD)
        for name, (was, now), places in found
        if was is not None and now is not None
    )


Tensors = tuple[str, ...]
"""The tensors of a payload in words."""


def _both(was: Tensors | None, now: Tensors | None) -> tuple[Tensors | None, Tensors | None]:
    return was, now


class _Reader:
    """What travels over the cuts of a plan, as the functions of its topologies have it."""

    def __init__(self, plan: StackPlan) -> None:
        self._plan = plan
        self._known: dict[str, TopologyFunctions] = {}

    def read(self, topology: TopologyPlan, column: int, policy: str, edge: Edge) -> Tensors | None:
        name = topology.spec.name
        if name not in self._known:
            self._known[name] = topology_functions(self._plan, topology)
        known, use = self._known[name].use(edge, column, policy)
        beside = known.between.get(use)
        cut = beside.resume.transfer if beside else None
        return None if cut is None else tensors(topology.mesh, cut)


def tensors(mesh: Mesh, cut: TransferDraft) -> Tensors:
    """The tensors that cross a cut if the model leaves the output alone; as `Stack.payload`."""
    kept = tuple((f"{STATE}{name}", cut.rows) for name, _ in cut.state)
    whole = ((RESIDUAL, cut.rows),)
    finished = whole if cut.written else ((HIDDEN, cut.rows), *whole, *kept)
    columns = {f"{STATE}{name}": str(count) for name, count in cut.state}
    return tuple(
        f"{name}[rows {mesh.words(axes)}, {columns.get(name) or _width(cut, name)}]"
        for name, axes in cut.parts or finished
    )


def _width(cut: TransferDraft, name: str) -> str:
    """The sizes behind the rows; a written residual has all of its streams."""
    written = name.startswith((RESIDUAL, f"{HIDDEN}.written"))
    return f"{cut.streams}, width" if written and cut.streams > 1 else "width"
