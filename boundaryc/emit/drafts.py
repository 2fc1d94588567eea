"""The functions of one boundary before they have names: signature, contract and statements."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from boundaryc.emit import quantized
from boundaryc.emit.additive import Shares, added, added_before, helpers, keywords, told_before
from boundaryc.emit.calls import Calls, Script
from boundaryc.emit.crossings import ORIGIN, SHOWN, SOURCE, TARGET, Crossing
from boundaryc.emit.doc_text import NEXT, collectives, contract, lying, summary, told
from boundaryc.emit.how import Collective, How
from boundaryc.emit.latent import add_latent
from boundaryc.emit.layout_text import bracketed, broken, indented, listed, wrapped
from boundaryc.emit.scope import Scope
from boundaryc.emit.script import Writer
from boundaryc.emit.statements import body
from boundaryc.emit.steps import Step, steps
from boundaryc.graph.build import ENTRY, FINAL
from boundaryc.plan import ops
from boundaryc.plan.access import handed_off
from boundaryc.plan.result import Boundary
from boundaryc.plan.state import Phase, State
from boundaryc.plan.transitions import Goal
from boundaryc.topology import Mesh


@dataclass(frozen=True, slots=True)
class Draft:
    """A function without a name. Drafts with the same ``key`` are one function.

    ``base`` is the name it would like, ``params`` and ``returns`` its typed signature, ``doc`` its
    docstring line by line, ``body`` its statements. ``needs`` are names to import; ``access`` is
    what an exit leaves in the stream. A ``crossing`` has its name and those in ``doc`` elsewhere.
    """

    base: str
    params: tuple[str, ...]
    returns: str
    doc: tuple[str, ...]
    body: tuple[str, ...]
    how: str = ""
    uneven: str = "even"
    needs: frozenset[str] = frozenset()
    custom: frozenset[str] = frozenset()
    sends: tuple[Collective, ...] = ()
    access: str = ""
    crossing: Crossing | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two drafts the same function."""
        return (self.base, self.params, self.doc, self.body)


