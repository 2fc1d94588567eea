"""The registry of residual operations.

Built-ins and the operations that a YAML file declares are entries of one kind: a name, a role, the
facts that the planner may rely on, and how they are called. Nothing downstream asks whether an
operation is built in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from boundaryc.language.model import Stack

PARAM_TYPES = {
    "head": "HyperHead",
    "hyper": "HyperConnection",
}
"""What the parameters of built-in operations are, beside norms."""
RUNTIME = "boundaryc.runtime:"
"""Where the functions of built-in operations are."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What an operation promises. Facts that widen what the planner may do default to false.

    ``state`` is what a read keeps beside the residual for the update of its stage, float32 unless
    the residual is wider: names, in call order, with the columns of each. ``streams`` is how many
    streams the residual has: it is [rows, streams, width], and [rows, width] for one.
    """

    plain_add: bool = False
    plain_norm: bool = False
    row_wise: bool = False
    linear: bool = False
    at_producer: bool = False
    outlives_producer: bool = False
    joins_sum: bool = False
    quantized_sum: bool = False
    writes_stream: bool = False
    rewrites_residual: bool = False
    per_call: bool = False
    read_local: frozenset[str] = frozenset()
    read_whole: frozenset[str] = frozenset()
    state: tuple[tuple[str, int], ...] = ()
    streams: int = 1


@dataclass(frozen=True, slots=True)
class Operation:
    """One entry of the registry.

    ``call`` is ``package.module:function`` and None for a built-in whose code the emitter knows by
    ``name``. ``params`` are bound by the model; ``settings`` are constants of the call, like
    ``eps=1e-06``, which only built-ins have. With ``normed`` the norm of what a built-in returns is
    what is read; the parameter ``norm`` is that norm's.
    """

    name: str
    role: str
    facts: Facts = field(default_factory=Facts)
    params: tuple[str, ...] = ()
    call: str | None = None
    settings: tuple[str, ...] = ()
    normed: bool = False

    @property
    def outside(self) -> bool:
        """Whether somebody else wrote it, whose facts are claims."""
        return self.call is not None and not self.call.startswith(RUNTIME)

    def param_type(self, param: str, norm: str) -> str:
        """The class of the runtime that a parameter is of; "Any" of an operation from outside.

        ``norm`` is that of norms.
        """
        return "Any" if self.outside else PARAM_TYPES.get(param, norm)


BUILTIN: tuple[Operation, ...] = (
    Operation("identity", "enter", Facts(row_wise=True)),
    Operation(
        "add",
        "update",
        Facts(plain_add=True, row_wise=True, outlives_producer=True, quantized_sum=True),
    ),
    Operation("scaled_add", "update", Facts(row_wise=True, outlives_producer=True)),
    Operation("scale", "transform", Facts(row_wise=True, linear=True)),
    Operation("output_norm", "transform", Facts(row_wise=True), params=("output_norm",)),
    Operation("norm", "read", Facts(plain_norm=True, row_wise=True), params=("norm",)),
    Operation("raw", "read", Facts(row_wise=True)),
)


def enter_operation(stack: Stack) -> str:
    """The registry's name of what makes the residual of a stack's input."""
    return stack.residual.enter if stack.residual else "identity"


def final_read(stack: Stack) -> str:
    """The registry's name of what the end of a stack reads the residual with."""
    read = stack.residual.leave if stack.residual and stack.terminal.norm else "norm"
    normed = stack.terminal.norm and stack.norm.kind != "none"
    return "raw" if read == "norm" and not normed else read


def transform_operation(name: str) -> str:
    """The registry's name of a transform: a norm of the output is not the norm that is read."""
    return "output_norm" if name == "norm" else name


def hyper_connections(
    streams: int, iterations: int, eps: float, norm_eps: float
) -> tuple[Operation, ...]:
    """The built-in operations of a residual of several streams, see `runtime.hyper`."""
    facts = Facts(row_wise=True, streams=streams)
    kept = replace(facts, state=(("mix", streams * streams), ("post", streams)))
    scaled, balanced = f"norm_eps={norm_eps!r}", f"eps={eps!r}"

    def operation(name: str, role: str, facts: Facts, *rest: tuple[str, ...]) -> Operation:
        params, settings = rest
        normed = "norm" in params
        return Operation(name, role, facts, params, f"{RUNTIME}{name}", settings, normed)

    rounds = f"iterations={iterations}"
    return (
        operation("hyper_enter", "enter", facts, (), (f"streams={streams}",)),
        operation("hyper_read", "read", kept, ("hyper", "norm"), (rounds, balanced, scaled)),
        operation("hyper_update", "update", replace(kept, outlives_producer=True), (), ()),
        operation("hyper_mean", "read", facts, ("norm",), ()),
        operation("hyper_head", "read", facts, ("norm", "head"), (balanced, scaled)),
    )


def registry(declared: Iterable[Operation] = ()) -> Mapping[str, Operation]:
    """Built-in and declared operations by name; operations of several streams are declared ones.

    Raises ValueError for a declared operation that takes a built-in's name.
    """
    table = {operation.name: operation for operation in BUILTIN}
    for operation in declared:
        if operation.name in table:
            raise ValueError(f"operation {operation.name!r} is declared twice")
        table[operation.name] = operation
    return table
