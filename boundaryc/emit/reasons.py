"""Why a topology has no boundaries for some batch variants."""

from __future__ import annotations

from boundaryc.plan.result import StackPlan, TopologyPlan
from boundaryc.topology.contracts import VARIANTS

UNLISTED = "the stack does not list this variant"


def reasons(plan: StackPlan, topology: TopologyPlan) -> dict[str, str]:
    """The variants that a topology does not have, each with the reason."""
    found = {name: UNLISTED for name in VARIANTS if name not in plan.stack.variants}
    found |= dict(topology.skipped)
    return {name: found[name] for name in VARIANTS if name in found}
