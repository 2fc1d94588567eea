"""Compares a stack file with the `config.json` of the model it describes.

A multiplier that the config sets and the stack file ignores does not fail anywhere: the model runs,
and says something else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from boundaryc.language.diagnostics import Diagnostic, Label, Severity
from boundaryc.language.model import Stack, Stage
from boundaryc.language.spans import Span

_EPS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")
_DEPTH = ("num_layers", "num_hidden_layers", "n_layer")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_KINDS = ("hybrid_override_pattern", "layers_block_type")
_PARALLEL = ("parallel_attn", "use_parallel_residual", "parallel_residual", "parallel_block")

_FACTOR = re.compile(r"(?:multipliers?|scale|scaling|alpha|beta|factor)$|^scale_")
_RESIDUAL = re.compile(r"resid|depth|^layernorm_")
_ELSEWHERE = re.compile(
    r"emb|logit|head|attention|attn|query|key|ssm|mamba|rout|rope|rotary|init|aux|loss|swiglu|"
    r"dropout|softmax|expert|moe|topk|vision|image|audio|lora|time|quant|vocab"
)
"""Parts of the names of factors that compute applies, or what lies before or behind the stack."""
_ASKED = frozenset({"residual_multiplier", "mlp_multipliers"})
"""Factors that have a rule of their own."""

NOWHERE: Mapping[str, Span] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Subject:
    stack: Stack
    config: Mapping[str, object]
    places: Mapping[str, Span]

    def number(self, name: str) -> float | None:
        """What the config says under a name, if that is a number."""
        return _number(self.config.get(name))

    def finding(self, path: str, key: str, message: str, help_: str) -> Diagnostic:
        """A warning at a node of the stack file, beside the config's key."""
        place = self.places.get(key)
        labels = (Label(place, "what the config says"),) if place else ()
        span = self.stack.span(path)
        return Diagnostic("BC607", Severity.WARNING, message, span, labels, help_)


def lint_config(
    stack: Stack, config: Mapping[str, object], places: Mapping[str, Span] = NOWHERE
) -> tuple[Diagnostic, ...]:
    """A warning BC607 for what ``config`` says and the stack file contradicts or ignores.

    ``config`` is a Hugging Face config of a text model as a mapping, ``places`` is where its keys
    are. Only what concerns boundaries is read: the width, the depth, the norm's eps, experts,
    parallel blocks, residual streams, and every factor of what is added to the residual.
    """
    subject = _Subject(stack, config, places)
    return tuple(item for rule in _RULES for item in rule(subject))


def _sizes(subject: _Subject) -> Iterator[Diagnostic]:
    stack = subject.stack
    depth = next((name for name in _DEPTH if name in subject.config), "")
    written = (
        ("hidden_size", ("hidden_size",), stack.hidden_size),
        ("norm.eps", _EPS, stack.norm.eps),
        ("layers", (depth,), len(stack.layers)),
    )
    for path, names, value in written:
        for name in names:
            said = subject.number(name)
            if said is not None and said != value:
                message = f"the config says {name} = {said:g}, here it is {value}"
                yield subject.finding(path, name, message, "correct the one that is wrong")


def _multipliers(subject: _Subject) -> Iterator[Diagnostic]:
    """`residual_multiplier` of every stage, and the second of `mlp_multipliers` of dense FFNs."""
    every = subject.number("residual_multiplier")
    if every is not None and every != 1:
        for stage in subject.stack.stages:
            yield from _factor_of(subject, stage, "residual_multiplier", every)
    pair = subject.config.get("mlp_multipliers")
    output = _number(pair[1]) if isinstance(pair, list) and len(pair) == 2 else None
    if output is not None and output != 1:
        for stage in subject.stack.stages:
            if stage.kind == "ffn" and not stage.sparse:
                yield from _factor_of(subject, stage, "mlp_multipliers", output)


def _factor_of(subject: _Subject, stage: Stage, key: str, said: float) -> Iterator[Diagnostic]:
    if _factor(stage) != said:
        message = f"the config says {key} = {said:g}, `{stage.name}` ignores it"
        help_ = f"write `update: {{scaled_add: {said:g}}}`, or `transform: {{scale: {said:g}}}`"
        yield subject.finding(f"stages.{stage.name}", key, message, help_)


def _factor(stage: Stage) -> float:
    """By what the stage's output is multiplied before it is added."""
    factor = stage.update_scale if stage.update_scale is not None else 1.0
    if stage.transform is not None and stage.transform.scale is not None:
        factor *= stage.transform.scale
    return factor


def _experts(subject: _Subject) -> Iterator[Diagnostic]:
    """Experts without a sparse stage, unless the kinds of layers are listed; and whole experts."""
    stages = subject.stack.stages
    listed = any(name in subject.config for name in _KINDS)
    for name in _EXPERTS:
        said = subject.number(name)
        if said is not None and said > 1 and not listed and not any(one.sparse for one in stages):
            message = f"the config says {name} = {said:g}, and no stage is a MoE"
            yield subject.finding("stages", name, message, "mark the stage with `sparse: true`")
    whole = subject.number("zero_expert_num")
    for stage in stages:
        if whole and stage.sparse and stage.reduction != "local_tail":
            message = (
                f"the config says zero_expert_num = {whole:g}: every rank has their output, and "
                f"`{stage.name}` sums it"
            )
            help_ = "write `reduction: local_tail`"
            yield subject.finding(f"stages.{stage.name}", "zero_expert_num", message, help_)


def _structure(subject: _Subject) -> Iterator[Diagnostic]:
    """Residual streams and parallel blocks."""
    stack = subject.stack
    streams = subject.number("hc_mult")
    if streams is not None and streams != stack.streams:
        message = f"the config says hc_mult = {streams:g}, the residual has {stack.streams} streams"
        help_ = f"write `residual: {{kind: hyper_connections, streams: {streams:g}}}`"
        path = "residual" if stack.residual else "hidden_size"
        yield subject.finding(path, "hc_mult", message, help_)
    for name in _PARALLEL:
        if subject.config.get(name) is True and stack.branch is None:
            message = f"the config says {name} = true, and no stage is beside another one"
            help_ = "write a `branch` beside attention"
            yield subject.finding("stages", name, message, help_)


def _ignored(subject: _Subject) -> Iterator[Diagnostic]:
    """Factors that no key of a stack file can be, as far as their names tell."""
    for name in subject.config:
        said = subject.number(name)
        if said in (None, 1) or name in _ASKED or not _FACTOR.search(name):
            continue
        if _RESIDUAL.search(name) or not _ELSEWHERE.search(name):
            message = f"the config says {name} = {said:g}, and nothing in the file has it"
            help_ = (
                "see in the model's code what it multiplies: outputs have `scaled_add` and "
                "`scale`, the residual needs an operation; what compute applies needs nothing"
            )
            yield subject.finding("stages", name, message, help_)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


_RULES: tuple[Callable[[_Subject], Iterator[Diagnostic]], ...] = (
    _sizes,
    _multipliers,
    _experts,
    _structure,
    _ignored,
)
