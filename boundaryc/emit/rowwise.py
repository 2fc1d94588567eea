"""Views of a stack's ``rowwise.py`` and ``kernels.py``: the functions that its boundaries call."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from boundaryc.emit.collected import TopologyFunctions
from boundaryc.emit.launch import warps
from boundaryc.emit.layout_text import WIDTH, bracketed, listed, wrapped
from boundaryc.emit.norms import Norms
from boundaryc.emit.views import Lines
from boundaryc.plan.kernels import KERNELS, NORMS, RowKernel
from boundaryc.plan.result import StackPlan


@dataclass(frozen=True, slots=True)
class KernelView:
    """One function of ``rowwise.py`` and its kernel.

    ``doc`` is both modules', ``head`` that of rowwise.py, where ``on_device`` calls the kernel's
    function and ``in_torch`` does the same in torch. ``inputs``, ``outputs``, ``strides`` and
    ``constants`` are what a kernel takes; ``made`` is how its outputs are allocated, ``maker`` the
    function that does it. ``compiled`` calls the ``operator``, which is the function for torch.
    """

    name: str
    adds: bool
    centred: bool
    biased: bool
    format: str
    scale: str
    plain: bool
    doc: Lines
    head: Lines
    kernel_head: Lines
    on_device: Lines
    in_torch: Lines
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    maker: Lines
    made: str
    compiled: Lines
    strides: tuple[str, ...]
    constants: tuple[str, ...]
    jit: Lines
    launch: Lines
    operator: Lines


@dataclass(frozen=True, slots=True)
class RowwiseView:
    """``rowwise.py`` and ``kernels.py`` of a stack.

    ``offset`` is empty where weights are used as they are. ``own_eps``, ``own_offset`` and
    ``may_round``: calls may say what eps is, what the offset is, and whether the sum is seen
    rounded.
    """

    name: str
    title: str
    width: int
    eps: str
    offset: str
    block: int
    masked: bool
    by_eight: bool
    warps: int
    warps_to_quantize: int
    rounded: bool
    may_round: bool
    scaled: bool
    own_eps: bool
    own_offset: bool
    kernels: tuple[KernelView, ...]


def rowwise_view(plan: StackPlan, functions: Iterable[TopologyFunctions]) -> RowwiseView:
    """The view of ``rowwise.py`` and ``kernels.py``: only what some function calls."""
    needs = {
        need
        for topology in functions
        for variant in topology.variants.values()
        for named in (*variant.functions.values(), *variant.beside.values())
        for need in named.draft.needs
    }
    return norm_view(
        plan.stack.name,
        plan.stack.hidden_size,
        Norms.of(plan.stack),
        scaled=any(stage.update_scale is not None for stage in plan.stack.stages),
        needs=needs,
    )


def norm_view(
    name: str, width: int, norms: Norms, *, needs: Collection[str], scaled: bool = False
) -> RowwiseView:
    """The view for rows of ``width`` columns; ``needs`` are the functions that are called.

    ``scaled``: what is added may have a factor, a constant of the call.
    """
    called = [kernel for name, kernel in KERNELS.items() if name in needs]
    block = 1 << (width - 1).bit_length()
    return RowwiseView(
        name=name,
        title=_titled(called),
        width=width,
        eps=repr(norms.usual.eps),
        offset=norms.offset,
        block=block,
        masked=block != width,
        by_eight=width % 8 == 0,
        warps=warps(width, quantizes=False),
        warps_to_quantize=warps(width, quantizes=True),
        rounded=norms.rounded,
        may_round="rounded" in norms.varies,
        scaled=scaled,
        own_eps="eps" in norms.varies,
        own_offset="offset" in norms.varies,
        kernels=tuple(_view(kernel, width, norms, scaled=scaled) for kernel in called),
    )


def _titled(called: Iterable[RowKernel]) -> str:
    """The norms that are called, for people."""
    kinds = {kernel.norm for kernel in called}
    words = {"rms_norm": "RMS", "layer_norm": "layer", "biased_layer_norm": "layer"}
    named = dict.fromkeys(words[kind] for kind in NORMS if kind in kinds)
    return f"{listed(list(named) or ['RMS'])} norms"


def _view(kernel: RowKernel, width: int, norms: Norms, *, scaled: bool) -> KernelView:
    params = _params(kernel, norms, scaled=scaled and kernel.adds)
    results, made = _results(kernel, width)
    inputs = tuple(name for name, text in params if text == "Tensor")
    numbers = tuple(name for name, text in params if text != "Tensor")
    strided = [name for name in ("x", "residual") if name in inputs]
    strides = tuple(f"{name}_stride" for name in strided)
    signature = [f"{name}: {text}" for name, text in params]
    outputs = tuple(name for name in results if name != "input_scale")
    passed = [*inputs, *numbers]
    quantize = kernel.quantize
    return KernelView(
        name=kernel.name,
        adds=kernel.adds,
        centred=kernel.norm != "rms_norm",
        biased=kernel.norm == "biased_layer_norm",
        format=quantize.format if quantize else "",
        scale=quantize.scale if quantize else "",
        plain=quantize is None or quantize.keep,
        doc=_doc(kernel, width, norms, scaled=scaled),
        head=head(kernel.name, signature, _tuple(results)),
        kernel_head=head(kernel.name, signature, _tuple(outputs)),
        on_device=_on_device(kernel, passed, results),
        in_torch=_in_torch(kernel, norms, scaled=scaled),
        inputs=inputs,
        outputs=outputs,
        maker=_maker(kernel, outputs, made),
        made=f"_made_by_{kernel.name}({', '.join(strided)})",
        compiled=bracketed(f"return _{kernel.name.upper()}_OPERATOR(", passed, ")", indent=8),
        strides=strides,
        constants=tuple(name.upper() for name in numbers),
        jit=_jit(kernel, strides),
        launch=_launch(kernel, inputs, outputs, numbers),
        operator=_operator(kernel, params, len(outputs)),
    )


def _params(kernel: RowKernel, norms: Norms, *, scaled: bool) -> list[tuple[str, str]]:
    """What the function takes, as names and types with defaults."""
    quantize = kernel.quantize
    names = ["x", *(["residual"] if kernel.adds else []), "weight"]
    names += ["bias"] if kernel.norm == "biased_layer_norm" else []
    names += list(quantize.params) if quantize else []
    params = [(name, "Tensor") for name in names]
    numbers = ["scale: float = 1.0"] if scaled else []
    numbers += norms.arguments(summed=kernel.adds)
    return params + [(name, text) for name, _, text in (one.partition(": ") for one in numbers)]


def _results(kernel: RowKernel, width: int) -> tuple[list[str], Lines]:
    """What the function returns by name, and how those that it makes are allocated."""
    plain = {"out": "x.new_empty(x.shape)"}
    made: dict[str, str] = {}
    quantize = kernel.quantize
    if quantize is not None:
        dtype = "float8_e4m3fn" if quantize.format == "fp8" else "int8"
        made["values"] = f"x.new_empty(x.shape, dtype=torch.{dtype})"
        if quantize.scale == "static":
            made["input_scale"] = ""
        else:
            shape = width // 128 if quantize.scale == "group128" else 1
            made["scales"] = f"x.new_empty((x.shape[0], {shape}), dtype=torch.float32)"
    if quantize is None or quantize.keep:
        made |= plain
    if kernel.adds:
        made["total"] = "residual.new_empty(residual.shape)"
    return list(made), tuple(text for text in made.values() if text)


def _tuple(results: Collection[str]) -> str:
    return "Tensor" if len(results) == 1 else f"tuple[{', '.join(['Tensor'] * len(results))}]"


def _maker(kernel: RowKernel, outputs: Collection[str], made: Lines) -> Lines:
    taken = ["x: Tensor", *(["residual: Tensor"] if kernel.adds else []), "*_: object"]
    lines = bracketed("return ", made, "", indent=4)
    if len(lines) > 1:
        lines = ("return (", *lines[1:-1], ")")
    first = head(f"_made_by_{kernel.name}", taken, _tuple(outputs))
    return (*first, *(f"    {line}" for line in lines))


def _on_device(kernel: RowKernel, passed: list[str], results: list[str]) -> Lines:
    """The statements that call the kernel's function; a scale that was given is no result of it."""
    call = bracketed(f"kernels.{kernel.name}(", passed, ")", indent=15)
    if "input_scale" not in results:
        return (f"return {call[0]}", *call[1:])
    own = [name for name in results if name != "input_scale"]
    return (f"{', '.join(own)} = {call[0]}", *call[1:], f"return {', '.join(results)}")


