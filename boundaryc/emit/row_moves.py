"""The view of the modules that move the rows of a stack on one rank."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from boundaryc.emit import quantized
from boundaryc.emit.collected import TopologyFunctions
from boundaryc.emit.kernel_views import head, on_few_lines
from boundaryc.emit.launch import warps
from boundaryc.emit.layout_text import bracketed
from boundaryc.emit.views import Lines
from boundaryc.language.model import Quantize
from boundaryc.plan.result import StackPlan
from boundaryc.plan.row_moves import MOVES, PLACE, TO_SHARDS, TO_TOKENS


@dataclass(frozen=True, slots=True)
class MoveView:
    """A kernel that finds rows by an index and may quantise them; it neither norms nor adds.

    ``made`` are its outputs by name. ``head``, ``doc``, ``on_device`` and ``in_torch`` are those of
    the function of moves.py that calls it, all but ``doc`` empty where there are two of them.
    """

    name: str
    format: str
    scale: str
    keep: bool
    made: tuple[str, ...]
    doc: str
    head: Lines
    on_device: Lines
    in_torch: Lines
    kernel_head: Lines
    launcher: Lines
    compiled: str
    launch: Lines
    maker: Lines
    operator: Lines
    norm: None = None
    adds: bool = False
    halves: bool = False


@dataclass(frozen=True, slots=True)
class MovesView:
    """``moves.py`` and ``move_kernels.py`` of a stack; ``places`` and so on: what some call does.

    ``kernels`` are those that find rows by an index, ``launching`` is what they are checked with.
    """

    name: str
    width: int
    block: int
    masked: bool
    by_eight: bool
    warps: int
    launching: str
    places: bool
    to_tokens: bool
    to_shards: bool
    kernels: tuple[MoveView, ...]


def moves_view(plan: StackPlan, functions: Iterable[TopologyFunctions]) -> MovesView | None:
    """The view, None where no function moves rows so."""
    needs = {need for topology in functions for need in topology.needs()} & MOVES.keys()
    return move_view(plan.stack.name, plan.stack.hidden_size, needs) if needs else None


def move_view(name: str, width: int, needs: Collection[str]) -> MovesView:
    """The view for rows of ``width`` columns; ``needs`` are the functions that are called."""
    block = 1 << (width - 1).bit_length()
    formats = {one: quantize for one, quantize in MOVES.items() if one in needs and quantize}
    called = [_kernel(one, quantize, width) for one, quantize in formats.items()]
    if TO_TOKENS in needs or TO_SHARDS in needs:
        called.insert(0, _kernel(TO_TOKENS, None, width))
    static = any(kernel.scale == "static" for kernel in called)
    return MovesView(
        name=name,
        width=width,
        block=block,
        masked=block != width,
        by_eight=width % 8 == 0,
        warps=warps(width),
        launching="check_input_scale, operator" if static else "operator",
        places=PLACE in needs,
        to_tokens=TO_TOKENS in needs,
        to_shards=TO_SHARDS in needs,
        kernels=tuple(called),
    )


def _kernel(caller: str, quantize: Quantize | None, width: int) -> MoveView:
    """The kernel behind the function ``caller``."""
    name = caller.replace(TO_TOKENS, "move_rows", 1)
    made = _made(quantize, width)
    scale = list(quantize.params) if quantize else []
    params = ["x: Tensor", "places: Tensor", *(f"{one}: Tensor" for one in scale)]
    inputs = ["x" if quantize else "raw(x)", "places", *scale]
    several = len(made) > 1
    outputs = "*made" if several else "made" if quantize else "raw(made)"
    words = ", ".join(f"Tensor {param.removesuffix(': Tensor')}" for param in params)
    returns = "Tensor" if not several else f"({', '.join(['Tensor'] * len(made))})"
    unaligned = ['do_not_specialize_on_alignment=("values",)'] if quantize else []
    jit = f"triton.jit({', '.join([f'_{name}', *unaligned])})"
    return MoveView(
        name=name,
        format=quantize.format if quantize else "",
        scale=quantize.scale if quantize else "",
        keep=quantize is None or quantize.keep,
        made=tuple(made),
        doc=quantized.said(quantize).replace("quantise to", "as") if quantize else "",
        head=_head(caller, quantize) if quantize else (),
        on_device=_on_device(name, quantize, tuple(made)) if quantize else (),
        in_torch=_in_torch(quantize) if quantize else (),
        kernel_head=head(name, params, _tuple(len(made))),
        launcher=on_few_lines(f"_{name.upper()} = GridLauncher(", [jit, "WARPS"]),
        compiled=f"return _{name.upper()}_OPERATOR({', '.join(['x', 'places', *scale])})",
        launch=bracketed(
            f"_{name.upper()}(",
            ["(places.shape[0], 1)", f"({', '.join([*inputs, outputs])})"],
            ")",
            indent=8,
        ),
        maker=_maker(name, made),
        operator=on_few_lines(
            f"_{name.upper()}_OPERATOR = operator(",
            [name, f"_made_by_{name}", f'"({words}) -> {returns}"'],
        ),
    )


def _made(quantize: Quantize | None, width: int) -> dict[str, str]:
    """The outputs by name, and how they are allocated."""
    rows = "places.shape[0]"
    made = {}
    if quantize is not None:
        dtype = "float8_e4m3fn" if quantize.format == "fp8" else "int8"
        made["values"] = f"x.new_empty(({rows}, x.shape[1]), dtype=torch.{dtype})"
    if quantize is not None and quantize.scale != "static":
        shares = width // 128 if quantize.scale == "group128" else 1
        made["scales"] = f"x.new_empty(({rows}, {shares}), dtype=torch.float32)"
    if quantize is None or quantize.keep:
        made["out"] = f"x.new_empty(({rows}, x.shape[1]))"
    return made


def _tuple(count: int) -> str:
    return "Tensor" if count == 1 else f"tuple[{', '.join(['Tensor'] * count)}]"


def _maker(name: str, made: dict[str, str]) -> Lines:
    first = head(
        f"_made_by_{name}", ["x: Tensor", "places: Tensor", "*_: object"], _tuple(len(made))
    )
    lines = bracketed("return ", list(made.values()), "", indent=4)
    if len(lines) > 1:
        lines = ("return (", *lines[1:-1], ")")
    return (*first, *(f"    {line}" for line in lines))


def _head(caller: str, quantize: Quantize) -> Lines:
    params = ["x: Tensor", "order: runtime.Order", *(f"{one}: Tensor" for one in quantize.params)]
    return head(caller, params, _tuple(2 + quantize.keep))


def _on_device(name: str, quantize: Quantize, made: tuple[str, ...]) -> Lines:
    """The statements that call the kernel's function; a scale that was given is no result of it."""
    first = "places = order.places_to_tokens(x.device)"
    call = f"move_kernels.{name}({', '.join(['x', 'places', *quantize.params])})"
    if quantize.scale != "static":
        return (first, f"return {call}")
    results = ["values", "input_scale", *made[1:]]
    return (first, f"{', '.join(made)} = {call}", f"return {', '.join(results)}")


def _in_torch(quantize: Quantize) -> Lines:
    arguments = ["x", *([f'"{quantize.scale}"'] if quantize.format == "fp8" else [])]
    arguments += quantize.params
    call = f"runtime.quantize_{quantize.format}({', '.join(arguments)})"
    returned = f"return *{call}, x" if quantize.keep else f"return {call}"
    return ("x = order.to_tokens(x)", returned)
