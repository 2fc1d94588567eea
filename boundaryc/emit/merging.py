"""The functions at both ends of a branch: how it takes its input, and how its output is added."""

from __future__ import annotations

from boundaryc.emit.calls import Calls, Names
from boundaryc.emit.doc_text import collectives, lying, summary
from boundaryc.emit.drafts import Draft
from boundaryc.emit.ends import left_in_stream
from boundaryc.emit.scope import Scope
from boundaryc.emit.script import Writer
from boundaryc.emit.statements import body
from boundaryc.emit.steps import steps
from boundaryc.emit.ways import Way, crossed
from boundaryc.plan.access import handed_off
from boundaryc.plan.result import Boundary


def branch_input(boundary: Boundary, scope: Scope, calls: Calls, *, copied: bool) -> Draft:
    """The function that takes the input of one stage to the first stage of its branch.

    ``copied``: the branch updates a copy of the residual, as the input may be the other one.
    """
    edge = boundary.edge
    base, origin = f"{edge.producer}_to_{edge.consumer}", f"From the input of {edge.producer}"
    origin += ", the residual copied," * copied
    opening = ("stream.residual = stream.residual.clone()",) * copied
    way = Way(boundary.start, steps(boundary)[1], boundary.goal, opening, base=base, origin=origin)
    return crossed(way, edge.consumer, scope, calls)


def merge(boundary: Boundary, scope: Scope, calls: Calls, branch: str) -> Draft:
    """The function that adds the output of ``branch``, the last stage, and the one beside it.

    What is left to do for both before the hand-off is done for their sum.
    """
    start, beside = boundary.start, calls.producer
    names = Names("contribution")
    writer = Writer(scope, calls, at_producer=True, names=names)
    script = writer.write(steps(boundary)[0])
    last, returns = left_in_stream(handed_off(boundary), calls, names.value)
    what = f"partial over {scope.mesh.label(start.owes)}" if start.owes else "complete"
    title = f"Adds {branch} to {beside}, both {what} on {lying(scope.mesh, start.rows)}"
    doc: tuple[str, ...] = (f"{title}.",)
    if script.summary:
        doc = (*summary(title, script), *collectives(script))
    lines = [
        f'outputs = stream.merged((hidden, "{branch}"), (beside, "{beside}"))',
        f"{names.value} = add(*outputs)",
        *script.lines,
        last,
    ]
    params = tuple(f"{name}: Any" for name in calls.params)
    needs = {"BranchOutput", "add", *script.helpers, *({returns} - {"Tensor"})}
    return Draft(
        base=f"{beside}_merge",
        params=("hidden: BranchOutput", "beside: BranchOutput", "batch: Batch", *params),
        returns=returns,
        doc=doc,
        body=body(lines),
        how="_".join(how.value for how in script.how),
        uneven="uneven" if script.uneven else "even",
        needs=frozenset(needs | ({"Any"} if params else set())),
        custom=frozenset(script.custom),
        sends=tuple(script.collectives),
        access=calls.access,
    )