def _jit(kernel: RowKernel, strides: tuple[str, ...]) -> Lines:
    items = [f"_{kernel.name}"]
    if kernel.quantize is not None:
        names = ["values", *kernel.quantize.params]
        quoted = ", ".join(f'"{name}"' for name in names)
        items.append(f"do_not_specialize_on_alignment=[{quoted}]")
    whole = bracketed(f"_{kernel.name.upper()}: Any = triton.jit(", items, ")")
    inner = f"    {', '.join(items)}"
    return whole if len(whole) == 1 or len(inner) > WIDTH else (whole[0], inner, whole[-1])


def _launch(
    kernel: RowKernel, inputs: Collection[str], outputs: Collection[str], numbers: Collection[str]
) -> Lines:
    made = "(made,)" if len(outputs) == 1 else "made"
    warps = "WARPS_TO_QUANTIZE" if kernel.quantize else "WARPS"
    items = [f"_{kernel.name.upper()}", warps, f"({', '.join(inputs)})", made]
    given = f"({', '.join(numbers)}{',' if len(numbers) == 1 else ''})"
    return bracketed("_launch(", [*items, given], ")", indent=8)


def _operator(kernel: RowKernel, params: list[tuple[str, str]], outputs: int) -> Lines:
    """The statement that registers the function with torch."""
    words = [f"{text.partition(' ')[0]} {name}" for name, text in params]
    results = "Tensor" if outputs == 1 else f"({', '.join(['Tensor'] * outputs)})"
    schema = f'"({", ".join(words)}) -> {results}"'
    if len(f"    {schema},") > WIDTH:
        schema = f'"({", ".join(words)})"\n    " -> {results}"'
    items = [kernel.name, f"_made_by_{kernel.name}", schema]
    whole = bracketed(f"_{kernel.name.upper()}_OPERATOR = _operator(", items, ")")
    inner = f"    {', '.join(items)}"
    return whole if len(whole) == 1 or len(inner) > WIDTH else (whole[0], inner, whole[-1])


