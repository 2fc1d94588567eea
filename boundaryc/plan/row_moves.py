"""Moves of rows on one rank, for which there are kernels: each row is read once, and written once.

Rows are placed among those of a group, or permuted between the two orders of context parallelism;
what is permuted for its consumer may be quantised in the same pass.
"""

from __future__ import annotations

from dataclasses import replace

from boundaryc.language.model import Quantize
from boundaryc.plan.kernels import KERNELS, RowKernel

PLACE, TO_TOKENS, TO_SHARDS = "place_rows", "to_tokens", "to_shards"


def quantising(quantize: Quantize) -> str:
    """The move to token order that quantises, and keeps the rows as well if that is asked for.

    >>> quantising(Quantize("fp8", "token", keep=True))
    'to_tokens_fp8_and_rows'
    """
    name = RowKernel(None, quantize=replace(quantize, keep=False)).name.removeprefix("to_")
    return f"{TO_TOKENS}_{name}{'_and_rows' * quantize.keep}"


_FORMATS = tuple(
    replace(kernel.quantize, keep=keep)
    for kernel in KERNELS.values()
    if kernel.quantize is not None and kernel == RowKernel(None, quantize=kernel.quantize)
    for keep in (False, True)
)

MOVES: dict[str, Quantize | None] = {
    **dict.fromkeys((PLACE, TO_TOKENS, TO_SHARDS)),
    **{quantising(quantize): quantize for quantize in _FORMATS},
}
"""Every move by the name of its function, and what is made of the rows on the way."""
