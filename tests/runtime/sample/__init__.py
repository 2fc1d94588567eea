"""Boundaries of the stack `sample`, by topology.

Written by hand: the shape that the emitter produces, and the fixture of the runtime's tests.
"""

from __future__ import annotations

from boundaryc import runtime

from . import tp4_dp2
from .layers import AttentionExperts, AttentionMlp

TOPOLOGIES = {
    "tp4_dp2": tp4_dp2.Stack,
}
POLICIES = ("auto", "ar", "rs", "rsv", "rs+rsv")


def load(
    topology: str,
    groups: runtime.GroupProvider,
    *,
    policy: str = "auto",
    layers: range | None = None,
) -> tp4_dp2.Stack:
    """The boundaries of `sample` on one topology, over this rank's ``groups``.

    ValueError where there is no such topology or policy.
    """
    stack = TOPOLOGIES.get(topology)
    if stack is None:
        raise ValueError(f"unknown topology {topology!r}; known: {', '.join(TOPOLOGIES)}")
    return stack(groups, policy=policy, layers=layers)


__all__ = ["POLICIES", "TOPOLOGIES", "AttentionExperts", "AttentionMlp", "load"]
