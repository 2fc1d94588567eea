"""What every residual operation of a stack means, by name: float64, all tokens on one rank."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from boundaryc.language.model import NormSpec, OperationDecl, Stack, Stage
from boundaryc.verify import hyper
from boundaryc.verify.fixture import Fixture, bias_beside, bound_to


def normalised(x: Tensor, weight: Tensor, norm: NormSpec) -> Tensor:
    """The rows x [rows, width], each over its root mean square, times weight [width] and offset.

    A layer norm takes the mean from each row before; one with a bias adds it in the end.
    """
    if norm.kind == "none":
        return x
    if norm.kind == "layer":
        x = x - x.mean(dim=-1, keepdim=True)
    factor = weight + norm.weight_offset
    found = x / torch.sqrt((x * x).mean(dim=-1, keepdim=True) + norm.eps) * factor
    return found + bias_beside(weight) if norm.bias else found


Read = tuple[Tensor, Tensor, tuple[Tensor, ...]]
"""A stage's input, the residual behind it, and what is kept for the stage's update."""


class Meaning:
    """Reads, transforms, updates and both ends of a stack, as their definitions say.

    ``given`` is what operations take of every batch, on all tokens.
    """

    def __init__(self, stack: Stack, given: Tensor) -> None:
        self._norm, self._norm_of, self._residual = stack.norm, stack.norm_of, stack.residual
        self._declared = {declared.name: declared for declared in stack.operations}
        self._given = given

    def enter(self, hidden: Tensor) -> Tensor:
        """The residual of a stack's input."""
        residual = self._residual
        if residual is None or residual.enter == "identity":
            return hidden
        if residual.enter == "hyper_enter":
            return hidden.unsqueeze(1).repeat(1, residual.streams, 1)
        return self._called(self._declared[residual.enter], {}, hidden)[0]

    def leave(self, residual: Tensor, fixture: Fixture) -> Tensor:
        """What the end of the stack gives out."""
        name = self._residual.leave if self._residual else "norm"
        if name in self._declared:
            params = {"norm": fixture.final, **fixture.last}
            params |= dict.fromkeys(set(self._declared[name].params) - set(params), fixture.final)
            return self._called(self._declared[name], params, residual)[0]
        if name == "hyper_mean":
            residual = residual.mean(dim=1)
        if name == "hyper_head":
            assert self._residual is not None
            residual = hyper.head(
                residual, fixture.last["head"], self._residual.eps, self._norm.eps
            )
        return normalised(residual, fixture.final, self._norm)

    def read(self, stage: Stage, residual: Tensor, params: dict[str, Tensor]) -> Read:
        """What a stage reads."""
        if stage.read == "norm":
            return normalised(residual, params["norm"], self._norm_of(stage.name)), residual, ()
        if stage.read == "raw":
            return residual, residual, ()
        if stage.read == "hyper_read":
            own = self._residual
            assert own is not None
            x, kept = hyper.read(residual, params["hyper"], own.iterations, own.eps, self._norm.eps)
            return normalised(x, params["norm"], self._norm_of(stage.name)), residual, kept
        declared = self._declared[stage.read]
        x, *rest = self._called(declared, params, residual)
        rewritten = rest.pop(0) if "rewrites_residual" in declared.facts else residual
        return x, rewritten, tuple(rest)

    def update(
        self,
        stage: Stage,
        contribution: Tensor,
        residual: Tensor,
        params: dict[str, Tensor],
        kept: tuple[Tensor, ...] = (),
    ) -> Tensor:
        """The residual behind a stage."""
        if stage.update == "add":
            return residual + contribution
        if stage.update == "scaled_add":
            assert stage.update_scale is not None
            return residual + stage.update_scale * contribution
        if stage.update == "hyper_update":
            return hyper.update(contribution, residual, *kept)
        return self._called(self._declared[stage.update], params, contribution, residual, *kept)[0]

    def transform(self, stage: Stage, output: Tensor, params: dict[str, Tensor]) -> Tensor:
        """What becomes of a stage's output before it is added."""
        declared = stage.transform
        if declared is None:
            return output
        if declared.name == "scale":
            assert declared.scale is not None
            return declared.scale * output
        if declared.name == "norm":
            return normalised(output, params["output_norm"], self._norm_of(stage.name))
        return self._called(self._declared[declared.name], params, output)[0]

    def at_producer(self, stage: Stage) -> bool:
        """Whether the stage's update has run when its layer ends."""
        declared = self._declared.get(stage.update)
        return declared is not None and "at_producer" in declared.facts

    def _called(
        self, declared: OperationDecl, params: dict[str, Tensor], *values: Tensor
    ) -> list[Tensor]:
        """All tensors that an operation returns, each of the shape that it must have."""
        # An operation may write over what it is given; what the oracle keeps must stay.
        own = [value.clone() for value in values]
        biased = self._norm.bias or "plain_norm" not in declared.facts
        given = [bound_to(params, name, biased=biased) for name in declared.params]
        given += [self._given.clone()] if "per_call" in declared.facts else []
        results = _call(declared, own, given)
        width, tokens = self._given.shape[1], len(values[0])
        many = (declared.streams,) if declared.streams > 1 else ()
        residual, row = (tokens, *many, width), (tokens, width)
        wanted = [residual if declared.role in ("enter", "update") else row]
        if declared.role == "read":
            wanted += [residual] * ("rewrites_residual" in declared.facts)
            wanted += [(tokens, columns) for _, columns in declared.state]
        if len(results) != len(wanted):
            raise OperationError(
                f"{_named(declared)} returned {len(results)} tensors for {len(wanted)}"
            )
        for result, shape in zip(results, wanted, strict=True):
            if tuple(result.shape) != shape:
                seen = list(result.shape)
                raise OperationError(f"{_named(declared)} returned shape {seen} for {list(shape)}")
        return results


class OperationError(Exception):
    """A custom operation that cannot be imported, or that does not run; the message names it."""


def load_operation(declared: OperationDecl) -> Callable[..., Any]:
    """The function that a custom operation names, imported. OperationError where there is none."""
    module, _, name = declared.call.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (Exception, SystemExit) as problem:  # importing runs the user's code
        raise OperationError(_told(declared, "cannot be imported", problem)) from problem
    if not callable(function):
        kind = type(function).__name__
        raise OperationError(f"{_named(declared)} cannot be called: it is of type {kind}")
    return function  # type: ignore[no-any-return]


def _call(declared: OperationDecl, values: list[Tensor], given: list[object]) -> list[Tensor]:
    """The tensors that an operation returns, in order; what it has written where it returns none.

    ``values`` are the tensors that come first, ``given`` what the model binds.
    """
    function = load_operation(declared)
    try:
        result = function(*values, *given)
    except (Exception, SystemExit) as problem:  # the user's code
        raise OperationError(_told(declared, "failed", problem)) from problem
    if "writes_stream" in declared.facts:
        return [values[1]]
    found: list[Tensor] = []
    several = declared.state or "rewrites_residual" in declared.facts
    for part in result if declared.role == "read" and several else (result,):
        found += part if isinstance(part, tuple) and declared.state else (part,)
    for part in found:
        if not isinstance(part, Tensor):
            kind = type(part).__name__
            raise OperationError(
                f"{_named(declared)} returned no tensor but an object of type {kind}"
            )
    return found


def _named(declared: OperationDecl) -> str:
    return f"operation `{declared.name}` ({declared.call})"


def _told(declared: OperationDecl, what: str, problem: BaseException) -> str:
    return f"{_named(declared)} {what}: {type(problem).__name__}: {problem}"
