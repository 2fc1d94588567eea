"""The generated code of a stack: its modules, where their lines come from, and what runs when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from boundaryc.emit.collected import TopologyFunctions, Use, VariantFunctions
from boundaryc.emit.functions import topology_functions
from boundaryc.emit.origin import OUT, origin
from boundaryc.emit.output import emit
from boundaryc.graph.build import Edge
from boundaryc.plan.result import StackPlan
from boundaryc.report.deployment import Source
from boundaryc.report.origin_line import Fragment, fragments


@dataclass(frozen=True, slots=True)
class Module:
    """A generated module; ``topology`` and ``variant`` are empty where it serves all."""

    path: str
    topology: str
    variant: str
    text: str
    fragments: tuple[Fragment, ...]


def modules(source: Source, plan: StackPlan) -> tuple[Module, ...]:
    """The modules that a stack compiles to, those of all topologies first; none is written."""
    stack = plan.stack
    output = emit(plan, origin(stack, Path(stack.source), Path(OUT)))
    written = sorted(output.files, key=lambda name: ("/" in name, name))
    return tuple(
        _module(source, f"{OUT}/{stack.name}/{name}", output.files[name])
        for name in written
        if name.endswith(".py")
    )


def _module(source: Source, name: str, text: str) -> Module:
    path = Path(name)
    topology = "" if path.parent.name == source.stack.name else path.parent.name
    variants = (one for one in source.stack.variants if f"{path.stem}_".startswith(f"{one}_"))
    variant = next(variants, "") if topology else ""
    return Module(name, topology, variant, text, tuple(fragments(source, path, text)))


def functions(plan: StackPlan) -> TopologyFunctions:
    """The functions of a plan of one topology, with the names that `modules` has them under."""
    return topology_functions(plan, plan.topologies[0])


def names(
    known: TopologyFunctions, edge: Edge, columns: Sequence[int], policy: str
) -> tuple[str, ...]:
    """What runs at a boundary in batches of some columns, in order; each once."""
    found = (name for column in columns for name in _names(*known.use(edge, column, policy)))
    return tuple(dict.fromkeys(found))


def _names(variant: VariantFunctions, use: Use) -> Iterator[str]:
    drafts = variant.drafts[use]
    if drafts.exit:
        yield variant.exits[drafts.exit.key].name
    exits = drafts.exit.functions() if drafts.exit else ()
    for one in (*exits, drafts.leave, drafts.postprocess, drafts.merge, drafts.prepare):
        if one:
            yield variant.functions[one.key].name
