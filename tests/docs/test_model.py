"""The model of docs/model.md runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli.process import ROOT, command

PAGE = ROOT / "docs/model.md"


def _block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    assert found is not None
    return found.group(1)


def test_the_model_runs_on_one_rank(tmp_path: Path) -> None:
    (tmp_path / "stack.yaml").write_text(_block("yaml"), encoding="utf-8")
    (tmp_path / "model.py").write_text(_block("python"), encoding="utf-8")

    compiled = command("-m", "boundaryc", "compile", "stack.yaml", folder=tmp_path)
    assert compiled.returncode == 0, compiled.stderr
    ran = command("model.py", folder=tmp_path)

    assert (ran.returncode, ran.stdout) == (0, "[8, 32]\n"), ran.stderr


def test_every_fact_of_a_batch_is_explained() -> None:
    from inspect import signature

    from boundaryc.runtime import Stack

    section = PAGE.read_text("utf-8").partition("\n## The batch\n")[2].partition("\n## ")[0]
    facts = [name for name in signature(Stack.batch).parameters if name != "self"]

    assert len(facts) == 7
    assert [name for name in facts if f"| `{name}` |" not in section] == []
