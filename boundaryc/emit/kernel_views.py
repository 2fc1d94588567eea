"""The view of one function of a stack's ``rowwise.py`` and of its kernel, from its parts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from boundaryc.emit import expert_rows
from boundaryc.emit.launch import (
    Late,
    bounded,
    divides_by_halves,
    loads_late,
    reads_again,
    registers_late,
    rounds_pairs,
)
from boundaryc.emit.layout_text import WIDTH, bracketed, broken, wrapped
from boundaryc.emit.norms import Norms, summed
from boundaryc.emit.views import Lines
from boundaryc.plan.kernels import NormKind, RowKernel


@dataclass(frozen=True, slots=True)
class NormView:
    """A norm in a kernel; ``of`` is what the names of its parameters begin with."""

    of: str
    centred: bool
    biased: bool

    @property
    def params(self) -> list[str]:
        """Its tensors by name."""
        return [f"{self.of}weight", *([f"{self.of}bias"] if self.biased else [])]


def _norm(kind: NormKind | None, of: str = "") -> NormView | None:
    if kind is None:
        return None
    return NormView(of, kind != "rms_norm", kind == "biased_layer_norm")


@dataclass(frozen=True, slots=True)
class KernelView:
    """One function of ``rowwise.py`` and its kernel.

    ``doc`` is both modules', ``head`` that of rowwise.py, where ``on_device`` calls the kernel's
    function and ``in_torch`` does the same in torch. ``inputs`` are the tensors that the function
    is given, ``taken``, ``outputs``, ``strides`` and ``constants`` are what its kernel takes.
    ``check`` refuses what it must not be given. ``rows`` is how many programs there are, ``made``
    how its outputs are allocated, ``maker`` the function that does it. ``compiled`` calls the
    ``operator``, which is the function for torch. ``warps`` is the constant that says how many a
    program has; ``again``, ``late``, ``pairs`` and ``halves``: see `launch`.
    """

    name: str
    adds: bool
    addition: bool
    finalize: bool
    norm: NormView | None
    output_norm: NormView | None
    format: str
    scale: str
    plain: bool
    warps: str
    again: bool
    late: Late
    pairs: bool
    halves: bool
    doc: Lines
    head: Lines
    kernel_head: Lines
    on_device: Lines
    in_torch: Lines
    inputs: tuple[str, ...]
    taken: tuple[str, ...]
    outputs: tuple[str, ...]
    maker: Lines
    made: Lines
    rows: str
    compiled: Lines
    strides: tuple[str, ...]
    constants: tuple[str, ...]
    check: Lines
    launcher: Lines
    launch: Lines
    operator: Lines


def kernel_view(kernel: RowKernel, width: int, norms: Norms, *, scaled: bool) -> KernelView:
    """The view for rows of ``width`` columns; ``scaled``: what is added may have a factor."""
    norm, output_norm = _norm(kernel.norm), _norm(kernel.output_norm, "output_")
    weights = [name for one in (output_norm, norm) if one for name in one.params]
    params = _params(kernel, weights, norms, scaled=scaled and kernel.adds)
    results, made = _results(kernel, width)
    inputs = tuple(name for name, text in params if text.startswith("Tensor"))
    numbers = tuple(name for name, text in params if not text.startswith("Tensor"))
    taken = expert_rows.taken(inputs[4:]) if kernel.finalize else inputs
    strided = [name for name in taken if name in ("x", "residual", "addition", "shared")]
    signature = [f"{name}: {text}" for name, text in params]
    outputs = tuple(name for name in results if name != "input_scale")
    passed = [*inputs, *numbers]
    quantize = kernel.quantize
    return KernelView(
        name=kernel.name,
        adds=kernel.adds,
        addition=kernel.addition,
        finalize=kernel.finalize,
        norm=norm,
        output_norm=output_norm,
        format=quantize.format if quantize else "",
        scale=quantize.scale if quantize else "",
        plain="out" in results,
        warps=_warps(kernel),
        again=reads_again(kernel, width),
        late=loads_late(kernel, width),
        pairs=rounds_pairs(kernel, width),
        halves=divides_by_halves(kernel, width),
        doc=_doc(kernel, width, norms, scaled=scaled),
        head=head(kernel.name, signature, _tuple(results)),
        kernel_head=head(kernel.name, signature, _tuple(outputs)),
        on_device=_on_device(kernel, passed, results),
        in_torch=_in_torch(kernel, norms, scaled=scaled),
        inputs=inputs,
        taken=taken,
        outputs=outputs,
        maker=_maker(kernel, outputs, made),
        made=_made(kernel),
        rows="gates.shape[0]" if kernel.finalize else "x.shape[0]",
        compiled=bracketed(f"return _{kernel.name.upper()}_OPERATOR(", passed, ")", indent=8),
        strides=tuple(f"{name}_stride" for name in strided),
        constants=expert_rows.FORM * kernel.finalize + tuple(name.upper() for name in numbers),
        check=_check(kernel, strided, weights),
        launcher=_launcher(kernel, width),
        launch=_launch(kernel, inputs, outputs, numbers),
        operator=_operator(kernel, params, len(outputs)),
    )


def _params(
    kernel: RowKernel, weights: Iterable[str], norms: Norms, *, scaled: bool
) -> list[tuple[str, str]]:
    """What the function takes, as names and types with defaults."""
    params = list(expert_rows.PARAMS) if kernel.finalize else [("x", "Tensor")]
    names = [*["residual"] * kernel.adds, *["addition"] * kernel.addition, *weights]
    names += list(kernel.quantize.params) if kernel.quantize else []
    params += [(name, "Tensor") for name in names]
    numbers = ["scale: float = 1.0"] if scaled else []
    if kernel.norm is not None:
        of_output = kernel.output_norm is not None
        numbers += norms.arguments(summed=kernel.adds and not kernel.addition, of_output=of_output)
    elif kernel.output_norm is not None:
        numbers += [f"output_{text}" for text in norms.arguments(summed=False)]
    return params + [(name, text) for name, _, text in (one.partition(": ") for one in numbers)]


def _listed(names: Collection[str]) -> str:
    """A tuple of names, as text."""
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def _results(kernel: RowKernel, width: int) -> tuple[list[str], Lines]:
    """What the function returns by name, and how those that it makes are allocated."""
    made: dict[str, str] = {}
    quantize = kernel.quantize
    rows, shape = "x.shape[0]", "x.shape"
    if kernel.finalize:
        rows, shape = "gates.shape[0]", "(gates.shape[0], x.shape[1])"
    if quantize is not None:
        dtype = "float8_e4m3fn" if quantize.format == "fp8" else "int8"
        made["values"] = f"x.new_empty({shape}, dtype=torch.{dtype})"
        if quantize.scale == "static":
            made["input_scale"] = ""
        else:
            shares = width // 128 if quantize.scale == "group128" else 1
            made["scales"] = f"x.new_empty(({rows}, {shares}), dtype=torch.float32)"
    alone = kernel.finalize and not kernel.adds
    if alone or (kernel.norm is not None and (quantize is None or quantize.keep)):
        made["out"] = f"x.new_empty({shape})"
    if kernel.adds:
        made["total"] = "residual.new_empty(residual.shape)"
    return list(made), tuple(text for text in made.values() if text)


def _tuple(results: Collection[str]) -> str:
    return "Tensor" if len(results) == 1 else f"tuple[{', '.join(['Tensor'] * len(results))}]"


def _maker(kernel: RowKernel, outputs: Collection[str], made: Lines) -> Lines:
    unused = ("index", "shared")
    taken = [f"{name}: {'object' if name in unused else 'Tensor'}" for name in _shaping(kernel)]
    taken.append("*_: object")
    lines = bracketed("return ", made, "", indent=4)
    if len(lines) > 1:
        lines = ("return (", *lines[1:-1], ")")
    first = head(f"_made_by_{kernel.name}", taken, _tuple(outputs))
    return (*first, *(f"    {line}" for line in lines))


def _made(kernel: RowKernel) -> Lines:
    """The statement that allocates the outputs."""
    first, items = f"made = _made_by_{kernel.name}(", _shaping(kernel)
    whole = bracketed(first, items, ")", indent=4)
    return whole if len(whole) == 1 else (first, f"    {', '.join(items)}", ")")


def _shaping(kernel: RowKernel) -> list[str]:
    """The arguments, the first ones of the function, from which its outputs have their shapes."""
    if not kernel.finalize:
        return ["x", *["residual"] * kernel.adds]
    return [*expert_rows.NAMES, "residual"] if kernel.adds else ["x", "gates"]


def _check(kernel: RowKernel, strided: Collection[str], weights: Collection[str]) -> Lines:
    """The statements that refuse what the kernel would read past the end of."""
    if not kernel.finalize:
        items = ["WIDTH.value", _listed(strided), _listed(weights)]
        return bracketed("check_rows(", items, ")")
    experts = expert_rows.checked(strided)
    if not kernel.adds:
        return experts
    items = ["WIDTH.value", "(residual,)", _listed(weights)]
    return (*experts, *bracketed("check_rows(", items, ")"))


def _on_device(kernel: RowKernel, passed: list[str], results: list[str]) -> Lines:
    """The statements that call the kernel's function; a scale that was given is no result of it."""
    call = bracketed(f"kernels.{kernel.name}(", passed, ")", indent=15)
    if "input_scale" not in results:
        return (f"return {call[0]}", *call[1:])
    own = [name for name in results if name != "input_scale"]
    return (f"{', '.join(own)} = {call[0]}", *call[1:], f"return {', '.join(results)}")


