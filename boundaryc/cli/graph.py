"""`boundaryc graph`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from boundaryc.cli.options import json_too, output_style
from boundaryc.cli.output import style

if TYPE_CHECKING:
    from boundaryc.report.deployment import Source
    from boundaryc.report.drawing import Drawing


@click.command("graph")
@click.argument("file", metavar="STACK", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "mermaid", "dot", "svg"]),
    default="text",
    show_default=True,
    help="How it is drawn.",
)
@click.option(
    "--topology",
    help="Shows the collectives on this topology, or on one written as in the file.",
)
@click.option("--variant", default="ordinary", show_default=True, help="In this batch variant.")
@click.option("--policy", default="auto", show_default=True, help="Under this reduction policy.")
@click.option(
    "--tokens",
    type=click.IntRange(0, 10_000_000),
    default=8192,
    show_default=True,
    help="In a batch of so many tokens, dealt out evenly.",
)
@click.option("--select", "selector", help="A part: experts, or 1+experts+1 with its neighbours.")
@click.option("--draft", help="A draft of the file instead of its stack.")
@json_too
@output_style
def graph(
    file: Path,
    format_: str,
    topology: str | None,
    variant: str,
    policy: str,
    tokens: int,
    selector: str | None,
    draft: str | None,
) -> None:
    """Draws the stage graph of a STACK, layers that repeat only once.

    Example: boundaryc graph stack.yaml --topology tp8 --format mermaid

    Exits 1 for what is wrong in the stack file, 2 for what there is not.
    """
    from boundaryc.report.deployment import AskedError, drafted, read_source
    from boundaryc.report.drawing import selected
    from boundaryc.report.drawing_svg import svg
    from boundaryc.report.drawing_text import dot, mermaid, text
    from boundaryc.report.text import columns

    try:
        source = drafted(read_source(file, (topology,) if topology else ()), draft)
        found = _drawn(source, topology, variant, policy, tokens)
        found = selected(found, selector) if selector else found
    except AskedError as problem:
        raise click.UsageError(str(problem)) from None
    how = style()
    writers = {"text": text, "mermaid": mermaid, "dot": dot, "svg": svg}
    how.result("\n".join(writers[format_](found, columns())))
    how.document("graph", **asdict(found))


def _drawn(source: Source, topology: str | None, variant: str, policy: str, tokens: int) -> Drawing:
    """The graph; with the collectives of one batch where a topology was asked for."""
    from boundaryc.report.deployment import dealt, deployed, listed, load_of, named_after, policy_of
    from boundaryc.report.drawing import drawing
    from boundaryc.report.moves import moved

    policy = policy_of(source.stack, policy)
    name = topology or source.stack.topologies[0].name
    name = named_after(name) if name.startswith("{") else name
    if topology is None:
        return drawing(deployed(source, name), lambda edge: "", "")
    plan = deployed(source, name, listed(variant))
    planned = plan.topologies[0]
    load = load_of(planned, variant, dealt(tokens, planned.spec.attn_dp))
    table = planned.tables[policy][load.column]
    what = f"{name}, {load.variant} batches of {tokens} tokens, policy {policy}"
    return drawing(
        plan,
        lambda edge: " + ".join(one.text for one in moved(planned.mesh, table[edge], 1)),
        what,
    )
