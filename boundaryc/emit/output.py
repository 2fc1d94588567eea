"""From a plan to the text of every file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from boundaryc.emit.access_views import access_view
from boundaryc.emit.collected import TopologyFunctions
from boundaryc.emit.files import Origin, with_header
from boundaryc.emit.function_names import access_module
from boundaryc.emit.functions import topology_functions
from boundaryc.emit.manifest import manifest, tree_hash
from boundaryc.emit.norms import Norms
from boundaryc.emit.patterns import Pattern, layer_pattern
from boundaryc.emit.plan_json import plan_json
from boundaryc.emit.render import render
from boundaryc.emit.rowwise import rowwise_view
from boundaryc.emit.stack_views import layers_view, stack_view
from boundaryc.emit.stream_views import streams_view
from boundaryc.emit.summing import sum_view, sums_over_memory
from boundaryc.emit.tables import topology_tables
from boundaryc.emit.topology_views import layout_view, topology_view
from boundaryc.emit.variant_views import variant_view
from boundaryc.plan import access
from boundaryc.plan.result import StackPlan


@dataclass(frozen=True, slots=True)
class Output:
    """Everything compiled from one stack: file texts by path inside the stack's folder."""

    stack: str
    origin: Origin
    files: Mapping[str, str]


def emit(plan: StackPlan, origin: Origin) -> Output:
    """The files of a planned stack, a function of the arguments alone."""
    access.forget()  # of equal ways the first that was met wins: no other stack may decide that
    functions = [topology_functions(plan, topology) for topology in plan.topologies]
    rowwise = rowwise_view(plan, functions)
    shared = {
        "layers.py": render("layers.py.jinja", layers_view(plan)),
        "rowwise.py": render("rowwise.py.jinja", rowwise),
        "kernels.py": render("kernels.py.jinja", rowwise),
    }
    streams = streams_view(plan, functions)
    if streams is not None and not rowwise.kernels:
        shared = {"layers.py": shared["layers.py"]}  # all that is row-wise has several streams
    if streams is not None:
        more = ("hyper.py", "hyper_kernels.py")
        shared |= {name: render(f"{name}.jinja", streams) for name in more}
    if sums_over_memory(plan, functions):
        sums = sum_view(plan.stack.name, plan.stack.hidden_size, Norms.of(plan.stack))
        more = ("symmetric.py", "symmetric_kernels.py")
        shared |= {name: render(f"{name}.jinja", sums) for name in more}
    modules = {"__init__.py": render("stack.py.jinja", stack_view(plan)), **shared}
    plans: dict[str, str] = {}
    pattern = layer_pattern(plan)
    for topology in functions:
        name = topology.plan.spec.name
        own = _topology(plan, topology, origin, shared, pattern)
        modules |= {f"{name}/{file}": text for file, text in own.items()}
        plans[f"{name}/plan.json"] = plan_json(plan, topology.plan)
    files = {name: with_header(origin, text) for name, text in modules.items()} | plans
    files = dict(sorted(files.items()))
    files["manifest.json"] = manifest(plan, origin, files)
    return Output(plan.stack.name, origin, files)


def _topology(
    plan: StackPlan,
    functions: TopologyFunctions,
    origin: Origin,
    shared: Mapping[str, str],
    pattern: Pattern,
) -> dict[str, str]:
    """The modules of one topology, which run with those that all topologies share."""
    tables = topology_tables(plan, functions, pattern)
    view = topology_view(plan, functions, tables, "")
    modules = {
        "__init__.py": render("topology.py.jinja", view),
        "layout.py": render("layout.py.jinja", layout_view(plan, functions)),
    }
    for variant, known in functions.variants.items():
        module = variant_view(plan, functions, known)
        modules[f"{variant}.py"] = render("module.py.jinja", module)
        beside = access_view(plan, functions, known)
        modules[f"{access_module(variant)}.py"] = render("module.py.jinja", beside)
    around = {f"../{name}": text for name, text in shared.items()}
    hashed = replace(view, hash=tree_hash(origin, around | modules))
    return modules | {"__init__.py": render("topology.py.jinja", hashed)}
