"""Text models that Transformers has inside of multimodal ones only."""

from __future__ import annotations

from typing import Any

from torch import nn

from examples.hf.architecture import SIZES


class Headed(nn.Module):
    """A text model and a head; ``forward`` is each model's own."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.lm_head = nn.Linear(SIZES["hidden_size"], SIZES["vocab_size"], bias=False)

    def get_input_embeddings(self) -> nn.Module:
        """The embedding of tokens."""
        embedding: nn.Module = self.model.embed_tokens
        return embedding

    def get_output_embeddings(self) -> nn.Module:
        """What makes logits."""
        return self.lm_head
