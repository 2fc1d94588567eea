"""The kinds of layer of `sample`, which the model binds to its own norms."""

from __future__ import annotations

from dataclasses import dataclass

from boundaryc.runtime import AttentionBoundary, FfnBoundary, Norm


@dataclass(frozen=True, slots=True)
class AttentionMlp:
    """attention, then mlp: layer 0."""

    attention: AttentionBoundary
    mlp: FfnBoundary

    def bind(self, *, attention: Norm, mlp: Norm) -> AttentionMlp:
        """These boundaries with the norms of one layer."""
        return AttentionMlp(
            attention=self.attention.bind(attention),
            mlp=self.mlp.bind(mlp),
        )


@dataclass(frozen=True, slots=True)
class AttentionExperts:
    """attention, then experts: layers 1 to 3."""

    attention: AttentionBoundary
    experts: FfnBoundary

    def bind(self, *, attention: Norm, experts: Norm) -> AttentionExperts:
        """These boundaries with the norms of one layer."""
        return AttentionExperts(
            attention=self.attention.bind(attention),
            experts=self.experts.bind(experts),
        )


Layer = AttentionMlp | AttentionExperts
