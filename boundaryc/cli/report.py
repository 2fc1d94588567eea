"""`boundaryc report`."""

from __future__ import annotations

from pathlib import Path

import click

from boundaryc.cli.cost import token_counts
from boundaryc.cli.options import json_too, output_style
from boundaryc.cli.output import style


@click.command("report")
@click.argument("file", metavar="STACK", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("report.html"),
    show_default=True,
    help="The page to write.",
)
@click.option("--topology", "topologies", multiple=True, help="Only this topology. Repeatable.")
@click.option(
    "--tokens",
    default="1,4,16,64,256,1024,4096,16384",
    show_default=True,
    help="Tokens of the batches that are shown, all groups together, dealt out evenly.",
)
@click.option("--draft", help="A draft of the file instead of its stack.")
@json_too
@output_style
def report(
    file: Path, output: Path, topologies: tuple[str, ...], tokens: str, draft: str | None
) -> None:
    """Writes one page to read in a browser: all that explain, graph and cost say of a STACK.

    Example: boundaryc report stack.yaml -o report.html

    The stage graph with every boundary's plan, the code that the stack compiles to, its lines
    linked to the stack file, and what forwards cost over numbers of tokens. The page needs no
    network. With --json its data is printed instead.

    Exits 1 for what is wrong in the stack file, 2 for what there is not and where a file that is
    no such page is in the way.
    """
    from boundaryc.report.deployment import AskedError, drafted, read_source
    from boundaryc.report.page import document, page, put
    from boundaryc.report.page_data import report as gathered
    from boundaryc.report.text import columns, wrapped

    try:
        source = drafted(read_source(file), draft)
        found = gathered(source, topologies, token_counts(tokens))
    except AskedError as problem:
        raise click.UsageError(str(problem)) from None
    how = style()
    if how.json:
        how.document(**document(found))
        return
    put(output, page(found))
    names = ", ".join(one.name for one in found.topologies)
    said = f"{output}: {found.stack} on {names}, {len(found.plans)} plans"
    how.result("\n".join(wrapped(said, columns())))
