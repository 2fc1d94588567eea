"""What a shell may complete where click cannot tell from the type of an argument."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Files, for an argument that may be one and is not only that."""
    return [CompletionItem(incomplete, type="file")]


def codes_and_files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Codes of diagnostics where one is begun, else files."""
    from boundaryc.language.codes import CODES

    begun = incomplete.upper()
    found = [CompletionItem(code) for code in CODES if begun and code.startswith(begun)]
    return found or files(context, parameter, incomplete)
