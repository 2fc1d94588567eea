"""Views of one topology: its layout, its tables, and one module per batch variant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from boundaryc.emit.functions import TopologyFunctions
from boundaryc.emit.layout_text import bracketed, bracketed_import, indented, tuple_lines
from boundaryc.emit.tables import Constant, Layer, PolicyTable, TopologyTables
from boundaryc.emit.views import LayoutView, Lines, TopologyView
from boundaryc.plan.result import Column, StackPlan, TopologyPlan
from boundaryc.topology import Mesh


def sizes(mesh: Mesh) -> str:
    """The ranks as a product: ``4 ranks = attn_dp 2 x attn_tp 2``."""
    total = mesh.size(mesh.every)
    product = " x ".join(f"{atom.name} {atom.size}" for atom in mesh.atoms)
    return f"{total} ranks = {product}" if mesh.atoms else "1 rank"


def quoted(names: Sequence[str]) -> str:
    """A tuple of strings as Python."""
    inside = ", ".join(f'"{name}"' for name in names)
    return f"({inside},)" if len(names) == 1 else f"({inside})"


def layout_view(plan: StackPlan, functions: TopologyFunctions) -> LayoutView:
    """The view of ``layout.py``."""
    mesh, scope = functions.plan.mesh, functions.scope
    groups = sorted((mesh.label(axes), axes) for axes in scope.groups)
    rows = sorted((scope.row_name(*move), move) for move in scope.rows)
    labels = [
        f'("{name}", {quoted(mesh.names(axes))})'
        for name, axes in groups
        if name not in ("tp", _joined(mesh, axes))
    ]
    atoms = [f'("{atom.name}", {atom.size}, "{atom.axis}")' for atom in mesh.atoms]
    return LayoutView(
        doc=(
            f"The ranks of {functions.plan.spec.name}, the groups they communicate in, the rows "
            "they move.",
            "",
            f"{sizes(mesh)}, outermost first." if mesh.atoms else "1 rank.",
        ),
        mesh=_mesh(atoms, labels),
        group_doc="The groups in which boundaries of this topology communicate."
        if groups
        else "No boundary of this topology communicates.",
        group_slots=_slots([name for name, _ in groups]),
        groups=_attributes(
            (f"self.{name} = provider.collective(", "MESH", quoted(mesh.names(axes)))
            for name, axes in groups
        ),
        row_doc="Rows of each member of a group, for every move that looks them up."
        if rows
        else "No boundary of this topology moves rows by their counts.",
        row_slots=_slots([name for name, _ in rows]),
        rows=_attributes(
            (
                f"self.{name} = cut.members(",
                quoted(mesh.names(moved)),
                f"finer={quoted(mesh.names(finer))}",
            )
            for name, (moved, finer) in rows
        ),
    )


def _attributes(calls: Iterable[tuple[str, str, str]]) -> Lines:
    """The body of a constructor: each attribute from a call with two arguments."""
    lines = (bracketed(head, [first, second], ")", indent=8) for head, first, second in calls)
    return tuple(line for call in lines for line in call) or ("pass",)


def _mesh(atoms: list[str], labels: list[str]) -> Lines:
    value = tuple_lines("", atoms) if atoms else ("()",)
    if not labels:
        if len(value) == 1:
            line = f"MESH = Mesh({value[0]})"
            return (line,) if len(line) <= 100 else ("MESH = Mesh(", *indented(value), ")")
        return (f"MESH = Mesh({value[0]}", *value[1:-1], f"{value[-1]})")
    tail = tuple_lines("labels=", labels)
    return (
        "MESH = Mesh(",
        *indented([*value[:-1], f"{value[-1]},"]),
        *indented([*tail[:-1], f"{tail[-1]},"]),
        ")",
    )


def _slots(names: list[str]) -> Lines:
    return tuple_lines("__slots__ = ", [f'"{name}"' for name in names])


def _joined(mesh: Mesh, axes: int) -> str:
    """The label that the runtime makes up for a group without a name of its own."""
    parts: list[str] = []
    for axis in dict.fromkeys(atom.axis for atom in mesh.atoms):
        own = [atom.name for atom in mesh.atoms if atom.axis == axis]
        named = [name for name in mesh.names(axes) if name in own]
        parts += [axis] if named == own else named
    return "_".join(parts)


def topology_view(
    plan: StackPlan, functions: TopologyFunctions, tables: TopologyTables
) -> TopologyView:
    """The view of a topology's ``__init__.py``."""
    topology = functions.plan
    title = f"{plan.stack.name} on {topology.spec.name}"
    kinds = sorted({layer.kind.name for _, layer in tables.layers})
    boundaries = sorted({slot.boundary for _, layer in tables.layers for slot in layer.kind.slots})
    return TopologyView(
        doc=(
            f"Which function runs at which boundary: {title}.",
            "",
            f"{sizes(topology.mesh)}, outermost first." if topology.mesh.atoms else "1 rank.",
        ),
        title=title,
        imports=(
            "from boundaryc import runtime",
            *bracketed_import("boundaryc.runtime", sorted([*boundaries, "Column", "Table"])),
            "",
            *bracketed_import("..layers", sorted({*kinds, "Layer"})),
            *bracketed_import(".", sorted(functions.variants)),
            "from .layout import MESH, Batch, Groups, Rows",
        ),
        columns=_columns(topology, tables.columns),
        boundaries=tuple(
            tuple_lines(f"{constant.name} = ", constant.value)
            for constant in sorted(tables.boundaries, key=lambda one: _place(plan, one))
        ),
        layers=tuple(_layer(name, layer) for name, layer in tables.layers),
        tables=tuple(_table(table) for table in tables.tables),
        by_policy=_by_policy(plan, topology.tables, tables.tables),
    )


