"""The functions at both ends of a branch: how it takes its input, and how its output is added."""

from __future__ import annotations

from boundaryc.emit.doc_text import lying
from boundaryc.emit.drafts import Draft, Way, crossed, left_in_stream
from boundaryc.emit.scope import Scope
from boundaryc.emit.script import Calls
from boundaryc.emit.statements import body
from boundaryc.emit.steps import steps
from boundaryc.plan.result import Boundary


def branch_input(boundary: Boundary, scope: Scope, calls: Calls) -> Draft:
    """The function that takes the input of one stage to the first stage of its branch."""
    edge = boundary.edge
    base, origin = f"{edge.producer}_to_{edge.consumer}", f"From the input of {edge.producer}"
    way = Way(base, origin, boundary.start, steps(boundary)[1], boundary.goal, ())
    return crossed(way, edge.consumer, scope, calls)


def merge(boundary: Boundary, scope: Scope, calls: Calls, branch: str) -> Draft:
    """The function that adds the output of ``branch``, the last stage, and the one beside it."""
    state, beside = boundary.start, calls.producer
    last, returns = left_in_stream(state, calls)
    what = "complete"
    if state.owes:
        what = f"partial over {scope.mesh.label(state.owes)}"
    lines = [
        f'output = stream.merged(beside, "{beside}")',
        f'hidden = add(stream.merged(hidden, "{branch}"), output)',
        last,
    ]
    params = tuple(f"{name}: Any" for name in calls.params)
    return Draft(
        base=f"{beside}_merge",
        params=("hidden: BranchOutput", "beside: BranchOutput", "batch: Batch", *params),
        returns=returns,
        doc=(
            f"Adds the outputs of {branch} and {beside}, both {what} on "
            f"{lying(scope.mesh, state.rows)}.",
        ),
        body=body(lines),
        needs=frozenset(
            {"BranchOutput", "add"} | ({returns} - {"Tensor"}) | ({"Any"} if params else set())
        ),
        access=calls.access,
    )
