"""The freshness check: four findings, one failure, and nothing that fools it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import boundaryc
from boundaryc.emit import build as building
from boundaryc.emit import fingerprint as fingerprints
from boundaryc.emit.files import digest
from boundaryc.emit.freshness import Finding, Report, State
from boundaryc.emit.manifest import by_another_compiler, sealed
from boundaryc.emit.reuse import Library
from tests.emit.compiled import MOE, ROOT

UNNEEDED = {"torch", "networkx", "jinja2", "rich", "boundaryc.plan", "boundaryc.emit.build"}
"""What nothing of is imported where nothing has to be rendered."""


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


def test_a_copy_with_our_header(source: Path) -> None:
    """Is an orphan that somebody must look at, also where nothing else has changed."""
    text = published(source, "layers.py").read_text(encoding="utf-8")
    published(source, "copy.py").write_text(text, encoding="utf-8")

    (finding,) = check(source).findings

    assert finding == Finding(State.ORPHANED, "qwen3_moe/copy.py", by_hand=True)


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


def rendered(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The sources that are rendered from now on."""
    found: list[Path] = []
    build = building.build

    def watched(path: Path, out: Path, library: Library) -> tuple[building.Build, ...]:
        found.append(path)
        return build(path, out, library)

    monkeypatch.setattr(building, "build", watched)
    return found


