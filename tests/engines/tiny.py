"""A model of linear stages: what the tests of adapters run between compiled boundaries."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from boundaryc.runtime import AnyBatch, AnyStack

WIDTH, LAYERS, EPS = 64, 2, 1e-6

SAMPLE = """\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {kind: rms, eps: 1.0e-6}
stages: {attention: {kind: attention}, mlp: {kind: ffn}}
layers: {count: 2, default: [attention, mlp]}
topologies:
  tp2: {tp: 2}
  tp2_dp2: {tp: 2, attn_dp: 2}
  tp4_dp2: {tp: 4, attn_dp: 2}
"""
"""Its stack file."""


class Tiny:
    """A stack of linear stages: each of the layer's two products is cut over ``WIDTH`` columns.

    It is a model of every rank, and, with `expected`, the one-rank model in float64.
    """

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        generator = torch.Generator().manual_seed(3)
        drawn = torch.randn(LAYERS, 2, WIDTH, WIDTH, generator=generator, dtype=torch.float64)
        norms = 1 + 0.2 * torch.randn(LAYERS, 2, WIDTH, generator=generator, dtype=torch.float64)
        self.products, self.norms = (drawn * WIDTH**-0.5).to(dtype), norms.to(dtype)
        self.dtype = dtype

    def tokens(self, rows: int, group: int) -> Tensor:
        """The embedded tokens of a DP group."""
        generator = torch.Generator().manual_seed(group)
        return torch.randn(rows, WIDTH, generator=generator, dtype=torch.float64).to(self.dtype)

    def expected(self, tokens: Tensor) -> Tensor:
        """The normed output of all layers, in float64."""
        residual = tokens.double()
        for products, norms in zip(self.products.double(), self.norms.double(), strict=True):
            for product, norm in zip(products, norms, strict=True):
                x = torch.nn.functional.rms_norm(residual, (WIDTH,), norm, EPS)
                residual = residual + x @ product.T
        last = self.norms[0, 0].double()
        return torch.nn.functional.rms_norm(residual, (WIDTH,), last, EPS)

    def run(
        self,
        stack: AnyStack,
        batch: AnyBatch,
        tokens: Tensor,
        dense: tuple[int, int],
        heads: tuple[int, int],
        mlp: Callable[[Tensor, Tensor, Any], Tensor] | None = None,
    ) -> Tensor:
        """One rank's forward; ``heads`` and ``dense`` are (index, parts) of its columns.

        ``mlp`` computes ``(x, own weight, open exit)`` and what the exit asks for.
        """
        stack.start(batch)
        hidden: Any = tokens
        for layer in range(LAYERS):
            norms = [SimpleNamespace(weight=weight) for weight in self.norms[layer]]
            at = stack.layer(layer).bind(attention=norms[0], mlp=norms[1])
            x = at.attention.prepare(hidden, batch)
            hidden = at.attention.finish(_part(x, self.products[layer, 0], heads), batch)
            x = at.mlp.prepare(hidden, batch)
            with at.mlp.exit(batch) as out:
                if mlp is None:
                    y = out.reduce_output(_part(x, self.products[layer, 1], dense))
                else:
                    columns = _columns(dense)
                    y = mlp(x[:, columns], self.products[layer, 1][:, columns], out)
            hidden = out.finish(y)
        return stack.norm(hidden, batch, SimpleNamespace(weight=self.norms[0, 0]))


def _columns(part: tuple[int, int]) -> slice:
    index, parts = part
    return slice(index * WIDTH // parts, (index + 1) * WIDTH // parts)


def _part(x: Tensor, product: Tensor, part: tuple[int, int]) -> Tensor:
    columns = _columns(part)
    return x[:, columns] @ product[:, columns].T
