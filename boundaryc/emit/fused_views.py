"""The boundaries that fused kernels may take, as attributes of a topology's groups."""

from __future__ import annotations

from boundaryc.emit.fused import FusedSum
from boundaryc.emit.layout_text import closed, indented, tuple_lines
from boundaryc.emit.scope import Scope
from boundaryc.emit.summing import has_kernel, kernel_of
from boundaryc.emit.views import Lines
from boundaryc.plan.result import StackPlan

ALL = "fused"
"""The attribute that has them all."""


def fused_slots(plan: StackPlan, scope: Scope) -> list[str]:
    """The names of the attributes; none in a stack without fusion providers."""
    if not plan.stack.fusion:
        return []
    return [*(fused.name(scope.mesh) for fused in _sorted(scope)), ALL]


def fused_lines(plan: StackPlan, scope: Scope) -> Lines:
    """The statements that make them, behind those of the groups."""
    if not plan.stack.fusion:
        return ()
    found: list[str] = []
    for fused in _sorted(scope):
        found += _made(plan, scope, fused)
    names = [f"self.{fused.name(scope.mesh)}" for fused in _sorted(scope)]
    head = f"self.{ALL}: tuple[runtime.FusedBoundary, ...] = "
    every = tuple_lines(head, names, indent=8) if names else (f"{head}()",)
    return (*found, *every)


def _sorted(scope: Scope) -> list[FusedSum]:
    return sorted(scope.fused, key=lambda fused: fused.name(scope.mesh))


def _made(plan: StackPlan, scope: Scope, fused: FusedSum) -> Lines:
    mesh, norm = scope.mesh, plan.stack.norm_of(fused.consumer)
    names = ", ".join(f'"{name}"' for name in mesh.names(fused.rows))
    rows = f"({names},)" if mesh.names(fused.rows)[1:] == () and names else f"({names})"
    group = mesh.label(fused.owes) if fused.owes else ""
    words = {
        "producer": f'"{fused.producer}"',
        "consumer": f'"{fused.consumer}"',
        "input": f'"{fused.input}"',
        "sum_group": f'"{group}"',
        "rows": rows,
        "hidden_size": str(plan.stack.hidden_size),
        "eps": repr(norm.eps),
    }
    if norm.accumulate != "fp32":
        words["accumulate"] = f'"{norm.accumulate}"'
    if norm.weight_offset:
        words["weight_offset"] = repr(norm.weight_offset)
    if has_kernel(plan, fused):
        words["kernel"] = kernel_of(plan, fused)
    words |= {flag: "True" for flag in ("sparse", "finalize", "all_reduce") if getattr(fused, flag)}
    arguments = tuple(f"{name}={value}," for name, value in words.items())
    plan_lines = ("runtime.FusionPlan(", *indented(arguments), ")")
    return (
        f"self.{fused.name(mesh)} = runtime.FusedBoundary(",
        *indented(closed(plan_lines)),
        f"    {f'self.{group}' if group else 'runtime.SingleCollective()'},",
        *(["    own=True,"] if fused.own else []),
        ")",
    )
