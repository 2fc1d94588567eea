"""The numbers of the sample's model, and its forward on one rank without any boundary."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

LAYERS = 4
WIDTH = 8
EPS = 1e-6


class Norm:
    """A norm's parameters."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight


class Weights:
    """All parameters, equal on all ranks: the stages' by the rank that holds them."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(7)

        def random(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64) * 0.4

        self.embedding = random(2, 64, WIDTH)
        self.norms = 1 + random(LAYERS, 2, WIDTH)
        self.final = 1 + random(WIDTH)
        self.attention = random(LAYERS, 2, WIDTH, WIDTH)  # by attention TP rank
        self.ffn = random(LAYERS, 4, WIDTH, WIDTH)  # by rank

    def embed(self, dp: int, rows: int) -> Tensor:
        """The stack's input for the tokens of one attention DP group."""
        return self.embedding[dp, :rows]


def reference(tokens: Sequence[int]) -> list[Tensor]:
    """The final norm's rows of each attention DP group, in float64 on one rank."""
    weights = Weights()
    rows = torch.cat([weights.embed(dp, count) for dp, count in enumerate(tokens)])
    for index in range(LAYERS):
        rows = rows + norm(rows, weights.norms[index, 0]) @ weights.attention[index].sum(0)
        rows = rows + norm(rows, weights.norms[index, 1]) @ weights.ffn[index].sum(0)
    return list(norm(rows, weights.final).split(list(tokens)))


def norm(rows: Tensor, weight: Tensor) -> Tensor:
    """RMS norm, written another way than the runtime's."""
    scale = (rows.pow(2).sum(-1, keepdim=True) / WIDTH + EPS).sqrt()
    return rows / scale * weight


def streams(tokens: Sequence[int], after: dict[tuple[int, int], float]) -> list[list[Tensor]]:
    """The residual after each stage, and at the end the final norm, by attention DP group.

    ``after`` says what is added to every number after a stage: by (layer, 0 attention or 1 FFN).
    """
    weights = Weights()
    rows = torch.cat([weights.embed(dp, count) for dp, count in enumerate(tokens)])
    states = []
    for index in range(LAYERS):
        for kind, stage in enumerate((weights.attention, weights.ffn)):
            rows = rows + norm(rows, weights.norms[index, kind]) @ stage[index].sum(0)
            rows = rows + after.get((index, kind), 0.0)
            states.append(rows)
    states.append(norm(rows, weights.final))
    return [list(state.split(list(tokens))) for state in states]
