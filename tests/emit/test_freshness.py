"""The freshness check: four findings, one failure, and nothing that fools it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import boundaryc
from boundaryc.emit.freshness import Report, State
from tests.emit.compiled import MOE


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A published stack; returns its source."""
    path = tmp_path / "models/stack.yaml"
    path.parent.mkdir()
    shutil.copyfile(MOE, path)
    boundaryc.compile(path, out=tmp_path / "generated")
    return path


def check(source: Path) -> Report:
    """The report on a source's output."""
    return boundaryc.check(source, out=source.parents[1] / "generated")


def published(source: Path, name: str) -> Path:
    """A file of the output."""
    return source.parents[1] / "generated/qwen3_moe" / name


def found(source: Path) -> list[tuple[State, str]]:
    """State and path of every finding."""
    return [(finding.state, finding.path) for finding in check(source).findings]


def test_fresh(source: Path) -> None:
    """Nothing to report, and everything was compared."""
    report = check(source)

    assert report.fresh
    assert report.compared == len(list((source.parents[1] / "generated").rglob("*.*")))


def test_stale(source: Path) -> None:
    """The source changed and the output did not follow."""
    text = source.read_text(encoding="utf-8")
    source.write_text(text.replace("eps: 1.0e-6", "eps: 1.0e-5"), encoding="utf-8")
    states = {path: state for state, path in found(source)}

    assert states["qwen3_moe/rowwise.py"] is State.STALE
    assert set(states.values()) == {State.STALE}
    diff = next(f for f in check(source).findings if f.path.endswith("rowwise.py")).diff
    assert "-EPS = 1e-06" in diff
    assert "+EPS = 1e-05" in diff


@pytest.mark.parametrize("name", ["layers.py", "tp4/ordinary.py", "tp4/plan.json"])
def test_edited(source: Path, name: str) -> None:
    """Somebody changed a file by hand."""
    path = published(source, name)
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")

    assert found(source) == [(State.EDITED, f"qwen3_moe/{name}")]


def test_an_edit_with_a_forged_manifest(source: Path) -> None:
    """The file's own header still tells."""
    path = published(source, "layers.py")
    path.write_text(path.read_text(encoding="utf-8").replace("slots=True", "slots=False"))
    published(source, "manifest.json").unlink()

    assert (State.EDITED, "qwen3_moe/layers.py") in found(source)


def test_missing(source: Path) -> None:
    """A file is gone; so is the whole output."""
    published(source, "tp4/ordinary.py").unlink()
    assert found(source) == [(State.MISSING, "qwen3_moe/tp4/ordinary.py")]

    shutil.rmtree(source.parents[1] / "generated")
    assert {state for state, _ in found(source)} == {State.MISSING}


def test_orphaned(source: Path) -> None:
    """A topology was removed from the source and its files are still there."""
    text = source.read_text(encoding="utf-8")
    source.write_text(text.replace("  tp2: {tp: 2}\n", ""), encoding="utf-8")

    orphans = [path for state, path in found(source) if state is State.ORPHANED]
    assert "qwen3_moe/tp2/layout.py" in orphans
    assert "qwen3_moe/tp2/plan.json" in orphans
    boundaryc.compile(source, out=source.parents[1] / "generated")
    assert found(source) == []
    assert not published(source, "tp2").exists()


def test_files_of_others_are_none_of_its_business(source: Path) -> None:
    """Only what carries our mark can be orphaned."""
    published(source, "notes.md").write_text("mine")

    assert check(source).fresh


def test_a_stack_that_was_renamed(source: Path) -> None:
    """The old folder is an orphan, and compiling removes it."""
    text = source.read_text(encoding="utf-8")
    source.write_text(text.replace("stack: qwen3_moe", "stack: renamed"), encoding="utf-8")
    assert (State.ORPHANED, "qwen3_moe/layers.py") in found(source)

    boundaryc.compile(source, out=source.parents[1] / "generated")

    assert check(source).fresh
    assert not published(source, "layers.py").exists()


def test_a_stack_whose_source_is_gone(source: Path) -> None:
    """It shows when another stack is checked."""
    other = source.with_name("other.yaml")
    text = source.read_text(encoding="utf-8").replace("stack: qwen3_moe", "stack: other")
    other.write_text(text, encoding="utf-8")
    boundaryc.compile(other, out=source.parents[1] / "generated")
    assert check(other).fresh
    source.unlink()

    report = check(other)

    assert {finding.state for finding in report.findings} == {State.ORPHANED}
    assert all(finding.by_hand for finding in report.findings)


def test_nothing_compared_is_a_failure(tmp_path: Path) -> None:
    """An empty comparison proves nothing."""
    report = boundaryc.check(out=tmp_path)

    assert report.compared == 0
    assert not report.fresh
