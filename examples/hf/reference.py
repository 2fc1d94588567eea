"""What a Hugging Face model says about some sequences, each run alone and without a cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from examples.hf.architecture import SIZES, Architecture, Sublayer
from examples.hf.float64 import Float64

LENGTHS = (4, 7, 5, 9, 1, 17, 21, 2)
"""Tokens of the sequences that batches are made of, by their numbers."""

Call = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Reference:
    """A model, its sublayers by layer and stage, and what it does with each sequence.

    ids      token ids of every sequence, or what else the model's input embeddings take
    logits   [tokens, vocabulary] float64 of every sequence
    entered  the residual [tokens, ...] with which a sequence enters every layer
    calls    with what a sublayer was called for a sequence: masks and rotary tables, above all
    """

    architecture: Architecture
    model: nn.Module
    sublayers: tuple[dict[str, Sublayer], ...]
    ids: tuple[Tensor, ...]
    logits: tuple[Tensor, ...]
    entered: tuple[tuple[Tensor, ...], ...]
    calls: dict[tuple[int, nn.Module], Call]

    @property
    def tolerance(self) -> float:
        """By how much a logit may be off."""
        return 1e-4 * max(1.0, float(torch.cat(self.logits).std()))


def reference(
    architecture: Architecture, layers: int, seed: int = 1, device: str = "cpu"
) -> Reference:
    """Builds the model of an architecture and runs it on random sequences of `LENGTHS`.

    The model and everything it says is on ``device``; its weights and the tokens do not depend on
    it.
    """
    model = architecture.build().to(device)
    sublayers = tuple(dict(architecture.sublayers(model, layer)) for layer in range(layers))
    calls: dict[tuple[int, nn.Module], Call] = {}
    current = [0]

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls[current[0], module] = (args, kwargs)

    hooks = [
        one.module.register_forward_pre_hook(note, with_kwargs=True)
        for layer in sublayers
        for stage in layer.values()
        for one in stage.producers
    ]
    generator = torch.Generator().manual_seed(seed)
    ids, logits, entered = [], [], []
    for number, length in enumerate(LENGTHS):
        current[0] = number
        own = torch.randint(3, SIZES["vocab_size"], (length,), generator=generator).to(device)
        with torch.device(device), torch.inference_mode(), Float64():
            out = model(own[None], use_cache=False, output_hidden_states=True)
            ids.append(architecture.given(model, own))
        logits.append(out.logits[0])
        entered.append(tuple(state[0] for state in out.hidden_states[:layers]))
    for hook in hooks:
        hook.remove()
    return Reference(
        architecture, model, sublayers, tuple(ids), tuple(logits), tuple(entered), calls
    )
