"""`boundaryc init`."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from boundaryc.cli import Exit
from boundaryc.cli.options import json_too, output_style
from boundaryc.cli.output import Style, style

if TYPE_CHECKING:
    from boundaryc.scaffold.config import Config
    from boundaryc.scaffold.start import Started
    from boundaryc.scaffold.written import Written

ATTRIBUTES = "generated/** text eol=lf linguist-generated=true"
"""Line ends that hashes hold for on every system, and diffs that a review folds."""


@click.command("init")
@click.option(
    "--from-config",
    "config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The config.json of a Hugging Face model. Without it a small dense stack is written.",
)
@click.option(
    "--topology",
    "topologies",
    multiple=True,
    metavar="tp8-attn_dp4-ep8",
    help="Ranks to compile for; repeatable. Without it eight, with the same and with own tokens.",
)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="ordinary",
    help="A batch variant; repeatable. Without it those that the topologies give a meaning.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("stack.yaml"),
    show_default=True,
    help="The file to write.",
)
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
@json_too
@output_style
def init(
    config: Path | None,
    topologies: tuple[str, ...],
    variants: tuple[str, ...],
    output: Path,
    force: bool,
) -> int:
    """Writes a stack file to begin with, commented, and says what comes next.

    Example: boundaryc init --from-config config.json --topology tp8 --topology tp8-attn_dp4

    Exits 1 where something is left to you: a model of no known family, what its config says and
    the file cannot, or a config that is wrong. Exits 2 where the file is there already, or the
    config is not.
    """
    from boundaryc.language.files import check_name
    from boundaryc.scaffold.config import read_config
    from boundaryc.scaffold.ranks import RanksError
    from boundaryc.scaffold.start import MisfitError, started
    from boundaryc.scaffold.written import written

    check_name(str(output))
    said = read_config(config) if config else None
    try:
        found = started(said, topologies, variants, str(output))
    except (RanksError, MisfitError) as problem:
        raise click.UsageError(str(problem)) from None
    _write(output, found.text, force)
    result = written(found, output)
    how = style()
    _told(how, found, result, said)
    how.document("init", **asdict(result))
    return Exit.FINDINGS if found.findings else Exit.OK


def _write(path: Path, text: str, force: bool) -> None:
    try:
        with path.open("w" if force else "x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        message = f"{path} is there already; name another file with -o, or replace it with --force"
        raise click.UsageError(message) from None


def _told(how: Style, found: Started, result: Written, config: Config | None) -> None:
    """What people are told on standard error, findings in the format that was asked for."""
    texts = {result.file: found.text}
    if config is not None:
        texts[config.source] = config.text
    if not how.json and found.findings:
        how.diagnostics(found.findings, texts)
    kind = result.family or ("a skeleton" if config else "a dense decoder")
    layers = len(found.stack.layers)
    how.say(f"wrote {result.file}: {kind}, {layers} layers, for {', '.join(result.topologies)}")
    for command in result.next:
        how.say(f"next: {command}")
    how.say(f"for editors: {result.schema}")
    how.say(f"for git: echo {shlex.quote(ATTRIBUTES)} >> .gitattributes")
