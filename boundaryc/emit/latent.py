"""The latent that a model makes of attention's input: gathered where the input is cut."""

from __future__ import annotations

from boundaryc.emit.calls import Script
from boundaryc.emit.how import Collective
from boundaryc.emit.scope import Scope
from boundaryc.plan.transitions import Goal


def add_latent(script: Script, stage: str, goal: Goal, scope: Scope) -> None:
    """Adds to ``script`` that the model makes ``latent`` of the input of ``stage``.

    Attention returns all rows of its ranks over attn_tp, so where its input is a slice of them the
    latent, which has fewer columns, is gathered.
    """
    script.lines.append("latent = qkv_latent(hidden, batch)")
    script.summary.append("make its latent")
    moved = goal.rows & scope.mesh.mask("attn_tp")
    if not moved:
        return
    group = scope.group(moved)
    sizes = f"rows.{scope.row(moved, goal.rows)}.sizes"
    script.lines.append(f"latent = groups.{group}.all_gather(latent, {sizes})")
    script.summary[-1] = f"make its latent and gather it over {group}"
    why = f"{stage} needs the latent of all rows"
    script.collectives.append(Collective(f"all_gather({group})", why))
