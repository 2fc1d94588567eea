"""A stack on the deployment that was asked for: one topology, its variants, and one batch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from boundaryc.emit.diagnose import planned
from boundaryc.graph.policy import POLICIES
from boundaryc.language import BoundarycError, Stack
from boundaryc.language.files import read_text
from boundaryc.language.loader import loads
from boundaryc.language.model import TopologySpec
from boundaryc.language.topologies import inapplicable
from boundaryc.plan.result import Column, StackPlan, TopologyPlan
from boundaryc.topology import Mesh
from boundaryc.topology.contracts import CONTEXT_PARALLEL, ORDINARY
from boundaryc.verify.batches import Layout, lay_out, shortest_request

SPLIT = "zigzag"
"""How the context-parallel batches are dealt out that are shown."""
PADDINGS = ("sum_len", "max_len", "unpadded")


class AskedError(ValueError):
    """Something was asked for that the stack does not have; the message names what there is."""


@dataclass(frozen=True, slots=True)
class Source:
    """A stack with the text of its file."""

    stack: Stack
    text: str

    def line(self, number: int) -> str:
        """A line of the file, counted from 1, without the space around it."""
        return self.text.splitlines()[number - 1].strip()


def read_source(path: Path, topologies: tuple[str, ...] = ()) -> Source:
    """The stack of a file; topologies that begin with ``{`` take the place of the file's.

    Raises BoundarycError for what is wrong in the file, AskedError for what is in such a topology.
    """
    text = read_text(path)
    stack = loads(text, str(path))
    given = [one for one in topologies if one.startswith("{")]
    if not given:
        return Source(stack, text)
    if len(given) < len(topologies):
        raise AskedError("topologies by name and topologies as {...} exclude each other")
    named = ", ".join(f"{named_after(one)}: {one}" for one in given)
    written = _instead(text, "topologies", f"topologies: {{{named}}}")
    try:
        asked = loads(_instead(written, "variants", f"variants: [{ORDINARY}]"), str(path))
    except BoundarycError as problem:  # the file alone has none
        said = (f"{one.message} ({one.code}): {one.help}" for one in problem.diagnostics)
        raise AskedError(f"--topology: {'; '.join(said)}") from problem
    return Source(replace(asked, variants=stack.variants), text)


def named_after(topology: str) -> str:
    """A name for a topology that was written as in the file: ``tp8_attn_dp4_ep8``."""
    try:
        sizes = yaml.safe_load(topology)
    except yaml.YAMLError:
        sizes = None
    if not isinstance(sizes, dict):
        raise AskedError(f"{topology} is not a topology such as {{tp: 8, attn_dp: 4}}")
    return "_".join(_words(sizes)) or "given"


def _words(sizes: Mapping[str, Any]) -> Iterator[str]:
    for key, value in sizes.items():
        if isinstance(value, dict):
            yield from _words(value)
        elif value is True:
            yield str(key)
        elif value is not False:
            yield re.sub("[^a-z0-9_]", "", f"{key}{value}")


def _instead(text: str, key: str, line: str) -> str:
    """``text`` with ``line`` for a top-level key; all other lines keep their numbers."""
    lines = text.splitlines()
    first = next((at for at, one in enumerate(lines) if one.startswith(f"{key}:")), None)
    if first is None:
        return "\n".join([*lines, line, ""])
    last = first + 1
    while last < len(lines) and (not lines[last] or lines[last][0] in " #\t-"):
        last += 1
    return "\n".join([*lines[:first], line, *[""] * (last - first - 1), *lines[last:], ""])


def drafted(source: Source, name: str | None) -> Source:
    """The draft of a stack by its name, with or without that of its stack; the stack for None."""
    stack = source.stack
    if name is None:
        return source
    for one in stack.drafts:
        if name in (one.name, one.name.removeprefix(f"{stack.name}_")):
            return Source(one, source.text)
    names = ", ".join(one.name for one in stack.drafts) or "none"
    raise AskedError(f"--draft: {stack.name} has no draft {name!r}; there is {names}")


@dataclass(frozen=True, slots=True)
class Link:
    """What connects the ranks, where it is not what the file says."""

    latency_us: float | None = None
    bandwidth_gb_s: float | None = None

    def on(self, spec: TopologySpec) -> TopologySpec:
        """A topology whose ranks are so connected."""
        latency, bandwidth = self.latency_us, self.bandwidth_gb_s
        return replace(
            spec,
            latency_us=spec.latency_us if latency is None else latency,
            bandwidth_gb_s=spec.bandwidth_gb_s if bandwidth is None else bandwidth,
        )


AS_WRITTEN = Link()


def deployed(
    source: Source, topology: str, variants: tuple[str, ...] = (), link: Link = AS_WRITTEN
) -> StackPlan:
    """The plan of a stack on one of its topologies, for the variants that mean something there.

    Raises AskedError for names that there are not, BoundarycError where there is no plan.
    """
    stack = source.stack
    spec = next((one for one in stack.topologies if one.name == topology), None)
    if spec is None:
        names = ", ".join(one.name for one in stack.topologies)
        raise AskedError(f"--topology: {stack.name} has no topology {topology!r}; it has {names}")
    for name in variants:
        if name not in stack.variants:
            listed = ", ".join(stack.variants)
            raise AskedError(f"--variant: {stack.name} does not list {name!r}; it lists {listed}")
    fitting = tuple(one for one in stack.variants if inapplicable(one, spec) is None)
    for name in variants:
        if name not in fitting:
            why = inapplicable(name, spec)
            raise AskedError(f"--variant: {name} has no meaning on {topology}: {why}")
    one = replace(stack, topologies=(link.on(spec),), variants=variants or fitting)
    return planned(one, {stack.source: source.text})


def listed(variant: str) -> tuple[str, ...]:
    """The variants to plan for a batch of one: where it may be too short, the ordinary one too."""
    return (ORDINARY, variant) if variant == CONTEXT_PARALLEL else (variant,)


def policy_of(stack: Stack, policy: str) -> str:
    """The policy that a name stands for. Raises AskedError for a name that there is not."""
    if policy == "auto":
        return stack.policy_auto
    if policy not in POLICIES:
        raise AskedError(f"--policy: unknown name {policy!r}; there is auto, {', '.join(POLICIES)}")
    return policy


@dataclass(frozen=True, slots=True)
class Load:
    """One batch on one topology: which column plans it, and the rows of all groups, pads included.

    ``variant`` is the ordinary one where a context-parallel shard would get no token.
    """

    variant: str
    rows: int
    even: tuple[str, ...]
    column: int


def load_of(
    topology: TopologyPlan,
    variant: str,
    rows: tuple[int, ...],
    padding: str = "sum_len",
    mode: str = "prefill",
) -> Load:
    """What a batch is, by the tokens of each attention-DP group.

    Raises AskedError where the topology has another number of groups.
    """
    mesh, groups = topology.mesh, topology.spec.attn_dp
    if len(rows) != groups:
        raise AskedError(f"{len(rows)} numbers of tokens for {groups} attention-DP groups")
    split = None
    if variant == CONTEXT_PARALLEL:
        least = shortest_request(SPLIT, topology.spec.attn_cp)
        whole = any(rows) and all(not count or count >= least for count in rows)
        split, variant = (SPLIT, variant) if whole else (None, ORDINARY)
    if variant not in topology.row_multiples:
        raise AskedError(f"such a batch is {variant}, which the stack does not list")
    layout = lay_out(mesh, rows, padding, _multiple(topology, variant, split), split)
    found = _column(topology, variant, layout, mode)
    even = tuple(sorted(layout.even_axes(mesh)))
    return Load(variant, layout.rows, even, found)


def _multiple(topology: TopologyPlan, variant: str, split: str | None) -> int:
    multiple, mesh = topology.row_multiples[variant], topology.mesh
    if split is None:
        return multiple
    slots = mesh.size(mesh.mask("attn_tp"))
    return 1 if multiple % slots else slots


def _column(topology: TopologyPlan, variant: str, layout: Layout, mode: str) -> int:
    """The first column that fits, as the runtime chooses it."""
    even = layout.even_axes(topology.mesh)
    few = layout.rows <= topology.few_rows.get(variant, layout.rows)
    for index, column in enumerate(topology.columns):
        fits = column.variant == variant and set(column.even) <= even
        fits &= column.few in (None, few) and column.mode in (None, mode)
        if fits and column.entry in ("complete", _entry(topology, variant)):
            return index
    raise LookupError(f"no column for {variant}")


def _entry(topology: TopologyPlan, variant: str) -> str:
    """The entry of a stack that has one only."""
    return next(one.entry for one in topology.columns if one.variant == variant)


def dealt(tokens: int, groups: int) -> tuple[int, ...]:
    """Tokens over attention-DP groups, as evenly as they go.

    >>> dealt(6, 4)
    (2, 2, 1, 1)
    """
    return tuple(tokens // groups + (group < tokens % groups) for group in range(groups))


def kinds(topology: TopologyPlan, variant: str, mode: str | None) -> tuple[int, ...]:
    """The columns of a variant, of one mode where the stack tells modes apart."""

    def meant(column: Column) -> bool:
        return column.variant == variant and (mode is None or column.mode in (None, mode))

    return tuple(index for index, column in enumerate(topology.columns) if meant(column))


def axes(mesh: Mesh) -> tuple[str, ...]:
    """The attention axes that have parts, outermost first."""
    return tuple(name for name in ("attn_dp", "attn_cp", "attn_tp") if mesh.mask(name))
