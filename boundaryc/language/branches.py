"""`branch`: stages beside another one, and whether everything around it fits."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from boundaryc.language.context import Context
from boundaryc.language.layers import Layers
from boundaryc.language.model import Branch, Stage
from boundaryc.language.named import spelled_out
from boundaryc.language.names import did_you_mean, suggest
from boundaryc.language.reader import Path
from boundaryc.language.schema import BranchShape, StackShape
from boundaryc.language.stage_keys import norms_output

READING = (
    *("read", "before_gather", "needs_every_row", "quantize", "post_addition", "latent_input"),
    "gathers_tp_input",
)
"""Keys that say how a stage's input is read."""
ORDINARY = "ordinary"


def with_branch(layers: Layers, branch: Branch | None) -> Layers:
    """The stages of every layer, those of a branch behind the one that they are beside."""
    if branch is None:
        return layers
    return tuple(
        tuple(
            each
            for name in layer
            for each in ((name, *branch.stages) if name == branch.beside else (name,))
        )
        for layer in layers
    )


def meant(entry: BranchShape | None, stages: Collection[str]) -> set[str]:
    """The stages that a branch uses or, where one is misspelt, was probably meant to use."""
    if entry is None:
        return set()
    return {name if name in stages else suggest(name, stages) or name for name in entry.stages}


def check_branch(
    shape: StackShape, stages: Mapping[str, Stage], layers: Layers, context: Context
) -> Branch | None:
    """The branch of a stack whose main line is `layers`; errors go to `context`."""
    entry = shape.branch
    if entry is None:
        return None
    if not _check_names(entry, stages, layers, context):
        return None
    _check_first(entry, shape, context)
    _check_last(entry, shape, stages, context)
    _check_beside(entry, shape, stages, context)
    for index, variant in enumerate(shape.variants):
        if variant != ORDINARY:
            message = f"a branch has ordinary batches only, and the stack lists `{variant}`"
            other: tuple[Path, str] = (("branch",), "the branch")
            help_ = f"remove `{variant}`, or the branch"
            context.report("BC213", ("variants", index), message, help_, other=other)
    _check_sums(entry, stages, context)
    _check_switches(shape, context)
    return Branch(entry.beside, tuple(entry.stages), entry.merges_sum == "allow")


def _check_names(
    entry: BranchShape, stages: Collection[str], layers: Layers, context: Context
) -> bool:
    """Whether every name is a stage, in the one place where it may be."""
    before, main = len(context.errors), {name for layer in layers for name in layer}
    context.repeats(entry.stages, ("branch", "stages"))
    places: list[tuple[Path, str]] = [(("branch", "beside"), entry.beside)]
    places += [(("branch", "stages", at), name) for at, name in enumerate(entry.stages)]
    for path, name in places:
        if name not in stages:
            help_ = did_you_mean(name, stages, "the stages are")
            context.report("BC203", path, f"there is no stage `{name}`", help_)
    for path, name in places[1:]:
        if name in main or name == entry.beside:
            message = f"`{name}` is a stage of the branch and of the layers beside it"
            help_ = "declare a stage of its own for the branch"
            context.report("BC213", path, message, help_)
    if layers and entry.beside in stages and entry.beside not in main:
        message = f"no layer has the stage `{entry.beside}`, so nothing has this branch"
        help_ = "name a stage that `layers` use"
        context.report("BC204", ("branch", "beside"), message, help_)
    return len(context.errors) == before


def _check_first(entry: BranchShape, shape: StackShape, context: Context) -> None:
    """The first stage reads nothing: its input has been read for the stage beside it."""
    first = entry.stages[0]
    stage = shape.stages[first]
    for key in (*READING, *(() if norms_output(spelled_out(stage)) else ("norm",))):
        if key in stage.model_fields_set:
            message = f"`{first}` begins a branch, whose input has been read for `{entry.beside}`"
            help_ = f"remove `{key}`"
            other: tuple[Path, str] = (("branch",), "the branch")
            path: Path = ("stages", first, key)
            context.report("BC213", path, message, help_, key=True, other=other)


def _check_last(
    entry: BranchShape, shape: StackShape, stages: Mapping[str, Stage], context: Context
) -> None:
    """The last stage has no update of its own: its output is added to another one's."""
    last = entry.stages[-1]
    for key, differs in (("update", stages[last].update != "add"), ("joins_sum", True)):
        if key in shape.stages[last].model_fields_set and differs:
            message = f"`{last}` ends a branch: the update of `{entry.beside}` adds its output"
            help_ = f"remove `{key}`, or give it to `{entry.beside}`"
            other: tuple[Path, str] = (("branch",), "the branch")
            path: Path = ("stages", last, key)
            context.report("BC213", path, message, help_, key=True, other=other)


def _check_beside(
    entry: BranchShape, shape: StackShape, stages: Mapping[str, Stage], context: Context
) -> None:
    """The stage beside a branch shares its input, and waits for the branch with its update."""
    beside = stages[entry.beside]
    operation = shape.operations.get(beside.update)
    other: tuple[Path, str] = (("branch",), "the branch")
    if operation is not None and "at_producer" in operation.facts:
        message = f"the update of `{beside.name}` waits for the branch, so it is not at_producer"
        help_ = "use an update that may run in the next stage"
        path: Path = ("stages", beside.name, "update")
        context.report("BC213", path, message, help_, key=True, other=other)
    if beside.quantize is not None:
        message = f"the branch takes the input of `{beside.name}`, which is quantised"
        help_ = "remove `quantize`; the model may quantise what it is given"
        path = ("stages", beside.name, "quantize")
        context.report("BC213", path, message, help_, key=True, other=other)


def _check_sums(entry: BranchShape, stages: Mapping[str, Stage], context: Context) -> None:
    """Two outputs that are merged have one sum: no stage decides on it alone."""
    other: tuple[Path, str] = (("branch",), "the branch")
    for name, stage in stages.items():
        if stage.quantized_sum is not None:
            message = "sums beside a branch are one sum, and none of the stack travels quantised"
            help_ = "remove `quantized_sum`, or the branch"
            path: Path = ("stages", name, "quantized_sum")
            context.report("BC213", path, message, help_, key=True, other=other)
        if not stage.defer and name in (entry.beside, entry.stages[-1]):
            message = f"the sum of `{name}` is that of both outputs, on which `merges_sum` decides"
            help_ = "remove `defer`"
            context.report(
                "BC213", ("stages", name, "defer"), message, help_, key=True, other=other
            )


def _check_switches(shape: StackShape, context: Context) -> None:
    """A batch says the rows of one input and has one stage that computes; a branch has two."""
    other: tuple[Path, str] = (("branch",), "the branch")
    if shape.lora:
        message = "`lora_rows` are those of one input, and a branch computes on two in turns"
        help_ = "remove `lora`, or the branch"
        context.report("BC213", ("lora",), message, help_, key=True, other=other)
    if shape.overlap is not None and shape.overlap.two_batch:
        message = "the stage beside a branch ends in its merge, never in `postprocess`"
        help_ = "remove `overlap`, or the branch"
        context.report("BC213", ("overlap",), message, help_, key=True, other=other)
