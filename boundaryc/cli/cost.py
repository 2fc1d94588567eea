"""`boundaryc cost`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from boundaryc.cli.options import json_too, output_style
from boundaryc.cli.output import style

MOST_TOKENS = 10_000_000


@click.command("cost")
@click.argument("file", metavar="STACK", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--topology",
    "topologies",
    multiple=True,
    help="Only this topology, or one written as in the file: '{tp: 8, attn_dp: 4}'. Repeatable.",
)
@click.option("--variant", "variants", multiple=True, help="Only this batch variant. Repeatable.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    default=["auto"],
    show_default=True,
    help="The reduction policy. Repeatable.",
)
@click.option(
    "--tokens",
    default="1,64,8192",
    show_default=True,
    help="Tokens of a batch, all groups together, dealt out evenly.",
)
@click.option(
    "--padding",
    type=click.Choice(["sum_len", "max_len", "unpadded"]),
    default="sum_len",
    show_default=True,
    help="How groups are padded: each for itself, all to the largest, or not.",
)
@click.option(
    "--bandwidth",
    type=click.FloatRange(0.001, 1e6),
    help="Gigabytes that a rank sends a second, instead of the file's; plans follow it.",
)
@click.option(
    "--latency",
    type=click.FloatRange(0, 1e6),
    help="Microseconds before a collective's first byte, instead of the file's; plans follow it.",
)
@click.option("--draft", help="A draft of the file instead of its stack.")
@json_too
@output_style
def cost(
    file: Path,
    topologies: tuple[str, ...],
    variants: tuple[str, ...],
    policies: tuple[str, ...],
    tokens: str,
    padding: str,
    bandwidth: float | None,
    latency: float | None,
    draft: str | None,
) -> None:
    """Compares what a STACK sends on its topologies: bytes and collectives, best first.

    Example: boundaryc cost stack.yaml --tokens 1,64,8192 --policy auto --policy ar

    Bytes are what each rank sends, on average. The time is what the link takes: latency for each
    collective and bytes by bandwidth. It orders the lines; nothing is timed.

    Exits 1 for what is wrong in the stack file, 2 for what there is not.
    """
    from boundaryc.report.costs import costs, text
    from boundaryc.report.deployment import (
        AskedError,
        Link,
        deployed,
        drafted,
        named_after,
        read_source,
    )
    from boundaryc.report.text import columns

    try:
        source = drafted(read_source(file, topologies), draft)
        names = [named_after(one) if one.startswith("{") else one for one in topologies]
        names = names or [one.name for one in source.stack.topologies]
        link = Link(latency, bandwidth)
        plans = [deployed(source, name, variants, link) for name in dict.fromkeys(names)]
        found = costs(plans, token_counts(tokens), policies, padding)
    except AskedError as problem:
        raise click.UsageError(str(problem)) from None
    how = style()
    how.result("\n".join(text(found, columns())))
    how.document("cost", **asdict(found))


def token_counts(text: str) -> tuple[int, ...]:
    """The numbers of --tokens, each once. Raises AskedError for what is none."""
    from boundaryc.report.deployment import AskedError

    numbers = [int(one) for one in text.split(",") if one.isdecimal()]
    if len(numbers) != text.count(",") + 1 or max(numbers) > MOST_TOKENS:
        raise AskedError(f"--tokens: {text} is not numbers such as 1,64,8192, up to {MOST_TOKENS}")
    return tuple(dict.fromkeys(numbers))
