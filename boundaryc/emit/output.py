"""From a plan to the text of every file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from boundaryc.emit.files import Origin, with_header
from boundaryc.emit.functions import TopologyFunctions, topology_functions
from boundaryc.emit.manifest import manifest
from boundaryc.emit.plan_json import plan_json
from boundaryc.emit.render import render
from boundaryc.emit.stack_views import layers_view, rowwise_view, stack_view
from boundaryc.emit.tables import topology_tables
from boundaryc.emit.topology_views import layout_view, topology_view
from boundaryc.emit.variant_views import variant_view
from boundaryc.plan.result import StackPlan


@dataclass(frozen=True, slots=True)
class Output:
    """Everything compiled from one stack: file texts by path inside the stack's folder."""

    stack: str
    origin: Origin
    files: Mapping[str, str]


def emit(plan: StackPlan, origin: Origin) -> Output:
    """The files of a planned stack, a function of the arguments alone."""
    functions = [topology_functions(plan, topology) for topology in plan.topologies]
    rowwise = rowwise_view(plan, functions)
    modules = {
        "__init__.py": render("stack.py.jinja", stack_view(plan)),
        "layers.py": render("layers.py.jinja", layers_view(plan)),
        "rowwise.py": render("rowwise.py.jinja", rowwise),
        "kernels.py": render("kernels.py.jinja", rowwise),
    }
    plans: dict[str, str] = {}
    for topology in functions:
        name = topology.plan.spec.name
        modules |= {f"{name}/{file}": text for file, text in _topology(plan, topology).items()}
        plans[f"{name}/plan.json"] = plan_json(plan, topology.plan)
    files = {name: with_header(origin, text) for name, text in modules.items()} | plans
    files = dict(sorted(files.items()))
    files["manifest.json"] = manifest(plan, origin, files)
    return Output(plan.stack.name, origin, files)


def _topology(plan: StackPlan, functions: TopologyFunctions) -> dict[str, str]:
    tables = topology_tables(plan, functions)
    modules = {
        "__init__.py": render("topology.py.jinja", topology_view(plan, functions, tables)),
        "layout.py": render("layout.py.jinja", layout_view(plan, functions)),
    }
    for variant, known in functions.variants.items():
        view = variant_view(plan, functions, known)
        modules[f"{variant}.py"] = render("module.py.jinja", view)
    return modules
