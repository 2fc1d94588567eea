"""The tables of a topology where one module would be too long: boundaries stand in others."""

from __future__ import annotations

from collections.abc import Iterable

from boundaryc.emit.kernel_parts import HEADER
from boundaryc.emit.layout_text import bracketed_import, wrapped
from boundaryc.emit.parts import LONGEST, Block, Part, divided, homes
from boundaryc.emit.render import render
from boundaryc.emit.tables import Constant, TopologyTables
from boundaryc.emit.topology_views import TableLines, boundary_lines, in_order, topology_view
from boundaryc.emit.views import ModuleView
from boundaryc.graph.build import ENTRY
from boundaryc.plan.result import StackPlan, TopologyPlan


def table_files(
    plan: StackPlan, topology: TopologyPlan, tables: TopologyTables, lines: TableLines
) -> tuple[str, dict[str, str]]:
    """A topology's ``__init__.py`` without its hash, and the modules of boundaries that it lacks.

    Those are all in one module, or in one for each stage that they are behind. ``lines`` are those
    of ``tables``.
    """
    text = render("topology.py.jinja", topology_view(plan, topology, lines))
    if HEADER + len(text.splitlines()) <= LONGEST:
        return text, {}
    constants = {one.name: one for one in in_order(plan, tables)}
    blocks = [_block(one) for one in constants.values()]
    parts = divided("boundaries", "after", blocks)
    where = f"{plan.stack.name} on {topology.spec.name}"
    files = {
        f"{part.module}.py": _text(where, part, [constants[one.name] for one in part.blocks])
        for part in parts
    }
    divided_view = topology_view(plan, topology, lines, homes(parts))
    return render("topology.py.jinja", divided_view), files


def _block(constant: Constant) -> Block:
    producer = constant.edges[0].producer
    return Block(constant.name, boundary_lines(constant), None if producer == ENTRY else producer)


def _text(where: str, part: Part, constants: Iterable[Constant]) -> str:
    named = {name.partition(".")[0] for one in constants for name in one.value if name != "None"}
    after = f"after {part.stage}" if part.stage else "when a stage is entered and left"
    told = f"{where}. Each has one function for each of `COLUMNS` in `__init__.py`."
    doc = (f"What runs {after}.", "", *wrapped("", told))
    lines = tuple(line for block in part.blocks for line in block.lines)
    view = ModuleView(doc, bracketed_import(".", sorted(named)), (lines,))
    return render("module.py.jinja", view)
