"""What a stage says about its output and its input, key by key, and which of it fits together."""

from __future__ import annotations

from boundaryc.language.context import Context
from boundaryc.language.model import Additive, NormSpec, Quantize, Reduction, Transform
from boundaryc.language.norms import check_norm, meant_norm
from boundaryc.language.reader import Path
from boundaryc.language.residual import Operations, check_operation
from boundaryc.language.schema import ScaledAddShape, ScaleShape, StackShape, StageShape

GROUP = 128
_FIXED = {
    "partial": "a partial sum is always left to the next stage",
    "local_tail": "a sum with a local tail is never left to the next stage",
}


def resolve_update(
    entry: StageShape, operations: Operations, path: Path, context: Context
) -> tuple[str, float | None]:
    """The name of the update, and its factor if it has one.

    An update with params that may run after its producer's layer must outlive it.
    """
    if isinstance(entry.update, ScaledAddShape):
        return "scaled_add", float(entry.update.scaled_add)
    check_operation("update", entry.update, operations, path, context)
    declared = operations.get(entry.update)
    lives = declared and {"at_producer", "outlives_producer"} & set(declared.facts)
    if declared and declared.role == "update" and declared.params and not lives:
        message = f"`{entry.update}` may run in the next stage, when its params may be gone"
        help_ = "declare the fact `outlives_producer` if they exist then, or `at_producer`"
        other: tuple[Path, str] = (("operations", entry.update), "declared here")
        context.report("BC214", path, message, help_, other=other)
    return entry.update, None


def resolve_transform(
    entry: StageShape, operations: Operations, path: Path, context: Context
) -> Transform | None:
    """The transform, of which only a linear one may run on a partial."""
    early, at = entry.before_reduce_scatter, (*path, "before_reduce_scatter")
    if entry.transform is None:
        if "before_reduce_scatter" in entry.model_fields_set:
            message = "`before_reduce_scatter` is about a `transform`, and there is none"
            help_ = "remove `before_reduce_scatter`, or add the transform"
            context.report("BC213", at, message, help_, key=True)
        return None
    if isinstance(entry.transform, ScaleShape):
        return Transform("scale", float(entry.transform.scale), early)
    name = entry.transform
    check_operation("transform", name, operations, (*path, "transform"), context)
    declared = operations.get(name)
    linear = declared is None or declared.role != "transform" or "linear" in declared.facts
    if early and (name == "norm" or not linear):
        message = f"`{name}` is not linear, so it cannot run on a partial"
        help_ = "remove `before_reduce_scatter`"
        if declared:
            help_ += ", or declare the fact `linear` if the operation is"
        context.report("BC213", at, message, help_, key=True)
    return Transform(name, None, early)


def check_keys(
    entry: StageShape, reduction: Reduction, operations: Operations, path: Path, context: Context
) -> None:
    """Reports keys that contradict the kind of stage, its read, or each other."""
    _check_rows(entry, operations, path, context)
    _check_input(entry, path, context)
    token_mixer = entry.kind != "ffn"
    if token_mixer and reduction == "scoped":
        for key, used in (("order", entry.order == "token"), ("transform", entry.transform)):
            if used and (key != "order" or entry.kind == "attention"):
                message = f"a scoped {entry.kind} cannot have `{key}`: its exit decides on the sum"
                help_ = f"remove `{key}`, or make the stage an attention with a partial sum"
                context.report("BC213", (*path, key), message, help_, key=True)
    fits = entry.reduction in (None, reduction)  # else it is reported itself
    if "defer" in entry.model_fields_set and fits and reduction != "scoped":
        message = f"`defer` is about a scoped sum, and that of `{path[-1]}` is {reduction}"
        help_ = "remove `defer`, or the reduction: " + _FIXED[reduction]
        context.report("BC213", (*path, "defer"), message, help_, key=True)
    late = entry.transform is not None and not entry.before_reduce_scatter
    if late and entry.joins_sum == "allow":
        message = "a residual that joins the sum would be transformed with it"
        help_ = "remove `joins_sum`"
        context.report("BC213", (*path, "joins_sum"), message, help_, key=True)
    if entry.transform is not None and entry.quantized_sum:
        message = "a sum that is transformed is not plainly added, so it may not travel quantised"
        help_ = "remove `quantized_sum`"
        context.report("BC213", (*path, "quantized_sum"), message, help_, key=True)
    if "post_addition" in entry.model_fields_set and not token_mixer:
        message = f"`post_addition` is for attention and mixer stages, and `{path[-1]}` is an ffn"
        help_ = "remove `post_addition`"
        context.report("BC212", (*path, "post_addition"), message, help_, key=True)


def _check_input(entry: StageShape, path: Path, context: Context) -> None:
    """What a token mixer does with its input: `gathers_tp_input` and `latent_input`."""
    if "gathers_tp_input" in entry.model_fields_set and entry.kind == "ffn":
        message = f"`gathers_tp_input` is for attention and mixer stages; `{path[-1]}` is an ffn"
        help_ = "remove `gathers_tp_input`"
        context.report("BC212", (*path, "gathers_tp_input"), message, help_, key=True)
    if "latent_input" in entry.model_fields_set and entry.kind != "attention":
        message = (
            f"`latent_input` is for attention stages, and `{path[-1]}` is of kind {entry.kind}"
        )
        context.report("BC212", (*path, "latent_input"), message, "remove `latent_input`", key=True)
    if entry.latent_input and entry.quantize:
        message = "a latent is made of an input that is one tensor, and this one is quantised"
        help_ = "remove `latent_input` or `quantize`"
        context.report("BC213", (*path, "latent_input"), message, help_, key=True)


