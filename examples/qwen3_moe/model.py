"""Qwen3-MoE on one rank, between the boundaries compiled from `stack.yaml`."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from boundaryc.runtime import AnyStack
from examples.common.attention import Attention
from examples.common.config import Config
from examples.common.decoder import Decoder, Layer, Mlp, Norm
from examples.common.parallel import Parallel, Weights
from examples.qwen3_moe.experts import Experts, exchange_rows


def build(
    stack: AnyStack, config: Config, parallel: Parallel, state_dict: Mapping[str, Tensor]
) -> Decoder:
    """This rank's model: its part of the state dict of a Hugging Face `Qwen3MoeForCausalLM`.

    `stack` is what `generated.qwen3_moe.load(...)` returned for the topology that `parallel`
    describes. Raises ValueError where heads, columns or experts cannot be cut evenly.
    """
    weights = Weights(state_dict)
    exchange = exchange_rows if parallel.all_to_all else None
    layers = []
    for index in range(config.layers):
        own = weights.under(f"model.layers.{index}")
        attention = Attention(index, config, parallel, own.under("self_attn"))
        before = Norm(own["input_layernorm.weight"])
        after = Norm(own["post_attention_layernorm.weight"])
        if index in config.sparse:
            sparse = stack.layer(index).bind(attention=before, experts=after)
            experts = Experts(config, parallel, own.under("mlp"), exchange)
            layers.append(Layer(attention, experts, (sparse.attention, sparse.experts)))
        else:
            dense = stack.layer(index).bind(attention=before, mlp=after)
            mlp = Mlp(parallel, own.under("mlp"))
            layers.append(Layer(attention, mlp, (dense.attention, dense.mlp)))
    return Decoder(stack, layers, Norm(weights["model.norm.weight"]), weights)
