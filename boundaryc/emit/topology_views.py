"""Views of one topology: its layout, its tables, and one module per batch variant."""

from __future__ import annotations

from collections.abc import Sequence

from boundaryc.emit.drafts import rendered, sends
from boundaryc.emit.functions import Named, TopologyFunctions, Use, VariantFunctions
from boundaryc.emit.drafts import Draft, ExitDraft
from boundaryc.emit.layers import layer_kinds
from boundaryc.emit.layout_text import bracketed, indented, listed, tuple_lines, wrapped
from boundaryc.emit.tables import Layer, PolicyTable, TopologyTables
from boundaryc.emit.views import LayoutView, Lines, ModuleView, TopologyView
from boundaryc.graph.build import FINAL
from boundaryc.plan.result import Column, StackPlan, TopologyPlan
from boundaryc.topology import Mesh

AXES = {
    "attn_dp": "attention data parallel: each part has sequences of its own",
    "attn_cp": "context parallel: each part has some tokens of every sequence",
    "attn_tp": "attention tensor parallel: the ranks of a part share the heads",
}


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
    labels = [f'("{name}", {quoted(mesh.names(axes))})' for name, axes in groups
              if name not in ("tp", _joined(mesh, axes))]  # fmt: skip
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
        groups=tuple(
            f'self.{name} = provider.collective(MESH, {quoted(mesh.names(axes))})'
            for name, axes in groups
        )
        or ("pass",),
        row_doc="Rows of each member of a group, for every move that looks them up."
        if rows
        else "No boundary of this topology moves rows by their counts.",
        row_slots=_slots([name for name, _ in rows]),
        rows=tuple(
            f"self.{name} = cut.members({quoted(mesh.names(moved))}, "
            f"finer={quoted(mesh.names(finer))})"
            for name, (moved, finer) in rows
        )
        or ("pass",),
    )


def _mesh(atoms: list[str], labels: list[str]) -> Lines:
    value = tuple_lines("", atoms) if atoms else ("()",)
    if not labels:
        if len(value) == 1 and len(value[0]) < 85:
            return (f"MESH = Mesh({value[0]})",)
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


def variant_view(
    plan: StackPlan, functions: TopologyFunctions, known: VariantFunctions
) -> ModuleView:
    """The view of one batch variant's module."""
    blocks: list[Lines] = []
    ordered = _in_order(plan, functions, known)
    for item in ordered:
        if isinstance(item.draft, Draft):
            blocks.append(rendered(item.draft, item.name, item.following, item.when))
        else:
            blocks.append(_decision(item.draft, item.name, known))
    return ModuleView(
        doc=_variant_doc(plan, functions, known),
        imports=_variant_imports(plan, known),
        blocks=tuple(blocks),
    )


def _in_order(
    plan: StackPlan, functions: TopologyFunctions, known: VariantFunctions
) -> list[Named[Draft] | Named[ExitDraft]]:
    """Functions as a forward meets them, alternatives behind each other."""
    found: dict[int, Named[Draft] | Named[ExitDraft]] = {}
    bases: dict[str, None] = {}
    for edge in plan.graph.edges():
        for use, drafts in functions.drafts.items():
            if use.edge == edge and functions.plan.columns[use.column].variant == known.variant:
                for draft in (
                    *((drafts.leave,) if drafts.leave else ()),
                    *((drafts.exit.reduce, drafts.exit.leave, drafts.exit) if drafts.exit else ()),
                    drafts.prepare,
                ):
                    bases[draft.base] = None
    for base in bases:
        for named in (*known.functions.values(), *known.exits.values()):
            if named.draft.base == base:
                found[id(named)] = named
    return list(found.values())


def _decision(draft: ExitDraft, name: str, known: VariantFunctions) -> Lines:
    reduce, leave = known.functions[draft.reduce.key], known.functions[draft.leave.key]
    return (
        f"{name} = ExitDecision(",
        f"    fuse_mlp_allreduce={draft.fuse},",
        f"    mlp_reduce_scatter={draft.scatter},",
        f"    reduce={reduce.name},",
        f"    leave={leave.name},",
        ")",
    )


