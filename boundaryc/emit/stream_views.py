"""Views of a stack's ``hyper.py`` and ``hyper_kernels.py``: its functions for several streams."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from boundaryc.emit.collected import TopologyFunctions
from boundaryc.emit.kernel_views import head
from boundaryc.emit.layout_text import WIDTH, bracketed, wrapped
from boundaryc.emit.norms import Norms
from boundaryc.emit.stream_shapes import Shape, chunked, shape
from boundaryc.emit.views import Lines
from boundaryc.language.model import Residual
from boundaryc.plan.result import StackPlan
from boundaryc.plan.stream_kernels import STREAM_KERNELS, StreamKernel

STEP, SPAN = 32, 512
"""Columns of a stream that a projection takes at once, and that it takes in one program."""


@dataclass(frozen=True, slots=True)
class StreamKernelView:
    """One function of ``hyper.py`` and its kernel.

    ``head`` is that of hyper.py, where ``on_device`` calls the kernel's function and ``in_torch``
    does the same in torch. ``pointers`` and ``constants`` are what a kernel takes; ``made`` is how
    outputs are allocated, by the function ``maker``. ``coefficients`` is the statement that
    computes those of a read; ``first`` has the rows.
    """

    name: str
    updates: bool
    reads: str
    centred: bool
    biased: bool
    format: str
    scale: str
    largest: str
    plain: bool
    masked: bool
    parks: bool
    shape: Shape
    chunks: int
    doc: Lines
    head: Lines
    kernel_head: Lines
    on_device: Lines
    in_torch: Lines
    pointers: tuple[str, ...]
    constants: tuple[str, ...]
    first: str
    maker: Lines
    made: str
    compiled: Lines
    coefficients: Lines
    launcher: Lines
    launch: Lines
    operator: Lines


@dataclass(frozen=True, slots=True)
class StreamsView:
    """``hyper.py`` and ``hyper_kernels.py`` of a stack.

    ``shared_eps`` is that of the norm of all streams together, ``balance_eps`` what keeps sums of
    coefficients from zero; ``numbers`` are projected of each row, in ``spans`` parts.
    """

    name: str
    width: int
    streams: int
    eps: str
    offset: str
    own_eps: bool
    own_offset: bool
    iterations: int
    balance_eps: str
    shared_eps: str
    by_eight: bool
    keeps: bool
    numbers: int
    numbers_block: int
    step: int
    span: int
    spans: int
    kernels: tuple[StreamKernelView, ...]


def streams_view(plan: StackPlan, functions: Iterable[TopologyFunctions]) -> StreamsView | None:
    """The view of both modules, with what some function calls; None where nothing is called."""
    needs = {need for topology in functions for need in topology.needs()} & {*STREAM_KERNELS}
    stack = plan.stack
    if not needs or stack.residual is None:
        return None
    return hyper_view(stack.name, stack.hidden_size, stack.residual, Norms.of(stack), needs=needs)


def hyper_view(
    name: str, width: int, residual: Residual, norms: Norms, *, needs: Collection[str]
) -> StreamsView:
    """The view for rows of ``width`` columns; ``needs`` are the functions that are called."""
    called = [kernel for name, kernel in STREAM_KERNELS.items() if name in needs]
    numbers = (2 + residual.streams) * residual.streams
    block = 1 << (width - 1).bit_length()
    step = min(STEP, max(16, block))
    span = max(step, min(SPAN, block))
    kernels = tuple(_view(kernel, width, norms) for kernel in called)
    return StreamsView(
        name=name,
        width=width,
        streams=residual.streams,
        eps=repr(norms.usual.eps),
        offset=norms.offset,
        own_eps="eps" in norms.varies,
        own_offset="offset" in norms.varies,
        iterations=residual.iterations,
        balance_eps=repr(residual.eps),
        shared_eps=repr(norms.usual.eps),
        by_eight=width % 8 == 0,
        keeps=any(kernel.reads and not kernel.parks for kernel in kernels),
        numbers=numbers,
        numbers_block=max(16, 1 << (numbers - 1).bit_length()),
        step=step,
        span=span,
        spans=-(-width // span),
        kernels=kernels,
    )


def _view(kernel: StreamKernel, width: int, norms: Norms) -> StreamKernelView:
    quantize, reads = kernel.quantize, bool(kernel.reads)
    params, given = _params(kernel, norms), _params(kernel, norms, tensors=True)
    results, made = _results(kernel, width)
    plain = reads and (quantize is None or quantize.keep)
    own = shape(width, parks=reads and quantize is None) if reads else chunked(width)
    passed = [name for name, _ in given]
    constants = tuple(name.upper() for name, text in given if text != "Tensor")
    own_results = [name for name in results if name != "input_scale"]
    return StreamKernelView(
        name=kernel.name,
        updates=kernel.updates,
        reads=kernel.reads,
        centred=reads and kernel.norm != "rms_norm",
        biased=kernel.norm == "biased_layer_norm",
        format=quantize.format if quantize else "",
        scale=quantize.scale if quantize else "",
        largest="448.0" if quantize and quantize.format == "fp8" else "127.0",
        plain=plain,
        masked=width % own.chunk != 0,
        parks=own.parks,
        shape=own,
        chunks=-(-width // own.chunk),
        doc=_doc(kernel, width),
        head=head(kernel.name, _signature(params), _returns(kernel, results)),
        kernel_head=head(kernel.name, _signature(given), _tensors(len(own_results))),
        on_device=_on_device(kernel, passed, results),
        in_torch=_in_torch(kernel, norms),
        pointers=_pointers(kernel, passed, own_results, constants),
        constants=constants,
        first="residual" if kernel.updates or reads else "x",
        maker=_maker(kernel, made, len(own_results)),
        made=f"_made_by_{kernel.name}({'residual' if kernel.updates or reads else 'x'})",
        compiled=bracketed(f"return _{kernel.name.upper()}_OPERATOR(", passed, ")", indent=8),
        coefficients=_coefficients(kernel),
        launcher=_launcher(kernel, own),
        launch=_launch(kernel, own, width, passed, constants),
        operator=_operator(kernel, given, len(own_results)),
    )


def _params(kernel: StreamKernel, norms: Norms, *, tensors: bool = False) -> list[tuple[str, str]]:
    """What the function takes, as names and types; ``tensors``: parameters one by one."""
    names = ["x", "residual", "mix", "post"] if kernel.updates else []
    names += [] if kernel.updates else ["residual" if kernel.reads else "x"]
    params = [(name, "Tensor") for name in names]
    if kernel.updates and kernel.reads and not tensors:
        params[2:] = [("kept", "tuple[Tensor, ...]")]
    if kernel.reads == "mixed":
        own = [(name, "Tensor") for name in ("fn", "base", "scale")]
        params += own if tensors else [("hyper", "runtime.HyperConnection")]
    if not kernel.reads:
        return params
    names = ["weight", *(["bias"] if kernel.norm == "biased_layer_norm" else [])]
    names += list(kernel.quantize.params) if kernel.quantize else []
    params += [(name, "Tensor") for name in names]
    numbers = norms.arguments(summed=False)
    return params + [(name, text) for name, _, text in (one.partition(": ") for one in numbers)]


def _signature(params: Iterable[tuple[str, str]]) -> list[str]:
    return [f"{name}: {text}" for name, text in params]


def _results(kernel: StreamKernel, width: int) -> tuple[list[str], Lines]:
    """What is returned by name, and how what a kernel makes is allocated."""
    if not kernel.reads and not kernel.updates:
        return ["streams"], ("x.new_empty((x.shape[0], STREAMS.value, WIDTH.value))",)
    row = "(residual.shape[0], WIDTH.value)"
    made: dict[str, str] = {}
    quantize = kernel.quantize
    if quantize is not None:
        dtype = "float8_e4m3fn" if quantize.format == "fp8" else "int8"
        made["values"] = f"residual.new_empty({row}, dtype=torch.{dtype})"
        if quantize.scale == "static":
            made["input_scale"] = ""
        else:
            shares = width // 128 if quantize.scale == "group128" else 1
            size = f"(residual.shape[0], {shares})"
            made["scales"] = f"residual.new_empty({size}, dtype=torch.float32)"
    if kernel.reads and (quantize is None or quantize.keep):
        made["out"] = f"residual.new_empty({row})"
    if kernel.updates:
        made["streams"] = "torch.empty_like(residual)"
    if kernel.reads == "mixed":
        for name, count in (("new_mix", "STREAMS.value**2"), ("new_post", "STREAMS.value")):
            size = f"(residual.shape[0], {count})"
            made[name] = f"residual.new_empty({size}, dtype=torch.float32)"
    return list(made), tuple(text for text in made.values() if text)


def _tensors(count: int) -> str:
    return "Tensor" if count == 1 else f"tuple[{', '.join(['Tensor'] * count)}]"


def _returns(kernel: StreamKernel, results: Collection[str]) -> str:
    """What the function of hyper.py returns: what is kept of a read is one result."""
    if kernel.reads != "mixed":
        return _tensors(len(results))
    return f"tuple[{', '.join(['Tensor'] * (len(results) - 2))}, tuple[Tensor, Tensor]]"


def _returned(kernel: StreamKernel, results: Collection[str]) -> str:
    """The results as an expression."""
    if kernel.reads != "mixed":
        return ", ".join(results)
    return ", ".join([*[*results][:-2], "(new_mix, new_post)"])


def _on_device(kernel: StreamKernel, passed: list[str], results: list[str]) -> Lines:
    given = [f"hyper.{name}" if name in ("fn", "base", "scale") else name for name in passed]
    own = [name for name in results if name != "input_scale"]
    call = f"hyper_kernels.{kernel.name}("
    if own == results and kernel.reads != "mixed":
        return bracketed(f"return {call}", given, ")", indent=8)
    made = bracketed(f"{', '.join(own)} = {call}", given, ")", indent=8)
    return (*made, f"return {_returned(kernel, results)}")


def _in_torch(kernel: StreamKernel, norms: Norms) -> Lines:
    """The statements that do the same in torch."""
    if not kernel.reads:
        call = "hyper_update(x, residual, mix, post)" if kernel.updates else None
        return (f"return runtime.{call or 'hyper_enter(x, streams=STREAMS)'}",)
    lines: list[str] = []
    if kernel.updates:
        lines.append("streams = runtime.hyper_update(x, residual, mix, post)")
    of = "streams" if kernel.updates else "residual"
    if kernel.reads == "mean":
        lines.append("mixed = runtime.hyper_mean(residual)")
    else:
        settings = "iterations=ITERATIONS, eps=BALANCE_EPS, norm_eps=SHARED_EPS"
        items = [of, "hyper", *settings.split(", ")]
        lines += bracketed("mixed, own = runtime.hyper_read(", items, ")", indent=4)
    assert kernel.norm is not None
    (norm,) = norms.in_torch(kernel.norm)
    normed = norm.removeprefix("return ").replace("(x, ", "(mixed, ", 1)
    results = [normed]
    quantize = kernel.quantize
    if quantize is not None:
        lines.append(f"out = {normed}")
        arguments = ["out"] + ([f'"{quantize.scale}"'] if quantize.format == "fp8" else [])
        call = f"runtime.quantize_{quantize.format}({', '.join([*arguments, *quantize.params])})"
        results = [f"*{call}", *(["out"] if quantize.keep else [])]
    results += ["streams"] if kernel.updates else []
    results += ["own"] if kernel.reads == "mixed" else []
    return (*lines, f"return {', '.join(results)}")


def _pointers(
    kernel: StreamKernel, passed: list[str], results: list[str], constants: Collection[str]
) -> tuple[str, ...]:
    """What the kernel takes: tensors that are given, coefficients of the read, what it makes."""
    others = {"fn", "base", "scale", *(name.lower() for name in constants)}
    given = [name for name in passed if name not in others]
    own = [name for name in results if not name.startswith("new_")]
    return (*given, *(["pre"] if kernel.reads == "mixed" else []), *own)


def _maker(kernel: StreamKernel, made: Lines, count: int) -> Lines:
    takes = "residual" if kernel.updates or kernel.reads else "x"
    taken = [f"{takes}: Tensor", "*_: object"]
    first = head(f"_made_by_{kernel.name}", taken, _tensors(count))
    lines = bracketed("return ", made, "", indent=4)
    if len(lines) > 1:
        lines = ("return (", *lines[1:-1], ")")
    return (*first, *(f"    {line}" for line in lines))


def _coefficients(kernel: StreamKernel) -> Lines:
    if kernel.reads != "mixed":
        return ()
    update = "(x, mix, post)" if kernel.updates else "()"
    items = [update, "residual", "(fn, base, scale)", "made[-2:]"]
    return bracketed("pre = _coefficients(", items, ")", indent=8)


def _launcher(kernel: StreamKernel, own: Shape) -> Lines:
    jit = f"triton.jit(_{kernel.name})"
    if kernel.quantize is not None:
        names = ", ".join(f'"{name}"' for name in ("values", *kernel.quantize.params))
        jit = f"triton.jit(_{kernel.name}, do_not_specialize_on_alignment=[{names}])"
    items = [jit, str(own.warps), *([str(own.registers)] if own.registers else [])]
    whole = bracketed(f"_{kernel.name.upper()} = GridLauncher(", items, ")")
    inner = f"    {', '.join(items)}"
    return whole if len(whole) == 1 or len(inner) > WIDTH else (whole[0], inner, whole[-1])


def _launch(
    kernel: StreamKernel, own: Shape, width: int, passed: list[str], constants: Collection[str]
) -> Lines:
    others = {"fn", "base", "scale", *(name.lower() for name in constants)}
    given = [name for name in passed if name not in others]
    given += ["pre"] if kernel.reads == "mixed" else []
    made = "*made[:-2]" if kernel.reads == "mixed" else "made"
    chunks = 1 if kernel.reads else -(-width // own.chunk)
    numbers = [name.lower() for name in constants]
    items = [f"(rows, {chunks})", f"({', '.join([*given, made])})"]
    if numbers:
        items.append(f"({', '.join(numbers)}{',' if len(numbers) == 1 else ''})")
    return bracketed(f"_{kernel.name.upper()}(", items, ")", indent=8)


def _operator(kernel: StreamKernel, params: list[tuple[str, str]], count: int) -> Lines:
    """The statements that register the function with torch."""
    words = [f"{text.partition(' ')[0]} {name}" for name, text in params]
    results = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
    takes = "residual" if kernel.updates or kernel.reads else "x"
    schema = f"({', '.join(words)}) -> {results}"
    parts = textwrap.wrap(schema, WIDTH - 8, break_long_words=False, break_on_hyphens=False)
    quoted = [f'    "{part} "' for part in parts[:-1]] + [f'    "{parts[-1]}",']
    place = [name for name, _ in params].index(takes)
    return (
        f"_{kernel.name.upper()}_OPERATOR = operator(",
        f"    {kernel.name},",
        f"    lambda *given: _made_by_{kernel.name}(given[{place}]),",
        *quoted,
        ")",
    )


def _doc(kernel: StreamKernel, width: int) -> Lines:
    """What the function returns, for people."""
    if not kernel.reads:
        text = "Every stream behind an update" if kernel.updates else "The stack's input in every"
        text += f": [rows, STREAMS, {width}]." if kernel.updates else " stream."
        return (f'"""{text}"""',)
    what = "their mean" if kernel.reads == "mean" else "the streams, mixed"
    text = f"The norm of {what}"
    if kernel.quantize is not None:
        shares = {"token": "a scale per token", "group128": "a scale per 128 columns"}
        share = shares.get(kernel.quantize.scale, "the scale given")
        text += f" as {kernel.quantize.format} with {share}"
        text += ", itself" if kernel.quantize.keep else ""
    text += ", the updated streams" if kernel.updates else ""
    text += ", and coefficients for the update" if kernel.reads == "mixed" else ""
    lines = wrapped("", f"{text}.", indent=8)
    if len(lines) == 1:
        return (f'"""{lines[0]}"""',)
    first, _, rest = text.partition(", ")
    rest = rest[:1].upper() + rest[1:]
    return (f'"""{first}.', "", *wrapped("", f"{rest}.", indent=4), '"""')
