"""GLM-5-Next taken apart for the harness of `examples.hf`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

from examples.hf.architecture import SIZES, Architecture, Sublayer, final_norm, seeded, spread
from examples.hf.headed import Headed

LAYERS = ("linear_attention", "indexed_attention", "linear_attention")


class TextModel(Headed):
    """The text model, whose streams are its hidden states."""

    def forward(self, input_ids: Tensor, **options: Any) -> SimpleNamespace:
        """Logits [1, tokens, vocabulary], and the streams [1, tokens, 4, width] before layers."""
        # Linear attention pads sequences to chunks of 64 tokens, if it is not told otherwise.
        out = self.model(input_ids=input_ids, chunk_size=8, **options)
        logits = self.lm_head(out.last_hidden_state)
        return SimpleNamespace(logits=logits, hidden_states=out.hidden_states)


def build() -> nn.Module:
    """Attention looks at 2 of the pairs of tokens before a token, and at the token alone."""
    from transformers.models.glm5_next.configuration_glm5_next import Glm5NextTextConfig
    from transformers.models.glm5_next.modeling_glm5_next import Glm5NextTextModel

    mixers = {
        "num_hidden_layers": len(LAYERS),
        "layer_types": list(LAYERS),
        "indexer_types": ["full"] * len(LAYERS),
        "num_key_value_heads": 4,
        "q_lora_rank": 24,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 0,
        "v_head_dim": 16,
        "index_n_heads": 2,
        "index_head_dim": 16,
        "index_topk": 4,
        "index_kpool": 2,
        "linear_head_dim": 16,
        "linear_num_heads": 4,
    }
    experts = {
        "mlp_layer_types": ["dense", "sparse", "sparse"],
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
    }
    config = Glm5NextTextConfig(**{**SIZES, "head_dim": 0, **mixers, **experts})
    config._attn_implementation = config._experts_implementation = "eager"
    with seeded():
        return spread(TextModel(Glm5NextTextModel(config)))


def sublayers(model: Any, index: int) -> dict[str, Sublayer]:
    """One of two kinds of attention; a dense FFN first and a mixture of experts afterwards."""
    layer = model.model.layers[index]
    mixer = "linear" if LAYERS[index] == "linear_attention" else "attention"
    ffn = {"experts": Sublayer(layer.mlp)} if index else {"mlp": Sublayer(layer.mlp, "down_proj")}
    return {mixer: Sublayer(layer.self_attn, "o_proj"), **ffn}


def bindings(model: Any, index: int) -> dict[str, object]:
    """Each stage's norm, and what its coefficients come from."""
    layer = model.model.layers[index]
    mixer, ffn = sublayers(model, index)
    return {
        mixer: layer.input_layernorm,
        f"{mixer}_hyper": layer.attn_hc,
        ffn: layer.post_attention_layernorm,
        f"{ffn}_hyper": layer.ffn_hc,
    }


ARCHITECTURE = Architecture(
    name="glm5_next",
    build=build,
    sublayers=sublayers,
    bindings=bindings,
    leave=final_norm,
)