def _doc(kernel: RowKernel, width: int, norms: Norms, *, scaled: bool) -> Lines:
    """What the function returns, for people."""
    of = "``x``"
    if kernel.adds:
        of = "``x * scale + residual``" if scaled else "``x + residual``"
    what = f"The norm of {of}"
    quantize = kernel.quantize
    if quantize is not None:
        shares = {"token": "a scale per token", "group128": "a scale per 128 columns"}
        what += f" as {quantize.format} with {shares.get(quantize.scale, 'the scale given')}"
        what += ", itself" if quantize.keep else ""
    what += ", and that sum" if kernel.adds else ""
    text = f"{what}: [rows, {width}]." if quantize is None else f"{what}. x is [rows, {width}]."
    if kernel.adds:
        seen = "rounded" if norms.rounded else "unrounded"
        seen = "unrounded or ``rounded``" if "rounded" in norms.varies else seen
        text += f" The norm sees the sum {seen}."
    lines = wrapped("", text, indent=8)
    if len(lines) == 1:
        return (f'"""{lines[0]}"""',)
    first, _, rest = text.partition(". ")
    return (f'"""{first}.', "", *wrapped("", rest, indent=8), '"""')


def _in_torch(kernel: RowKernel, norms: Norms, *, scaled: bool) -> Lines:
    """The statements that do the same in torch."""
    lines = norms.in_torch(kernel.norm)
    if kernel.adds:
        lines = norms.sum_in_torch(kernel.norm, scaled=scaled)
    quantize = kernel.quantize
    if quantize is None:
        return lines
    made = "out, total = " if kernel.adds else "out = "
    start = next(index for index, line in enumerate(lines) if line.startswith("return "))
    lines = (
        *lines[:start],
        made + lines[start].removeprefix("return "),
        *lines[start + 1 :],
    )
    arguments = ["out"] + ([f'"{quantize.scale}"'] if quantize.format == "fp8" else [])
    arguments += quantize.params
    call = f"runtime.quantize_{quantize.format}({', '.join(arguments)})"
    results = [f"*{call}", *(["out"] if quantize.keep else []), *(["total"] if kernel.adds else [])]
    return (*lines, f"return {', '.join(results)}" if len(results) > 1 else f"return {call}")


def head(name: str, params: Iterable[str], returns: str) -> Lines:
    """The first lines of a function, as a formatter would break them."""
    params = list(params)
    whole = bracketed(f"def {name}(", params, f") -> {returns}:")
    inner = f"    {', '.join(params)}"
    if len(whole) == 1 or len(inner) > WIDTH:
        return whole
    return (f"def {name}(", inner, f") -> {returns}:")
