"""The text model of Qwen3-VL taken apart for the harness of `examples.hf`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from examples.hf.architecture import (
    SIZES,
    Architecture,
    attention_and_mlp,
    final_norm,
    norms,
    seeded,
    spread,
)
from examples.hf.headed import Headed

DEEP = 2
"""After how many layers something is added, as the stack file says."""
IMAGES = 40
"""Token ids below this one are of images."""


class TextModel(Headed):
    """The text model, a head, and a table for what a vision model makes of images' tokens."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        width, words = SIZES["hidden_size"], SIZES["vocab_size"]
        self.vision_embed = nn.Parameter(torch.empty(DEEP, words, width))

    def forward(self, input_ids: Tensor, **options: Any) -> SimpleNamespace:
        """Logits [1, tokens, vocabulary], and the residual [1, tokens, width] before layers."""
        images = input_ids < IMAGES
        entered: list[Tensor] = []
        hooks = [
            layer.register_forward_pre_hook(lambda _, given: entered.append(given[0]))
            for layer in self.model.layers
        ]
        out = self.model(
            input_ids=input_ids,
            visual_pos_masks=images,
            deepstack_visual_embeds=[table[input_ids[images]] for table in self.vision_embed],
            **options,
        )
        for hook in hooks:
            hook.remove()
        # Those of the model itself are from before the addition.
        return SimpleNamespace(logits=self.lm_head(out.last_hidden_state), hidden_states=entered)


def build() -> nn.Module:
    """Three layers, two of them with images' rows added."""
    from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLTextConfig
    from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextModel

    rotary = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]}
    config = Qwen3VLTextConfig(**{**SIZES, "num_hidden_layers": 3, "rope_parameters": rotary})
    config._attn_implementation = "eager"
    with seeded():
        return spread(TextModel(Qwen3VLTextModel(config)))


def extras(model: Any, index: int, ids: Tensor) -> dict[str, Tensor]:
    """What is added to the output of a layer for tokens [tokens]: zero but for those of images."""
    if index >= DEEP:
        return {}
    added: Tensor = model.vision_embed[index][ids] * (ids < IMAGES).unsqueeze(1)
    return {"deepstack": added}


ARCHITECTURE = Architecture(
    name="qwen3_vl_text",
    build=build,
    sublayers=attention_and_mlp,
    bindings=norms,
    leave=final_norm,
    extras=extras,
)