def _launcher(kernel: RowKernel, width: int) -> Lines:
    items = [f"_{kernel.name}", _warps(kernel)]
    if kernel.quantize is not None:
        items += [f'"{name}"' for name in ("values", *kernel.quantize.params)]
    items += ["registers=REGISTERS"] * bounded(kernel, width)
    items += ["many=Many(AGAIN_FROM, WARPS)"] * reads_again(kernel, width)
    if loads_late(kernel, width):
        limit = ", REGISTERS_LATE" if registers_late(width) else ""
        items.append(f"many=Many(LATE_FROM, WARPS_LATE{limit})")
    return on_few_lines(f"_{kernel.name.upper()} = _launcher(", items)


def _warps(kernel: RowKernel) -> str:
    """The constant that says how many warps a program has."""
    if kernel.finalize:
        return "WARPS_TO_FINALIZE"
    if kernel.output_norm and not kernel.norm and not kernel.quantize:
        return "WARPS_OF_POST_NORM"
    two = "_OF_TWO_NORMS" if kernel.norm and kernel.output_norm else ""
    return f"WARPS{two}{'_TO_QUANTIZE' if kernel.quantize else ''}"


def on_few_lines(first: str, items: list[str]) -> Lines:
    """A call as a formatter would break it: its arguments on a line of their own if they fit."""
    whole = bracketed(first, items, ")")
    inner = f"    {', '.join(items)}"
    return whole if len(whole) == 1 or len(inner) > WIDTH else (whole[0], inner, whole[-1])


