"""`boundaryc completion`: scripts for three shells, and what they are told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from boundaryc.cli import Exit, main
from boundaryc.cli.completion import SHELLS, VARIABLE
from boundaryc.cli.run import COMMANDS, boundaryc
from tests.cli.process import ROOT


def completed(*words: str) -> list[tuple[str, str]]:
    """What is offered for the last word: kinds and values."""
    shell = BashComplete(boundaryc, {}, "boundaryc", VARIABLE)
    found = shell.get_completions(list(words[:-1]), words[-1])
    return [(item.type, str(item.value)) for item in found]


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Name us and the variable with which they ask us; bash understands its own."""
    assert main(["completion", shell]) == Exit.OK

    script = capsys.readouterr().out
    assert f"{VARIABLE}={shell}_complete" in script
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_what_is_offered() -> None:
    """Commands, options, their values, codes, and files where there may be one."""
    assert [value for _, value in completed("")] == sorted(COMMANDS)
    assert ("plain", "--breaking") in completed("diff", "--b")
    assert completed("graph", "x.yaml", "--format", "s") == [("plain", "svg")]
    assert completed("trace", "c") == [("plain", "compare")]
    assert completed("explain", "bc204") == [("plain", "BC204")]
    assert completed("explain", "stack") == [("file", "stack")]
    assert completed("diff", "ol") == [("file", "ol")]


def test_a_shell_that_asks(tmp_path: Path) -> None:
    """Is answered by the program itself."""
    done = subprocess.run(
        [sys.executable, "-m", "boundaryc"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            VARIABLE: "bash_complete",
            "COMP_WORDS": "boundaryc gr",
            "COMP_CWORD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "plain,graph\n"