@dataclass(frozen=True, slots=True)
class ExitDraft:
    """The exit of a stage: its flags, and the functions that go with them.

    ``finalizes``: a kernel of the stack finishes rows of experts where no fused one does.
    """

    base: str
    fuse: bool
    scatter: bool
    reduce: Draft
    leave: Draft
    adds_tail: Draft | None = None
    before_sum: Draft | None = None
    after_sum: Draft | None = None
    fused: Draft | None = None
    finalizes: bool = False

    def functions(self) -> tuple[Draft, ...]:
        """Every function that it names, in the order in which they run."""
        sums = (self.before_sum, self.reduce, self.adds_tail, self.after_sum)
        found = (*sums, self.leave, self.fused)
        return tuple(function for function in found if function)

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two exits the same."""
        functions = tuple(function.key for function in self.functions())
        return (self.base, self.fuse, self.scatter, self.finalizes, functions)


@dataclass(frozen=True, slots=True)
class Drafts:
    """All functions of one boundary. Exactly one of ``exit`` and ``leave`` is set after a stage.

    Before a merge there is no ``prepare``; behind one, ``merge`` adds the two outputs.
    """

    prepare: Draft | None
    leave: Draft | None = field(default=None)
    exit: ExitDraft | None = field(default=None)
    merge: Draft | None = field(default=None)
    postprocess: Draft | None = field(default=None)

    def bases(self) -> tuple[str, ...]:
        """The plain names of the functions, in the order in which they run."""
        names = [self.leave.base] if self.leave else []
        if self.exit:
            names += [*(function.base for function in self.exit.functions()), self.exit.base]
        last = (self.postprocess, self.merge, self.prepare)
        return (*names, *(one.base for one in last if one))


def draft(
    boundary: Boundary, scope: Scope, calls: Calls, *, scoped: bool, tail: bool = False
) -> Drafts:
    """The functions of ``boundary``.

    ``scoped``: its producer obeys the decision of an exit; ``tail``: and adds a replicated part.
    """
    before, after = steps(boundary)
    prepare = None if boundary.edge.merges else _prepare(boundary, scope, calls, after)
    if boundary.edge.producer == ENTRY or boundary.edge.source.merges:
        return Drafts(prepare)
    if not scoped:
        shares = Shares(calls.additive, boundary.start.owes, inside=False)
        return Drafts(prepare, leave=_leave(boundary, scope, calls, before, shares))
    exit_ = _exit(boundary, scope, calls, before)
    if tail and (exit_.fuse or exit_.scatter):
        # The sum is never the next stage's: the boundary completes it before the hand-off.
        adds = adds_tail(boundary.edge.producer, scope, boundary.start.owes)
        exit_ = replace(exit_, fuse=False, scatter=True, adds_tail=adds)
    if calls.additive:
        inside = bool(boundary.start.owes) and not (exit_.fuse or exit_.scatter)
        shares = Shares(calls.additive, boundary.start.owes, inside)
        exit_ = replace(exit_, before_sum=_before_sum(boundary, scope, shares))
        exit_ = replace(exit_, after_sum=_after_sum(boundary, shares))
    return Drafts(prepare, exit=exit_)


@dataclass(frozen=True, slots=True)
class Way:
    """One way across a boundary: from a state in which the stream may be, by these steps.

    ``goal`` is where it ends. ``opening`` takes what the model passes on, a ``given``. ``base`` is
    the name it would like and ``origin`` where it starts, for people; a ``crossing`` has neither.
    """

    start: State
    steps: tuple[Step, ...]
    goal: Goal
    opening: tuple[str, ...]
    given: str = "Tensor"
    base: str = ""
    origin: str = ORIGIN
    crossing: Crossing | None = None


def _prepare(boundary: Boundary, scope: Scope, calls: Calls, sequence: tuple[Step, ...]) -> Draft:
    start, edge = handed_off(boundary), boundary.edge
    opening: tuple[str, ...] = ()
    if start.phase is Phase.CONTRIBUTION:
        opening = ("hidden = stream.take(hidden)",)
    elif start.phase is Phase.STREAM:
        opening = ("stream.take(hidden)",)
    source = edge.producer or "start"
    given = "Tensor" if edge.producer == ENTRY else "Tensor | OwedOutput"
    base = f"{source}_to_{edge.consumer}"
    way = Way(start, sequence, boundary.goal, opening, given, base, f"From {source}")
    return crossed(way, edge.consumer, scope, calls)


def crossed(way: Way, target: str, scope: Scope, calls: Calls) -> Draft:
    """The function that takes a way across a boundary to the stage ``target``."""
    if way.crossing:
        calls = replace(calls, producer=SOURCE, consumer=TARGET, shown=SHOWN)
    script = Writer(scope, calls, at_producer=False).write(way.steps)
    read = calls.read
    published: tuple[str, ...] = ()
    if calls.lora and target != FINAL:
        name = scope.token(way.goal.rows, by_token=way.goal.by_token)
        published = (f"batch.lora_rows = rows.{name}",)
    named = tuple(f"{name}: {read.param_type(name, calls.norm.type)}" for name in read.params)
    if target == FINAL and not named and read.call is None:
        named = ("norm: None",)  # the end of a stack is given one
    results: tuple[str, ...] = ("hidden",)
    if calls.quantize is not None:
        named += tuple(f"{name}: InputScale" for name in calls.quantize.params)
        results = quantized.returned(calls.quantize, "hidden")
    if calls.latent:
        add_latent(script, calls.consumer, way.goal, scope)
        named, results = (*named, "qkv_latent: Any"), (*results, "latent")
    tensors = ", ".join(["Tensor"] * len(results))
    title = f"{way.origin} to {calls.shown}"
    doc = (
        *(summary(title, script) if script.summary else (f"{title}: nothing moves.", "")),
        *contract(scope.mesh, way.start, way.goal),
        *collectives(script),
    )
    needs = {word.rpartition(" ")[2] for word in (*named, way.given)} - {"None", "Tensor"}
    return Draft(
        base=way.base,
        params=(f"hidden: {way.given}", "batch: Batch", *named),
        returns="Tensor" if len(results) == 1 else f"tuple[{tensors}]",
        doc=doc,
        body=body([*published, *way.opening, *script.lines], result=", ".join(results)),
        how="_".join(how.value for how in script.how),
        uneven="uneven" if script.uneven else "even",
        needs=frozenset(script.helpers | needs),
        custom=frozenset(script.custom),
        sends=tuple(script.collectives),
        crossing=way.crossing,
    )


def postprocess(boundary: Boundary, scope: Scope, calls: Calls) -> Draft:
    """The end of a stage that ran without an exit; its ``boundary`` starts complete."""
    shares = Shares(calls.additive, boundary.start.owes, inside=False)
    left = _leave(boundary, scope, calls, steps(boundary)[0], shares)
    return replace(left, base=f"{boundary.edge.producer}_postprocess")


def _leave(
    boundary: Boundary,
    scope: Scope,
    calls: Calls,
    sequence: tuple[Step, ...],
    shares: Shares | None = None,
) -> Draft:
    """The end of a stage; one without an exit is given ``shares`` and adds its terms as well."""
    script = Writer(scope, calls, at_producer=True).write(sequence)
    state = handed_off(boundary)
    last, returns = left_in_stream(state, calls)
    if boundary.edge.merges:
        last = f'return stream.branch_output(hidden, "{boundary.edge.producer}")'
        returns = "BranchOutput"
    needs = script.helpers | ({returns} - {"Tensor"}) | ({"Any"} if calls.params else set())
    before: list[str] = []
    told: tuple[str, ...] = ()
    if shares and shares.terms:
        before = added_before(shares, scope)
        needs |= helpers(before)
        told = ("", *wrapped("", told_before(shares, scope), indent=4))
    return Draft(
        base=f"{boundary.edge.producer}_leave",
        params=(
            *("hidden: Tensor", "batch: Batch"),
            *(f"{name}: Any" for name in calls.params),
            *(keywords(shares.terms) if shares else ()),
        ),
        returns=returns,
        doc=(*_leave_doc(boundary, scope.mesh, script, state), *told),
        body=body([*before, *script.lines, last]),
        how="_".join(how.value for how in script.how),
        uneven="uneven" if script.uneven else "even",
        needs=frozenset(needs),
        custom=frozenset(script.custom),
        sends=tuple(script.collectives),
        access=calls.access,
    )


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


def _leave_doc(boundary: Boundary, mesh: Mesh, script: Script, state: State) -> tuple[str, ...]:
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


def _exit(boundary: Boundary, scope: Scope, calls: Calls, sequence: tuple[Step, ...]) -> ExitDraft:
    """One decision: who does the sum, which flags say so, and what is left to do afterwards."""
    producer, owes = boundary.edge.producer, boundary.start.owes
    first = next((step for step in sequence if not isinstance(step.op, ops.Transform)), None)
    if first is not None and owes and first.op == ops.AllReduce(owes):
        rest = tuple(step for step in sequence if step is not first)
        leave = _leave(boundary, scope, calls, rest)
        reduce = _sum_inside(producer, scope, owes)
        return ExitDraft(f"{producer}_exit", False, False, reduce, leave)
    leave = _leave(boundary, scope, calls, sequence)
    scatter = _scatters_first(boundary)
    reduce = _kept(producer, scope.mesh, owes)
    return ExitDraft(f"{producer}_exit", bool(owes) and not scatter, scatter, reduce, leave)


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


def _before_sum(boundary: Boundary, scope: Scope, shares: Shares) -> Draft:
    doc = told_before(shares, scope) or "Nothing is added before the sum."
    lines = added_before(shares, scope)
    return _added(f"{boundary.edge.producer}_before_sum", doc, lines, shares)


def _after_sum(boundary: Boundary, shares: Shares) -> Draft:
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


def sends(drafts: Drafts) -> tuple[Collective, ...]:
    """All collectives of a boundary, those inside the producer's exit first."""
    exit_ = drafts.exit
    leaves = (drafts.leave,) if drafts.leave else (exit_.reduce, exit_.leave) if exit_ else ()
    functions = (*leaves, drafts.merge, drafts.prepare)
    return tuple(sent for function in functions if function for sent in function.sends)


def rendered(draft: Draft, name: str, following: str, when: tuple[str, ...]) -> tuple[str, ...]:
    """The function's lines under its final ``name``; ``when`` ends its docstring.

    ``following`` names what comes next, where the docstring speaks of it.
    """
    doc = [*told(draft.doc[0], following), *draft.doc[1:]]
    if when:
        doc += ([""] if len(doc) == 1 else []) + list(when)
    if len(doc) == 1 and len(doc[0]) <= 90:
        doc = [f'"""{doc[0]}"""']
    else:
        doc = [f'"""{doc[0]}', *doc[1:], '"""']
    head = bracketed(f"def {name}(", draft.params, f") -> {draft.returns}:")
    lines = [part for line in draft.body for part in broken(line, indent=4)]
    return (*head, *indented([*doc, *lines]))
