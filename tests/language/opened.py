"""Files with constructs that are read in full, whether this version builds them or not."""

from __future__ import annotations

from boundaryc.language import Stack, loads
from boundaryc.language.planned import PLANNED

CONSTRUCTS = (
    *("additive", "before_gather", "captures", "defer", "drafts", "layer without stages", "lora"),
    *("mixer", "needs_every_row", "overlap", "post_addition", "quantize", "variable_scatter"),
    *("reduction local_tail of ffn stages", "reduction scoped of attention stages"),
    *("latent_input", "scaled_add", "transform"),
)
"""Those of the first part of `PLANNED`, and those that have left it."""

NAMED = frozenset(PLANNED) - set(CONSTRUCTS)
"""Those that have a name and nothing else yet."""


def opened(text: str, source: str = "demo.yaml") -> Stack:
    """The stack that `text` means when all of `CONSTRUCTS` are built."""
    return loads(text, source, planned=NAMED)
