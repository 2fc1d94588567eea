"""A variant's other modules: what runs when a model uses an output between stages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from boundaryc.emit.between import MOVED, AccessDraft, ResumeDraft
from boundaryc.emit.collected import Named, TopologyFunctions, VariantFunctions
from boundaryc.emit.crossings import told_of
from boundaryc.emit.drafts import Draft, rendered
from boundaryc.emit.function_names import access_module
from boundaryc.emit.layout_text import closed, indented, tuple_lines, wrapped
from boundaryc.emit.parts import Block, Part, divided
from boundaryc.emit.shown import shown
from boundaryc.emit.topology_views import quoted
from boundaryc.emit.transfer import TransferDraft
from boundaryc.emit.variant_views import batches
from boundaryc.emit.views import Lines
from boundaryc.plan.result import StackPlan
from boundaryc.topology import Mesh

ABOUT = (
    "An `Access` is what a stage leaves with its output, named by the state of that output: how "
    "its sum is completed early, how it is folded into the residual, how extra rows get to it. A "
    "`Resume` is how a boundary is crossed from a completed output or from a written residual, "
    "and how the residual that was read gets to the rows on which it is shown. All batches and "
    "policies share one form of these: rows move by their counts."
)


ALIKE = 'Ways that do the same are one function, which says under "for" which they are.'


def access_parts(functions: TopologyFunctions, known: VariantFunctions) -> tuple[Part, ...]:
    """The other modules of a batch variant; divided, each way into a stage is in one of its own."""
    return divided(access_module(known.variant), "to", tuple(_blocks(functions, known)))


def access_doc(
    plan: StackPlan, functions: TopologyFunctions, known: VariantFunctions, part: Part
) -> Lines:
    """The docstring of one of these modules."""
    stack, topology = plan.stack.name, functions.plan.spec.name
    title, about = "What runs when a model uses an output between two stages", ABOUT
    if any(len(named.crossings) > 1 for named in known.beside.values()):
        about = f"{ABOUT} {ALIKE}"
    if part.stage is not None:
        target = shown(plan.stack, part.stage)
        title = f"What runs when a model uses an output, on the way to {target}"
        about = f"See `{access_module(known.variant)}.py`."
    return (
        f"{title}.",
        "",
        f"{stack} on {topology}, {batches(known.variant)}.",
        "",
        *wrapped("", about),
    )


def _blocks(functions: TopologyFunctions, known: VariantFunctions) -> Iterator[Block]:
    """Each constant behind the functions that it is the first to name."""
    written: set[tuple[object, ...]] = set()

    def new(drafts: Iterable[Draft], stage: str | None) -> Iterator[Block]:
        for draft in drafts:
            if draft.key not in written:
                written.add(draft.key)
                named = known.beside[draft.key]
                doc = draft.doc
                if named.crossings:
                    doc = told_of(doc, draft.sends, named.crossings)
                lines = rendered(replace(draft, doc=doc), named.name, "", named.when)
                # What moves or sums one tensor leads to no stage, or it leads to several.
                shared = draft.params == MOVED or len({way.target for way in named.crossings}) > 1
                yield Block(named.name, lines, None if shared else stage, draft)

    # Those without a function stand at the end: a module begins with one.
    accesses = [left for left in known.accesses.values() if left.draft.functions()]
    for left in accesses:
        yield from new(left.draft.functions().values(), None)
        yield _access(left, known)
    late = [left for left in known.accesses.values() if not left.draft.functions()]
    for resume in _as_met(known):
        stage = resume.uses[0].edge.consumer
        yield from new(resume.draft.functions(), stage)
        if resume.draft.transfer:  # it names them
            yield from (_access(left, known) for left in late)
            late = []
        yield _resume(resume, functions, known, stage)
    for named in known.beside.values():
        yield from new([named.draft], named.uses[0].edge.consumer)
    yield from (_access(left, known) for left in late)


def _as_met(known: VariantFunctions) -> Iterable[Named[ResumeDraft]]:
    """The resumes in the order in which a forward meets their boundaries."""
    met = list(dict.fromkeys(use.edge for use in known.between))
    return sorted(known.resumes.values(), key=lambda one: met.index(one.uses[0].edge))


def _access(left: Named[AccessDraft], known: VariantFunctions) -> Block:
    found = {field: known.beside[draft.key].name for field, draft in left.draft.functions().items()}
    fields = [f"{field}={name}" for field, name in found.items()]
    if not left.draft.plain:
        fields.append("plain=False")
    lines, names = _record(left.name, "Access", fields), tuple(found.values())
    return Block(left.name, lines, None, records=frozenset({"Access"}), names=names)


def _resume(
    resume: Named[ResumeDraft], functions: TopologyFunctions, known: VariantFunctions, stage: str
) -> Block:
    draft, records = resume.draft, {"Resume"}
    fields = [f"written={known.beside[draft.written.key].name}"]
    if draft.completed:
        fields.append(f"completed={known.beside[draft.completed.key].name}")
    if draft.handed:
        fields.append(f"handed={known.beside[draft.handed.key].name}")
    if draft.fused:
        fields.append(f"fused={known.beside[draft.fused.key].name}")
    if draft.finalized:
        fields.append(f"finalized={known.beside[draft.finalized.key].name}")
    if draft.added:
        fields.append(f"added={known.beside[draft.added.key].name}")
    for field, move in (("producer", draft.producer), ("input", draft.input)):
        arguments = [known.beside[move.move.key].name] if move.move else []
        arguments += ["owned=True"] if move.owned else []
        arguments += ["allocates=True"] if move.allocates else []
        if arguments:
            records.add("CaptureMove")
            fields.append(f"{field}=CaptureMove({', '.join(arguments)})")
    ways = (
        *(draft.written, draft.completed, draft.handed, draft.fused),
        *(draft.finalized, draft.added),
    )
    named = [one for one in (*ways, draft.producer.move, draft.input.move) if one]
    names = []
    travels: Lines = ()
    if draft.transfer:
        records.add("Transfer")
        named += draft.transfer.functions().values()
        names += [known.accesses[one.key].name for one in draft.transfer.accesses().values()]
        travels = indented(closed(_transfer(draft.transfer, functions.plan.mesh, known)))
    names += [known.beside[one.key].name for one in named]
    lines = _record(resume.name, "Resume", fields, travels)
    return Block(resume.name, lines, stage, records=frozenset(records), names=tuple(names))


def _transfer(draft: TransferDraft, mesh: Mesh, known: VariantFunctions) -> Lines:
    parts = [f'("{name}", {quoted(mesh.names(rows))})' for name, rows in draft.parts]
    fields: list[Lines] = [(f"rows={quoted(mesh.names(draft.rows))}",)]
    if draft.inputs is not None:
        fields.append((f"input_rows={quoted(mesh.names(draft.inputs))}",))
    if parts:
        fields.append(tuple_lines("parts=", parts, indent=9))
    fields += [(f"{flag}=True",) for flag in ("owes", "written") if getattr(draft, flag)]
    if draft.streams > 1:
        fields.append((f"streams={draft.streams}",))
    if draft.state:
        kept = [f'("{name}", {width})' for name, width in draft.state]
        fields.append(tuple_lines("state=", kept, indent=9))
    functions, accesses = draft.functions(), draft.accesses()
    fields += [(f"{name}={known.beside[one.key].name}",) for name, one in functions.items()]
    fields += [(f"{name}={known.accesses[one.key].name}",) for name, one in accesses.items()]
    inside = (line for field in fields for line in indented(closed(field)))
    return ("transfer=Transfer(", *inside, ")")


def _record(name: str, kind: str, fields: list[str], more: Lines = ()) -> Lines:
    return (f"{name} = {kind}(", *(f"    {field}," for field in fields), *more, ")")
