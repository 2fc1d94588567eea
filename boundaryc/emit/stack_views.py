"""Views of what all topologies of a stack share: layers, row-wise operations, kernels, loading."""

from __future__ import annotations

from collections.abc import Iterable

from boundaryc.emit.abi import ABI
from boundaryc.emit.layers import LayerKind, Param, layer_kinds
from boundaryc.emit.layout_text import (
    WIDTH,
    bracketed,
    bracketed_import,
    closed,
    indented,
    listed,
    tuple_lines,
    wrapped,
)
from boundaryc.emit.reasons import reasons
from boundaryc.emit.views import LayersView, LayerView, Lines, StackView
from boundaryc.plan.result import StackPlan


def stack_view(plan: StackPlan) -> StackView:
    """The view of the stack's ``__init__.py``."""
    variants = {
        topology.spec.name: tuple(dict.fromkeys(column.variant for column in topology.columns))
        for topology in plan.topologies
    }
    policies = ["auto", *plan.topologies[0].tables]
    kinds = sorted(kind.name for kind in layer_kinds(plan))
    exports = [*sorted(["POLICIES", "TOPOLOGIES", "VARIANTS"]), *kinds, "load", "supports"]
    return StackView(
        abi=ABI,
        name=plan.stack.name,
        layers=len(plan.stack.layers),
        pipeline=plan.stack.pipeline is not None,
        fusion=bool(plan.stack.fusion),
        stack_type="AnyFusingStack" if plan.stack.fusion else "AnyStack",
        reasons=_reasons(plan),
        variants=(
            "VARIANTS = {",
            *(f'    "{name}": {_strings(found)},' for name, found in variants.items()),
            "}",
        ),
        policies=f"POLICIES = {_strings(policies)}",
        layer_imports=bracketed_import(".layers", kinds, indent=4),
        exports="\n".join(bracketed("__all__ = [", [f'"{name}"' for name in exports], "]")),
    )


def _reasons(plan: StackPlan) -> Lines:
    """Per topology and variant that it has no boundaries for: why."""
    lines = ["REASONS = {"]
    for topology in plan.topologies:
        items = [f'"{name}": "{why}"' for name, why in reasons(plan, topology).items()]
        head = f'"{topology.spec.name}": '
        lines += indented(closed(bracketed(head + "{", items, "}", indent=5)))
    return (*lines, "}")


def _strings(names: Iterable[str]) -> str:
    return tuple_lines("", [f'"{name}"' for name in names])[0]


def layers_view(plan: StackPlan) -> LayersView:
    """The view of ``layers.py``."""
    kinds = layer_kinds(plan)
    views = tuple(_layer_view(kind) for kind in kinds)
    params = [
        param for kind in kinds for slot in kind.slots for param in (*slot.read, *slot.update)
    ]
    types = {param.type for param in params}
    runtime = sorted({slot.boundary for kind in kinds for slot in kind.slots})
    runtime = sorted({*runtime, *(types - {"Any"})})
    imports = ["from dataclasses import dataclass"]
    if "Any" in types:
        imports.append("from typing import Any")
    imports += ["", *bracketed_import("boundaryc.runtime", runtime)]
    if any(param.bias is not None for param in params):
        imports.append(f"from boundaryc.runtime import check_bias as {CHECK}")
    if any(param.eps is not None for param in params):
        imports.append(f"from boundaryc.runtime import check_eps as {CHECK_EPS}")
    union = " | ".join(kind.name for kind in kinds)
    lines: Lines = (f"Layer = {union}",)
    if len(lines[0]) > 100:
        names = [kind.name for kind in kinds]
        lines = ("Layer = (", f"    {names[0]}", *(f"    | {name}" for name in names[1:]), ")")
    return LayersView(plan.stack.name, tuple(imports), views, lines)


def _layer_view(kind: LayerKind) -> LayerView:
    params: dict[str, Param] = {}
    arguments: list[str] = []
    for slot in kind.slots:
        for param in (*slot.read, *slot.update):
            params.setdefault(param.name, param)
        passed = [param.name for param in slot.read]
        if slot.update:
            update = tuple_lines("update=", [param.name for param in slot.update], indent=17)
            passed.append("\n    ".join(update))
        stage = slot.stage.name
        call = bracketed(f"{stage}=self.{stage}.bind(", passed, "),", indent=12)
        arguments += "\n".join(call).split("\n")
    named = [f"{param.name}: {param.type}" for param in params.values()]
    head = bracketed("def bind(", ["self", *(["*"] if named else []), *named],
                     f") -> {kind.name}:", indent=4)  # fmt: skip
    doc = [f"{param.name} is {param.meaning}" for param in params.values()]
    sentence = "These boundaries with the parameters of one layer, read at every call."
    bind_doc: Lines = (f'"""{sentence}"""',)
    biases = tuple(line for param in params.values() for line in _check(param))
    checks = (*biases, *_check_eps(params.values()))
    if doc:
        refused = (REFUSED if biases else "") + (REFUSED_EPS if len(checks) > len(biases) else "")
        about = f"{'; '.join(doc)}.{refused}"
        bind_doc = (f'"""{sentence}', "", *wrapped("", about, indent=8), '"""')
    return LayerView(
        name=kind.name,
        doc=_layer_doc(kind),
        fields=tuple(f"{slot.stage.name}: {slot.boundary}" for slot in kind.slots),
        head=head,
        bind_doc=bind_doc,
        checks=checks,
        arguments=tuple(arguments),
    )


REFUSED = " BoundaryError for a layer norm with a bias that the stack file lacks, or the reverse."
REFUSED_EPS = " BoundaryError for a norm with another eps than the stack file's."
CHECK, CHECK_EPS = "_check_bias", "_check_eps"
"""No parameter can be called so: names begin with a letter."""


def _check(param: Param) -> Lines:
    """The statement that compares a layer norm with what the stack file says of its bias."""
    if param.bias is None:
        return ()
    return _statement(CHECK, [f'"{param.name}"', param.name, f"declared={param.bias}"])


def _check_eps(params: Iterable[Param]) -> Lines:
    """The statements that compare norms with what the stack file says of their eps."""
    names: dict[float, list[str]] = {}
    for param in params:
        if param.eps is not None:
            names.setdefault(param.eps, []).append(f"{param.name}={param.name}")
    calls = (_statement(CHECK_EPS, [repr(eps), *given]) for eps, given in names.items())
    return tuple(line for call in calls for line in call)


def _statement(function: str, items: list[str]) -> Lines:
    """A call, laid out as a formatter would."""
    inner = f"    {', '.join(items)}"
    whole = bracketed(f"{function}(", items, ")", indent=8)
    fits = len(whole) == 1 or 8 + len(inner) > WIDTH
    return whole if fits else (whole[0], inner, whole[-1])


def _layer_doc(kind: LayerKind) -> Lines:
    """The docstring of a class of layers."""
    doc = f"{_about(kind)}: {kind.where}."
    if 4 + len(f'"""{doc}"""') <= WIDTH:
        return (f'"""{doc}"""',)
    stages = wrapped("", f"Their stages are {listed(kind.stages)}.", indent=4)
    return (f'"""Boundaries of {kind.where}.', "", *stages, '"""')


def _about(kind: LayerKind) -> str:
    return f"Boundaries of {listed(kind.stages)}" if kind.stages else "No boundaries"
