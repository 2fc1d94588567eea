"""Under which names generated functions know operations that have a module of their own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from boundaryc.plan.kernels import KERNELS
from boundaryc.plan.result import StackPlan
from boundaryc.plan.row_moves import MOVES
from boundaryc.plan.stream_kernels import STREAM_KERNELS

OWN_WORDS = (
    *("_to_", "_leave_", "_reduce_", "_tail_", "_before_sum_", "_after_sum_", "_postprocess_"),
    *("_fused_", "_finalized_", "_with_addition_"),
)
"""What is in the name of a generated function, and of nothing that is imported."""


def imported_names(plan: StackPlan) -> Mapping[str, str]:
    """Under which name each operation from outside is imported, by operation."""
    outside = ((name, op) for name, op in plan.operations.items() if op.call is not None)
    return _named(
        tuple((name, f"{op.call}", op.params) for name, op in outside),
        tuple(term.name for stage in plan.stack.stages for term in stage.additive),
    )


@lru_cache(maxsize=64)
def _named(
    outside: tuple[tuple[str, str, tuple[str, ...]], ...], terms: tuple[str, ...]
) -> Mapping[str, str]:
    """The names of operations, given as names, calls and parameters, beside additive terms."""
    taken = {"Any", "Batch", "ExitDecision", "Norm", "OwedOutput", "Tensor", "add"}
    taken |= {*KERNELS, *STREAM_KERNELS, *MOVES, "BiasedNorm", "ExpertRows"}
    taken |= {"addition", "experts", "finalize"}
    taken |= {"add_term", "check_term", "join", "latent", "qkv_latent"}
    taken |= {"annotations", "batch", "groups", "hidden", "norm", "rows", "stream"}
    taken |= {"Access", "CaptureMove", "Resume", "Transfer", "output_norm", "residual", "value"}
    taken |= {"InputScale", "input_scale", "quantize_fp8", "quantize_int8", "scales", "values"}
    taken |= {"FusedBoundary", "fused", "quantized_all_reduce"}
    taken |= {param for _, _, params in outside for param in params}
    taken |= {*terms}
    calls = {name: call for name, call, _ in outside}
    names: dict[str, str] = {}
    for name, call in calls.items():
        function = call.partition(":")[2]
        others = {other.partition(":")[2] for other in calls.values() if other != call}
        clashes = function in taken or function in others
        clashes |= any(part in f"_{function}_" for part in OWN_WORDS)
        own = ("complete_over_", "finish_to_send", "fold", "spread_to_")
        clashes |= function.startswith(own)
        names[name] = f"{name}_operation" if clashes else function
    return names
