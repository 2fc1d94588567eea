"""`boundaryc explain`."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from boundaryc.cli.completing import codes_and_files
from boundaryc.cli.options import json_too, output_style
from boundaryc.cli.output import style

if TYPE_CHECKING:
    from boundaryc.plan.result import TopologyPlan
    from boundaryc.report.deployment import Load, Source
    from boundaryc.report.explained import Asked

_PLACE = re.compile(r"(?P<file>.+?)(?::(?P<layer>\d+)(?:\.(?P<stage>\w+))?)?", re.S)
_FILE = re.compile(r"(?P<file>.+)(?P<layer>)?(?P<stage>)?", re.S)
"""A file that is there, whatever it is called."""
_LINE = re.compile(r"(?P<file>.+\.py):(?P<line>\d+)(?::\d+)?")


@click.command("explain")
@click.argument(
    "what",
    metavar="CODE | STACK[:LAYER[.STAGE]] | FILE.py:LINE",
    shell_complete=codes_and_files,
)
@click.option(
    "--topology",
    help="A topology of the file, or one written as there: '{tp: 8, attn_dp: 4, moe: {ep: 8}}'.",
)
@click.option("--variant", default="ordinary", show_default=True, help="The batch variant.")
@click.option("--policy", default="auto", show_default=True, help="The reduction policy.")
@click.option(
    "--batch",
    metavar="TOKENS",
    help="One batch: the tokens of each attention-DP group, as in 3,0,5,1, or of all together.",
)
@click.option(
    "--padding",
    type=click.Choice(["sum_len", "max_len", "unpadded"]),
    default="sum_len",
    show_default=True,
    help="How the groups of --batch are padded: each for itself, all to the largest, or not.",
)
@click.option(
    "--mode",
    type=click.Choice(["prefill", "decode"]),
    help="Only this mode, where the stack tells them apart; prefill for a --batch.",
)
@click.option("--draft", help="A draft of the file instead of its stack.")
@json_too
@output_style
def explain(what: str, **asked: Any) -> None:
    """Says what a diagnostic CODE means, what runs at a boundary, or where a line comes from.

    Example: boundaryc explain BC204

    Example: boundaryc explain stack.yaml:5.experts --topology tp8_dp4 --batch 4096,1,0,7

    Example: boundaryc explain generated/qwen3/tp8/ordinary.py:87

    Of a boundary: the rows on every axis before and after, what is owed, each operation with its
    group, its bytes and its kernel, in which batches it runs, why, what else could run, and the
    lines of the stack file that decide it. Bytes are what a rank sends for each token of the batch,
    on average.

    Exits 1 for what is wrong in the stack file, 2 for what there is not.
    """
    from boundaryc.report.deployment import AskedError

    try:
        line = _LINE.fullmatch(what)
        if line:
            _explain_line(Path(line["file"]), int(line["line"]))
            return
        place = (_FILE if Path(what).is_file() else _PLACE).fullmatch(what)
        if place and (Path(place["file"]).exists() or re.search(r"[./\\]", place["file"])):
            _explain_boundaries(place, asked)
            return
    except AskedError as problem:
        raise click.UsageError(str(problem)) from None
    _explain_code(what.upper())


def _explain_code(code: str) -> None:
    from boundaryc.language.explain import explain as text
    from boundaryc.language.explain import explanation
    from boundaryc.report.text import columns, filled

    try:
        parts = explanation(code)
    except ValueError as problem:
        raise click.UsageError(str(problem)) from None
    how = style()
    how.result(filled(text(code).rstrip("\n"), columns()))
    how.document(
        "explanation",
        code=parts.code,
        title=parts.title,
        story=parts.story,
        fails=parts.fails,
        works=parts.works,
    )


def _explain_line(path: Path, number: int) -> None:
    from boundaryc.report.origin_line import generated_line
    from boundaryc.report.text import columns, wrapped

    found, how, width = generated_line(path, number), style(), columns()
    how.result(f"{found.file}:{found.line} | {found.text}")
    if found.name:
        text = f"in {found.name}: {found.says}" if found.says else f"in {found.name}"
        how.result("\n".join(wrapped(text, width)))
    for node in found.nodes:
        text = f"{node.file}:{node.line}  {node.path} ({node.effect})"
        how.result("\n".join(wrapped(text, width, "  ")))
        how.result("\n".join(wrapped(node.text, width, "    | ")))
    how.result(f"more: {found.more}")
    how.document("generated_line", **asdict(found))


def _explain_boundaries(place: re.Match[str], asked: dict[str, Any]) -> None:
    from boundaryc.report.deployment import deployed, drafted, listed, policy_of, read_source
    from boundaryc.report.explain import explain as explained
    from boundaryc.report.explain import scope_of
    from boundaryc.report.explain_text import lines
    from boundaryc.report.text import columns

    topology, variant = asked["topology"], asked["variant"]
    source = read_source(Path(place["file"]), (topology,) if topology else ())
    source = drafted(source, asked["draft"])
    policy = policy_of(source.stack, asked["policy"])
    plan = deployed(source, _topology(source, topology), listed(variant))
    batch, load = _batch(plan.topologies[0], asked)
    scope = scope_of(source, plan, policy, variant, asked["mode"], load)
    layer = int(place["layer"]) if place["layer"] else None
    found, how = explained(scope, layer, place["stage"] or None, batch), style()
    how.result("\n".join(lines(found, columns())))
    how.document("explain", **asdict(found))


def _topology(source: Source, asked: str | None) -> str:
    """The name of the topology that was asked for; the only one, if nothing was."""
    from boundaryc.report.deployment import AskedError, named_after

    if asked is not None:
        return named_after(asked) if asked.startswith("{") else asked
    names = [one.name for one in source.stack.topologies]
    if len(names) > 1:
        raise AskedError(f"--topology: which one? {source.stack.name} has {', '.join(names)}")
    return names[0]


def _batch(topology: TopologyPlan, asked: dict[str, Any]) -> tuple[Asked | None, Load | None]:
    """The batch that was asked about."""
    from boundaryc.report.deployment import AskedError, dealt, load_of
    from boundaryc.report.explained import Asked

    if asked["batch"] is None:
        return None, None
    if not re.fullmatch(r"\d{1,7}(,\d{1,7})*", asked["batch"]):
        raise AskedError(f"--batch: {asked['batch']} is not numbers of tokens such as 3,0,5,1")
    tokens = tuple(map(int, asked["batch"].split(",")))
    groups = topology.spec.attn_dp
    rows = dealt(tokens[0], groups) if len(tokens) == 1 else tokens
    mode = asked["mode"] or "prefill"
    load = load_of(topology, asked["variant"], rows, asked["padding"], mode)
    return Asked(rows, asked["padding"], mode, load.variant, load.rows, load.even), load
