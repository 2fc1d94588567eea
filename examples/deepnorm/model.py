"""The decoder itself, in plain torch: attention and FFN on a residual that norms replace."""

from __future__ import annotations

from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from examples.deepnorm.operations import EPS


class Scale(nn.Module):
    """A number for every column."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))


class Attention(nn.Module):
    """Causal attention of some heads, without positions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv_proj = nn.Linear(width, 3 * width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """What attention makes of [1, tokens, width]."""
        split = self.qkv_proj(hidden_states).unflatten(-1, (3, self.heads, -1))
        query, key, value = split.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        later = torch.ones_like(scores, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(later, -torch.inf).softmax(dim=-1) @ value
        found: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(-2))
        return found


class Mlp(nn.Module):
    """A gated FFN."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.up_proj = nn.Linear(width, 2 * inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """What the FFN makes of [1, tokens, width]."""
        gate, up = self.up_proj(hidden_states).chunk(2, dim=-1)
        found: Tensor = self.down_proj(F.silu(gate) * up)
        return found


class Sublayer(nn.Module):
    """Normalises the residual, keeps that in its place, and adds what it computes of it."""

    def __init__(self, inner: nn.Module, width: int) -> None:
        super().__init__()
        self.inner = inner
        self.norm, self.keep, self.gain = Scale(width), Scale(width), Scale(width)

    def read(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        """What is computed on, and the residual from then on, both [1, tokens, width]."""
        x = F.rms_norm(residual, residual.shape[-1:], self.norm.weight, EPS)
        return x, self.keep.weight * x

    def forward(self, residual: Tensor) -> Tensor:
        """The residual [1, tokens, width] behind this sublayer."""
        x, kept = self.read(residual)
        found: Tensor = kept + self.gain.weight * self.inner(x)
        return found


class Decoder(nn.Module):
    """Embedding, layers of two sublayers, a norm and a head."""

    def __init__(self, words: int, width: int, inner: int, heads: int, layers: int) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(words, width)
        self.attentions = nn.ModuleList(
            Sublayer(Attention(width, heads), width) for _ in range(layers)
        )
        self.mlps = nn.ModuleList(Sublayer(Mlp(width, inner), width) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=EPS)
        self.lm_head = nn.Linear(width, words, bias=False)

    def get_input_embeddings(self) -> nn.Module:
        """The embedding of tokens."""
        return self.embed_tokens

    def get_output_embeddings(self) -> nn.Module:
        """What makes logits."""
        return self.lm_head

    def forward(self, input_ids: Tensor, **_: object) -> SimpleNamespace:
        """Logits [1, tokens, words], and what layers read the residual [1, tokens, width] as."""
        residual = self.embed_tokens(input_ids)
        entered = []
        for attention, mlp in zip(self.attentions, self.mlps, strict=True):
            assert isinstance(attention, Sublayer)
            entered.append(attention.read(residual)[1])
            residual = mlp(attention(residual))
        return SimpleNamespace(logits=self.lm_head(self.norm(residual)), hidden_states=entered)
