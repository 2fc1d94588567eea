"""Stand-in computation for every stage: cheap, different everywhere, and split like the real one.

A stage computes ``tanh(mix(x)) @ W`` with a weight of its own for every place in the stack.
Attention mixes each token with the earlier ones of its request; an FFN does not mix. A rank that
owes a sum has a slice of W's input columns, so the partial contributions of different ranks differ
in every row, add up to the same function for any number of ranks, and none is a multiple of
another: a sum done twice or never cannot pass for a scale.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from boundaryc.language.model import Stack, Stage
from boundaryc.verify.hyper import HeadParameter, HyperParameter, packed_shape


@dataclass(frozen=True, slots=True)
class Place:
    """One stage of one layer."""

    layer: int
    stage: str


@dataclass(frozen=True, slots=True)
class Weights:
    """The parameters of one place: W [width, width] and one tensor for each that is bound.

    These are [width]; ``input_scale`` is float32 []; hyper-connections are packed in one matrix.
    """

    matrix: Tensor
    params: dict[str, Tensor]


class Parameter:
    """What a model binds: any object with a ``weight``."""

    __slots__ = ("weight",)

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight


class BiasedParameter(Parameter):
    """What a model binds for a norm that declares a bias, or for an operation that may ask."""

    __slots__ = ("bias",)

    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight)
        self.bias = bias_beside(weight)


def bias_beside(weight: Tensor) -> Tensor:
    """The bias [width] of a norm with this weight."""
    return torch.sin(5.0 * weight)


class ScaleParameter:
    """What a model binds for a static scale: any object with an ``input_scale``."""

    __slots__ = ("input_scale",)

    def __init__(self, input_scale: Tensor) -> None:
        self.input_scale = input_scale


@dataclass(frozen=True, slots=True)
class Fixture:
    """Weights of a whole stack and the embeddings of all tokens, float64.

    ``last`` has what the final read takes beside the norm ``final``, by name.
    """

    width: int
    weights: dict[Place, Weights]
    final: Tensor
    last: dict[str, Tensor] = field(default_factory=dict)

    def contribution(self, place: Place, x: Tensor, *, mixes: bool) -> Tensor:
        """The whole output of a place for x [rows, width], the rows of one request in order."""
        return self.partial(place, mix(x) if mixes else x, 0, 1)

    def tail(self, place: Place, seen: Tensor) -> Tensor:
        """A part of the output that every rank holds whole, such as a shared expert's."""
        return torch.sin(seen * self.weights[place].matrix[0])

    def terms(self, place: Place, stage: Stage, seen: Tensor) -> dict[str, Tensor]:
        """The additive terms of an output: shared experts of an FFN, else biases [width]."""
        matrix = self.weights[place].matrix
        found = {}
        for index, term in enumerate(stage.additive, start=2):
            shared = stage.kind == "ffn" and term.multiplicity == "after_sum"
            found[term.name] = torch.sin((seen if shared else 3.0) * matrix[index])
        return found

    def addition(self, place: Place, tokens: Tensor) -> Tensor:
        """What a model adds to the residual before ``place`` reads it, from the stack's input."""
        return torch.cos(tokens * self.weights[place].matrix[1])

    def given(self, tokens: Tensor) -> Tensor:
        """What an operation with inputs of every batch is given, from the stack's input."""
        return torch.sin(2.0 * tokens)

    def extra(self, place: Place, name: str, tokens: Tensor) -> Tensor:
        """What a model adds under ``name`` to the output of ``place``, from the stack's input."""
        row = sum(map(ord, name)) % self.width
        return torch.sin(2.0 * tokens * self.weights[place].matrix[row])

    def partial(self, place: Place, seen: Tensor, part: int, parts: int) -> Tensor:
        """Part ``part`` of ``parts`` of the output for what the stage sees of each row."""
        low, high = self.width * part // parts, self.width * (part + 1) // parts
        return torch.tanh(seen[:, low:high]) @ self.weights[place].matrix[low:high]


HYPER = {"hyper": HyperParameter, "head": HeadParameter}
"""Parameters of hyper-connections, and what is made of the matrix that they are packed in."""


def bound_to(params: dict[str, Tensor], name: str, *, biased: bool = False) -> object:
    """What a model binds for a parameter; ``biased``: for a norm that declares a bias."""
    tensor = params[name]
    if tensor.dim() == 2:
        return HYPER[name](tensor)
    return BiasedParameter(tensor) if biased else Parameter(tensor)


def mix(x: Tensor) -> Tensor:
    """Each row with the mean of itself and the rows before it, x [rows, width]."""
    count = torch.arange(1, x.shape[0] + 1, dtype=x.dtype).unsqueeze(1)
    return 0.5 * x + 0.5 * x.cumsum(0) / count


def build_fixture(
    stack: Stack,
    params: dict[str, tuple[str, ...]],
    *,
    width: int,
    seed: int,
    last: tuple[str, ...] = (),
) -> Fixture:
    """Random weights for every place; ``params`` names the tensors that each stage binds.

    ``last`` names those of the final read.
    """
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    def drawn(name: str) -> Tensor:
        if name == "input_scale":
            return _scale(normal(1)[0])
        if stack.streams > 1 and name in HYPER:
            shape = packed_shape(stack.streams, width, head=name == "head")
            packed = normal(*shape) * 1.5
            packed[:, :-1] *= (stack.streams * width) ** -0.5
            packed[-1] = 1 + 0.3 * torch.tanh(packed[-1])
            return packed
        return 1 + 0.3 * normal(width)

    weights = {
        Place(index, stage): Weights(
            normal(width, width) * width**-0.5,
            {name: drawn(name) for name in params[stage]},
        )
        for index, layer in enumerate(stack.layers)
        for stage in layer
    }
    final = 1 + 0.3 * normal(width)
    return Fixture(width, weights, final, {name: drawn(name) for name in last if name != "norm"})


def _scale(drawn: Tensor) -> Tensor:
    """A static scale that some inputs exceed: fp8 reaches 1 to 4 with it."""
    return (0.0025 * 2 ** torch.tanh(drawn)).to(torch.float32)


def embeddings(count: int, width: int, seed: int) -> Tensor:
    """The stack's input for ``count`` tokens, [count, width] float64."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(count, width, generator=draw, dtype=torch.float64)
