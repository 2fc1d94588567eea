"""Stack files compiled in memory: on one topology each, in editions of what they declare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from boundaryc.emit.files import Origin
from boundaryc.emit.output import emit
from boundaryc.language import loads
from boundaryc.language.model import Stack
from boundaryc.plan.compose import plan_stack
from boundaryc.topology.contracts import (
    CONTEXT_PARALLEL,
    INPUT_SCATTERED,
    ORDINARY,
    SEQUENCE_PARALLEL,
)
from boundaryc.verify.modules import import_package
from examples.hf.architecture import Architecture

EXAMPLES = Path(__file__).resolve().parent.parent

Keys = Mapping[str, Any]

EDITIONS = ("plain", "captures", "complete", "bytes", "overlap")


def added(edition: str, layers: int, without: Sequence[str]) -> dict[str, Any]:
    """The keys that an edition adds to a stack file.

    plain      pipeline cuts with partial payloads
    captures   the same, and the residual before every layer, which goes along at cuts
    complete   cuts with complete payloads
    bytes      as plain; collectives cost no latency, so that plans send fewer bytes more often
    overlap    batches may run in two halves
    all        what plain, captures and overlap have, but for what a stack is ``without``
    """
    keys: dict[str, Any] = {}
    if edition != "overlap":
        keys["pipeline"] = {"payload": "complete" if edition == "complete" else "partial"}
    own = [one for one in EDITIONS if edition in (one, "all") and one not in without]
    if "overlap" in own:
        keys["overlap"] = {"two_batch": True}
    if "captures" in own:
        keys["captures"] = {"aux": {"before": list(range(layers)), "travels": True}}
    return keys


def written(name: str) -> str:
    """The text of a stack's file; that of a draft is in the file of the stack it is for."""
    own = EXAMPLES / name / "stack.yaml"
    file = own if own.exists() else EXAMPLES / name.rpartition("_")[0] / "stack.yaml"
    return file.read_text(encoding="utf-8")


@cache
def declared(name: str) -> Keys:
    """The keys of a stack's file."""
    keys: Keys = yaml.safe_load(written(name))
    return keys


@cache
def described(name: str) -> Stack:
    """The stack of this name, as its file has it."""
    return _named(written(name), name)


def runnable(architecture: Architecture, sizes: Keys) -> list[str]:
    """The variants of a stack that can run on a topology."""
    over, groups = sizes.get("attn_cp", 1), sizes.get("attn_dp", 1)
    slices = sizes["tp"] // (over * groups)
    dispatched = sizes.get("moe", {}).get("all_to_all", False)
    able = {
        ORDINARY: True,
        CONTEXT_PARALLEL: over > 1,
        SEQUENCE_PARALLEL: slices > 1,
        INPUT_SCATTERED: 1 < slices == sizes["tp"] and not dispatched,
    }
    return [variant for variant in architecture.variants if able[variant]]


def edited(architecture: Architecture, topology: str, sizes: Keys, edition: str) -> str:
    """The stack file with one topology, the variants that run there, and an edition's keys."""
    if edition == "bytes":
        sizes = {**sizes, "link": {"latency_us": 0, "bandwidth_gb_s": 300}}
    own = {"topologies": {topology: dict(sizes)}, "variants": runnable(architecture, sizes)}
    own |= added(edition, len(described(architecture.name).layers), architecture.without)
    return yaml.safe_dump({**declared(architecture.name), **own}, sort_keys=False)


def compiled(text: str, name: str) -> tuple[Stack, ModuleType]:
    """The stack of this name, and its package, imported from what it is compiled to."""
    plan = plan_stack(_named(text, name))
    files = dict(emit(plan, Origin("stack.yaml", "boundaryc compile", "0" * 64)).files)
    return plan.stack, import_package(files, plan.stack.name)


def _named(text: str, name: str) -> Stack:
    return next(one for one in loads(text).family if one.name == name)
