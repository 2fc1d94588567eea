"""What a module of generated functions imports."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set

from boundaryc.emit.drafts import Draft
from boundaryc.emit.imported import imported_names
from boundaryc.emit.layout_text import bracketed_import
from boundaryc.emit.views import Lines
from boundaryc.operations import PARAM_TYPES
from boundaryc.plan.kernels import KERNELS
from boundaryc.plan.result import StackPlan
from boundaryc.plan.row_moves import MOVES
from boundaryc.plan.stream_kernels import STREAM_KERNELS

RUNTIME = frozenset(
    {"BiasedNorm", "BranchOutput", "ExpertRows", "FusedBoundary", "InputScale", "Norm"}
    | {"OwedOutput", "add", "add_term", *PARAM_TYPES.values()}
    | {"check_term", "join", "quantize_fp8", "quantize_int8", "quantized_all_reduce"}
)
ROWWISE, STREAMS = frozenset(KERNELS), frozenset(STREAM_KERNELS)


def module_imports(
    plan: StackPlan, drafts: Collection[Draft], more: Set[str], local: Mapping[str, Set[str]]
) -> Lines:
    """The imports that ``drafts`` need, and ``more`` of the runtime.

    ``local`` are names that are defined in modules beside this one.
    """
    needs = {need for draft in drafts for need in draft.needs}
    custom = {name for draft in drafts for name in draft.custom}
    runtime = sorted((needs & RUNTIME) | more, key=lambda name: (not name[0].isupper(), name))
    lines = ["from typing import Any", ""] if "Any" in needs else []
    lines += ["from torch import Tensor", ""] if drafts else []
    names = imported_names(plan)
    outside = [(f"{plan.operations[name].call}", names[name]) for name in custom]
    lines += _first_party([("boundaryc.runtime", name, name) for name in runtime], outside)
    lines.append("")
    if needs & STREAMS:
        lines += bracketed_import("..hyper", sorted(needs & STREAMS))
    if needs & MOVES.keys():
        lines += bracketed_import("..moves", sorted(needs & MOVES.keys()))
    if needs & ROWWISE:
        lines += bracketed_import("..rowwise", sorted(needs & ROWWISE))
    beside = {**local, ".layout": {"Batch"}} if drafts else local
    for module, found in sorted(beside.items()):
        constants_first = sorted(found, key=lambda name: (not name.isupper(), name))
        lines += bracketed_import(module, constants_first)
    return tuple(lines)


def _first_party(
    imports: list[tuple[str, str, str]], calls: Iterable[tuple[str, str]]
) -> Iterator[str]:
    """Imports of (module, name, alias) and of operations from outside, in a linter's order."""
    plain: dict[str, list[str]] = {}
    statements: list[tuple[str, str, Lines]] = []
    for call, alias in sorted(set(calls)):
        module, _, function = call.partition(":")
        imports.append((module, function, alias))
    for module, name, alias in imports:
        if name == alias:
            plain.setdefault(module, []).append(name)
        else:
            statements.append((module, name, (f"from {module} import {name} as {alias}",)))
    for module, names in plain.items():
        statements.append((module, names[0], bracketed_import(module, names)))
    for _, _, lines in sorted(statements):
        yield from lines
