"""A stack with a runtime of its own: the same code, published, checked and kept like all of it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import boundaryc
from boundaryc.cli import Exit, main
from boundaryc.emit import vendor
from boundaryc.emit.freshness import State
from boundaryc.emit.vendor import vendored
from tests.emit.compiled import MOE, ROOT, compiled
from tests.report.seeded import BASE

OWN = ROOT / "boundaryc/runtime"


def without_imports(text: str) -> str:
    """A module's code in one form, without what imports something."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for name in ("body", "orelse"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                kept = [one for one in body if not isinstance(one, ast.Import | ast.ImportFrom)]
                setattr(node, name, kept)
    return ast.dump(tree)


def imported(text: str, path: str) -> list[tuple[str, str, str]]:
    """What a module imports, as absolute modules; its own runtime is called as ours."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                package = ["stack", *path.split("/")[:-1]]
                package = package[: len(package) - node.level + 1]
                module = ".".join(filter(None, [*package, module]))
            names = [(module, alias.name, alias.asname or alias.name) for alias in node.names]
            found += [("boundaryc", *name[1:]) if name[:2] == ("stack", "runtime") else
                      (name[0].replace("stack.runtime", "boundaryc.runtime"), *name[1:])
                      for name in names]  # fmt: skip
    return sorted(found)


def test_only_imports_differ() -> None:
    """Of what is generated, and of the runtime; none of them is of ours."""
    plain = compiled(MOE).output
    own = vendored(plain)
    pairs = [
        (name, plain.files[name], text) for name, text in own.files.items() if name in plain.files
    ]
    pairs += [
        (
            f"runtime/{path.name}",
            path.read_text(encoding="utf-8"),
            own.files[f"runtime/{path.name}"],
        )
        for path in OWN.glob("*.py")
    ]

    assert {name for name, _, _ in pairs} == {*own.files}
    assert not list(OWN.glob("*/*.py"))  # only modules are copied
    for name, before, after in pairs:
        if name.endswith(".py"):
            assert without_imports(before) == without_imports(after), name
            assert imported(before, name) == imported(after, name), name
            assert not {"boundaryc"} & {
                (node.module or "").partition(".")[0]
                for node in ast.walk(ast.parse(after))
                if isinstance(node, ast.ImportFrom) and not node.level
            }, name


def test_it_passes_the_linters_of_generated_code(tmp_path: Path) -> None:
    """Imports are where a linter wants them."""
    for name, text in vendored(compiled(MOE).output).files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    settings = ["--config", str(ROOT / "pyproject.toml")]
    for words in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *words, *settings, str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_it_is_published_kept_and_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is published says whether there is a copy, until somebody asks for something else."""
    monkeypatch.chdir(tmp_path)
    source, out = Path("stack.yaml"), Path("generated")
    source.write_text(BASE, encoding="utf-8")
    boundaryc.compile(source, vendor=True)
    copy = out / "tiny/runtime/mesh.py"
    manifest = json.loads((out / "tiny/manifest.json").read_text(encoding="utf-8"))
    assert manifest["regenerate"] == "boundaryc compile stack.yaml --vendor-runtime"
    assert copy.read_text(encoding="utf-8").splitlines()[5:6] == [vendor.LICENSE.rstrip()]
    assert boundaryc.check(source).fresh
    assert boundaryc.check(source, full=True).fresh
    [done] = boundaryc.compile(source).published
    assert done.written == done.removed == ()

    # Another runtime: the copy is stale, though the stack and the compiler are what they were.
    runtime = dict(vendor._sources())
    runtime["mesh.py"] += "\nNEW = 1\n"
    for name in ("_sources", "runtime_texts", "runtime_digest"):
        getattr(vendor, name).cache_clear()
    monkeypatch.setattr(vendor, "_sources", lambda: runtime)
    found = boundaryc.check(source).findings
    assert [(one.state, one.path) for one in found] == [
        (State.STALE, "tiny/runtime/mesh.py"),
        (State.STALE, "tiny/manifest.json"),
    ]
    [done] = boundaryc.compile(source).published
    assert done.written == ("runtime/mesh.py", "manifest.json")

    [done] = boundaryc.compile(source, vendor=False).published
    assert "runtime/mesh.py" in done.removed
    assert not copy.parent.exists()
    assert boundaryc.check(source).fresh
    for name in ("runtime_texts", "runtime_digest"):
        getattr(vendor, name).cache_clear()


def test_it_is_verified_as_all_that_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What runs is the same code; a copy that somebody changed is not."""
    monkeypatch.chdir(tmp_path)
    Path("stack.yaml").write_text(BASE, encoding="utf-8")
    assert main(["compile", "--vendor-runtime", "-q"]) == Exit.OK
    words = ["verify", "stack.yaml", "--topology", "tp2", "--rows", "3"]
    words += ["--policy", "ar", "--cut", "none"]

    assert main(words) == Exit.OK
    copy = Path("generated/tiny/runtime/rowwise.py")
    copy.write_text(f"{copy.read_text(encoding='utf-8')}# mine\n", encoding="utf-8")
    assert main(words) == Exit.UNUSABLE
    assert "runtime/rowwise.py is edited by hand" in " ".join(capsys.readouterr().err.split())
