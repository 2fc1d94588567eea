"""Stacks that are compiled together share what is drafted, and get what they get alone."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import cache

import pytest

from boundaryc.emit.files import Origin
from boundaryc.emit.output import emit
from boundaryc.emit.reuse import Library
from boundaryc.emit.scope import Scope
from boundaryc.language import loads
from boundaryc.plan.compose import plan_stack
from boundaryc.plan.result import StackPlan
from boundaryc.topology.contracts import mesh_of

BASE = """\
boundaryc: 1
stack: sample
hidden_size: 4096
norm: {kind: rms, eps: 1.0e-6}
stages:
  attention: {kind: attention}
  mlp: {kind: ffn}
  experts: {kind: ffn, sparse: true}
layers: {count: 3, default: [attention, mlp], at: {2: [attention, experts]}}
topologies:
  tp4: {tp: 4}
  dp2: {tp: 4, attn_dp: 2}
  cp2: {tp: 8, attn_dp: 2, attn_cp: 2}
"""

STAGES = {
    "attention: {kind: attention": (
        *("update: {scaled_add: 0.5}", "update: {scaled_add: 0.25}", "transform: norm"),
        *("transform: {scale: 2.0}", "transform: {scale: 3.0}", "read: raw"),
        *("additive: {bias: rank0}", "additive: {bias: divided}", "additive: {sink: rank0}"),
        *("latent_input: true", "norm: {kind: rms, eps: 1.0e-5}", "joins_sum: allow"),
        *("norm: {kind: layer, eps: 1.0e-6, bias: true}", "post_addition: true"),
        "reduction: scoped",
    ),
    "mlp: {kind: ffn": (
        *("quantize: {format: fp8, scale: token}", "quantize: {format: int8, scale: token}"),
        *("quantize: {format: fp8, scale: token, keep: true}", "quantized_sum: fp8"),
        *("quantized_sum: int8", "reduction: local_tail", "read: raw"),
        *("additive: {bias: after_sum}", "update: sandwich, read: sandwich", "update: post_norm"),
    ),
}
"""What a stage may say, behind how it begins."""

TOP = (
    *("lora: true", "segments: true", "overlap: {two_batch: true}", "policy: {auto: rsv}"),
    *("pipeline: {payload: partial}", "pipeline: {payload: complete}"),
    *("captures: {probe: {after: [0, 1]}}", "captures: {other: {after: [0, 1]}}"),
    *("captures: {probe: {before: [1], rows: input}}", "extras: {deep: {after: [0]}}"),
    "fusion: {providers: [flashinfer]}",
    "residual: {kind: hyper_connections, streams: 2}",
    "residual: {kind: hyper_connections, streams: 4}",
)
"""What a stack may say."""

GATED = """\
operations:
  gated: {role: update, call: "pkg.ops:gated", params: [gate], facts: [outlives_producer]}
"""
OPERATIONS = (
    GATED,
    GATED.replace("pkg.ops:gated", "pkg.ops:other"),
    GATED.replace("[gate]", "[weight]"),
    GATED.replace("outlives_producer", "at_producer"),
)
"""Operations of one name that differ in one respect each."""


def texts() -> Iterable[str]:
    """Stacks that differ from one in one respect each."""
    yield BASE
    yield BASE.replace("kind: rms, eps", "kind: layer, bias: true, eps")
    for stage, keys in STAGES.items():
        yield from (BASE.replace(stage, f"{stage}, {key}") for key in keys)
    yield from (f"{BASE}{line}\n" for line in TOP)
    gated = BASE.replace("mlp: {kind: ffn", "mlp: {kind: ffn, update: gated")
    yield from (gated + operations for operations in OPERATIONS)


@cache
def plans() -> tuple[StackPlan, ...]:
    """All of them, planned."""
    return tuple(plan_stack(loads(text)) for text in texts())


def files(plan: StackPlan, library: Library | None = None) -> Mapping[str, str]:
    """What a stack compiles to."""
    return emit(plan, Origin("stack.yaml", "boundaryc compile", ""), library).files


@cache
def alone() -> tuple[Mapping[str, str], ...]:
    """What each of them compiles to where no other is."""
    return tuple(_forgetful(plan) for plan in plans())


def _forgetful(plan: StackPlan) -> Mapping[str, str]:
    """What a stack compiles to where emission remembers nothing of any other."""
    for name, module in list(sys.modules.items()):
        if name.startswith("boundaryc.emit.") and not name.endswith(".render"):  # has templates
            for value in list(vars(module).values()):
                getattr(value, "cache_clear", int)()
    return files(plan)


@pytest.mark.parametrize("step", [1, -1], ids=["in order", "the other way round"])
def test_a_stack_gets_the_same_whatever_was_compiled_before(step: int) -> None:
    library, every = Library(), alone()

    found = [files(plan, library) for plan in plans()[::step]]

    for text, one, own in zip(list(texts())[::step], found, every[::step], strict=True):
        assert one == own, text


def test_the_stacks_differ() -> None:
    """Each respect shows in what is compiled, or sharing it could not be wrong."""
    code = {"\n".join(one[name] for name in sorted(one) if ".py" in name) for one in alone()}

    assert len(code) == len(alone())


def test_what_was_drafted_is_not_drafted_again() -> None:
    """Neither for another topology of the same names, nor for another stack."""
    asked: list[int] = []

    def make(scope: Scope, axes: int) -> str:
        asked.append(axes)
        return scope.group(axes)

    library = Library()
    meshes = [mesh_of(spec) for plan in plans()[:2] for spec in plan.stack.topologies]
    scopes = [library.scope(mesh) for mesh in meshes]
    names = [scope.once(make, scope.mesh.every) for scope in scopes]

    assert set(names) == {"tp"}
    assert len(asked) == len({tuple(mesh.names(mesh.every)) for mesh in meshes}) == 3
    assert all(scope.groups == {scope.mesh.every} for scope in scopes)


def test_what_says_how_many_ranks_there_are_is_for_one_topology() -> None:
    def make(scope: Scope, axes: int) -> int:
        return scope.size(axes)

    library = Library()
    two, four = (mesh_of(spec) for spec in loads(SIZES).topologies)

    assert library.scope(two).once(make, two.every) == 2
    assert library.scope(four).once(make, four.every) == 4


SIZES = f"{BASE.partition('topologies:')[0]}topologies: {{tp2: {{tp: 2}}, tp4: {{tp: 4}}}}\n"
