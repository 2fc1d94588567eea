"""SGLang's Qwen3 with compiled boundaries in place of its own.

`DecoderLayer` is SGLang's `Qwen3DecoderLayer` after the steps of docs/engines.md: its modules are
SGLang's, what lies between them is boundaryc's. Without kernels of its own on a CPU, attention
itself is torch's (`CausalAttention`), in the place of `RadixAttention`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from sglang.srt.layers.layernorm import RMSNorm
from sglang.srt.models.qwen3 import Qwen3Attention, Qwen3MLP
from torch import Tensor, nn

from boundaryc.engines.sglang import batch_facts
from boundaryc.runtime import AnyStack, OwedOutput


class DecoderLayer(nn.Module):
    """Attention and an FFN, whose boundaries are those of layer ``layer_id`` of ``stack``."""

    self_attn: Any
    mlp: Any
    input_layernorm: Any
    post_attention_layernorm: Any

    def __init__(self, config: Any, layer_id: int, stack: AnyStack) -> None:
        super().__init__()
        self.self_attn = Qwen3Attention(
            hidden_size=config.hidden_size,
            num_heads=config.num_attention_heads,
            num_kv_heads=config.num_key_value_heads,
            layer_id=layer_id,
            rope_theta=config.rope_theta,
            head_dim=config.head_dim,
            max_position_embeddings=config.max_position_embeddings,
            rms_norm_eps=config.rms_norm_eps,
        )
        self.mlp = Qwen3MLP(
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            hidden_act="silu",
            reduce_results=False,
        )
        self.input_layernorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.at = stack.layer(layer_id).bind(
            attention=self.input_layernorm, mlp=self.post_attention_layernorm
        )

    def forward(
        self, positions: Tensor, hidden_states: Tensor | OwedOutput, forward_batch: Any
    ) -> Tensor | OwedOutput:
        """As SGLang's; the batch of the boundaries is an attribute of SGLang's own."""
        batch = forward_batch.boundaryc
        hidden = self.at.attention.prepare(hidden_states, batch)
        if hidden.shape[0] != 0:
            hidden = self.self_attn(
                positions=positions, hidden_states=hidden, forward_batch=forward_batch
            )
        hidden_states = self.at.attention.finish(hidden, batch)
        hidden = self.at.mlp.prepare(hidden_states, batch)
        with self.at.mlp.exit(batch) as out:
            hidden = out.reduce_output(self.mlp(hidden, forward_batch=forward_batch))
        finished: Tensor | OwedOutput = out.finish(hidden)
        return finished


class Model(nn.Module):
    """Layers and the final norm, on rows that are embedded already."""

    layers: Any
    norm: Any

    def __init__(self, config: Any, stack: AnyStack) -> None:
        super().__init__()
        self.stack = stack
        self.layers = nn.ModuleList(DecoderLayer(config, index, stack) for index in stack.layers)
        self.norm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(
        self,
        positions: Tensor,
        hidden_states: Tensor | OwedOutput,
        forward_batch: Any,
        **facts: bool,
    ) -> Tensor:
        """The normed output on this rank's rows. ``facts`` are those of `batch_facts`."""
        groups = self.stack.mesh.extent("attn_dp")
        forward_batch.boundaryc = self.stack.batch(
            **batch_facts(forward_batch, attn_dp=groups, **facts)
        )
        self.stack.start(forward_batch.boundaryc)
        for layer in self.layers:
            hidden_states = layer(positions, hidden_states, forward_batch)
        return self.stack.norm(hidden_states, forward_batch.boundaryc, self.norm)


class CausalAttention(nn.Module):
    """What `RadixAttention` does of a prefill without a cache, in torch.

    ``forward_batch.extend_seq_lens_cpu`` has the lengths of this rank's requests; rows behind them
    are pads.
    """

    def __init__(self, heads: int, kv_heads: int, width: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = heads, kv_heads, width

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, forward_batch: Any, save_kv_cache: bool = True
    ) -> Tensor:
        """[rows, heads * width] of q [the same], k and v [rows, kv_heads * width]."""
        output, start = torch.zeros_like(q), 0
        for length in forward_batch.extend_seq_lens_cpu:
            own = slice(start, start + length)
            queries, keys, values = (
                part[own].view(length, -1, self.width).transpose(0, 1).unsqueeze(0)
                for part in (q, k, v)
            )
            mixed = F.scaled_dot_product_attention(
                queries, keys, values, is_causal=True, enable_gqa=True
            )
            output[own] = mixed[0].transpose(0, 1).flatten(1)
            start += length
        return output


def on_cpu(model: Model) -> Model:
    """``model`` with torch's attention in the place of SGLang's kernels."""
    for layer in model.layers:
        attention = layer.self_attn
        attention.attn = CausalAttention(
            attention.num_heads, attention.num_kv_heads, attention.head_dim
        )
    return model


@torch.no_grad()
def load(model: Model, weights: dict[str, Tensor]) -> Model:
    """Gives every parameter its part of ``weights``, through SGLang's own loaders."""
    for index, layer in enumerate(model.layers):
        own = {
            name.removeprefix(f"{index}."): weight
            for name, weight in weights.items()
            if name.startswith(f"{index}.")
        }
        parts: list[tuple[Any, str, tuple[Any, ...]]] = [
            *((layer.self_attn.qkv_proj, name, (name,)) for name in ("q", "k", "v")),
            (layer.self_attn.o_proj, "o", ()),
            (layer.mlp.gate_up_proj, "gate", (0,)),
            (layer.mlp.gate_up_proj, "up", (1,)),
            (layer.mlp.down_proj, "down", ()),
        ]
        for linear, name, shard in parts:
            linear.weight_loader(linear.weight, own[name], *shard)
        for norm, name in (
            (layer.input_layernorm, "input_norm"),
            (layer.post_attention_layernorm, "mlp_norm"),
            (layer.self_attn.q_norm, "q_norm"),
            (layer.self_attn.k_norm, "k_norm"),
        ):
            norm.weight.copy_(own[name])
    model.norm.weight.copy_(weights["norm"])
    return model
