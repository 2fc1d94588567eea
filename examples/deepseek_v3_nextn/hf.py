"""The NextN draft of DeepSeek-V3, taken apart for the harness of `examples.hf`.

Transformers has the layer but no module around it. What is here is the draft's definition: each
token's last hidden state in the target and the embedding of the token that follows, both
normalised, side by side through ``eh_proj``; a decoder layer; a norm, and the target's head.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from examples.deepseek_v3.hf import LatentAttention, bound_to, build, of_layer
from examples.hf.architecture import Architecture, seeded, spread


class NextN(nn.Module):
    """The draft ``layer`` of a target model, whose embedding and head it shares."""

    def __init__(self, target: Any) -> None:
        from transformers.models.deepseek_v3.modeling_deepseek_v3 import (
            DeepseekV3DecoderLayer,
            DeepseekV3RMSNorm,
        )

        super().__init__()
        config, width = target.config, target.config.hidden_size
        self.enorm = DeepseekV3RMSNorm(width, config.rms_norm_eps)
        self.hnorm = DeepseekV3RMSNorm(width, config.rms_norm_eps)
        self.eh_proj = nn.Linear(2 * width, width, bias=False)
        layer: Any = DeepseekV3DecoderLayer(config, config.num_hidden_layers)
        layer.self_attn = LatentAttention(layer.self_attn)
        self.layer = layer
        self.norm = DeepseekV3RMSNorm(width, config.rms_norm_eps)
        spread(self, seed=1)
        self.target = target

    def get_input_embeddings(self) -> nn.Module:
        """What makes the input of the layer."""
        return self.eh_proj

    def get_output_embeddings(self) -> nn.Module:
        """What makes logits."""
        head: nn.Module = self.target.lm_head
        return head

    def given(self, ids: Tensor) -> Tensor:
        """What ``eh_proj`` takes, [tokens, 2 * width], of the token ids of one sequence.

        The token that follows the last one is the one that the target finds most likely.
        """
        return self.joined(ids, self.target.model(ids[None], use_cache=False).last_hidden_state[0])

    def joined(self, ids: Tensor, hidden: Tensor) -> Tensor:
        """The same where the target's last hidden states [tokens, width] are known."""
        following = self.target.lm_head(hidden[-1]).argmax()
        embedded = self.target.model.embed_tokens(torch.cat((ids[1:], following[None])))
        return torch.cat((self.enorm(embedded), self.hnorm(hidden)), dim=-1)

    def forward(self, ids: Tensor, **_: Any) -> SimpleNamespace:
        """Logits [1, tokens, vocabulary], and what enters the layer."""
        entered = self.eh_proj(self.given(ids[0]))[None]
        positions = torch.arange(ids.shape[1])[None]
        rotary = self.target.model.rotary_emb(entered, positions)
        lowest = torch.finfo(entered.dtype).min
        mask = entered.new_full((ids.shape[1], ids.shape[1]), lowest).triu(1)[None, None]
        left = self.layer(entered, attention_mask=mask, position_embeddings=rotary)
        logits = self.target.lm_head(self.norm(left))
        return SimpleNamespace(logits=logits, hidden_states=(entered,))


def drafted() -> nn.Module:
    """The target, and the draft on it."""
    target = build()
    with seeded():
        return NextN(target)


ARCHITECTURE = Architecture(
    name="deepseek_v3_nextn",
    build=drafted,
    sublayers=lambda model, _: of_layer(model.layer, "experts"),
    bindings=lambda model, _: bound_to(model.layer, "experts"),
    leave=lambda model: (model.norm,),
    given=lambda model, ids: model.given(ids),  # type: ignore[operator]
    without=("captures", "complete"),
)
