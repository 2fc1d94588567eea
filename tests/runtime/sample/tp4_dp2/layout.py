"""The ranks of tp4_dp2, the groups they communicate in and the rows they move.

tp 4 = attn_dp 2 x attn_tp 2
"""

from __future__ import annotations

from boundaryc import runtime
from boundaryc.runtime import Cut, GroupProvider, Mesh

MESH = Mesh(
    (
        ("attn_dp", 2, "attn_dp"),
        ("attn_tp", 2, "attn_tp"),
    )
)


class Groups:
    """The groups that a boundary of this topology communicates in."""

    __slots__ = ("attn_dp", "attn_tp", "tp")

    def __init__(self, provider: GroupProvider) -> None:
        self.attn_dp = provider.collective(MESH, ("attn_dp",))
        self.attn_tp = provider.collective(MESH, ("attn_tp",))
        self.tp = provider.collective(MESH, ("attn_dp", "attn_tp"))


class Rows:
    """Rows that each member of a group holds, for every move that a boundary makes."""

    __slots__ = ("attn_dp",)

    def __init__(self, cut: Cut) -> None:
        self.attn_dp = cut.members(("attn_dp",), finer=("attn_dp",))


Batch = runtime.Batch[Groups, Rows]
