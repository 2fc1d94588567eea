"""Falcon-H1 taken apart for the harness of `examples.hf`."""

from __future__ import annotations

from typing import Any

from torch import nn

from examples.hf.architecture import Architecture, Sublayer, tiny

EMBEDDING, LOGITS = 1.5, 0.4
GATE, DOWN = 0.8, 0.6  # the stack file has the second
ATTENTION_IN, ATTENTION_OUT = 0.9, 1.3
MAMBA_IN, MAMBA_OUT = 1.1, 0.7


def build() -> nn.Module:
    """Every multiplier is another number."""
    return tiny(
        "falcon_h1",
        num_hidden_layers=3,
        rms_norm_eps=1e-5,
        mamba_d_ssm=64,
        mamba_n_heads=4,
        mamba_d_state=8,
        mamba_chunk_size=8,
        projectors_bias=True,
        embedding_multiplier=EMBEDDING,
        lm_head_multiplier=LOGITS,
        mlp_multipliers=[GATE, DOWN],
        attention_in_multiplier=ATTENTION_IN,
        attention_out_multiplier=ATTENTION_OUT,
        ssm_in_multiplier=MAMBA_IN,
        ssm_out_multiplier=MAMBA_OUT,
        ssm_multipliers=[0.9, 1.2, 0.8, 1.1, 0.7],
    )


def sublayers(model: Any, index: int) -> dict[str, Sublayer]:
    """Mamba multiplies its input by itself; the FFN's multiplier is its boundary's."""
    layer = model.model.layers[index]
    mamba = Sublayer(layer.mamba, "out_proj", times=MAMBA_OUT)
    attention = (layer.self_attn, "o_proj")
    return {
        "mixer": Sublayer(*attention, takes=ATTENTION_IN, times=ATTENTION_OUT, beside=mamba),
        "mlp": Sublayer(layer.feed_forward, "down_proj"),
    }


def bindings(model: Any, index: int) -> dict[str, object]:
    """The norms in front of both stages."""
    layer = model.model.layers[index]
    return {"mixer": layer.input_layernorm, "mlp": layer.pre_ff_layernorm}


ARCHITECTURE = Architecture(
    name="falcon_h1",
    build=build,
    sublayers=sublayers,
    bindings=bindings,
    leave=lambda model: (model.model.final_layernorm,),  # type: ignore[union-attr]
    multipliers=(EMBEDDING, LOGITS),
)
