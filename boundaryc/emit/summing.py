"""The view of a stack's ``symmetric.py`` and ``symmetric_kernels.py``: sums that are fused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from boundaryc.emit.collected import TopologyFunctions
from boundaryc.emit.fused import FusedSum
from boundaryc.emit.kernel_views import KernelView, head, kernel_view
from boundaryc.emit.launch import warps
from boundaryc.emit.layout_text import WIDTH, bracketed, indented
from boundaryc.emit.norms import Norms, norm_call
from boundaryc.emit.views import Lines
from boundaryc.language.model import SYMMETRIC
from boundaryc.plan.kernels import KERNELS
from boundaryc.plan.result import StackPlan

NAME = "sum_add_rms_norm"
BEHIND = KERNELS["add_rms_norm"]
"""What is done behind the sum."""


@dataclass(frozen=True, slots=True)
class SumView:
    """Both modules; what is not said here is as in `RowwiseView`.

    ``kernel`` is that of the add and the norm. ``given`` are the arguments that a call has
    because norms differ, ``constants`` the same for a launch, ``kernel_head`` is `symmetric.py`'s.
    """

    name: str
    width: int
    block: int
    masked: bool
    warps: int
    eps: str
    offset: str
    rounded: bool
    may_round: bool
    own_eps: bool
    own_offset: bool
    kernel: KernelView
    head: Lines
    doc: Lines
    compiled: Lines
    constants: str
    operator: Lines
    kernel_head: Lines
    given: str
    scaled: bool = False


def sums_over_memory(plan: StackPlan, functions: Iterable[TopologyFunctions]) -> bool:
    """Whether a stack has boundaries that such a kernel may take."""
    return any(has_kernel(plan, fused) for one in functions for fused in one.scope.fused)


def has_kernel(plan: StackPlan, fused: FusedSum) -> bool:
    """Whether a boundary is one of them; the end of the stack is offered to nobody."""
    return SYMMETRIC in plan.stack.fusion and fused.owes != 0 and fused.input != "norm"


def kernel_of(plan: StackPlan, fused: FusedSum) -> str:
    """The expression for the kernel of a boundary."""
    call = norm_call(plan.stack, fused.consumer)
    return f"symmetric.kernel({(call.own + call.summed).removeprefix(', ')})"


def sum_view(name: str, width: int, norms: Norms) -> SumView:
    """The view for rows of ``width`` columns."""
    block = 1 << (width - 1).bit_length()
    numbers = norms.arguments(summed=True)
    names = [text.partition(":")[0] for text in numbers]
    params = ["x: Tensor", "residual: Tensor", "weight: Tensor", "table: Tensor"]
    params += ["call: Sequence[int]", *numbers]
    passed = [text.partition(":")[0] for text in params]
    return SumView(
        name=name,
        width=width,
        block=block,
        masked=block != width,
        warps=warps(width),
        eps=repr(norms.usual.eps),
        offset=norms.offset,
        rounded=norms.rounded,
        may_round="rounded" in norms.varies,
        own_eps="eps" in norms.varies,
        own_offset="offset" in norms.varies,
        kernel=replace(kernel_view(BEHIND, width, norms, scaled=False), again=False),
        head=head(NAME, params, "tuple[Tensor, Tensor]"),
        doc=_doc(width),
        compiled=bracketed(f"return _{NAME.upper()}_OPERATOR(", passed, ")", indent=8),
        constants="".join(f", {one}" for one in names),
        operator=_operator(numbers),
        kernel_head=head("kernel", numbers, "runtime.SumKernel | None"),
        given=", ".join(f"{one}={one}" for one in names),
    )


def _doc(width: int) -> Lines:
    return (
        f'"""The norm of the sum of ``x`` and of ``residual``, and that sum: [rows, {width}].',
        "",
        "``table`` has the address of each rank's memory and of the report, ``call`` is what",
        "`SumLimits.call` says. The other ranks run the same call at the same time.",
        '"""',
    )


def _operator(numbers: list[str]) -> Lines:
    """The statement that registers the function with torch."""
    words = [f"{one.split()[1]} {one.partition(':')[0]}" for one in numbers]
    tensors = "(Tensor x, Tensor residual, Tensor weight, Tensor table, "
    rest = f"{', '.join(['int[] call', *words])}) -> (Tensor, Tensor)"
    lines: Lines = (f'"{tensors}{rest}",',)
    if len(lines[0]) + 4 > WIDTH:
        lines = (f'"{tensors}"', f'"{rest}",')
    items = [f"{NAME},", f"_made_by_{NAME},", *lines]
    return (f"_{NAME.upper()}_OPERATOR = operator(", *indented(items), ")")
