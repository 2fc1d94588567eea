"""What people call the consumers of outputs that are no stages."""

from __future__ import annotations

from boundaryc.graph.build import FINAL, MERGE
from boundaryc.language.model import Stack


def shown(stack: Stack, consumer: str) -> str:
    """A consumer of ``stack``, in a sentence."""
    end = "the final norm" if stack.terminal.norm else "the end of the stack"
    return {FINAL: end, MERGE: "the merge"}.get(consumer, consumer)