def test_nothing_is_rendered_without_need(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comments, line ends and the order of keys are no need; the meaning is, and so is ``full``."""
    found = rendered(monkeypatch)
    text = source.read_text(encoding="utf-8")
    source.write_bytes(f"# new\n{text}".replace("\n", "\r\n").encode())
    assert check(source).fresh
    assert found == []

    assert boundaryc.check(source, out=source.parents[1] / "generated", full=True).fresh
    assert found == [source]

    source.write_text(text.replace("eps: 1.0e-6", "eps: 1.0e-5"), encoding="utf-8")
    assert not check(source).fresh
    assert found == [source] * 2


def test_nothing_is_compiled_without_need(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for publishing, which says the same of a stack that it leaves alone."""
    out = source.parents[1] / "generated"
    whole = boundaryc.compile(source, out=out, full=True)
    found = rendered(monkeypatch)
    assert boundaryc.compile(source, out=out) == whole
    assert found == []
    assert whole.published[0].unchanged
    assert whole.notes

    published(source, "layers.py").unlink()
    (done,) = boundaryc.compile(source, out=out).published
    assert done.written == ("layers.py",)
    assert boundaryc.compile(source, out=out, full=True) == whole
    assert found == [source] * 2


@pytest.mark.parametrize("name", ["layers.py", "tp4/plan.json", "manifest.json"])
def test_a_file_that_differs_is_rendered_again(
    source: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is not only found: the diff needs what should be there."""
    found = rendered(monkeypatch)
    path = published(source, name)
    path.write_text(path.read_text(encoding="utf-8") + " ", encoding="utf-8")

    (finding,) = check(source).findings

    assert finding.path == f"qwen3_moe/{name}"
    assert finding.diff
    assert found == [source]


def test_another_compiler(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Renders again; the same files made by another compiler are fresh."""
    found = rendered(monkeypatch)
    monkeypatch.setattr("boundaryc.emit.manifest.fingerprint", lambda: "f" * 64)

    assert check(source).fresh
    assert found == [source]


def test_a_manifest_put_together_from_two(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a merge would: hashes that fit the files, under a compiler that did not write them."""
    path, manifest = published(source, "layers.py"), published(source, "manifest.json")
    said = json.loads(manifest.read_text(encoding="utf-8"))
    text = path.read_text(encoding="utf-8") + "\n"
    path.write_text(text, encoding="utf-8")
    said["files"]["layers.py"] = f"sha256:{digest(text)}"
    manifest.write_text(json.dumps(said, indent=2, sort_keys=True) + "\n", encoding="utf-8")

    assert (State.EDITED, "qwen3_moe/layers.py") in found(source)

    manifest.write_text(sealed(said), encoding="utf-8")  # only on purpose
    assert check(source).fresh
    assert not boundaryc.check(source, out=source.parents[1] / "generated", full=True).fresh


def test_nothing_heavy_is_imported_without_need(source: Path) -> None:
    """In a process of its own; from anywhere; without git."""
    program = (
        "import json, sys; from boundaryc.cli import main; "
        "code = main(['check', *sys.argv[1:]]); print(json.dumps(sorted(sys.modules)))"
    )
    generated = str(source.parents[1] / "generated")

    def modules(*words: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-c", program, str(source), "--out", generated, *words],
            cwd="/",
            env={"PYTHONPATH": str(ROOT), "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "all fresh" in done.stderr
        return set(json.loads(done.stdout))

    assert modules() & UNNEEDED == set()
    assert modules("--full") & UNNEEDED >= {"jinja2", "boundaryc.plan"}


def test_what_decides_the_output_is_in_the_fingerprint() -> None:
    """Whatever a compilation imports of us is, but for what only shows or compares."""
    program = (
        "import sys; from pathlib import Path; from boundaryc.emit.build import build; "
        "build(Path(sys.argv[1]), Path('generated')); "
        "print(*(getattr(m, '__file__', '') for n, m in sys.modules.items() if 'boundaryc' in n))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(MOE)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    package = ROOT / "boundaryc"
    used = {Path(name).relative_to(package).as_posix() for name in done.stdout.split()}
    hashed = {name for name, _ in fingerprints.inputs(package, ROOT / "templates")}

    assert {name for name in used - hashed if "/renderers/" not in name} == {"__init__.py"}
    assert {f"templates/{path.name}" for path in (ROOT / "templates").glob("*.jinja")} <= hashed


def test_the_fingerprint(tmp_path: Path) -> None:
    """Changes with sources and templates, not with line ends, nor with what has no say."""
    package, templates = tmp_path / "boundaryc", tmp_path / "templates"
    for path in ("boundaryc/plan/a.py", "boundaryc/language/lint.py", "templates/t.jinja"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x\n")
    first = fingerprints.hashed(package, templates)

    (package / "plan/a.py").write_bytes(b"x\r\n")
    (package / "language/lint.py").write_text("y\n")
    assert fingerprints.hashed(package, templates) == first
    (templates / "t.jinja").write_text("y\n")
    second = fingerprints.hashed(package, templates)
    (package / "plan/a.py").write_text("y\n")
    assert len({first, second, fingerprints.hashed(package, templates)}) == 3
    (package / "plan/a.py").rename(package / "plan/b.py")
    assert fingerprints.hashed(package, templates) != second


def test_a_linked_output_folder(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its source is found by names, wherever the link leads."""
    generated = source.parents[1] / "generated"
    real = source.parents[1] / "far/away"
    real.parent.mkdir()
    generated.rename(real)
    generated.symlink_to(real)

    from boundaryc.api import sources

    assert sources(generated) == [source]
    assert check(source).fresh
    monkeypatch.chdir(source.parent)
    assert boundaryc.check("stack.yaml", out="../generated").fresh


def test_files_of_a_publisher_that_was_killed(source: Path) -> None:
    """What it left beside the stacks is no stack."""
    generated = source.parents[1] / "generated"
    shutil.copytree(generated / "qwen3_moe", generated / ".qwen3_moe.boundaryc-old")

    assert check(source).fresh
    boundaryc.compile(source, out=generated)
    assert [path.name for path in generated.iterdir()] == ["qwen3_moe"]


def test_another_compiler_with_the_same_output_is_no_finding() -> None:
    """Only the compiler's own lines may differ, in a manifest that nobody changed."""
    document = {"boundaryc": "1", "compiler": "sha256:a", "files": {"x": "sha256:1"}, "stack": "s"}
    expected = sealed(document | {"compiler": "sha256:b"})

    assert by_another_compiler(sealed(document), expected)
    assert not by_another_compiler(sealed(document | {"files": {"x": "sha256:2"}}), expected)
    assert not by_another_compiler(sealed(document).replace('"1"', '"2"'), expected)
    assert not by_another_compiler("", expected)
