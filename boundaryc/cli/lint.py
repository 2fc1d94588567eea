"""`boundaryc lint`."""

from __future__ import annotations

from pathlib import Path

import click

from boundaryc.cli import Exit
from boundaryc.cli.options import chosen, json_too, output_style, stack_files
from boundaryc.cli.output import style
from boundaryc.emit.origin import OUT


@click.command("lint")
@stack_files
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The config.json of the model: what it says and the files ignore are findings.",
)
@json_too
@output_style
def lint(files: tuple[Path, ...], config: Path | None) -> int:
    """Reports what is valid in stack files and still worth a second look.

    Example: boundaryc lint models/*/stack.yaml --output-format github

    Without FILES, those from which the folder generated was made, else stack.yaml.
    Exits 1 for a warning or an error; notes only inform.
    """
    from boundaryc.language import BoundarycError, Diagnostic, Severity
    from boundaryc.language.files import read_text
    from boundaryc.language.lint import lint as rules
    from boundaryc.language.lint_config import lint_config
    from boundaryc.language.loader import loads
    from boundaryc.scaffold.config import read_config

    said = read_config(config) if config else None
    found: list[Diagnostic] = []
    texts: dict[str, str] = {said.source: said.text} if said else {}
    sources = chosen(files, Path(OUT))
    for file in sources:
        try:
            text = read_text(file)
            stack = loads(text, str(file))
        except BoundarycError as problem:
            found += problem.diagnostics
            texts |= problem.sources
        else:
            texts[stack.source] = text
            found += rules(stack, text)
            if said is not None:
                found += lint_config(stack, said.values, said.places)
    how = style()
    if how.quiet:
        found = [item for item in found if item.severity is not Severity.NOTE]
    how.diagnostics(found, texts, result=True)
    counts = [sum(item.severity is severity for item in found) for severity in Severity]
    words = [f"{count} {severity.value}s" for count, severity in zip(counts, Severity, strict=True)]
    how.say(f"{len(sources)} files: {', '.join(words)}")
    worth = any(item.severity is not Severity.NOTE for item in found)
    return Exit.FINDINGS if worth else Exit.OK
