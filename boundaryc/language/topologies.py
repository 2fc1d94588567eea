"""`topologies` and `variants`: every size resolved, every product checked."""

from __future__ import annotations

from boundaryc.language.context import Context
from boundaryc.language.model import MoeSpec, TopologySpec
from boundaryc.language.reader import Path
from boundaryc.language.schema import MoeShape, StackShape, TopologyShape

VARIANTS = ("ordinary", "context_parallel", "input_scattered", "sequence_parallel")


def resolve_topologies(shape: StackShape, context: Context) -> tuple[TopologySpec, ...]:
    """The topologies by size and name; errors go to `context`."""
    stages = [*shape.stages.values()]
    for draft in shape.drafts.values():
        stages += draft.stages.values()
    sparse = any(stage.sparse for stage in stages)
    dense = any(stage.kind == "ffn" and not stage.sparse for stage in stages)
    found = []
    for name, entry in shape.topologies.items():
        path: Path = ("topologies", name)
        context.name("topology", name, path)
        if entry.moe is not None and not sparse:
            message = "`moe` is declared and no stage is sparse"
            help_ = "remove `moe`, or mark a stage with `sparse: true`"
            context.report("BC204", (*path, "moe"), message, help_, key=True)
        if "dense_tp" in entry.model_fields_set and not dense:
            message = "`dense_tp` is declared and the stack has no dense ffn"
            context.report("BC204", (*path, "dense_tp"), message, "remove `dense_tp`", key=True)
        found.append(_topology(name, entry, context))
    found.sort(key=lambda spec: (spec.tp, spec.attn_dp, spec.name))
    return tuple(found)


def _topology(name: str, entry: TopologyShape, context: Context) -> TopologySpec:
    path: Path = ("topologies", name)
    groups = entry.attn_dp * entry.attn_cp
    if _misfits(entry):
        what = "attn_dp" if entry.attn_cp == 1 else "attn_dp * attn_cp"
        at = "attn_dp" if "attn_dp" in entry.model_fields_set else "attn_cp"
        message = f"{what} = {groups} does not divide tp = {entry.tp}"
        help_ = "tp = attn_dp * attn_cp * attn_tp, and attn_tp is what remains"
        context.report("BC205", (*path, at), message, help_)
    attn_tp = max(1, entry.tp // groups)
    widths = {1: 1, "attn_tp": attn_tp, "tp": entry.tp}
    return TopologySpec(
        name=name,
        tp=entry.tp,
        attn_dp=entry.attn_dp,
        attn_cp=entry.attn_cp,
        attn_tp=attn_tp,
        dense_tp=widths[entry.dense_tp],
        moe=_moe(entry.moe or MoeShape(), entry.tp, (*path, "moe"), context),
        latency_us=float(entry.link.latency_us),
        bandwidth_gb_s=float(entry.link.bandwidth_gb_s),
        variable_scatter=entry.variable_scatter,
    )


def _misfits(entry: TopologyShape) -> bool:
    """Whether the ranks cannot be dealt out, so that nothing else is known of the topology."""
    return entry.tp % (entry.attn_dp * entry.attn_cp) != 0


def _moe(entry: MoeShape, tp: int, path: Path, context: Context) -> MoeSpec:
    groups = entry.dp * entry.ep
    if entry.tp is None and tp % groups:
        message = f"moe dp * ep = {groups} does not divide tp = {tp}"
        help_ = "moe dp * ep * tp is the topology's tp, and moe tp is what remains"
        context.report("BC205", path, message, help_, key=True)
    moe_tp = max(1, tp // groups) if entry.tp is None else entry.tp
    if entry.tp is not None and groups * entry.tp != tp:
        message = f"moe dp * ep * tp = {groups * entry.tp} is not tp = {tp}"
        help_ = "leave out moe `tp`: it is what remains of the topology's tp"
        context.report("BC205", path, message, help_, key=True)
    return MoeSpec(entry.dp, entry.ep, moe_tp, entry.all_to_all)


def resolve_variants(
    shape: StackShape, topologies: tuple[TopologySpec, ...], context: Context
) -> tuple[str, ...]:
    """The listed variants in the language's order.

    A variant that no topology can run is an error, and so is a topology that can run none. Nothing
    is said of a topology whose sizes are wrong: it may be meant for any variant.
    """
    right = [spec for spec in topologies if not _misfits(shape.topologies[spec.name])]
    listed = [str(variant) for variant in shape.variants]
    context.repeats(listed, ("variants",))
    idle = set()
    for index, variant in enumerate(listed):
        why = _never([inapplicable(variant, spec) for spec in topologies])
        if why and variant not in idle and right == [*topologies]:
            idle.add(variant)
            message = f"{variant} applies to no topology: {why}"
            help_ = "remove the variant, or add a topology that can run it"
            context.report("BC204", ("variants", index), message, help_)
    for spec in right:
        why = _never([inapplicable(variant, spec) for variant in listed])
        if why and not idle.issuperset(listed):  # else the variants are to blame, not this one
            message = f"no listed variant applies to the topology `{spec.name}`: {why}"
            help_ = "remove the topology, or add `ordinary` to the variants"
            context.report("BC204", ("topologies", spec.name), message, help_, key=True)
    if "context_parallel" in listed and "ordinary" not in listed:
        message = "context_parallel alone has no rows for a request too short to be dealt out"
        help_ = "add `ordinary` to the variants: such batches, and decoding, run on ordinary rows"
        context.report("BC213", ("variants", listed.index("context_parallel")), message, help_)
    return tuple(variant for variant in VARIANTS if variant in listed)


def _never(reasons: list[str | None]) -> str:
    """Why none of several ways is possible; empty if one is."""
    return "" if None in reasons else "; ".join(sorted({str(reason) for reason in reasons}))


def inapplicable(variant: str, spec: TopologySpec) -> str | None:
    """Why a topology cannot run a variant; None if it can."""
    if variant in ("sequence_parallel", "input_scattered") and spec.attn_tp == 1:
        return "attn_tp is 1"
    if variant == "context_parallel" and spec.attn_cp == 1:
        return "attn_cp is 1"
    if variant == "input_scattered":
        if spec.attn_tp != spec.tp:
            return "attention is data or context parallel"
        if spec.moe.all_to_all:
            return "expert dispatch is inside compute"
    return None
