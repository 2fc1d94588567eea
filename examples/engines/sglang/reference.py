"""A Qwen3 of random weights on one rank, in float64, written down without any engine."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of a tiny Qwen3, by the names that SGLang's model reads."""

    hidden_size: int = 64
    num_hidden_layers: int = 3
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 16
    intermediate_size: int = 96
    max_position_embeddings: int = 64
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6


def weights(config: Config, seed: int = 0) -> dict[str, Tensor]:
    """Random float32 weights, by layer and name; the final norm's is ``norm``."""
    generator = torch.Generator().manual_seed(seed)
    width, heads, kv_heads = (
        config.hidden_size,
        config.num_attention_heads * config.head_dim,
        (config.num_key_value_heads * config.head_dim),
    )
    shapes = {
        "q": (heads, width),
        "k": (kv_heads, width),
        "v": (kv_heads, width),
        "o": (width, heads),
        "gate": (config.intermediate_size, width),
        "up": (config.intermediate_size, width),
        "down": (width, config.intermediate_size),
    }
    norms = {
        "input_norm": width,
        "mlp_norm": width,
        "q_norm": config.head_dim,
        "k_norm": config.head_dim,
    }
    found: dict[str, Tensor] = {}
    for layer in range(config.num_hidden_layers):
        for name, shape in shapes.items():
            drawn = torch.randn(shape, generator=generator)
            found[f"{layer}.{name}"] = drawn * shape[1] ** -0.5
        for name, size in norms.items():
            found[f"{layer}.{name}"] = 1 + 0.2 * torch.randn(size, generator=generator)
    found["norm"] = 1 + 0.2 * torch.randn(width, generator=generator)
    return found


def forward(config: Config, given: dict[str, Tensor], request: Tensor) -> Tensor:
    """The normed output [tokens, width] float64 for the embedded tokens of one request."""
    weight = {name: one.double() for name, one in given.items()}
    residual = request.double()
    for layer in range(config.num_hidden_layers):
        own = {
            name.removeprefix(f"{layer}."): one
            for name, one in weight.items()
            if name.startswith(f"{layer}.")
        }
        x = _norm(config, residual, own["input_norm"])
        residual = residual + _attention(config, x, own)
        x = _norm(config, residual, own["mlp_norm"])
        gated = F.silu(F.linear(x, own["gate"])) * F.linear(x, own["up"])
        residual = residual + F.linear(gated, own["down"])
    return _norm(config, residual, weight["norm"])


def _norm(config: Config, x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, config.rms_norm_eps)


def _attention(config: Config, x: Tensor, own: dict[str, Tensor]) -> Tensor:
    length = x.shape[0]
    q, k, v = (F.linear(x, own[name]).view(length, -1, config.head_dim) for name in "qkv")
    q = _rotated(config, _norm(config, q, own["q_norm"]))
    k = _rotated(config, _norm(config, k, own["k_norm"]))
    q, k, v = (part.transpose(0, 1).unsqueeze(0) for part in (q, k, v))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return F.linear(mixed[0].transpose(0, 1).flatten(1), own["o"])


def _rotated(config: Config, x: Tensor) -> Tensor:
    """Rotary positions 0, 1, ... of the rows of ``x`` [tokens, heads, head_dim], NeoX style."""
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    angles = torch.arange(x.shape[0], dtype=torch.float64)[:, None] / config.rope_theta**half
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
