"""Views of a stack's ``rowwise.py`` and ``kernels.py``: the functions that its boundaries call."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from boundaryc.emit.collected import TopologyFunctions
from boundaryc.emit.kernel_views import KernelView, kernel_view
from boundaryc.emit.launch import (
    again_from,
    late_from,
    loads_late,
    reads_again,
    registers,
    registers_late,
    warps,
    warps_late,
    warps_of_post_norm,
    warps_of_two,
    warps_to_finalize,
)
from boundaryc.emit.layout_text import bracketed_import, listed
from boundaryc.emit.norms import Norms
from boundaryc.plan.kernels import KERNELS, NORMS, RowKernel
from boundaryc.plan.result import StackPlan


@dataclass(frozen=True, slots=True)
class RowwiseView:
    """``rowwise.py`` and ``kernels.py`` of a stack.

    ``offset`` is empty where weights are used as they are. ``own_eps``, ``own_offset`` and
    ``may_round``: calls may say what eps is, what the offset is, and whether the sum is seen
    rounded. ``launching`` is what is imported to launch kernels.
    """

    name: str
    title: str
    width: int
    eps: str
    offset: str
    block: int
    masked: bool
    by_eight: bool
    warps: tuple[tuple[str, int], ...]
    again_from: int | None
    late_from: int
    warps_late: int
    registers: int | None
    registers_late: int | None
    rounded: bool
    may_round: bool
    scaled: bool
    own_eps: bool
    own_offset: bool
    launching: str
    kernels: tuple[KernelView, ...]


def rowwise_view(plan: StackPlan, functions: Iterable[TopologyFunctions]) -> RowwiseView:
    """The view of ``rowwise.py`` and ``kernels.py``: only what some function calls."""
    needs = {need for topology in functions for need in topology.needs()}
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
        warps=(
            ("WARPS", warps(width)),
            ("WARPS_TO_QUANTIZE", warps(width, quantizes=True)),
            ("WARPS_TO_FINALIZE", warps_to_finalize(width)),
            ("WARPS_OF_POST_NORM", warps_of_post_norm(width)),
            ("WARPS_OF_TWO_NORMS", warps_of_two(width)),
            ("WARPS_OF_TWO_NORMS_TO_QUANTIZE", warps_of_two(width, quantizes=True)),
        ),
        again_from=again_from(width),
        late_from=late_from(width),
        warps_late=warps_late(width),
        registers=registers(width),
        registers_late=registers_late(width),
        rounded=norms.rounded,
        may_round="rounded" in norms.varies,
        scaled=scaled,
        own_eps="eps" in norms.varies,
        own_offset="offset" in norms.varies,
        launching=_launching(called, width),
        kernels=tuple(kernel_view(kernel, width, norms, scaled=scaled) for kernel in called),
    )


def _launching(called: Iterable[RowKernel], width: int) -> str:
    """What the kernels of a module are launched and checked with."""
    called = list(called)
    static = any(one.quantize is not None and one.quantize.scale == "static" for one in called)
    classes = ["Launcher"]
    classes += ["Many"] * any(reads_again(one, width) or loads_late(one, width) for one in called)
    names = ["check_experts", "expert_inputs"] * any(one.finalize for one in called)
    names += ["check_rows"] * any(one != RowKernel(None, finalize=True) for one in called)
    names += ["check_input_scale"] * static
    found = bracketed_import("boundaryc.runtime.launching", [*classes, *sorted(names), "operator"])
    return "\n".join(found).removeprefix("from boundaryc.runtime.launching import ")


def _titled(called: Iterable[RowKernel]) -> str:
    """The norms that are called, for people."""
    kinds = {kind for kernel in called for kind in (kernel.norm, kernel.output_norm)}
    words = {"rms_norm": "RMS", "layer_norm": "layer", "biased_layer_norm": "layer"}
    named = dict.fromkeys(words[kind] for kind in NORMS if kind in kinds)
    return f"{listed(list(named) or ['RMS'])} norms"
