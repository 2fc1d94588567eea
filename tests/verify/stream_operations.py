"""Operations of residuals that are not the plain one; each is what its facts in tests say."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from boundaryc.runtime import rms_norm


def two_streams(hidden: Tensor) -> Tensor:
    """An enter of two unlike streams: [rows, 2, width]."""
    return torch.stack([hidden, torch.sin(hidden)], dim=1)


def gated_streams(residual: Tensor, scale: Any) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """A read of two streams that keeps `gate` [rows, 2] and `turn` [rows, 1]."""
    gate = torch.sigmoid(residual[:, :, :8].sum(dim=-1))
    turn = torch.tanh(residual[:, :1, 3])
    return (gate.unsqueeze(-1) * residual).sum(dim=1) * scale.weight, (gate, turn)


def gated_update(contribution: Tensor, residual: Tensor, gate: Tensor, turn: Tensor) -> Tensor:
    """An update of two streams, each of which sees the other; `turn` comes from the read."""
    crossed = residual + turn.unsqueeze(-1) * residual.flip(1)
    return 0.5 * crossed + gate.unsqueeze(-1) * contribution.unsqueeze(1)


def shifted_streams(
    contribution: Tensor, residual: Tensor, gate: Tensor, turn: Tensor, shift: Any
) -> Tensor:
    """The same with a parameter [width]."""
    return gated_update(contribution * shift.weight, residual, gate, turn)


def second_stream(residual: Tensor) -> Tensor:
    """A final read without parameters: the second of two streams, and half of the first."""
    return residual[:, 1] + 0.5 * residual[:, 0]


def tripled(hidden: Tensor) -> Tensor:
    """An enter of one stream."""
    return 3 * hidden


def doubled(residual: Tensor) -> Tensor:
    """A read of one stream."""
    return 2 * residual


def normed_into(residual: Tensor, scale: Any) -> tuple[Tensor, Tensor]:
    """A read whose result is the residual from then on."""
    read = torch.tanh(residual) * scale.weight
    return read, 0.5 * read


def kept_and_rewritten(residual: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor]]:
    """A read that keeps `mean` [rows, 1] and takes it out of the residual."""
    mean = residual.mean(dim=-1, keepdim=True)
    return residual, residual - mean, (mean,)


def with_mean(contribution: Tensor, residual: Tensor, mean: Tensor) -> Tensor:
    """An update that puts `mean` back."""
    return residual + mean + contribution * torch.sigmoid(mean)


def written_in_place(contribution: Tensor, residual: Tensor, gate: Any) -> None:
    """An update that writes the residual itself."""
    residual.mul_(0.75).add_(torch.tanh(contribution) * gate.weight)


def placed_read(residual: Tensor, scale: Any, given: Tensor) -> Tensor:
    """A read with an input of every batch [rows, width]."""
    return residual * scale.weight + given


def placed_update(contribution: Tensor, residual: Tensor, given: Tensor) -> Tensor:
    """An update with an input of every batch [rows, width]."""
    return residual + contribution * torch.cos(given)


def bank(hidden: Tensor) -> Tensor:
    """An enter of three sources: the input, the sum of a finished block, and the running sum."""
    nothing = torch.zeros_like(hidden)
    return torch.stack([hidden, nothing, nothing], dim=1)


def attended(residual: Tensor, query: Any) -> Tensor:
    """A read that weighs the sources by a learned query."""
    weights = torch.softmax((residual * query.weight).sum(dim=-1), dim=-1)
    return (weights.unsqueeze(-1) * residual).sum(dim=1)


def running(contribution: Tensor, residual: Tensor) -> Tensor:
    """An update that adds to the running sum."""
    first, finished, own = residual.unbind(dim=1)
    return torch.stack([first, finished, own + contribution], dim=1)


def closed(contribution: Tensor, residual: Tensor) -> Tensor:
    """An update that ends a block: its sum is finished, and the running one starts anew."""
    first, _, own = residual.unbind(dim=1)
    return torch.stack([first, own + contribution, torch.zeros_like(own)], dim=1)


def widened(hidden: Tensor) -> Tensor:
    """An enter whose residual is float32, whatever narrower dtype the hidden states have."""
    return hidden.to(torch.promote_types(hidden.dtype, torch.float32))


def narrowed(residual: Tensor, scale: Any) -> Tensor:
    """The norm of a stack with eps 1.0e-6, in the dtype of its weight."""
    return rms_norm(residual, scale.weight, 1e-6).to(scale.weight.dtype)


def replaced(contribution: Tensor, residual: Tensor) -> Tensor:
    """An update behind which nothing is left of the residual."""
    return contribution.to(residual.dtype)
