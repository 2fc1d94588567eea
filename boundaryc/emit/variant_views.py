"""The modules of one batch variant: their functions, and what a reader should know first."""

from __future__ import annotations

from collections.abc import Iterator

from boundaryc.emit.collected import TopologyFunctions, Use, VariantFunctions
from boundaryc.emit.drafts import Drafts, ExitDraft, rendered, sends
from boundaryc.emit.function_names import by_base
from boundaryc.emit.how import Collective
from boundaryc.emit.layers import layer_kinds
from boundaryc.emit.layout_text import WIDTH, listed, wrapped
from boundaryc.emit.parts import Block, Part, divided
from boundaryc.emit.shown import shown
from boundaryc.emit.topology_views import sizes
from boundaryc.emit.views import Lines
from boundaryc.graph.build import Edge
from boundaryc.plan.result import StackPlan, TopologyPlan
from boundaryc.topology import Mesh

AXES = {
    "attn_dp": "attention data parallel: each part has sequences of its own",
    "attn_cp": "context parallel: each part has some tokens of every sequence",
    "attn_tp": "attention tensor parallel: the ranks of a part share the heads",
}


def variant_parts(plan: StackPlan, known: VariantFunctions) -> tuple[Part, ...]:
    """The modules of one batch variant; divided, what runs after a stage is in one of its own."""
    blocks = tuple(_blocks(plan, known))
    return divided(known.variant, "after", blocks, told=len(known.told))


def _blocks(plan: StackPlan, known: VariantFunctions) -> Iterator[Block]:
    """Functions and decisions as a forward meets them, alternatives behind each other."""
    defined = {group[0].draft.base: group for group in by_base(known.functions.values())}
    decided = {group[0].draft.base: group for group in by_base(known.exits.values())}
    done: set[str] = set()
    for base, producer in _bases(plan, known).items():
        decisions = decided.get(base, ())
        # A decision names its functions, so all of them come first, also those of an alternative.
        named = [one.base for decision in decisions for one in decision.draft.functions()]
        for each in dict.fromkeys((*named, base)):
            if each not in done:
                done.add(each)
                for function in defined.get(each, ()):
                    following = function.following(plan.stack)
                    draft, name = function.draft, function.name
                    lines = rendered(draft, name, following, function.when)
                    left = (draft.access,) if draft.access else ()
                    yield Block(name, lines, producer or None, draft, names=left)
        for decision in decisions:
            lines = _decision(decision.draft, decision.name, known)
            records = frozenset({"ExitDecision"})
            yield Block(decision.name, lines, producer or None, records=records)


def _bases(plan: StackPlan, known: VariantFunctions) -> dict[str, str]:
    """The plain names of a variant's functions in the order of a forward, with their producers."""
    met: dict[Edge, dict[int, Drafts]] = {edge: {} for edge in plan.graph.edges()}
    for use, drafts in known.drafts.items():
        met[use.edge].setdefault(id(drafts), drafts)  # tables share them
    found: dict[str, str] = {}
    for edge, own in met.items():
        for drafts in own.values():
            for base in drafts.bases():
                found.setdefault(base, edge.producer)
    return found


def _decision(draft: ExitDraft, name: str, known: VariantFunctions) -> Lines:
    reduce, leave = known.functions[draft.reduce.key], known.functions[draft.leave.key]
    others = {
        "adds_tail": draft.adds_tail,
        "before_sum": draft.before_sum,
        "after_sum": draft.after_sum,
        "fused": draft.fused,
    }
    return (
        f"{name} = ExitDecision(",
        f"    fuse_mlp_allreduce={draft.fuse},",
        f"    mlp_reduce_scatter={draft.scatter},",
        f"    reduce={reduce.name},",
        f"    leave={leave.name},",
        *(f"    {field}={known.functions[one.key].name}," for field, one in others.items() if one),
        *(["    finalize=finalize,"] if draft.finalizes else []),
        ")",
    )


