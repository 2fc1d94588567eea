"""Views of one topology: its layout, its tables, and one module per batch variant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from boundaryc.emit.collected import TopologyFunctions
from boundaryc.emit.fused_views import fused_lines, fused_slots
from boundaryc.emit.layout_text import (
    WIDTH,
    bracketed,
    bracketed_import,
    closed,
    indented,
    local_imports,
    tuple_lines,
)
from boundaryc.emit.norms import bias_of
from boundaryc.emit.runs import consecutive
from boundaryc.emit.summing import sums_over_memory
from boundaryc.emit.tables import Constant, Layer, PolicyTable, TopologyTables
from boundaryc.emit.views import LayoutView, Lines, TopologyView
from boundaryc.graph.build import capture_places
from boundaryc.operations import final_read
from boundaryc.plan.result import Column, StackPlan, TopologyPlan
from boundaryc.topology import Mesh

COMPLETE = "complete"
"""The entry of batches whose input owes nothing."""


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
    rows = _rows(functions)
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
        group_slots=_slots([name for name, _ in groups] + fused_slots(plan, scope)),
        groups=_attributes(
            [
                (f"self.{name} = provider.collective(", "MESH", quoted(mesh.names(axes)))
                for name, axes in groups
            ],
            fused_lines(plan, scope),
        ),
        row_doc="Rows of each member of a group, for every move that looks them up."
        if rows
        else "No boundary of this topology moves rows by their counts.",
        sums=sums_over_memory(plan, [functions]),
        row_slots=_slots(list(rows)),
        rows=_attributes((f"self.{name} = {call}(", *args) for name, (call, *args) in rows.items()),
    )


def _rows(functions: TopologyFunctions) -> dict[str, tuple[str, ...]]:
    """What the rows of a batch have, by name: the call that makes it, and its arguments."""
    mesh, scope = functions.plan.mesh, functions.scope
    found: dict[str, tuple[str, ...]] = {
        scope.row_name(moved, finer): (
            "cut.members",
            quoted(mesh.names(moved)),
            f"finer={quoted(mesh.names(finer))}",
        )
        for moved, finer in scope.rows
    }
    for mask in scope.orders:
        found[scope.order_name(mask)] = ("cut.order", f"rows={quoted(mesh.names(mask))}")
    for mask, by_token in scope.tokens:
        found[scope.token_name(mask, by_token=by_token)] = (
            "cut.tokens",
            f"rows={quoted(mesh.names(mask))}",
            *(["by_token=True"] if by_token else []),
        )
    return dict(sorted(found.items()))


def _attributes(calls: Iterable[tuple[str, ...]], more: Lines = ()) -> Lines:
    """The body of a constructor: each attribute from the head of a call and its arguments."""
    lines = (bracketed(head, arguments, ")", indent=8) for head, *arguments in calls)
    return (*(line for call in lines for line in call), *more) or ("pass",)


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
    return tuple_lines("__slots__ = ", [f'"{name}"' for name in sorted(names)], indent=4)


def _joined(mesh: Mesh, axes: int) -> str:
    """The label that the runtime makes up for a group without a name of its own."""
    parts: list[str] = []
    for axis in dict.fromkeys(atom.axis for atom in mesh.atoms):
        own = [atom.name for atom in mesh.atoms if atom.axis == axis]
        named = [name for name in mesh.names(axes) if name in own]
        parts += [axis] if named == own else named
    return "_".join(parts)


@dataclass(frozen=True, slots=True)
class TableLines:
    """The tables of topologies with the same functions: what their modules say that names none.

    ``imports`` are those of the runtime and of layers, ``modules`` have functions of boundaries.
    """

    columns: tuple[Column, ...]
    imports: Lines
    modules: Lines
    boundaries: tuple[Lines, ...]
    layers: tuple[Lines, ...]
    tables: tuple[Lines, ...]
    by_policy: Lines


def table_lines(
    plan: StackPlan, functions: TopologyFunctions, tables: TopologyTables
) -> TableLines:
    """The lines of ``tables``; of a topology only the functions are looked at."""
    kinds = sorted({layer.kind.name for _, layer in tables.layers})
    boundaries = sorted({slot.boundary for _, layer in tables.layers for slot in layer.kind.slots})
    return TableLines(
        tables.columns,
        imports=(
            "from boundaryc import runtime",
            *bracketed_import("boundaryc.runtime", sorted([*boundaries, "Column", "Table"])),
            "",
            *bracketed_import("..layers", sorted({*kinds, "Layer"})),
        ),
        modules=bracketed_import(".", _modules(functions)),
        boundaries=tuple(boundary_lines(constant) for constant in in_order(plan, tables)),
        layers=tuple(_layer(name, layer) for name, layer in tables.layers),
        tables=tuple(_table(table) for table in tables.tables),
        by_policy=_by_policy(plan, functions.plan.tables, tables.tables),
    )


def topology_view(
    plan: StackPlan,
    topology: TopologyPlan,
    lines: TableLines,
    home: Mapping[str, str] | None = None,
) -> TopologyView:
    """The view of a topology's ``__init__.py``, without the hash of all that it runs.

    ``home`` has the modules of boundaries that are in others, by name.
    """
    title = f"{plan.stack.name} on {topology.spec.name}"
    return TopologyView(
        doc=(
            f"Which function runs at which boundary: {title}.",
            "",
            f"{sizes(topology.mesh)}, outermost first." if topology.mesh.atoms else "1 rank.",
        ),
        title=title,
        stack=plan.stack.name,
        topology=topology.spec.name,
        captures=quoted([one.name for one in plan.stack.captures]) if plan.stack.captures else "",
        segments=plan.stack.segments,
        extras=_extras(plan),
        travels=_travelling(plan),
        entry=plan.stack.entry if plan.stack.entry != COMPLETE else "",
        overlaps=plan.stack.two_batch,
        providers=quoted(plan.stack.fusion) if plan.stack.fusion else "",
        base=_base(plan),
        final_bias=bool(_final_bias(plan)),
        imports=(
            *lines.imports,
            *(local_imports(home) if home else lines.modules),
            "from .layout import MESH, Batch, Groups, Rows",
        ),
        columns=_columns(topology, lines.columns),
        boundaries=() if home else lines.boundaries,
        layers=lines.layers,
        tables=lines.tables,
        by_policy=lines.by_policy,
    )


def _base(plan: StackPlan) -> str:
    """What the class of the stack is derived from."""
    known = {
        "UnnormedStack": not plan.stack.terminal.norm,
        "LayerNormStack": _final_bias(plan) is not None,
        "FusingStack": bool(plan.stack.fusion),
    }
    found = [name for name, needed in known.items() if needed] or ["Stack"]
    return ", ".join(f"runtime.{name}[Groups, Rows, Layer]" for name in found)


def _final_bias(plan: StackPlan) -> bool | None:
    """Whether the final norm has a bias; None where it is no layer norm."""
    read = plan.operations[final_read(plan.stack)]
    return bias_of(plan.stack.norm, read, read.params[0]) if read.params else None


def _travelling(plan: StackPlan) -> Lines:
    """The captures that go on to later pipeline stages, with the boundaries that take them."""
    items = []
    for capture in plan.stack.captures:
        if capture.travels:
            places = tuple(capture_places(plan.stack, capture))
            items.append(f'("{capture.name}", "{capture.rows}", {places})')
    return tuple_lines("travels = ", items, indent=4) if items else ()


def _extras(plan: StackPlan) -> Lines:
    """The extra contributions, each with the layers that it follows, as inclusive ranges."""
    items = [
        f'("{extra.name}", {first}, {last})'
        for extra in plan.stack.extras
        for first, last in consecutive(extra.layers)
    ]
    return tuple_lines("extras = ", items, indent=4) if items else ()


def _modules(functions: TopologyFunctions) -> list[str]:
    """Every module from which some boundary has functions."""
    found: set[str] = set()
    for known in functions.variants.values():
        found.update(known.homes.values())
        found.update(known.homes_beside[resume.name] for resume in known.resumes.values())
    return sorted(found)


def in_order(plan: StackPlan, tables: TopologyTables) -> list[Constant]:
    """The boundaries as a forward meets them."""
    return sorted(tables.boundaries, key=lambda one: _place(plan, one))


def boundary_lines(constant: Constant) -> Lines:
    """The value of a boundary under its name."""
    return tuple_lines(f"{constant.name} = ", constant.value)


def _place(plan: StackPlan, constant: Constant) -> tuple[int, bool, bool]:
    """Orders constants as a forward meets them: what leaves a stage before what enters the next.

    The other ways in stand behind the plain one.
    """
    order = plan.graph.edges()
    first = min(order.index(edge) for edge in constant.edges)
    base = constant.base
    return first, "_TO_" in base, base.endswith(("_RESUME", "_EMPTY"))


def _columns(topology: TopologyPlan, columns: tuple[Column, ...]) -> Lines:
    lines: list[str] = []
    for column in columns:
        masks = (topology.mesh.mask(axis) for axis in column.even)
        atoms = [name for mask in masks for name in topology.mesh.names(mask)]
        multiple = topology.row_multiples[column.variant]
        words = [f'"{column.variant}"']
        words += [f"even={quoted(atoms)}"] if atoms else []
        words += [f"row_multiple={multiple}"] if multiple > 1 else []
        words += [f'entry="{column.entry}"'] if column.entry != COMPLETE else []
        # What is planned for decoding stands behind, and serves all that have not been served.
        words += [f'mode="{column.mode}"'] if column.mode == "prefill" else []
        words += [f"max_rows={topology.few_rows[column.variant]}"] if column.few else []
        lines += closed(bracketed("Column(", words, ")", indent=5))
    if len(lines) == 1 and len(lines[0]) < 86:
        return (f"COLUMNS = ({lines[0]})",)
    return ("COLUMNS = (", *indented(lines), ")")


def _layer(name: str, layer: Layer) -> Lines:
    if not layer.boundaries:
        return (f"{name} = {layer.kind.name}()",)
    head = f"{name} = {layer.kind.name}("
    if len(head) > WIDTH >= len(f"{name} = ("):
        value = _layer_value(layer, indent=4)
        return (f"{name} = (", *indented([f"{layer.kind.name}(", *value]), ")")
    return (head, *_layer_value(layer))


def _layer_value(layer: Layer, indent: int = 0) -> Lines:
    """The arguments of a layer and the bracket behind them, which stand at ``indent``."""
    lines: list[str] = []
    for slot, arguments in zip(layer.kind.slots, layer.boundaries, strict=True):
        call = f"{slot.stage.name}={slot.boundary}("
        lines += indented(closed(bracketed(call, arguments, ")", indent=5 + indent)))
    return (*lines, ")")


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
        *indented(closed(layers)),
        f"    norm={table.norm.read},",
        f"    norm_resume={table.norm.resume},",
        f"    norm_empty={table.norm.empty},",
        ")",
    )


def _by_policy(plan: StackPlan, policies: Iterable[str], tables: tuple[PolicyTable, ...]) -> Lines:
    names = {policy: table.name for table in tables for policy in table.policies}
    items = [f'"auto": {names[plan.stack.policy_auto]}']
    items += [f'"{policy}": {names[policy]}' for policy in policies]
    return bracketed("TABLES = {", items, "}")
