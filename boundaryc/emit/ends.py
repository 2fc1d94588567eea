"""Functions with which a stage ends: what its compute sums, and what it leaves in the stream."""

from __future__ import annotations

from dataclasses import replace

from boundaryc.emit.additive import Shares, added, added_before, helpers, keywords, told_before
from boundaryc.emit.calls import Calls, Script, ending
from boundaryc.emit.doc_text import NEXT, collectives, lying, summary
from boundaryc.emit.drafts import Draft, ExitDraft
from boundaryc.emit.how import Collective, How
from boundaryc.emit.layout_text import listed, wrapped
from boundaryc.emit.scope import Scope
from boundaryc.emit.script import Writer
from boundaryc.emit.statements import body
from boundaryc.emit.steps import Step, steps
from boundaryc.plan import ops
from boundaryc.plan.access import handed_off
from boundaryc.plan.result import Boundary
from boundaryc.plan.state import Phase, State
from boundaryc.topology import Mesh


def postprocess(boundary: Boundary, scope: Scope, calls: Calls) -> Draft:
    """The end of a stage that ran without an exit; its ``boundary`` starts complete."""
    shares = Shares(calls.additive, boundary.start.owes, inside=False)
    left = leave(boundary, scope, calls, steps(boundary)[0], shares)
    return replace(left, base=f"{boundary.edge.producer}_postprocess")


def leave(
    boundary: Boundary,
    scope: Scope,
    calls: Calls,
    sequence: tuple[Step, ...],
    shares: Shares | None = None,
) -> Draft:
    """The end of a stage; one without an exit is given ``shares`` and adds its terms as well."""
    state, merges = handed_off(boundary), boundary.edge.merges
    return scope.once(_leave, state, sequence, ending(calls), shares, merges)


def _leave(
    scope: Scope,
    state: State,
    sequence: tuple[Step, ...],
    calls: Calls,
    shares: Shares | None,
    merges: bool,
) -> Draft:
    script = Writer(scope, calls, at_producer=True).write(sequence)
    last, returns = left_in_stream(state, calls)
    if merges:
        last = f'return stream.branch_output(hidden, "{calls.producer}")'
        returns = "BranchOutput"
    needs = script.helpers | ({returns} - {"Tensor"}) | ({"Any"} if calls.params else set())
    before: list[str] = []
    told: tuple[str, ...] = ()
    if shares and shares.terms:
        before = added_before(shares, scope)
        needs |= helpers(before)
        told = ("", *wrapped("", told_before(shares, scope), indent=4))
    left: tuple[str, ...] = ()
    if not (script.lines or calls.params or (shares and shares.terms)):
        left = as_data(last, calls.access)
    if left:
        needs = {"Left"}
    return Draft(
        base=f"{calls.producer}_leave",
        params=(
            *("hidden: Tensor", "batch: Batch"),
            *(f"{name}: Any" for name in calls.params),
            *(keywords(shares.terms) if shares else ()),
        ),
        returns=returns,
        doc=(*_leave_doc(scope.mesh, script, state), *told),
        body=body([*before, *script.lines, last]),
        how="_".join(how.value for how in script.how),
        uneven="uneven" if script.uneven else "even",
        needs=frozenset(needs),
        custom=frozenset(script.custom),
        sends=tuple(script.collectives),
        access=calls.access,
        left=left,
    )


def as_data(statement: str, access: str) -> tuple[str, ...]:
    """The arguments of a `Left` that does what ``statement`` does; none where none does."""
    given = (f"access={access}",) if access else ()
    for call, owes in (("owe", True), ("pend", False)):
        if statement == f"return stream.{call}({', '.join(('hidden', *given))})":
            return (f"owes={owes}", *given)
    return ()


def left_in_stream(state: State, calls: Calls, value: str = "hidden") -> tuple[str, str]:
    """The statement that leaves an output in the stream and returns its handle, and their type."""
    carried = ""
    if calls.carried and state.phase is not Phase.STREAM:
        carried = f", ({', '.join(calls.carried)}{',' if len(calls.carried) == 1 else ''})"
    if calls.access:
        carried += f", access={calls.access}"
    if state.phase is Phase.STREAM:
        return f"return stream.keep(stream.residual{carried})", "Tensor"
    if state.owes:
        return f"return stream.owe({value}{carried})", "OwedOutput"
    return f"return stream.pend({value}{carried})", "Tensor"