def _launch(
    kernel: RowKernel, inputs: Collection[str], outputs: Collection[str], numbers: Collection[str]
) -> Lines:
    made = "(made,)" if len(outputs) == 1 else "made"
    if kernel.finalize:
        return expert_rows.launched(f"_{kernel.name.upper()}", inputs, made, list(numbers))
    items = [_listed(inputs), made, _listed(numbers)]
    return bracketed(f"_{kernel.name.upper()}(", items, ")", indent=8)


def _operator(kernel: RowKernel, params: list[tuple[str, str]], outputs: int) -> Lines:
    """The statement that registers the function with torch."""
    words = ", ".join(f"{_type(text)} {name}" for name, text in params)
    results = "Tensor" if outputs == 1 else f"({', '.join(['Tensor'] * outputs)})"
    schema = f'"({words}) -> {results}"'
    if len(f"    {schema},") > WIDTH:
        parts = wrapped("", f"({words})", indent=9)
        quoted = [f'"{part} "' for part in parts[:-1]] + [f'"{parts[-1]}"', f'" -> {results}"']
        schema = "\n    ".join(quoted)
    items = [kernel.name, f"_made_by_{kernel.name}", schema]
    return on_few_lines(f"_{kernel.name.upper()}_OPERATOR = operator(", items)


def _type(annotation: str) -> str:
    """The type of a parameter, with a default or not, in the words of torch."""
    return "Tensor?" if annotation.endswith("| None") else annotation.partition(" ")[0]


