"""Qwen3 on one rank, between the boundaries compiled from `stack.yaml`."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from boundaryc.runtime import AnyStack
from examples.common.attention import Attention
from examples.common.config import Config
from examples.common.decoder import Decoder, Layer, Mlp, Norm
from examples.common.parallel import Parallel, Weights


def build(
    stack: AnyStack, config: Config, parallel: Parallel, state_dict: Mapping[str, Tensor]
) -> Decoder:
    """This rank's model: its part of the state dict of a Hugging Face `Qwen3ForCausalLM`.

    `stack` is what `generated.qwen3.load(...)` returned for the topology that `parallel` describes.
    Raises ValueError where heads or columns cannot be cut evenly.
    """
    weights = Weights(state_dict)
    layers = []
    for index in range(config.layers):
        own = weights.under(f"model.layers.{index}")
        bound = stack.layer(index).bind(
            attention=Norm(own["input_layernorm.weight"]),
            mlp=Norm(own["post_attention_layernorm.weight"]),
        )
        attention = Attention(index, config, parallel, own.under("self_attn"))
        mlp = Mlp(parallel, own.under("mlp"))
        layers.append(Layer(attention, mlp, (bound.attention, bound.mlp)))
    return Decoder(stack, layers, Norm(weights["model.norm.weight"]), weights)