def _check_rows(entry: StageShape, operations: Operations, path: Path, context: Context) -> None:
    """`before_gather` and `needs_every_row`: for built-in reads, and not for the same axis."""
    for key in ("before_gather", "needs_every_row"):
        axes = getattr(entry, key)
        context.repeats(list(axes), (*path, key))
        if axes and entry.read in operations:
            message = f"`{key}` is for built-in reads, and `{entry.read}` is not one"
            custom = {"before_gather": "read_local", "needs_every_row": "read_whole"}[key]
            help_ = f"write it as `{custom}` of the operation"
            context.report("BC213", (*path, key), message, help_, key=True)
    for index, axis in enumerate(entry.needs_every_row):
        if axis in entry.before_gather:
            message = f"rows cannot be both cut and whole over `{axis}`"
            help_ = "list it under one of before_gather and needs_every_row"
            context.report("BC213", (*path, "needs_every_row", index), message, help_)


def norms_output(entry: StageShape) -> bool:
    """Whether the output of a stage is normalised before it is added."""
    return entry.transform == "norm"


def resolve_stage_norm(
    entry: StageShape, shape: StackShape, path: Path, context: Context
) -> NormSpec | None:
    """The stage's own norm; None where it has none, or the same as the stack."""
    usual = shape.norm if entry.norm is None else entry.norm
    if usual.kind == "none" and norms_output(entry):
        message = f"`{path[-1]}` has its output normalised, and its norm is none"
        key = "transform" if "transform" in entry.model_fields_set else "update"  # `sandwich`
        help_ = f"remove `{key}`, or give the stage a norm"
        context.report("BC213", (*path, key), message, help_, key=True)
    declared = shape.operations.get(entry.read)
    if usual.kind == "none" and declared and "plain_norm" in declared.facts:
        message = f"`{entry.read}` is declared to equal the norm of the stack, which has none"
        context.report("BC213", (*path, "read"), message, "remove its fact `plain_norm`")
    if entry.norm is None:
        return None
    if entry.read not in ("norm", "hyper_read") and not norms_output(entry):
        message = f"`{path[-1]}` normalises nothing: neither what it reads nor its output"
        help_ = "remove `norm`"
        context.report("BC213", (*path, "norm"), message, help_, key=True)
    check_norm(entry.norm, (*path, "norm"), context)
    found = meant_norm(entry.norm)
    return None if found == meant_norm(shape.norm) else found


def resolve_quantize(
    entry: StageShape, shape: StackShape, path: Path, context: Context
) -> Quantize | None:
    """How the input is quantised, in a combination that exists."""
    asked = entry.quantize
    if asked is None:
        return None
    path = (*path, "quantize")
    if entry.read in shape.operations:
        message = f"`quantize` is for built-in reads, and `{entry.read}` is not one"
        help_ = "remove `quantize`: a read of yours returns what its stage takes"
        context.report("BC213", path, message, help_, key=True)
    if asked.format == "int8" and asked.scale != "token":
        message = f"int8 with `scale: {asked.scale}` does not exist"
        help_ = "write `scale: token`, or `format: fp8`"
        context.report("BC213", (*path, "scale"), message, help_)
    elif asked.scale == "group128" and shape.hidden_size % GROUP:
        message = f"groups of {GROUP} do not divide hidden_size = {shape.hidden_size}"
        help_ = "write `scale: token`, or `scale: static`"
        context.report("BC213", (*path, "scale"), message, help_)
    return Quantize(asked.format, asked.scale, asked.keep)


def resolve_additive(
    entry: StageShape, reduction: Reduction, operations: Operations, path: Path, context: Context
) -> tuple[Additive, ...]:
    """The replicated terms by name, each with a multiplicity that the stage's compute can keep.

    The end of a stage takes them by keyword, beside the params of its update and its transform.
    """
    path = (*path, "additive")
    if entry.additive and reduction == "local_tail":
        message = "a stage with `reduction: local_tail` adds its replicated part itself"
        help_ = "remove `additive`, or the reduction"
        context.report("BC213", path, message, help_, key=True)
    named = (entry.update, entry.transform)
    own = [operations[name] for name in named if isinstance(name, str) and name in operations]
    for name, word in sorted(entry.additive.items()):
        context.name("additive", name, (*path, name))
        for declared in own:
            if name in declared.params:
                message = f"`{name}` is a param of this stage's {declared.role} already"
                help_ = f"choose another name, like `{name}_term`"
                context.report("BC213", (*path, name), message, help_, key=True)
        if word == "after_sum" and reduction == "partial":
            message = f"`{name}` cannot be added after the sum: a partial stage never sums"
            help_ = "write `rank0` or `divided`"
            context.report("BC213", (*path, name), message, help_)
    return tuple(Additive(name, word) for name, word in sorted(entry.additive.items()))