def variant_doc(
    plan: StackPlan, functions: TopologyFunctions, known: VariantFunctions, part: Part
) -> Lines:
    """The docstring of a variant's module."""
    topology, mesh = functions.plan, functions.plan.mesh
    if part.stage is not None:
        return (
            f"What runs after {part.stage}.",
            "",
            f"{plan.stack.name} on {topology.spec.name}, {batches(known.variant)}.",
            "",
            f"`{known.variant}.py` tells what is sent at which boundary, and what the words mean.",
        )
    lines = [
        f"What runs between the stages of {plan.stack.name} on {topology.spec.name}, "
        f"in {batches(known.variant)}.",
        "",
        *_mesh_doc(topology),
        "",
        *_terms(mesh),
        "",
    ]
    auto = plan.stack.policy_auto
    even = next(column for column in topology.columns if column.variant == known.variant).even
    cut = f", batches cut evenly over {listed(even)}" if even else ""
    lines += wrapped("", f"What runs at each boundary, in order (policy {auto}{cut}):")
    lines.append("")
    lines += known.told
    alternatives = any(named.when for named in known.functions.values())
    if alternatives:
        lines += ["", 'Functions that differ by batch, policy or place say so under "when".']
    return (*lines, "", *_AROUND)


_AROUND = wrapped(
    "",
    "A function that is given `at`, its boundary, begins with what is usual: the stage is due, and "
    "the output is as it was left. `at.detour` sees to everything else.",
)


def batches(variant: str) -> str:
    """The batches of a variant, for people."""
    return f"{variant.replace('_', '-')} batches"


def _mesh_doc(topology: TopologyPlan) -> Lines:
    mesh = topology.mesh
    if not mesh.atoms:
        return ("1 rank: nothing is communicated.",)
    lines = [f"{sizes(mesh)}, outermost first."]
    shown = [(axis, mesh.size(mesh.mask(axis))) for axis in AXES if mesh.mask(axis)]
    width = max(len(axis) for axis, _ in shown)
    for axis, size in shown:
        parts = f"{size} parts"
        pieces = mesh.names(mesh.mask(axis))
        made = f" (as {' x '.join(pieces)})" if len(pieces) > 1 else ""
        lines += wrapped(f"  {axis:<{width}}  ", f"{parts}, {AXES[axis]}{made}")
    lines.append(f"  {'tp':<{width}}  all ranks")
    return tuple(lines)


def _terms(mesh: Mesh) -> Lines:
    if not mesh.atoms:
        return ('"rows all" are the rows of the batch.',)
    outer = mesh.atoms[0].axis
    part = '"rows tp" are those'
    if mesh.mask(outer) != mesh.every:
        part = f'"rows {outer}" are those of a rank\'s own part of {outer}, "rows tp" those'
    return wrapped(
        "",
        f'{part} of the rank alone, "rows all" those of every rank. "owes tp" is a '
        "partial sum, still to be added over the group tp.",
    )


def edge_lines(plan: StackPlan, known: VariantFunctions) -> list[str]:
    """What is sent at each boundary, and why."""
    kinds = {kind.stages: kind for kind in layer_kinds(plan)}
    # Not which layers these are: a module is the same however often its layers are repeated.
    about = (
        f"{kind.name} layers: {', '.join(kind.stages) or 'no stages'}" for kind in kinds.values()
    )
    lines = [line for text in about for line in wrapped("  ", text)]
    lines.append("")
    seen: dict[tuple[str, tuple[str, ...]], None] = {}
    entries = []
    for edge in plan.graph.edges():
        drafts = known.drafts[Use(edge, 0)]  # what `auto` does on even batches
        target = shown(plan.stack, edge.consumer).removeprefix("the ")
        title = f"{edge.producer or 'start'} -> {target}"
        if edge.target.captures:
            title += f", for {listed(edge.target.captures)}"
        sent = sends(drafts)
        key = (title, tuple(one.text for one in sent))
        if key in seen:
            continue
        seen[key] = None
        if any(other == title for other, _ in list(seen)[:-1]):
            title = f"{title}, after {edge.source.producer}"
        entries.append((title, sent))
    return [*lines, *_in_columns(entries)]


NARROWEST = 30
"""How many characters of a line reasons need to stand beside what they are for."""


def _in_columns(entries: list[tuple[str, tuple[Collective, ...]]]) -> Iterator[str]:
    """Boundaries, what each sends and why; below each other where names are long."""
    width = max(len(title) for title, _ in entries)
    wide = max((len(one.text) for _, sent in entries for one in sent), default=0)
    below = WIDTH - (2 + width + 2 + wide + 2) < NARROWEST
    for title, sent in entries:
        if below:
            yield f"  {title}"
        if not sent:
            yield "    nothing is sent" if below else f"  {title:<{width}}  nothing is sent"
        for index, one in enumerate(sent):
            beside = "  " if below else f"  {'' if index else title:<{width}}"
            yield from wrapped(f"{beside}  {one.text:<{wide}}  ", one.why)
