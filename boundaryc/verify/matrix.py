"""The cells of a proof: the full product, or a sample that covers every pair of choices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from boundaryc.graph.policy import POLICIES
from boundaryc.plan.result import StackPlan, TopologyPlan
from boundaryc.topology.contracts import CONTEXT_PARALLEL
from boundaryc.verify.batches import Shape, shapes
from boundaryc.verify.scene import Cell, Split

PADDINGS = ("sum_len", "max_len", "unpadded")
SPLITS: tuple[Split, ...] = ("zigzag", "interleaved")
ENTRIES = ("complete", "partial")
SIZES = ("few", "many")
MODES = ("prefill", "decode")
HALVES = ("none", "exits", "alone")
BATCHES = tuple(shape.name for shape in shapes(2, 2))
"""The names of all batches; on fewer ranks some of them are the same batch under one name."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which part of the matrix to run; an empty choice means all of that factor.

    ``splits`` are those of context-parallel cells; cells of other variants have none. ``rows`` are
    one batch, of the topologies with as many attention-DP groups. ``cuts`` are the pipeline cuts of
    every cell, none of them for ``()``.
    """

    topologies: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    paddings: tuple[str, ...] = ()
    batches: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    halves: tuple[str, ...] = ()
    rows: tuple[int, ...] | None = None
    cuts: tuple[int, ...] | None = None


def matrix(plan: StackPlan, selection: Selection) -> Iterator[Cell]:
    """Every selected cell, topology by topology.

    ValueError names the option of a choice that the stack does not have.
    """
    _check(plan, selection)
    for topology in _topologies(plan, selection):
        variants = [name for name in topology.row_multiples if _in(name, selection.variants)]
        policies = [name for name in ("auto", *POLICIES) if _in(name, selection.policies)]
        paddings = [name for name in PADDINGS if _in(name, selection.paddings)]
        for variant, policy, padding in product(variants, policies, paddings):
            for shape in _batches(topology, selection):
                for cuts in _cuts(plan, selection):
                    cell = Cell(topology.spec.name, variant, policy, padding, shape.rows, cuts=cuts)
                    for version in _versions(topology, cell):
                        yield from _selected(_in_halves(plan, version), selection)


def _cuts(plan: StackPlan, selection: Selection) -> tuple[tuple[int, ...], ...]:
    """Uncut and, where a file declares a pipeline, cut before every layer behind a stage."""
    stack = plan.stack
    if selection.cuts is not None:
        return (selection.cuts,)
    if stack.pipeline is None:
        return ((),)
    return ((), tuple(at for at in range(1, len(stack.layers)) if any(stack.layers[:at])))


def _topologies(plan: StackPlan, selection: Selection) -> list[TopologyPlan]:
    """The selected topologies, those only that ``rows`` fits. ValueError where it fits none."""
    named = [one for one in plan.topologies if _in(one.spec.name, selection.topologies)]
    rows = selection.rows
    if rows is None:
        return named
    fitting = [one for one in named if one.spec.attn_dp == len(rows)]
    if not fitting:
        groups = ", ".join(f"{one.spec.name} {one.spec.attn_dp}" for one in named)
        raise ValueError(
            f"--rows has {len(rows)} number(s), one for each attention-DP group, which fits no "
            f"selected topology; their groups are: {groups}"
        )
    return fitting


def _selected(cells: Iterator[Cell], selection: Selection) -> Iterator[Cell]:
    for cell in cells:
        if (
            _in(cell.split, selection.splits)
            and _in(cell.entry, selection.entries)
            and _in(SIZES[cell.many], selection.sizes)
            and _in(cell.mode, selection.modes)
            and _in(cell.halves or "none", selection.halves)
        ):
            yield cell


def _versions(topology: TopologyPlan, cell: Cell) -> Iterator[Cell]:
    """A cell for every split of its shards and state of its input, both sizes and both modes.

    Only where these make a difference.
    """
    columns = [column for column in topology.columns if column.variant == cell.variant]
    splits: tuple[Split, ...] = SPLITS if cell.variant == CONTEXT_PARALLEL else ("",)
    entries = dict.fromkeys(column.entry for column in columns)
    sizes = (False, True) if any(column.few is not None for column in columns) else (False,)
    modes = dict.fromkeys(column.mode or "prefill" for column in columns)
    for split, entry, many, mode in product(splits, entries, sizes, modes):
        yield replace(cell, split=split, entry=entry, many=many, mode=mode)


def _in_halves(plan: StackPlan, cell: Cell) -> Iterator[Cell]:
    """A cell whole and, where its stack may split such a batch, in two halves of either kind.

    An output that no exit left is folded where it travels, which only a plain update allows.
    """
    yield cell
    if not plan.stack.two_batch or cell.variant == CONTEXT_PARALLEL:
        return
    yield replace(cell, halves="exits")
    if not cell.cuts or all_plain(plan):
        yield replace(cell, halves="alone")


def all_plain(plan: StackPlan) -> bool:
    """Whether the output of every FFN may be folded."""
    updates = [plan.operations[one.update] for one in plan.stack.stages if one.kind == "ffn"]
    return all(update.call is None or update.facts.plain_add for update in updates)


def covering(cells: Sequence[Cell]) -> list[Cell]:
    """A greedy sample in which every pair of choices that occurs together does so once."""
    missing = {pair for cell in cells for pair in _pairs(cell)}
    chosen: list[Cell] = []
    for cell in sorted(cells, key=lambda cell: -len(cell.rows)):
        if missing & (pairs := set(_pairs(cell))):
            chosen.append(cell)
            missing -= pairs
    return chosen


def _pairs(cell: Cell) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    factors = (
        ("topology", cell.topology),
        ("variant", cell.variant),
        ("policy", cell.policy),
        ("padding", cell.padding),
        ("batch", _pattern(cell.rows)),
        ("version", f"{cell.split} {cell.entry} {cell.many} {cell.mode}"),
        ("cuts", f"{cell.cuts}"),
        ("halves", cell.halves),
    )
    return combinations(factors, 2)


def _pattern(rows: tuple[int, ...]) -> str:
    """What matters about a batch besides its size: emptiness and evenness."""
    empty = sum(1 for count in rows if not count)
    spread = "even" if len(set(rows)) == 1 else "uneven"
    return f"{spread}, {empty and ('all' if empty == len(rows) else 'some')} empty, {max(rows)}"


def _batches(topology: TopologyPlan, selection: Selection) -> tuple[Shape, ...]:
    mesh = topology.mesh
    if selection.rows is not None:
        return (Shape("given", selection.rows),)
    cuts = mesh.size(mesh.mask("attn_cp")) * mesh.size(mesh.mask("attn_tp"))
    found = shapes(mesh.size(mesh.mask("attn_dp")), cuts)
    return tuple(shape for shape in found if _in(shape.name, selection.batches))


def _in(name: str, chosen: tuple[str, ...]) -> bool:
    return not chosen or name in chosen


def _check(plan: StackPlan, selection: Selection) -> None:
    known: dict[str, tuple[tuple[str, ...], list[str]]] = {
        "--topology": (selection.topologies, [t.spec.name for t in plan.topologies]),
        "--variant": (selection.variants, list(plan.stack.variants)),
        "--policy": (selection.policies, ["auto", *POLICIES]),
        "--padding": (selection.paddings, list(PADDINGS)),
        "--batches": (selection.batches, list(BATCHES)),
        "--split": (selection.splits, list(SPLITS)),
        "--entry": (selection.entries, list(ENTRIES)),
        "--size": (selection.sizes, list(SIZES)),
        "--mode": (selection.modes, list(MODES)),
        "--halves": (selection.halves, list(HALVES)),
    }
    every = range(1, len(plan.stack.layers))
    if selection.cuts and (plan.stack.pipeline is None or not set(selection.cuts) <= {*every}):
        raise ValueError(
            f"--cut: {','.join(map(str, selection.cuts))} are not layers before which this stack "
            "can be cut; its file declares `pipeline`, and they are not the first layer"
        )
    for option, (chosen, names) in known.items():
        for name in chosen:
            if name not in names:
                raise ValueError(f"{option}: unknown name {name!r}; there is {', '.join(names)}")
