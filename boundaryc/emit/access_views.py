"""The view of a variant's other module: what runs when a model uses an output between stages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from boundaryc.emit.between import AccessDraft, ResumeDraft, Shown
from boundaryc.emit.collected import Named, TopologyFunctions, VariantFunctions
from boundaryc.emit.drafts import Draft, rendered
from boundaryc.emit.imports import module_imports
from boundaryc.emit.layout_text import closed, indented, tuple_lines, wrapped
from boundaryc.emit.topology_views import quoted
from boundaryc.emit.transfer import TransferDraft
from boundaryc.emit.variant_views import batches
from boundaryc.emit.views import Lines, ModuleView
from boundaryc.plan.result import StackPlan
from boundaryc.topology import Mesh

ABOUT = (
    "An `Access` is what a stage leaves with its output, named by the state of that output: how "
    "its sum is completed early, how it is folded into the residual, how extra rows get to it. A "
    "`Resume` is how a boundary is crossed from a completed output or from a written residual, "
    "and how the residual that was read gets to the rows on which it is shown. All batches and "
    "policies share one form of these: rows move by their counts."
)


def access_view(
    plan: StackPlan, functions: TopologyFunctions, known: VariantFunctions
) -> ModuleView:
    """The view of one batch variant's other module."""
    stack, topology = plan.stack.name, functions.plan.spec.name
    drafts = [named.draft for named in known.beside.values()]
    records = {"Resume"} | ({"Access"} if known.accesses else set())
    if any(_is_shown(one.draft) for one in known.resumes.values()):
        records.add("CaptureMove")
    if any(one.draft.transfer for one in known.resumes.values()):
        records.add("Transfer")
    return ModuleView(
        doc=(
            "What runs when a model uses an output between two stages.",
            "",
            f"{stack} on {topology}, {batches(known.variant)}.",
            "",
            *wrapped("", ABOUT),
        ),
        imports=module_imports(plan, drafts, records),
        blocks=tuple(_blocks(functions, known)),
    )


def _blocks(functions: TopologyFunctions, known: VariantFunctions) -> Iterator[Lines]:
    """Each constant behind the functions that it is the first to name."""
    written: set[tuple[object, ...]] = set()

    def new(drafts: Iterable[Draft]) -> Iterator[Lines]:
        for draft in drafts:
            if draft.key not in written:
                written.add(draft.key)
                named = known.beside[draft.key]
                yield rendered(draft, named.name, "", named.when)

    # Those without a function stand at the end: a module begins with one.
    accesses = [left for left in known.accesses.values() if left.draft.functions()]
    for left in accesses:
        yield from new(left.draft.functions().values())
        yield _access(left, known)
    late = [left for left in known.accesses.values() if not left.draft.functions()]
    for resume in _as_met(functions, known):
        yield from new(resume.draft.functions())
        if resume.draft.transfer:  # it names them
            yield from (_access(left, known) for left in late)
            late = []
        yield _resume(resume, functions, known)
    for named in known.beside.values():
        yield from new([named.draft])
    yield from (_access(left, known) for left in late)


def _as_met(functions: TopologyFunctions, known: VariantFunctions) -> Iterable[Named[ResumeDraft]]:
    """The resumes in the order in which a forward meets their boundaries."""
    met = list(dict.fromkeys(use.edge for use in functions.between))
    return sorted(known.resumes.values(), key=lambda one: met.index(one.uses[0].edge))


def _access(left: Named[AccessDraft], known: VariantFunctions) -> Lines:
    fields = [
        f"{field}={known.beside[draft.key].name}" for field, draft in left.draft.functions().items()
    ]
    if not left.draft.plain:
        fields.append("plain=False")
    return _record(left.name, "Access", fields)


def _resume(
    resume: Named[ResumeDraft], functions: TopologyFunctions, known: VariantFunctions
) -> Lines:
    draft = resume.draft
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
    for field, shown in (("producer", draft.producer), ("input", draft.input)):
        arguments = [known.beside[shown.move.key].name] if shown.move else []
        arguments += ["owned=True"] if shown.owned else []
        arguments += ["allocates=True"] if shown.allocates else []
        if arguments:
            fields.append(f"{field}=CaptureMove({', '.join(arguments)})")
    travels: Lines = ()
    if draft.transfer:
        travels = indented(closed(_transfer(draft.transfer, functions.plan.mesh, known)))
    return _record(resume.name, "Resume", fields, travels)


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


def _is_shown(resume: ResumeDraft) -> bool:
    """Whether a resume says anything about showing what was read."""
    return any(shown != Shown() for shown in (resume.producer, resume.input))
