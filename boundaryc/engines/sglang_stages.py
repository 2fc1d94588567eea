"""The stages that an SGLang model declares, as the `stages` and `layers` of a stack file.

A model's ``stage_facts(config, layer)`` returns what `declare_attn` and `declare_ffn` made; this
says it in boundaryc's words, or says what it cannot. docs/migrate-sglang.md has the recipe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

Declared = dict[str, Any]
"""A stage as in a stack file."""

READS = {"NormReadout": "norm", "NormQuantReadout": "norm", "PlainReadout": "raw"}
"""How each read of SGLang is called in a stack file."""

UPDATES = {"PlainAdd": "add", "PostNormAdd": "post_norm"}

REFUSED = {
    "sum_impl": "a sum of its own is a collective of the group provider",
    "attn_tp_gather": "a gather of its own is a collective of the group provider",
    "row_transport": "rows of its own are an operation of the stack file, or inside compute",
    "prepared_from": "a branch is written as `branch`: from, stages, merge_into",
    "output_complete": "an output that compute completes is `all_to_all` of a topology's `moe`",
}
"""What has no key of a stage, and where it belongs."""


def stage(declaration: Any) -> Declared:
    """One `StageDeclaration` as a stage of a stack file.

    ValueError names what it declares that a stage cannot say. ``exit_rows`` and
    ``next_layer_sparse`` are left out: the compiler knows the whole stack. ``dense_tp_size`` is the
    topology's `dense_tp`.
    """
    for field, instead in REFUSED.items():
        if getattr(declaration, field):
            raise ValueError(f"{field}: {instead}")
    if declaration.kind.name == "ATTENTION":
        found = _mixer(declaration)
    else:
        found = {"kind": "ffn"} | ({"sparse": True} if declaration.sparse else {})
    return found | _operations(declaration) | _rows(declaration.read)


def stack(layers: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """`stages` and `layers` of a stack file, from the declarations of each layer in order.

    A stage is called after what it is, and numbered where a layer or the stack has several kinds.
    ValueError as `stage`.
    """
    named: dict[str, Declared] = {}
    names = []
    for declarations in layers:
        own: list[str] = []
        for declaration in declarations:
            own.append(_named(stage(declaration), named, own))
        names.append(own)
    return {"stages": named, "layers": _runs(names)}


def _mixer(declaration: Any) -> Declared:
    partial = declaration.reduction.name == "ALWAYS_PARTIAL"
    found: Declared = {"kind": "attention" if partial else "mixer"}
    if not declaration.gathers_attn_tp_input:
        found["gathers_tp_input"] = False
    if declaration.in_token_order:
        found["order"] = "token"
    if declaration.tp_group.name != "ATTN_TP":
        raise ValueError("tp_group: heads over all of TP are a topology without attn_dp, attn_cp")
    return found


def _operations(declaration: Any) -> Declared:
    """How it reads the residual and joins it; what is left out is the stack file's default."""
    read = _known(READS, "read", declaration.read)
    update = _known(UPDATES, "update", declaration.update)
    transform = declaration.output_transform
    if update == "post_norm":
        if read != "raw" or transform is not None:
            raise ValueError("update: PostNormAdd is `post_norm` behind a plain read only")
        return {"update": "post_norm"}
    found: Declared = {} if read == "norm" else {"read": read}
    if transform is not None:
        # A norm of the output besides one of the input is what `sandwich` says.
        found |= {"update": "sandwich"} if read == "norm" else {"transform": "norm"}
        if transform.before_reduce_scatter:
            raise ValueError(
                "output_transform: one that may run before the sum is `{scale: ...}`, or an "
                "operation with the fact `linear`, and `before_reduce_scatter: true`"
            )
    return found


def _known(words: dict[str, str], field: str, operation: Any) -> str:
    name = type(operation).__name__
    if name not in words:
        raise ValueError(f"{field}: {name} is an operation of its own; declare it in `operations`")
    return words[name]


def _rows(read: Any) -> Declared:
    found: Declared = {}
    if read.reads_before_dp_gather:
        found["before_gather"] = ["attn_dp"]
    if read.reads_after_attn_tp_gather:
        found["needs_every_row"] = ["attn_tp"]
    return found


def _named(found: Declared, named: dict[str, Declared], taken: list[str]) -> str:
    """The name of a stage like ``found`` that the layer has not ``taken``, a new one if need be."""
    kind: str = found["kind"]
    base = "experts" if found.get("sparse") else "mlp" if kind == "ffn" else kind
    number = 1
    while True:
        name = base if number == 1 else f"{base}_{number}"
        if named.setdefault(name, found) == found and name not in taken:
            return name
        number += 1


def _runs(names: list[list[str]]) -> dict[str, Any]:
    """The layers: what most of them have as `default`, runs of others below `at`."""
    usual = list(Counter(map(tuple, names)).most_common(1)[0][0])
    at: dict[Any, list[str]] = {}
    for own, run in groupby(enumerate(names), key=lambda one: one[1]):
        numbers = [index for index, _ in run]
        first, last = numbers[0], numbers[-1]
        if own != usual:
            at[first if first == last else f"{first}-{last}"] = own
    found: dict[str, Any] = {"count": len(names), "default": usual}
    return found | ({"at": at} if at else {})
