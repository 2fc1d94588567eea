"""The decoder that both models are: embedding, layers between compiled boundaries, final norm."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from boundaryc.runtime import (
    AnyBatch,
    AnyStack,
    AttentionBoundary,
    FfnBoundary,
    FfnExit,
    OwedOutput,
)
from examples.common.attention import Attention, KVCache, Tokens
from examples.common.parallel import Parallel, RowParallelLinear, Weights


class Norm(nn.Module):
    """The weight of a norm [width]; the norm itself runs inside a boundary."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)


class Mlp(nn.Module):
    """A gated FFN: columns of the first product and rows of the second over the dense ranks."""

    def __init__(self, parallel: Parallel, weights: Weights) -> None:
        super().__init__()
        columns = parallel.dense.cut(weights["gate_proj.weight"].shape[0], "FFN columns")
        self.gate = nn.Parameter(weights["gate_proj.weight"][columns].clone())
        self.up = nn.Parameter(weights["up_proj.weight"][columns].clone())
        self.down = RowParallelLinear(weights["down_proj.weight"][:, columns].clone())

    def forward(self, hidden: Tensor, out: FfnExit | None = None) -> Tensor:
        """This rank's output for whatever rows it is given, summed where `out` asks for it."""
        gated = F.silu(F.linear(hidden, self.gate)) * F.linear(hidden, self.up)
        output: Tensor = self.down(gated, out)
        return output


class Layer(nn.Module):
    """Attention and an FFN. Everything between the two computations is in the boundaries."""

    def __init__(
        self,
        attention: Attention,
        ffn: nn.Module,
        boundaries: tuple[AttentionBoundary, FfnBoundary],
    ) -> None:
        super().__init__()
        self.attention, self.ffn = attention, ffn
        self.to_attention, self.to_ffn = boundaries

    def forward(
        self, carried: Tensor | OwedOutput, batch: AnyBatch, tokens: Tokens, cache: KVCache
    ) -> Tensor | OwedOutput:
        """Takes what the layer before returned, which may still owe a sum; returns the like."""
        hidden = self.to_attention.prepare(carried, batch)
        carried = self.to_attention.finish(self.attention(hidden, tokens, cache), batch)

        hidden = self.to_ffn.prepare(carried, batch)
        with self.to_ffn.exit(batch) as output:
            hidden = self.ffn(hidden, output)
        return output.finish(hidden)


class Decoder(nn.Module):
    """A stack of layers on one rank, with replicated embedding and head."""

    def __init__(
        self, stack: AnyStack, layers: Sequence[Layer], norm: Norm, weights: Weights
    ) -> None:
        super().__init__()
        self.stack, self.norm = stack, norm
        self.layers = nn.ModuleList(layers)
        self.embedding = nn.Parameter(weights["model.embed_tokens.weight"])
        self.head = nn.Parameter(weights["lm_head.weight"])

    @torch.inference_mode()
    def forward(self, batch: AnyBatch, tokens: Tokens, cache: KVCache) -> Tensor:
        """The logits [tokens, vocabulary] of this rank's real tokens.

        A rank without tokens takes part all the same: others wait for it in their collectives.
        """
        padding = batch.local_rows - batch.real_rows
        embedded = F.embedding(F.pad(tokens.ids, (0, padding)), self.embedding)
        self.stack.start(batch)
        carried: Tensor | OwedOutput = embedded
        for layer in self.layers:
            carried = layer(carried, batch, tokens, cache)
        hidden = self.stack.norm(carried, batch, self.norm, skip_empty=True)
        return F.linear(hidden[: batch.real_rows], self.head)