def _variant_imports(plan: StackPlan, known: VariantFunctions) -> Lines:
    from boundaryc.emit.functions import imported_names

    needs = {need for named in known.functions.values() for need in named.draft.needs}
    custom = {name for named in known.functions.values() for name in named.draft.custom}
    runtime = sorted(
        (needs & {"Norm", "OwedOutput", "add"}) | ({"ExitDecision"} if known.exits else set()),
        key=lambda name: (not name[0].isupper(), name),
    )
    rowwise = sorted(needs & {"rms_norm", "add_rms_norm"})
    lines = ["from typing import Any", ""] if "Any" in needs else []
    lines += ["from torch import Tensor", ""]
    names = imported_names(plan)
    outside = []
    for operation in sorted(custom):
        module, _, function = (plan.operations[operation].call or "").partition(":")
        alias = names[operation]
        outside.append(
            f"from {module} import {function}" + (f" as {alias}" if alias != function else "")
        )
    if runtime:
        lines += [*bracketed_import("boundaryc.runtime", runtime)]
    lines += sorted(outside)
    lines.append("")
    if rowwise:
        lines.append(f"from ..rowwise import {', '.join(rowwise)}")
    lines.append("from .layout import Batch")
    return tuple(lines)


def bracketed_import(module: str, names: Sequence[str]) -> Lines:
    """An import that is broken as a formatter would."""
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= 100:
        return (line,)
    return (f"from {module} import (", *(f"    {name}," for name in names), ")")


def _variant_doc(plan: StackPlan, functions: TopologyFunctions, known: VariantFunctions) -> Lines:
    topology, mesh = functions.plan, functions.plan.mesh
    lines = [
        f"What runs between the stages of {plan.stack.name} on {topology.spec.name}, "
        f"in {_batches(known.variant)}.",
        "",
        *_mesh_doc(topology),
        "",
        *_terms(mesh),
        "",
    ]
    auto = plan.stack.policy_auto
    even = [column for column in topology.columns if column.variant == known.variant][0].even
    cut = f", batches cut evenly over {listed(even)}" if even else ""
    lines += wrapped("", f"What runs at each boundary, in order (policy {auto}{cut}):")
    lines.append("")
    lines += _edge_lines(plan, functions, known)
    alternatives = any(named.when for named in known.functions.values())
    if alternatives:
        lines += ["", "Functions that differ by batch, policy or place say so under \"when\"."]
    return tuple(lines)


def _batches(variant: str) -> str:
    return f"{variant.replace('_', '-')} batches"


def _mesh_doc(topology: TopologyPlan) -> Lines:
    mesh = topology.mesh
    if not mesh.atoms:
        return ("1 rank: nothing is communicated.",)
    lines = [f"{sizes(mesh)}, outermost first."]
    shown = [(axis, mesh.size(mesh.mask(axis))) for axis in AXES if mesh.mask(axis)]
    width = max(len(axis) for axis, _ in shown)
    for axis, size in shown:
        parts = f"{size} parts"
        pieces = mesh.names(mesh.mask(axis))
        made = f" (as {' x '.join(pieces)})" if len(pieces) > 1 else ""
        lines += wrapped(f"  {axis:<{width}}  ", f"{parts}, {AXES[axis]}{made}")
    lines.append(f"  {'tp':<{width}}  all ranks")
    return tuple(lines)


def _terms(mesh: Mesh) -> Lines:
    if not mesh.atoms:
        return ('"rows all" are the rows of the batch.',)
    outer = mesh.atoms[0].axis
    part = '"rows tp" are those'
    if mesh.mask(outer) != mesh.every:
        part = f'"rows {outer}" are those of a rank\'s own part of {outer}, "rows tp" those'
    return wrapped(
        "",
        f'{part} of the rank alone, "rows all" those of every rank. "owes tp" is a '
        "partial sum, still to be added over the group tp.",
    )