def _doc(kernel: RowKernel, width: int, norms: Norms, *, scaled: bool) -> Lines:
    """What the function returns, for people."""
    what = _said(kernel, scaled=scaled)
    plain = kernel.quantize is None
    text = f"{what}: [rows, {width}]." if plain else f"{what}. x is [rows, {width}]."
    if kernel.finalize:
        text = (
            f"{what}. What experts have is as in `runtime.ExpertRows`, each row of {width} columns."
        )
        text += " The sum of a token is rounded to the dtype of x."
    if kernel.output_norm is not None:
        text += " The norm of x is rounded to its dtype."
    if kernel.addition:
        text += " The sum is rounded before the addition, and after it."
    elif kernel.adds and kernel.norm is not None:
        seen = "rounded" if norms.rounded else "unrounded"
        seen = "unrounded or ``rounded``" if "rounded" in norms.varies else seen
        text += f" The norm sees the sum {seen}."
    lines = wrapped("", text, indent=8)
    if len(lines) == 1:
        return (f'"""{lines[0]}"""',)
    first, _, rest = text.partition(". ")
    return (f'"""{first}.', "", *wrapped("", rest, indent=8), '"""')


def _said(kernel: RowKernel, *, scaled: bool) -> str:
    """The results in words."""
    of = "norm(x)" if kernel.output_norm else "finalize(x)" if kernel.finalize else "x"
    of += f"{' * scale' if scaled else ''} + residual" if kernel.adds else ""
    of += " + addition" if kernel.addition else ""
    what = f"The norm of ``{of}``" if kernel.norm else f"``{of}``"
    quantize = kernel.quantize
    if quantize is None:
        return what + (", and that sum" if kernel.adds and kernel.norm else "")
    shares = {"token": "a scale per token", "group128": "a scale per 128 columns"}
    share = f" with {shares.get(quantize.scale, 'the scale given')}"
    if kernel.addition or kernel.finalize:
        kept = ", and come with what they stand for" if quantize.keep else ""
        return f"{what}, quantised, and that sum. Values are {quantize.format}{share}{kept}"
    if kernel.output_norm or scaled:
        share = share.replace("with a scale ", "")  # or it is too long
    what += f" as {quantize.format}{share}"
    what += ", itself" if quantize.keep else ""
    return what + (", and that sum" if kernel.adds else "")


def _in_torch(kernel: RowKernel, norms: Norms, *, scaled: bool) -> Lines:
    """The statements that do the same in torch."""
    first = (norms.output_in_torch(kernel.output_norm),) if kernel.output_norm else ()
    if kernel.finalize:
        call = f"runtime.finalize({', '.join(expert_rows.NAMES)})"
        if not kernel.adds:
            return (f"return {call}",)
        first = (f"x = {call}",)
    seen, lines = _unquantised(kernel, norms, scaled=scaled)
    quantize = kernel.quantize
    if quantize is None:
        return (*first, *lines)
    start = next((at for at, line in enumerate(lines) if line.startswith("return ")), 0)
    named = dict.fromkeys((seen, *(["total"] if kernel.adds else [])))
    if lines:
        given = f"{', '.join(named)} = {lines[start].removeprefix('return ')}"
        lines = (*lines[:start], *broken(given, indent=4), *lines[start + 1 :])
    arguments = [seen] + ([f'"{quantize.scale}"'] if quantize.format == "fp8" else [])
    arguments += quantize.params
    call = f"runtime.quantize_{quantize.format}({', '.join(arguments)})"
    results = [f"*{call}", *(["out"] if quantize.keep else []), *(["total"] if kernel.adds else [])]
    last = f"return {', '.join(results)}" if len(results) > 1 else f"return {call}"
    return (*first, *lines, last)


def _unquantised(kernel: RowKernel, norms: Norms, *, scaled: bool) -> tuple[str, Lines]:
    """What is to be quantised, by name, and the statements that return it and the sum."""
    if kernel.norm is None:
        added = f"return {summed(scaled=scaled, addition=kernel.addition)}"
        return ("total", (added,)) if kernel.adds else ("x", ())
    if kernel.adds:
        return "out", norms.sum_in_torch(kernel.norm, scaled=scaled, addition=kernel.addition)
    return "out", norms.in_torch(kernel.norm)


def head(name: str, params: Iterable[str], returns: str) -> Lines:
    """The first lines of a function, as a formatter would break them."""
    params = list(params)
    whole = bracketed(f"def {name}(", params, f") -> {returns}:")
    inner = f"    {', '.join(params)}"
    if len(whole) == 1 or len(inner) > WIDTH:
        return whole
    return (f"def {name}(", inner, f") -> {returns}:")
