"""What `boundaryc verify` prints of the cells that it ran."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from boundaryc.cli.output import style

if TYPE_CHECKING:
    from boundaryc.cli.verify import Proof
    from boundaryc.verify.cells import Outcome


def tell(found: list[tuple[Proof, list[Outcome]]]) -> None:
    """Prints a line for each topology and variant, or the document of all cells."""
    if style().json:
        _document(found)
    else:
        _lines(found)


def _lines(found: list[tuple[Proof, list[Outcome]]]) -> None:
    from boundaryc.report.text import columns, wrapped
    from boundaryc.verify.proof import summarise

    for proof, outcomes in found:
        if len(found) > 1:
            click.echo(f"{proof.task.stack}:")
        for line in summarise(outcomes):
            text = (
                f"{line.topology:12} {line.variant:18} {line.cells:5} cells "
                f"{line.failures:4} failed   error {line.error:.1e}   "
                f"{line.collectives:4} collectives {line.wire_bytes:9} bytes a rank"
                + (f"   {line.halves} cells in two halves" if line.halves else "")
            )
            width = columns()
            narrow = wrapped(" ".join(text.split()), width) if 0 < width < len(text) else (text,)
            click.echo("\n".join(narrow))


def _document(found: list[tuple[Proof, list[Outcome]]]) -> None:
    from boundaryc.report.documents import Judged, RunCell, Verification

    cells = tuple(
        Judged(
            proof.task.stack,
            RunCell(**asdict(one.cell)),
            None if one.error == float("inf") else one.error,
            one.collectives,
            one.wire_bytes,
            one.failure,
        )
        for proof, outcomes in found
        for one in outcomes
    )
    failures = sum(one.failure is not None for one in cells)
    style().document("verify", **asdict(Verification(failures, cells)))
