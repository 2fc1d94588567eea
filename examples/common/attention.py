"""Grouped-query attention over this rank's heads, with a KV cache per rank."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from examples.common.config import Config
from examples.common.parallel import Parallel, RowParallelLinear, Weights


@dataclass(slots=True)
class KVCache:
    """The keys and values that one rank keeps: its own KV heads of its own group's sequences."""

    kept: dict[tuple[int, int], tuple[Tensor, Tensor]] = field(default_factory=dict)

    def extend(self, layer: int, sequence: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Appends `k` and `v` [tokens, kv_heads, head_dim]; returns all of the sequence's."""
        if (layer, sequence) in self.kept:
            old_k, old_v = self.kept[layer, sequence]
            k, v = torch.cat((old_k, k)), torch.cat((old_v, v))
        self.kept[layer, sequence] = (k, v)
        return k, v

    def length(self, sequence: int) -> int:
        """How many tokens of `sequence` are cached."""
        return len(self.kept[0, sequence][0]) if (0, sequence) in self.kept else 0


@dataclass(frozen=True, slots=True)
class Tokens:
    """The real tokens of one attention-DP group in one forward.

    ids          [tokens] int64, sequence after sequence
    sequences    (sequence, number of tokens) in that order
    cos, sin     [tokens, 1, head_dim] rotary factors of the tokens' positions
    """

    ids: Tensor
    sequences: tuple[tuple[int, int], ...]
    cos: Tensor
    sin: Tensor


def tokens(config: Config, cache: KVCache, new: list[tuple[int, list[int]]]) -> Tokens:
    """Places `new` tokens, (sequence, ids) each, behind what the cache holds of their sequences."""
    positions = [
        cache.length(sequence) + offset for sequence, ids in new for offset in range(len(ids))
    ]
    half = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angles = torch.tensor(positions, dtype=torch.float32)[:, None] / config.rope_theta**half
    angles = torch.cat((angles, angles), dim=-1)[:, None]
    return Tokens(
        ids=torch.tensor([token for _, ids in new for token in ids], dtype=torch.int64),
        sequences=tuple((sequence, len(ids)) for sequence, ids in new),
        cos=angles.cos(),
        sin=angles.sin(),
    )


class Attention(nn.Module):
    """Query heads cut over attention TP; a KV head is copied where there are fewer than ranks."""

    def __init__(self, layer: int, config: Config, parallel: Parallel, weights: Weights) -> None:
        super().__init__()
        self.layer, self.head_dim, self.eps = layer, config.head_dim, config.eps
        heads = parallel.heads.cut(config.heads, "query heads")
        kv_heads = _kv_heads(config.kv_heads, parallel)
        parts = (("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads))
        rows = {
            name: slice(part.start * config.head_dim, part.stop * config.head_dim)
            for name, part in parts
        }
        self.split = [part.stop - part.start for _, part in parts]
        self.qkv = nn.Parameter(torch.cat([weights[f"{n}.weight"][r] for n, r in rows.items()]))
        self.qkv_bias = out_bias = None
        if "q_proj.bias" in weights:
            self.qkv_bias = nn.Parameter(
                torch.cat([weights[f"{n}.bias"][r] for n, r in rows.items()])
            )
            # The output is a partial sum: one rank of the sum contributes the bias.
            if parallel.heads.index == 0:
                out_bias = weights["o_proj.bias"]
        own = weights["o_proj.weight"][:, rows["q_proj"]].clone()
        self.out = RowParallelLinear(own, out_bias)
        self.q_norm = nn.Parameter(weights["q_norm.weight"])
        self.k_norm = nn.Parameter(weights["k_norm.weight"])

    def forward(self, hidden: Tensor, tokens: Tokens, cache: KVCache) -> Tensor:
        """This rank's partial output for its group's rows.

        `hidden` [rows, width] holds the group's real tokens first and then pad rows, which
        attention never sees; they get zeros.
        """
        real = len(tokens.ids)
        if not real:
            return torch.zeros_like(hidden)
        qkv = F.linear(hidden[:real], self.qkv, self.qkv_bias).unflatten(-1, (-1, self.head_dim))
        q, k, v = qkv.split(self.split, dim=1)
        q = _rotate(F.rms_norm(q, (self.head_dim,), self.q_norm, self.eps), tokens)
        k = _rotate(F.rms_norm(k, (self.head_dim,), self.k_norm, self.eps), tokens)
        mixed, start = [], 0
        for sequence, count in tokens.sequences:
            own = slice(start, start + count)
            mixed.append(_attend(q[own], *cache.extend(self.layer, sequence, k[own], v[own])))
            start += count
        out = self.out(torch.cat(mixed).flatten(1))
        return F.pad(out, (0, 0, 0, hidden.shape[0] - real))


def _kv_heads(count: int, parallel: Parallel) -> slice:
    """The KV heads that this rank's query heads read."""
    ranks = parallel.heads.count
    if count >= ranks:
        return parallel.heads.cut(count, "KV heads")
    if ranks % count:
        raise ValueError(f"{count} KV heads cannot be shared evenly by {ranks} ranks")
    first = parallel.heads.index * count // ranks
    return slice(first, first + 1)


def _rotate(x: Tensor, tokens: Tokens) -> Tensor:
    """Rotary embedding of `x` [tokens, heads, head_dim], halves rotated against each other."""
    low, high = x.chunk(2, dim=-1)
    return x * tokens.cos + torch.cat((-high, low), dim=-1) * tokens.sin


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention of the last len(q) positions; all [tokens, heads, head_dim]."""
    new, total = q.shape[0], k.shape[0]
    mask = torch.ones(new, total, dtype=torch.bool, device=q.device).tril(total - new)
    out = F.scaled_dot_product_attention(
        q.transpose(0, 1),
        k.transpose(0, 1),
        v.transpose(0, 1),
        attn_mask=mask,
        enable_gqa=True,
    )
    return out.transpose(0, 1)