def _edge_lines(
    plan: StackPlan, functions: TopologyFunctions, known: VariantFunctions
) -> list[str]:
    column = next(
        i for i, one in enumerate(functions.plan.columns) if one.variant == known.variant
    )
    kinds = {kind.stages: kind for kind in layer_kinds(plan)}
    lines = [f"  {kind.where}: {', '.join(kind.stages)}" for kind in kinds.values()]
    lines.append("")
    seen: dict[tuple[str, tuple[str, ...]], None] = {}
    entries = []
    for edge in plan.graph.edges():
        drafts = functions.drafts[Use(edge, column, plan.stack.policy_auto)]
        target = "final norm" if edge.consumer == FINAL else edge.consumer
        title = f"{edge.producer or 'start'} -> {target}"
        sent = sends(drafts)
        key = (title, tuple(one.text for one in sent))
        if key in seen:
            continue
        seen[key] = None
        if any(other == title for other, _ in list(seen)[:-1]):
            title = f"{title}, after {edge.source.producer}"
        entries.append((title, sent))
    width = max(len(title) for title, _ in entries)
    wide = max((len(one.text) for _, sent in entries for one in sent), default=0)
    for title, sent in entries:
        if not sent:
            lines.append(f"  {title:<{width}}  nothing is sent")
        for index, one in enumerate(sent):
            first = f"  {'' if index else title:<{width}}  {one.text:<{wide}}  "
            lines += wrapped(first, one.why)
    return lines


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
            for constant in sorted(tables.boundaries, key=lambda one: _place(plan, one.edges))
        ),
        layers=tuple(_layer(name, layer) for name, layer in tables.layers),
        tables=tuple(_table(table) for table in tables.tables),
        by_policy=_by_policy(plan, tables.tables),
    )


def _place(plan: StackPlan, edges: list[object]) -> int:
    order = plan.graph.edges()
    return min(order.index(edge) for edge in edges)  # type: ignore[arg-type]


def _columns(topology: TopologyPlan, columns: tuple[Column, ...]) -> Lines:
    items = []
    for column in columns:
        atoms = [name for axis in column.even for name in topology.mesh.names(
            topology.mesh.mask(axis))]  # fmt: skip
        multiple = topology.row_multiples[column.variant]
        even = f", even={quoted(atoms)}" if atoms else ""
        rows = f", row_multiple={multiple}" if multiple > 1 else ""
        few = f", max_rows={topology.few_rows[column.variant]}" if column.few else ""
        items.append(f'Column("{column.variant}"{even}{rows}{few})')
    return tuple_lines("COLUMNS = ", items)


def _layer(name: str, layer: Layer) -> Lines:
    lines = [f"{name} = {layer.kind.name}("]
    for slot, (prepare, leave) in zip(layer.kind.slots, layer.boundaries, strict=True):
        lines += indented(
            [f"{line}" for line in _closed(bracketed(
                f"{slot.stage.name}={slot.boundary}(", [prepare, leave], ")", indent=5))]
        )  # fmt: skip
    return (*lines, ")")


def _closed(lines: Lines) -> Lines:
    return (*lines[:-1], f"{lines[-1]},")


def _table(table: PolicyTable) -> Lines:
    items = []
    for run in table.layers:
        if len(run.names) == 1:
            items.append(f"({run.count}, {run.names[0]})")
        else:
            period = ", ".join(f"(1, {name})" for name in run.names)
            items.append(f"*(({period}) * {run.count})")
    layers = tuple_lines("layers=", items, indent=5)
    return (
        f"{table.name}: Table[Layer] = Table(",
        *indented(_closed(layers)),
        f"    norm={table.norm},",
        ")",
    )


def _by_policy(plan: StackPlan, tables: tuple[PolicyTable, ...]) -> Lines:
    names = {policy: table.name for table in tables for policy in table.policies}
    items = [f'"auto": {names[plan.stack.policy_auto]}']
    items += [f'"{policy}": {name}' for policy, name in sorted(names.items(), key=lambda pair: (
        len(pair[0]), pair[0]))]  # fmt: skip
    return bracketed("TABLES = {", items, "}")
