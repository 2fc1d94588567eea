"""All functions of one boundary."""

from __future__ import annotations

from dataclasses import replace

from boundaryc.emit import ends
from boundaryc.emit.additive import Shares
from boundaryc.emit.calls import Calls
from boundaryc.emit.drafts import Drafts
from boundaryc.emit.scope import Scope
from boundaryc.emit.steps import steps
from boundaryc.emit.ways import prepared
from boundaryc.graph.build import ENTRY
from boundaryc.plan.result import Boundary


def draft(
    boundary: Boundary,
    scope: Scope,
    calls: Calls,
    *,
    scoped: bool,
    tail: bool = False,
    shows: bool = False,
) -> Drafts:
    """The functions of ``boundary``.

    ``scoped``: its producer obeys the decision of an exit; ``tail``: and adds a replicated part.
    ``shows``: its consumer may be asked to show what it reads.
    """
    before, after = steps(boundary)
    prepare = None if boundary.edge.merges else prepared(boundary, scope, calls, after, shows)
    if boundary.edge.producer == ENTRY or boundary.edge.source.merges:
        return Drafts(prepare)
    if not scoped:
        shares = Shares(calls.additive, boundary.start.owes, inside=False)
        return Drafts(prepare, leave=ends.leave(boundary, scope, calls, before, shares))
    exit_ = ends.exit_(boundary, scope, calls, before)
    if tail and (exit_.fuse or exit_.scatter):
        # The sum is never the next stage's: the boundary completes it before the hand-off.
        adds = ends.adds_tail(boundary.edge.producer, scope, boundary.start.owes)
        exit_ = replace(exit_, fuse=False, scatter=True, adds_tail=adds)
    if calls.additive:
        inside = bool(boundary.start.owes) and not (exit_.fuse or exit_.scatter)
        shares = Shares(calls.additive, boundary.start.owes, inside)
        exit_ = replace(exit_, before_sum=ends.before_sum(boundary, scope, shares))
        exit_ = replace(exit_, after_sum=ends.after_sum(boundary, shares))
    return Drafts(prepare, exit=exit_)
