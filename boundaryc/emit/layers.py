"""The kinds of layer of a stack: one class for each, the same on every topology."""

from __future__ import annotations

from dataclasses import dataclass, replace

from boundaryc.emit.fused import may_defer_any
from boundaryc.emit.layout_text import listed
from boundaryc.emit.norms import bias_of, eps_of, type_of
from boundaryc.language.model import NormSpec, Stage
from boundaryc.operations import PARAM_TYPES, Operation, transform_operation
from boundaryc.plan.result import StackPlan


@dataclass(frozen=True, slots=True)
class Param:
    """One argument of a layer's ``bind``: its name, type, stage, and what it is for.

    ``bias`` says whether a layer norm has one, ``eps`` what a norm adds to the mean square; each is
    None for everything else.
    """

    name: str
    type: str
    meaning: str
    bias: bool | None = None
    eps: float | None = None


@dataclass(frozen=True, slots=True)
class StageSlot:
    """One stage of a layer: the class of its boundary, and what ``bind`` passes to it."""

    stage: Stage
    boundary: str
    read: tuple[Param, ...]
    update: tuple[Param, ...]


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Layers with the same stages: their class, and which layers they are, for people."""

    stages: tuple[str, ...]
    name: str
    slots: tuple[StageSlot, ...]
    where: str


ROLES = ("Prepared", "Beside")
"""How the class of a boundary begins at the start of a branch, and of the stage beside it."""
TAKEN = frozenset(
    {"Any", "AnyFusingStack", "AnyStack", "AttentionBoundary", "Batch", "BiasedNorm", "Column"}
    | {"FfnBoundary", "FusingFfnBoundary", "GroupProvider", "Groups", "InputScale", "Layer"}
    | {"MixerBoundary", "Norm", "Rows", "Stack", "Table", *PARAM_TYPES.values()}
    | {f"{role}{kind}Boundary" for role in ROLES for kind in ("Attention", "Ffn", "Mixer")}
)
"""Classes that stand beside those of layers in some generated module."""


def layer_kinds(plan: StackPlan) -> tuple[LayerKind, ...]:
    """The kinds of layer in the order in which the stack first has them."""
    kinds = dict.fromkeys(plan.stack.layers)
    joined = [_joined(stages) for stages in kinds]
    found, taken = [], set(TAKEN)
    for stages in kinds:
        name = _joined(stages)
        if joined.count(name) > 1:
            name = "Then".join(_camel(stage) for stage in stages)
        while name in taken or name.isupper():  # in capitals alone it would be a constant
            name += "Layer"
        taken.add(name)
        indexes = [i for i, layer in enumerate(plan.stack.layers) if layer == stages]
        slots = tuple(_slot(plan, stage) for stage in stages)
        found.append(LayerKind(stages, name, slots, spans(indexes)))
    return tuple(found)


def _joined(stages: tuple[str, ...]) -> str:
    return "".join(_camel(stage) for stage in stages) or "Empty"


def spans(indexes: list[int], most: int = 6) -> str:
    """Layer numbers for people: ``layers 0, 2 to 9``; a long list ends in how many there are.

    >>> spans([0]), spans([0, 1]), spans([1, 2, 3, 7])
    ('layer 0', 'layers 0 and 1', 'layers 1 to 3 and 7')
    """
    groups: list[list[int]] = []
    for index in indexes:
        if groups and groups[-1][-1] == index - 1:
            groups[-1].append(index)
        else:
            groups.append([index])
    words = [
        word
        for group in groups[:most]
        for word in ([f"{group[0]} to {group[-1]}"] if len(group) > 2 else map(str, group))
    ]
    if len(groups) > most:
        return f"{len(indexes)} layers: {', '.join(words)}, ..."
    return f"layer{'s' if len(indexes) > 1 else ''} {listed(words)}"


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _slot(plan: StackPlan, name: str) -> StageSlot:
    stage = plan.stack.stage(name)
    read, update = plan.operations[stage.read], plan.operations[stage.update]
    norm = plan.stack.norm_of(name)
    transform: tuple[Param, ...] = ()
    if stage.transform is not None:
        declared = plan.operations[transform_operation(stage.transform.name)]
        transform = tuple(
            _transform_param(name, param, declared, norm) for param in declared.params
        )
    reads = [_read_param(name, param, read, norm) for param in read.params]
    if plan.stack.branch is not None and name == plan.stack.branch.stages[0]:
        reads = []  # its input has been read
    if stage.quantize is not None:
        reads += [_scale_param(name, param) for param in stage.quantize.params]
    if stage.latent_input:
        meaning = f"what makes the latent input of {name}, `(input, batch) -> latent`"
        reads.append(Param(f"{name}_qkv_latent", "Any", meaning))
    params = [*transform, *(_param(name, param) for param in update.params)]
    return StageSlot(
        stage,
        f"{_role(plan, stage)}{_boundary(stage)}",
        tuple(reads),
        tuple({param.name: param for param in params}.values()),
    )


def _boundary(stage: Stage) -> str:
    """The class of a stage's boundary: who ends its sum, and whether it mixes tokens."""
    if stage.reduction == "partial":
        return "AttentionBoundary"
    return "FfnBoundary" if stage.kind == "ffn" else "MixerBoundary"


def _role(plan: StackPlan, stage: Stage) -> str:
    """How the class of a boundary begins: at either end of a branch, and before fused kernels."""
    branch = plan.stack.branch
    if branch is None:
        return "Fusing" if may_defer_any(plan, stage) else ""
    return dict(zip((branch.stages[0], branch.beside), ROLES, strict=True)).get(stage.name, "")


def _transform_param(stage: str, param: str, transform: Operation, norm: NormSpec) -> Param:
    if transform.call is None:
        meaning = f"the norm of the output of {stage}"
        bias, eps = bias_of(norm, transform, param), eps_of(norm, transform, param)
        return Param(f"{stage}_{param}", type_of(norm), meaning, bias, eps)
    return _param(stage, param)


def _scale_param(stage: str, param: str) -> Param:
    meaning = f"what has the static scale of the input of {stage}"
    return Param(f"{stage}_{param}", "InputScale", meaning)


def _read_param(stage: str, param: str, read: Operation, norm: NormSpec) -> Param:
    kind = read.param_type(param, type_of(norm))
    bias, eps = bias_of(norm, read, param), eps_of(norm, read, param)
    if kind == type_of(norm):
        return Param(stage, kind, f"the norm before {stage}", bias, eps)
    if kind == "Any":
        return replace(_param(stage, param), bias=bias, eps=eps)
    return Param(f"{stage}_{param}", kind, f"what mixes the streams for {stage}")


def _param(stage: str, param: str) -> Param:
    return Param(f"{stage}_{param}", "Any", f"`{param}` of the operations of {stage}")