def _leave_doc(mesh: Mesh, script: Script, state: State) -> tuple[str, ...]:
    if state.phase is Phase.STREAM:
        left = f"the written residual on {lying(mesh, state.rows)} to {NEXT}"
    elif state.owes:
        left = f"the sum over {mesh.label(state.owes)} to {NEXT}"
    else:
        left = f"a complete output on {lying(mesh, state.rows)} to {NEXT}"
    if not script.summary:
        return (f"Leaves {left}.",)
    doc = summary(f"Leaves {left}", script)
    return (*doc, *collectives(script)) if script.collectives else doc[:-1]


def exit_(boundary: Boundary, scope: Scope, calls: Calls, sequence: tuple[Step, ...]) -> ExitDraft:
    """One decision: who does the sum, which flags say so, and what is left to do afterwards."""
    producer, owes = boundary.edge.producer, boundary.start.owes
    first = next((step for step in sequence if not isinstance(step.op, ops.Transform)), None)
    if first is not None and owes and first.op == ops.AllReduce(owes):
        rest = tuple(step for step in sequence if step is not first)
        left = leave(boundary, scope, calls, rest)
        reduce = _sum_inside(producer, scope, owes)
        return ExitDraft(f"{producer}_exit", False, False, reduce, left)
    left = leave(boundary, scope, calls, sequence)
    scatter = _scatters_first(boundary)
    reduce = _kept(producer, scope.mesh, owes)
    return ExitDraft(f"{producer}_exit", bool(owes) and not scatter, scatter, reduce, left)


def _scatters_first(boundary: Boundary) -> bool:
    """Whether what begins to complete the producer's sum, here or in the next stage, scatters."""
    sums = (ops.AllReduce, ops.QuantizedAllReduce, ops.ReduceScatter, ops.GatherSum)
    first = next((op for op in boundary.path.ops if isinstance(op, sums)), None)
    return isinstance(first, ops.ReduceScatter)


def _sum_inside(producer: str, scope: Scope, owes: int) -> Draft:
    group = scope.group(owes)
    sent = Collective(
        f"all_reduce({group})", f"completes the sum that {producer} owes over {group}"
    )
    return Draft(
        base=f"{producer}_reduce",
        params=("hidden: Tensor", "batch: Batch"),
        returns="Tensor",
        doc=(
            f"Compute sums over {group} itself: {NEXT} needs the complete output.",
            "",
            "collectives:",
            f"  {sent.text}  {sent.why}",
        ),
        body=(f"return batch.groups.{group}.all_reduce(hidden)",),
        how=How.ALL_REDUCE.value,
        sends=(sent,),
    )


def _kept(producer: str, mesh: Mesh, owes: int) -> Draft:
    text = "Compute returns a complete output: there is nothing to sum."
    if owes:
        text = f"Compute keeps its partial: the boundary owns the sum over {mesh.label(owes)}."
    return Draft(
        base=f"{producer}_reduce",
        params=("hidden: Tensor", "batch: Batch"),
        returns="Tensor",
        doc=(text,),
        body=("return hidden",),
    )


def adds_tail(producer: str, scope: Scope, owes: int) -> Draft:
    """The function that says whether a rank adds what all of them hold whole."""
    group = scope.group(owes)
    return Draft(
        base=f"{producer}_tail",
        params=("batch: Batch",),
        returns="bool",
        doc=(f"One rank of {group} adds what all of them hold whole to its partial.",),
        body=(f"return batch.groups.{group}.rank == 0",),
    )


def before_sum(boundary: Boundary, scope: Scope, shares: Shares) -> Draft:
    """What is added to a partial sum, by which ranks."""
    doc = told_before(shares, scope) or "Nothing is added before the sum."
    lines = added_before(shares, scope)
    return _added(f"{boundary.edge.producer}_before_sum", doc, lines, shares)


def after_sum(boundary: Boundary, shares: Shares) -> Draft:
    """What every rank adds to the complete sum."""
    names = shares.after
    doc = "Nothing is added after the sum."
    if names:
        doc = f"Every rank adds {listed(names)} to the complete sum."
    lines = [added(name) for name in names]
    return _added(f"{boundary.edge.producer}_after_sum", doc, lines, shares)


def _added(base: str, doc: str, lines: list[str], shares: Shares) -> Draft:
    return Draft(
        base=base,
        params=("hidden: Tensor", "batch: Batch", *keywords(shares.terms)),
        returns="Tensor",
        doc=wrapped("", doc, indent=8),
        body=body(lines, result="hidden"),
        needs=frozenset(helpers(lines)),
    )
