"""What a boundary's functions call, and what writing their statements collects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from boundaryc.emit.fused import FusedSum
from boundaryc.emit.how import Collective, How
from boundaryc.emit.norms import USUAL, NormCall
from boundaryc.language.model import Additive, Quantize
from boundaryc.operations import Operation

OWN_NAMES = ("addition", "experts", "fused", "input_scale", "norm", "scales", "value", "values")
"""What functions call things that a parameter of an operation may be called as well."""


@dataclass(frozen=True, slots=True)
class Calls:
    """How the operations around a boundary are called.

    ``shown`` is what people call the consumer. ``update`` is the producer's, None where there is
    none, ``scale`` the factor of a scaled one; ``transform`` is what the producer declares before
    it, ``factor`` that of a scale. What either needs after the hand-off travels with the output as
    ``carried``. ``read`` is the consumer's.
    ``names`` are the names under which operations from outside are imported, by operation name.
    ``additive`` are the replicated terms of the producer's output, and ``quantized_sum`` is the
    format in which its sum may travel.
    ``access`` is the constant that the producer's exit leaves in the stream. ``captures`` keep the
    residual that is read; ``kept``: nothing writes its storage afterwards. ``quantize`` says what
    is made of what was read. ``lora``: the tokens of the consumer's input are published;
    ``latent``: the model makes a latent of it. ``enter`` makes the residual of the stack's input,
    None where it is that input; ``streams`` are those of the residual. What operations are given in
    every batch lies on the rows ``given_on``. ``norm`` is the consumer's, ``output_norm`` the
    producer's. ``addition``: the model may add to the residual before it is read. ``fused`` is the
    sum that a fused kernel may do with the add and the norm behind it.
    """

    producer: str
    consumer: str
    shown: str
    update: Operation | None
    read: Operation
    names: Mapping[str, str]
    access: str = ""
    scale: float | None = None
    transform: Operation | None = None
    factor: float | None = None
    carried: tuple[str, ...] = ()
    captures: tuple[str, ...] = ()
    kept: bool = False
    quantize: Quantize | None = None
    additive: tuple[Additive, ...] = ()
    quantized_sum: str | None = None
    lora: bool = False
    latent: bool = False
    enter: Operation | None = None
    streams: int = 1
    given_on: int = 0
    norm: NormCall = USUAL
    output_norm: NormCall = USUAL
    addition: bool = False
    fused: FusedSum | None = None

    def __hash__(self) -> int:
        """Of what tells most of them apart: much that is drafted is looked up by them."""
        update = self.update and self.update.name
        return hash((self.producer, self.consumer, update, self.read.name, self.captures))

    @property
    def params(self) -> tuple[str, ...]:
        """What the producer binds, in the order in which its exit takes it."""
        operations = (self.transform, self.update)
        named = (param for operation in operations if operation for param in operation.params)
        return tuple(dict.fromkeys(named))


@lru_cache(maxsize=2048)
def onwards(calls: Calls) -> Calls:
    """The same without what only says how a stage ends."""
    return replace(calls, access="", additive=(), addition=False)


@lru_cache(maxsize=2048)
def along(calls: Calls, source: str, target: str, shown: str) -> Calls:
    """The same on a way that several boundaries may have: with other names of its ends."""
    return replace(onwards(calls), producer=source, consumer=target, shown=shown)


@lru_cache(maxsize=2048)
def without_output(calls: Calls) -> Calls:
    """What follows where the model has written the residual: no output is left to add.

    What a model wrote is the model's: it may write it again.
    """
    return replace(
        calls,
        update=None,
        scale=None,
        transform=None,
        factor=None,
        carried=(),
        kept=False,
        quantized_sum=None,
        enter=None,
        output_norm=USUAL,
    )


@lru_cache(maxsize=2048)
def ending(calls: Calls) -> Calls:
    """What can be done with an output before it is read, whatever reads it."""
    return replace(
        calls,
        consumer="",
        shown="",
        captures=(),
        kept=False,
        quantize=None,
        lora=False,
        latent=False,
        enter=None,
        norm=USUAL,
        addition=False,
    )


@lru_cache(maxsize=2048)
def left_by(calls: Calls, producer: str) -> Calls:
    """What a model can do with an output between two stages; ``producer`` is what left it."""
    return replace(onwards(ending(calls)), producer=producer)


@dataclass(slots=True)
class Script:
    """The statements of one function, and what they use."""

    lines: list[str] = field(default_factory=list)
    summary: list[str] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    how: list[How] = field(default_factory=list)
    uneven: bool = False
    moves_residual: bool = False
    helpers: set[str] = field(default_factory=set)
    custom: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Names:
    """What a function calls its tensors: the value, the residual it finds, and the one it makes."""

    value: str = "hidden"
    residual: str = "stream.residual"
    written: str = "stream.residual"
