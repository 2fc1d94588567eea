"""From a plan to the text of every file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from boundaryc.emit.access_views import access_doc, access_parts
from boundaryc.emit.collected import TopologyFunctions, VariantFunctions
from boundaryc.emit.files import Origin, with_header
from boundaryc.emit.functions import topology_functions
from boundaryc.emit.kernel_parts import kernel_files
from boundaryc.emit.manifest import manifest, tree_hash
from boundaryc.emit.norms import Norms
from boundaryc.emit.parts import Part, homes, part_imports
from boundaryc.emit.patterns import layer_pattern
from boundaryc.emit.plan_json import plan_json, shared_plan
from boundaryc.emit.render import docstring, render
from boundaryc.emit.reuse import Library, Reuse
from boundaryc.emit.row_moves import moves_view
from boundaryc.emit.rowwise import rowwise_view
from boundaryc.emit.stack_views import layers_view, stack_view
from boundaryc.emit.stream_views import streams_view
from boundaryc.emit.summing import sum_view, sums_over_memory
from boundaryc.emit.table_parts import table_files
from boundaryc.emit.tables import topology_tables
from boundaryc.emit.topology_views import layout_view, table_lines
from boundaryc.emit.variant_views import edge_lines, variant_doc, variant_parts
from boundaryc.emit.views import ModuleView
from boundaryc.plan.alike import alike
from boundaryc.plan.result import StackPlan, TopologyPlan


@dataclass(frozen=True, slots=True)
class Output:
    """Everything compiled from one stack: file texts by path inside the stack's folder."""

    stack: str
    origin: Origin
    files: Mapping[str, str]


def emit(plan: StackPlan, origin: Origin, library: Library | None = None) -> Output:
    """The files of a planned stack, a function of ``plan`` and ``origin`` alone.

    ``library`` has what other stacks have been given, which saves time where they are alike.
    """
    reuse = Reuse(plan, library)
    groups = [each for group in alike(plan.topologies) for each in _functions(plan, group, reuse)]
    functions = [group[0] for group in groups]
    shared = _shared(plan, functions)
    modules = {"__init__.py": render("stack.py.jinja", stack_view(plan)), **shared}
    plans: dict[str, str] = {}
    pattern = layer_pattern(plan)
    for group in groups:
        tables = topology_tables(plan, group[0], pattern)
        lines = table_lines(plan, group[0], tables)
        common = shared_plan(plan, group[0].plan, reuse)
        for topology in group:
            name = topology.plan.spec.name
            written = table_files(plan, topology.plan, tables, lines)
            own = _topology(plan, topology, written, origin, shared)
            modules |= {f"{name}/{file}": text for file, text in own.items()}
            plans[f"{name}/plan.json"] = plan_json(plan, topology.plan, common)
    files = {name: with_header(origin, text) for name, text in modules.items()} | plans
    files = dict(sorted(files.items()))
    files["manifest.json"] = manifest(plan, origin, files)
    return Output(plan.stack.name, origin, files)


def _shared(plan: StackPlan, functions: Sequence[TopologyFunctions]) -> dict[str, str]:
    """The modules that all topologies share."""
    rowwise, streams = rowwise_view(plan, functions), streams_view(plan, functions)
    shared = {"layers.py": render("layers.py.jinja", layers_view(plan))}
    if streams is None or rowwise.kernels:  # or all that is row-wise has several streams
        kernels = render("kernels.py.jinja", rowwise)
        shared["rowwise.py"] = render("rowwise.py.jinja", rowwise)
        shared |= kernel_files("kernels", kernels, [one.name for one in rowwise.kernels])
    if streams is not None:
        kernels = render("hyper_kernels.py.jinja", streams)
        shared["hyper.py"] = render("hyper.py.jinja", streams)
        shared |= kernel_files("hyper_kernels", kernels, [one.name for one in streams.kernels])
    moves = moves_view(plan, functions)
    if moves is not None:
        more = ("moves.py", "move_kernels.py")
        shared |= {name: render(f"{name}.jinja", moves) for name in more}
    if sums_over_memory(plan, functions):
        sums = sum_view(plan.stack.name, plan.stack.hidden_size, Norms.of(plan.stack))
        more = ("symmetric.py", "symmetric_kernels.py")
        shared |= {name: render(f"{name}.jinja", sums) for name in more}
    return shared


def _functions(
    plan: StackPlan, topologies: Sequence[TopologyPlan], reuse: Reuse
) -> Iterator[list[TopologyFunctions]]:
    """The functions of topologies with equal plans, in groups that have the same.

    They have the same unless some function says how many ranks there are.
    """
    first = topology_functions(plan, topologies[0], reuse)
    _arrange(plan, first)
    if first.scope.sized:
        yield [first]
        for topology in topologies[1:]:
            own = topology_functions(plan, topology, reuse)
            _arrange(plan, own)
            yield [own]
    else:
        yield [first, *(replace(first, plan=topology) for topology in topologies[1:])]


def _arrange(plan: StackPlan, functions: TopologyFunctions) -> None:
    """Puts functions into modules, which gives them their whole names, and writes these."""
    for known in functions.variants.values():
        if known.parts:
            continue  # another topology has them too
        known.told = tuple(edge_lines(plan, known))
        known.parts = variant_parts(plan, known)
        known.parts_beside = access_parts(functions, known)
        known.homes, known.homes_beside = homes(known.parts), homes(known.parts_beside)
        for part in (*known.parts, *known.parts_beside):
            known.texts[part.module] = _text(plan, part, known)


HASH = "\n    manifest_hash"
"""What the hash of all that a topology runs is assigned to; it is rendered without one."""


def _text(plan: StackPlan, part: Part, known: VariantFunctions) -> str:
    """A module from the end of its docstring on."""
    doc = (part.module,)
    imports = part_imports(plan, part, known.homes | known.homes_beside)
    view = ModuleView(doc, imports, tuple(block.lines for block in part.blocks))
    return render("module.py.jinja", view).removeprefix(docstring(doc))


def _topology(
    plan: StackPlan,
    functions: TopologyFunctions,
    tables: tuple[str, Mapping[str, str]],
    origin: Origin,
    shared: Mapping[str, str],
) -> dict[str, str]:
    """The modules of one topology, which run with those that all topologies share.

    ``tables`` are its own module, and further ones.
    """
    tables_text, boundaries = tables
    modules = {
        "__init__.py": tables_text,
        "layout.py": render("layout.py.jinja", layout_view(plan, functions)),
        **boundaries,
    }
    for known in functions.variants.values():
        for document, parts in ((variant_doc, known.parts), (access_doc, known.parts_beside)):
            for part in parts:
                doc = docstring(document(plan, functions, known, part))
                modules[f"{part.module}.py"] = f"{doc}{known.texts[part.module]}"
    around = {f"../{name}": text for name, text in shared.items()}
    before, empty, after = modules["__init__.py"].partition(f'{HASH} = ""')
    assert empty
    hashed = f'{before}{HASH} = "{tree_hash(origin, around | modules)}"{after}'
    return modules | {"__init__.py": hashed}
