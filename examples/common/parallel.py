"""Which part of a model's weights one rank holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn

from boundaryc.runtime import FfnExit

if TYPE_CHECKING:
    from boundaryc.language.model import TopologySpec


@dataclass(frozen=True, slots=True)
class Part:
    """Part `index` of `count` equal parts; several ranks may hold the same one."""

    index: int
    count: int

    def cut(self, size: int, what: str) -> slice:
        """This part of `size` things. Raises ValueError when they cannot be cut evenly."""
        if size % self.count:
            raise ValueError(f"{size} {what} cannot be cut into {self.count} equal parts")
        width = size // self.count
        return slice(self.index * width, (self.index + 1) * width)


@dataclass(frozen=True, slots=True)
class Parallel:
    """A rank's place in one topology; the fields but `rank` are numbers of ranks.

    Attention TP is the innermost axis, a dense FFN is cut over the innermost `dense_tp` ranks, and
    experts are laid out as moe_dp x moe_ep x moe_tp with moe_tp innermost.
    """

    rank: int
    tp: int
    attn_tp: int
    dense_tp: int
    moe_ep: int
    moe_tp: int
    all_to_all: bool
    attn_cp: int = 1

    @classmethod
    def of(cls, spec: TopologySpec) -> Parallel:
        """Rank 0's place in a topology of a stack file."""
        return cls(
            rank=0,
            tp=spec.tp,
            attn_tp=spec.attn_tp,
            dense_tp=spec.dense_tp,
            moe_ep=spec.moe.ep,
            moe_tp=spec.moe.tp,
            all_to_all=spec.moe.all_to_all,
            attn_cp=spec.attn_cp,
        )

    def at(self, rank: int) -> Parallel:
        """The place of another rank of the same topology."""
        return replace(self, rank=rank)

    @property
    def group(self) -> int:
        """The attention-DP group whose sequences this rank holds."""
        return self.rank // (self.attn_cp * self.attn_tp)

    @property
    def heads(self) -> Part:
        """The query heads this rank computes."""
        return Part(self.rank % self.attn_tp, self.attn_tp)

    @property
    def dense(self) -> Part:
        """The columns of a dense FFN this rank computes."""
        return Part(self.rank % self.dense_tp, self.dense_tp)

    @property
    def experts(self) -> Part:
        """The experts this rank computes."""
        return Part(self.rank // self.moe_tp % self.moe_ep, self.moe_ep)

    @property
    def expert_columns(self) -> Part:
        """The columns of each of its experts this rank computes."""
        return Part(self.rank % self.moe_tp, self.moe_tp)

    def expert_ranks(self, part: int) -> range:
        """The ranks of this MoE-DP replica that together hold part `part` of the experts."""
        replica = self.moe_ep * self.moe_tp
        first = self.rank // replica * replica + part * self.moe_tp
        return range(first, first + self.moe_tp)


@dataclass(frozen=True, slots=True)
class Weights:
    """The tensors of a state dict below one prefix."""

    tensors: Mapping[str, Tensor]
    prefix: str = ""

    def under(self, name: str) -> Weights:
        """The tensors below `name`."""
        return Weights(self.tensors, f"{self.prefix}{name}.")

    def __getitem__(self, name: str) -> Tensor:
        """The tensor called `name`. Raises KeyError with its whole name."""
        return self.tensors[self.prefix + name]

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self.tensors


class RowParallelLinear(nn.Module):
    """The last product of a stage, whose input columns are cut over the ranks of a sum.

    `weight` [width, own columns] is this rank's part. `bias` [width] belongs into the sum once: one
    rank of it has it and the others have None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.bias = None if bias is None else nn.Parameter(bias)

    def forward(self, hidden: Tensor, out: FfnExit | None = None) -> Tensor:
        """This rank's partial, or the sum where an open exit `out` asks compute for it."""
        partial = F.linear(hidden, self.weight, self.bias)
        return partial if out is None else out.reduce_output(partial)
