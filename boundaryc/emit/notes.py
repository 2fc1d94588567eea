"""What the author of a stack should know about it although nothing is wrong: lines for people."""

from __future__ import annotations

from boundaryc.emit.manifest import claims
from boundaryc.language import Stack
from boundaryc.operations.declared import declared_operations
from boundaryc.topology.contracts import inapplicable, mesh_of


def notes(stack: Stack) -> tuple[str, ...]:
    """Variants that do not apply to a topology, and claims that nothing has verified."""
    return (*_skipped(stack), *_claimed(stack))


def _skipped(stack: Stack) -> list[str]:
    found: dict[tuple[str, str], list[str]] = {}
    for spec in stack.topologies:
        mesh = mesh_of(spec)
        for variant in stack.variants:
            why = inapplicable(variant, spec, mesh)
            if why is not None:
                found.setdefault((variant, why), []).append(spec.name)
    return [
        f"{stack.name}: no {variant} on {', '.join(names)}: {why}"
        for (variant, why), names in found.items()
    ]


def _claimed(stack: Stack) -> list[str]:
    return [
        f"{stack.name}: facts of `{name}` are claimed, not yet verified: "
        f"{', '.join(claims(operation)) or 'none'}"
        for name, operation in declared_operations(stack).items()
        if operation.outside
    ]
