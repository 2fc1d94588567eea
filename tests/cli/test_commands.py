"""What holds for every command: help, exit codes, JSON, narrow terminals, pipes, no colours.

A command that is added without an entry of `CALLS` fails here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import click
import pytest

from boundaryc.cli import Exit, main
from boundaryc.cli.run import COMMANDS, boundaryc
from boundaryc.language.json_schema import SCHEMAS, schema_text
from boundaryc.report.schemas import RESULTS, result_schema
from tests.cli.process import ROOT
from tests.language.json_check import problems
from tests.report.seeded import BASE

NARROW = 40
"""Characters of a line of a narrow terminal."""

ESCAPE = "\x1b"


class Call(NamedTuple):
    """A command line that works, and the kind of its document: its schema's name.

    ``mistake`` is one that cannot be run as asked. ``document`` is None where what is printed is a
    schema itself.
    """

    words: tuple[str, ...]
    document: str | None
    mistake: tuple[str, ...] = ("--no-such-option",)


CALLS: Mapping[str, Call] = MappingProxyType(
    {
        "check": Call(("stack.yaml",), "check", ("nothing.yaml",)),
        "compile": Call(("stack.yaml", "--dry-run"), "compile", ("nothing.yaml",)),
        "completion": Call(("bash",), "completion", ("csh",)),
        "cost": Call(("stack.yaml", "--tokens", "64"), "cost", ("stack.yaml", "--policy", "x")),
        "diff": Call(("stack.yaml", "other.yaml", "--no-code"), "diff", ("stack.yaml", "nowhere")),
        "env": Call((), "env"),
        "explain": Call(("stack.yaml:1.mlp", "--topology", "tp2"), "explain", ("BC999",)),
        "graph": Call(
            ("stack.yaml", "--topology", "tp2"), "graph", ("stack.yaml", "--select", "x")
        ),
        "init": Call(("-o", "new.yaml", "--force"), "init", ("--from-config", "nothing.json")),
        "lint": Call(("stack.yaml",), "diagnostics", ("nothing.yaml",)),
        "report": Call(
            ("stack.yaml", "--topology", "tp2", "--tokens", "64"),
            "report",
            ("stack.yaml", "--topology", "x"),
        ),
        "schema": Call(("cost",), None, ("nothing",)),
        "trace": Call(("compare", "traces"), "trace", ("compare", "none")),
        "verify": Call(
            ("stack.yaml", "--topology", "tp2", "--rows", "3", "--policy", "ar", "--cut", "none"),
            "verify",
            ("stack.yaml", "--topology", "x"),
        ),
    }
)

MACHINE = ("completion", "schema")
"""Commands whose output is for programs alone: no width changes it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a user works: two stacks, one of them compiled, and the trace of a run."""
    folder = tmp_path_factory.mktemp("user")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("stack.yaml").write_text(BASE, encoding="utf-8")
        Path("other.yaml").write_text(BASE.replace("  tp2: {tp: 2}\n", ""), encoding="utf-8")
        Path("traces").mkdir()
        about = {"trace": 1, "rank": 0, "world_rank": 0, "policy": "ar"}
        Path("traces/0.jsonl").write_text(json.dumps(about) + "\n", encoding="utf-8")
        assert main(["compile", "stack.yaml", "--quiet"]) == Exit.OK
    return folder


@pytest.fixture(autouse=True)
def _there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", str(NARROW))
    monkeypatch.setenv("NO_COLOR", "1")


def leaves(name: str) -> Iterator[tuple[list[str], click.Command]]:
    """A command, and where it is a group those below it, by the words that lead there."""
    found = boundaryc.get_command(click.Context(boundaryc), name)
    assert found is not None
    yield [name], found
    for inner, below in getattr(found, "commands", {}).items():
        yield [name, inner], below


def test_every_command_is_here() -> None:
    """And has a section of the manual."""
    assert set(CALLS) == set(COMMANDS)
    manual = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    sections = [one for one in re.findall(r"^## (\w+)$", manual, re.M) if one in COMMANDS]
    assert sorted(sections) == sorted(COMMANDS)


def test_exit_codes_are_documented() -> None:
    """The table of the manual is the enumeration, and the group's help has them too."""
    manual = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| (\d+) \| `(\w+)` \|", manual, re.M))
    assert table == {str(code.value): code.name for code in Exit}
    said = " ".join((boundaryc.help or "").split())
    assert all(f"{code.value} " in said.partition("Exit codes:")[2] for code in Exit)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An example that is a command line of ours, how it ends, and every option explained."""
    for words, found in leaves(name):
        assert main([*words, "--help"]) == Exit.OK
        said = " ".join(capsys.readouterr().out.split())
        assert f"Example: boundaryc {' '.join(words)}" in said
        assert re.search(r"\bExits ", said)
        for option in found.params:
            assert not isinstance(option, click.Option) or option.help, option.name


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_json(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One document that its published schema holds for, also where the command cannot be run."""
    call = CALLS[name]
    if call.document is None:
        assert main([name, *call.words]) == Exit.OK
        assert json.loads(capsys.readouterr().out)["$schema"]
        return
    assert main([name, *call.words, "--json"]) == Exit.OK
    assert list(wrong(capsys.readouterr().out, call.document)) == []
    assert main([name, *call.mistake, "--json"]) == Exit.UNUSABLE
    assert list(wrong(capsys.readouterr().out, "error")) == []


def wrong(text: str, kind: str) -> Iterator[str]:
    """What a document has that its schema does not allow."""
    document: Any = json.loads(text)
    assert document["kind"] == kind
    schema = result_schema(kind) if kind in RESULTS else json.loads(schema_text(kind))
    assert kind in (*RESULTS, *SCHEMAS)
    yield from problems(document, schema, schema)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_narrow_terminal(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines are cut where words end; only a word may be longer."""
    call = CALLS[name]
    main([name, *call.words])
    shown = capsys.readouterr()
    assert ESCAPE not in shown.out + shown.err
    if name not in MACHINE:
        long = [line for line in shown.out.splitlines() if len(line) > NARROW]
        assert all(len(line.split()) <= 2 for line in long), long
    for words, _ in leaves(name):
        assert main([*words, "--help"]) == Exit.OK
        assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_mistakes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Are told on standard error alone, with the code for what cannot be run."""
    assert main([name, *CALLS[name].mistake]) == Exit.UNUSABLE
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err


def test_a_pipe_that_is_closed(folder: Path) -> None:
    """Ends no command with a traceback: all of them in one process, into `true`."""
    words = [[name, *call.words] for name, call in CALLS.items()]
    program = f"from boundaryc.cli import main\nfor words in {words!r}:\n    main(words)\n"
    (folder / "all.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        ["bash", "-c", '"$0" all.py | true; exit "${PIPESTATUS[0]}"', sys.executable],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 0
