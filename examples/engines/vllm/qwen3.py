"""vLLM's Qwen3 with compiled boundaries in place of its own.

`DecoderLayer` is vLLM's `Qwen3DecoderLayer` after the steps of docs/engines.md: its modules are
vLLM's, what lies between them is boundaryc's. Without kernels of its own on a CPU, attention
itself is torch's (`CausalAttention`), in the place of vLLM's `Attention`.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from vllm.forward_context import get_forward_context
from vllm.model_executor.custom_op import CustomOp
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding
from vllm.model_executor.models import qwen3
from vllm.model_executor.models.qwen3 import Qwen3Attention, Qwen3MLP

from boundaryc.engines.vllm import batch_facts, keep_partial
from boundaryc.runtime import AnyStack, OwedOutput


class DecoderLayer(nn.Module):
    """Attention and an FFN, whose boundaries are those of layer ``index`` of ``stack``."""

    def __init__(self, config: Any, index: int, stack: AnyStack) -> None:
        super().__init__()
        self.self_attn = Qwen3Attention(
            hidden_size=config.hidden_size,
            num_heads=config.num_attention_heads,
            num_kv_heads=config.num_key_value_heads,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            max_position=config.max_position_embeddings,
            head_dim=config.head_dim,
            rms_norm_eps=config.rms_norm_eps,
            prefix=f"layers.{index}.self_attn",
        )
        self.mlp = Qwen3MLP(
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            hidden_act="silu",
            prefix=f"layers.{index}.mlp",
        )
        keep_partial(self.self_attn.o_proj)
        keep_partial(self.mlp.down_proj)
        self.input_layernorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.at = stack.layer(index).bind(
            attention=self.input_layernorm, mlp=self.post_attention_layernorm
        )

    def forward(self, positions: Tensor, hidden_states: Tensor | OwedOutput) -> Tensor | OwedOutput:
        """As vLLM's, without a residual; the batch is in vLLM's forward context."""
        batch = get_forward_context().additional_kwargs["boundaryc"]
        hidden = self.at.attention.prepare(hidden_states, batch)
        hidden = self.self_attn(positions=positions, hidden_states=hidden)
        hidden_states = self.at.attention.finish(hidden, batch)
        hidden = self.at.mlp.prepare(hidden_states, batch)
        with self.at.mlp.exit(batch) as out:
            hidden = out.reduce_output(self.mlp(hidden))
        finished: Tensor | OwedOutput = out.finish(hidden)
        return finished


class Model(nn.Module):
    """Embedding, layers and final norm. With ``scatters`` the embedding leaves its sum as well."""

    def __init__(self, config: Any, stack: AnyStack, *, scatters: bool = False) -> None:
        super().__init__()
        self.stack, self.scatters = stack, scatters
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.hidden_size)
        if scatters:
            keep_partial(self.embed_tokens)
        self.layers = nn.ModuleList(DecoderLayer(config, index, stack) for index in stack.layers)
        self.norm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(
        self, input_ids: Tensor, positions: Tensor, *, sequence_parallel: bool = False
    ) -> Tensor:
        """The normed output of all rows of this rank's DP group."""
        context = get_forward_context()
        facts = batch_facts(
            context,
            attn_dp=self.stack.mesh.extent("attn_dp"),
            sequence_parallel=sequence_parallel,
        )
        if self.scatters:
            facts |= {"input_scattered": True, "embeddings": "partial"}
        batch = context.additional_kwargs["boundaryc"] = self.stack.batch(**facts)
        self.stack.start(batch)
        hidden_states: Tensor | OwedOutput = self.embed_tokens(input_ids)
        for layer in self.layers:
            hidden_states = layer(positions, hidden_states)
        return self.stack.norm(hidden_states, batch, self.norm)


class CausalAttention(nn.Module):
    """What vLLM's `Attention` does of a prefill without a cache, in torch.

    The forward context's ``attn_metadata`` are the lengths of the requests; rows behind them are
    pads.
    """

    def __init__(
        self, num_heads: int, head_size: int, scale: float, num_kv_heads: int, **_: object
    ) -> None:
        super().__init__()
        self.width, self.scale = head_size, scale

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """[rows, heads * width] of q [the same], k and v [rows, kv_heads * width]."""
        output, start = torch.zeros_like(q), 0
        for length in get_forward_context().attn_metadata:
            own = slice(start, start + length)
            query, key, value = (
                part[own].view(length, -1, self.width).transpose(0, 1).unsqueeze(0)
                for part in (q, k, v)
            )
            mixed = F.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=self.scale, enable_gqa=True
            )
            output[own] = mixed[0].transpose(0, 1).flatten(1)
            start += length
        return output


def build(config: Any, stack: AnyStack, weights: dict[str, Tensor], **options: bool) -> Model:
    """The model with torch's attention, loaded through vLLM's own loaders."""
    with mock.patch.object(qwen3, "Attention", CausalAttention):
        model = Model(config, stack, **options)
    for module in model.modules():
        if isinstance(module, CustomOp):
            # A wheel for CUDA has no operators for the CPU; each has its meaning in torch.
            module._forward_method = module.forward_native
    load(model, weights)
    return model


@torch.no_grad()
def load(model: Model, weights: dict[str, Tensor]) -> None:
    """Gives every parameter its part of ``weights``, by layer and name."""
    parts: list[tuple[Any, Tensor, tuple[Any, ...]]] = [
        (model.embed_tokens.weight, weights["embedding"], ()),
    ]
    layer: Any
    for index, layer in enumerate(model.layers):
        attention, mlp = layer.self_attn, layer.mlp
        shards: list[tuple[Any, str, tuple[Any, ...]]] = [
            *((attention.qkv_proj, name, (name,)) for name in ("q", "k", "v")),
            (attention.o_proj, "o", ()),
            (mlp.gate_up_proj, "gate", (0,)),
            (mlp.gate_up_proj, "up", (1,)),
            (mlp.down_proj, "down", ()),
        ]
        parts += [(one.weight, weights[f"{index}.{name}"], shard) for one, name, shard in shards]
        norms = {
            "input_norm": layer.input_layernorm,
            "mlp_norm": layer.post_attention_layernorm,
            "q_norm": attention.q_norm,
            "k_norm": attention.k_norm,
        }
        for name, norm in norms.items():
            norm.weight.copy_(weights[f"{index}.{name}"])
    model.norm.weight.copy_(weights["norm"])
    for parameter, weight, shard in parts:
        parameter.weight_loader(parameter, weight, *shard)
    module: Any
    for module in model.modules():
        if getattr(module, "quant_method", None) is not None:
            module.quant_method.process_weights_after_loading(module)