def _place(plan: StackPlan, constant: Constant) -> tuple[int, bool]:
    """Orders constants as a forward meets them: what leaves a stage before what enters the next."""
    order = plan.graph.edges()
    return min(order.index(edge) for edge in constant.edges), "_TO_" in constant.base


def _columns(topology: TopologyPlan, columns: tuple[Column, ...]) -> Lines:
    items = []
    for column in columns:
        masks = (topology.mesh.mask(axis) for axis in column.even)
        atoms = [name for mask in masks for name in topology.mesh.names(mask)]
        multiple = topology.row_multiples[column.variant]
        even = f", even={quoted(atoms)}" if atoms else ""
        rows = f", row_multiple={multiple}" if multiple > 1 else ""
        few = f", max_rows={topology.few_rows[column.variant]}" if column.few else ""
        items.append(f'Column("{column.variant}"{even}{rows}{few})')
    return tuple_lines("COLUMNS = ", items)


def _layer(name: str, layer: Layer) -> Lines:
    lines = [f"{name} = {layer.kind.name}("]
    for slot, (prepare, leave) in zip(layer.kind.slots, layer.boundaries, strict=True):
        call = f"{slot.stage.name}={slot.boundary}("
        lines += indented(_closed(bracketed(call, [prepare, leave], ")", indent=5)))
    return (*lines, ")")


def _closed(lines: Lines) -> Lines:
    return (*lines[:-1], f"{lines[-1]},")


def _table(table: PolicyTable) -> Lines:
    periods: list[str] = []
    items: list[str] = []
    for run in table.layers:
        if len(run.names) == 1:
            items.append(f"({run.count}, {run.names[0]})")
            continue
        known = sum(item.startswith("*") for item in items)
        name = f"{table.name}_PERIOD" + (f"_{known + 1}" if known else "")
        head = f"{name}: tuple[tuple[int, Layer], ...] = "
        periods += tuple_lines(head, [f"(1, {layer})" for layer in run.names])
        items.append(f"*({name} * {run.count})")
    layers = tuple_lines("layers=", items, indent=5)
    return (
        *periods,
        f"{table.name}: Table[Layer] = Table(",
        *indented(_closed(layers)),
        f"    norm={table.norm},",
        ")",
    )


def _by_policy(plan: StackPlan, policies: Iterable[str], tables: tuple[PolicyTable, ...]) -> Lines:
    names = {policy: table.name for table in tables for policy in table.policies}
    items = [f'"auto": {names[plan.stack.policy_auto]}']
    items += [f'"{policy}": {names[policy]}' for policy in policies]
    return bracketed("TABLES = {", items, "}")
