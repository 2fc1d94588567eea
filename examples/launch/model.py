"""The decoder in plain torch: whole on one rank, and the parts that a rank computes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

WIDTH, HEADS, COLUMNS, LAYERS, EPS = 64, 4, 128, 4, 1e-6


@dataclass(frozen=True, slots=True)
class Norm:
    """The weight of a norm, [width]."""

    weight: Tensor


@dataclass(frozen=True, slots=True)
class Layer:
    """The whole weights of a layer; attention and FFN take the part that is theirs."""

    norms: tuple[Norm, Norm]
    qkv: Tensor
    out: Tensor
    up: Tensor
    down: Tensor

    def attention(self, x: Tensor, part: int = 0, parts: int = 1) -> Tensor:
        """Causal attention of some heads over [tokens, width]; the parts add up to the whole."""
        heads = _part(HEADS, part, parts)
        q, k, v = (x @ self.qkv).view(len(x), 3, HEADS, -1).permute(1, 2, 0, 3)[:, heads]
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        out = self.out.view(HEADS, -1, WIDTH)[heads].flatten(0, 1)
        return mixed.transpose(0, 1).flatten(1) @ out

    def mlp(self, x: Tensor, part: int = 0, parts: int = 1) -> Tensor:
        """An FFN of some columns, over [tokens, width]; the parts add up to the whole."""
        columns = _part(COLUMNS, part, parts)
        return silu(x @ self.up[:, columns]) @ self.down[columns]


def _part(count: int, part: int, parts: int) -> slice:
    return slice(count * part // parts, count * (part + 1) // parts)


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights; every rank draws the same, where a real one loads its own part."""

    layers: tuple[Layer, ...]
    final: Norm

    @classmethod
    def drawn(cls, device: torch.device) -> Weights:
        """The weights of the example, float64."""
        generator = torch.Generator().manual_seed(0)

        def random(*shape: int) -> Tensor:
            drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
            return (drawn / math.sqrt(shape[0])).to(device)

        def norm() -> Norm:
            return Norm(1 + random(WIDTH))

        layers = tuple(
            Layer(
                (norm(), norm()),
                random(WIDTH, 3 * WIDTH),
                random(WIDTH, WIDTH),
                random(WIDTH, COLUMNS),
                random(COLUMNS, WIDTH),
            )
            for _ in range(LAYERS)
        )
        return cls(layers, norm())

    def whole(self, x: Tensor) -> Tensor:
        """One sequence on one rank, without a boundary: [tokens, width] to the final norm's."""
        for layer in self.layers:
            x = x + layer.attention(_normed(x, layer.norms[0]))
            x = x + layer.mlp(_normed(x, layer.norms[1]))
        return _normed(x, self.final)


def _normed(x: Tensor, norm: Norm) -> Tensor:
    found: Tensor = rms_norm(x, (WIDTH,), norm.weight, EPS)
    return found


def sequence(tokens: int, number: int, device: torch.device) -> Tensor:
    """What the embedding gives for a sequence, [tokens, width]."""
    generator = torch.Generator().manual_seed(1 + number)
    drawn = torch.randn(tokens, WIDTH, generator=generator, dtype=torch.float64)
    return drawn.to(device)
