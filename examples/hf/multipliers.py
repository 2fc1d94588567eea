"""Multipliers in front of a stack and behind it, which boundaries have nothing to do with."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class Multiplied(nn.Module):
    """A module whose output is multiplied by a number."""

    def __init__(self, module: nn.Module, factor: float) -> None:
        super().__init__()
        self._module, self._factor = module, factor

    def forward(self, given: Tensor) -> Tensor:
        """What the module makes of ``given``, times the factor."""
        whole: Tensor = self._module(given) * self._factor
        return whole


def multiplied(model: Any, *, embedding: float = 1.0, logits: float = 1.0) -> nn.Module:
    """The model, whose embeddings and head, as the harness asks for them, have their multipliers.

    Its own forward multiplies by itself and is left as it is.
    """
    enter = Multiplied(model.get_input_embeddings(), embedding)
    leave = Multiplied(model.get_output_embeddings(), logits)
    model.get_input_embeddings = lambda: enter
    model.get_output_embeddings = lambda: leave
    found: nn.Module = model
    return found
