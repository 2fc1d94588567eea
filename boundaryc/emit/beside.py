"""The residual around a branch: who may still read it, and who writes it next.

A stage beside a branch may compute until the merge, and its input may be the residual itself. What
writes over a residual, a fused kernel or an update from outside, must not be given that one.
"""

from __future__ import annotations

from boundaryc.graph.build import Edge
from boundaryc.operations import Operation
from boundaryc.plan.result import StackPlan


def next_update(plan: StackPlan, entered: str) -> Operation:
    """The update that is next given the residual with which a stage is entered.

    Beside a branch of several stages that is the first one's, as the branch takes the residual
    along; the last of a branch has none, and its output is added by the stage beside it.
    """
    branch, name = plan.stack.branch, entered
    if branch is not None and entered == branch.stages[-1]:
        name = branch.beside
    elif branch is not None and entered == branch.beside and len(branch.stages) > 1:
        name = branch.stages[0]
    return plan.operations[plan.stack.stage(name).update]


def copies(plan: StackPlan, fork: Edge) -> bool:
    """Whether a branch goes on with a copy of the residual.

    Its first update is from outside, and what that is given may be the input beside it.
    """
    branch = plan.stack.branch
    if branch is None or fork.consumer == branch.stages[-1]:
        return False  # nothing is updated before the merge
    return _is_shown(plan, branch.beside) and next_update(plan, branch.beside).call is not None


def still_read(plan: StackPlan, edge: Edge) -> bool:
    """Whether the residual that an edge updates may be the input of the stage beside its branch.

    It may until the first update of the branch has made another.
    """
    branch = plan.stack.branch
    if branch is None or not edge.source.prepared or edge.merges:
        return False
    return _is_shown(plan, branch.beside) and next_update(plan, branch.beside).call is None


def _is_shown(plan: StackPlan, stage: str) -> bool:
    """Whether a stage may be given the residual itself: any read but the norm may return it."""
    return not plan.operations[plan.stack.stage(stage).read].facts.plain_norm
