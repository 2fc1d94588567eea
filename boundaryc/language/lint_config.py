"""Compares a stack file with the `config.json` of the model it describes.

A multiplier that the config sets and the stack file ignores does not fail anywhere: the model runs,
and says something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from boundaryc.language.diagnostics import Diagnostic, Severity
from boundaryc.language.model import Stack, Stage

_EPS = ("rms_norm_eps", "layer_norm_epsilon", "norm_eps")
_DEPTH = ("num_hidden_layers", "num_layers", "n_layer")


def lint_config(stack: Stack, config: Mapping[str, object]) -> tuple[Diagnostic, ...]:
    """A warning BC607 for every number of ``config`` that the stack file contradicts or ignores.

    ``config`` is a Hugging Face config as a mapping. Only the fields that concern boundaries are
    read: the width, the depth, the norm's eps, and the multiplier of what is added to the residual.
    """
    return (*_sizes(stack, config), *_multipliers(stack, config))


def _sizes(stack: Stack, config: Mapping[str, object]) -> Iterator[Diagnostic]:
    written = (
        ("hidden_size", ("hidden_size",), stack.hidden_size),
        ("norm.eps", _EPS, stack.norm.eps),
        ("layers", _DEPTH, len(stack.layers)),
    )
    for path, names, value in written:
        for name in names:
            said = _number(config, name)
            if said is not None and said != value:
                yield _finding(
                    stack, path, f"the config says {name} = {said:g}, here it is {value}"
                )


def _multipliers(stack: Stack, config: Mapping[str, object]) -> Iterator[Diagnostic]:
    said = _number(config, "residual_multiplier")
    if said is None or said == 1:
        return
    for stage in stack.stages:
        if _factor(stage) != said:
            message = f"the config says residual_multiplier = {said:g}, `{stage.name}` ignores it"
            yield _finding(stack, f"stages.{stage.name}", message)


def _factor(stage: Stage) -> float:
    """By what the stage's output is multiplied before it is added."""
    factor = stage.update_scale if stage.update_scale is not None else 1.0
    if stage.transform is not None and stage.transform.scale is not None:
        factor *= stage.transform.scale
    return factor


def _number(config: Mapping[str, object], name: str) -> float | None:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _finding(stack: Stack, path: str, message: str) -> Diagnostic:
    help_ = "write what the config says, such as `update: {scaled_add: …}`, or correct the config"
    return Diagnostic("BC607", Severity.WARNING, message, stack.span(path), (), help_)
