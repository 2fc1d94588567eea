"""What is installed is what the repository holds, and what is compiled runs without it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email import message_from_string
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent

STACK = """\
boundaryc: 1
stack: pebble
hidden_size: 32
norm: {kind: rms, eps: 1.0e-6}
stages: {attention: {kind: attention}, mlp: {kind: ffn}}
layers: {count: 3, default: [attention, mlp]}
topologies: {tp2: {tp: 2}}
"""

USE = """\
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import boundaryc
from boundaryc.cli import main
assert Path(boundaryc.__file__).is_relative_to(sys.argv[1])
for words in (
    ["init", "-o", "new.yaml"],
    ["schema", "stack"],
    ["compile", "-q", "stack.yaml", "--vendor-runtime"],
    ["check", "stack.yaml", "--full"],
):
    assert main(words) == 0, words
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return zipfile.ZipFile(found)


@pytest.fixture(scope="module")
def installed(wheel: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs."""
    folder = tmp_path_factory.mktemp("installed")
    wheel.extractall(folder)
    return folder


def test_the_wheel_carries_templates_and_schemas(wheel: zipfile.ZipFile) -> None:
    """They are top-level folders here and inside the package there."""
    names = set(wheel.namelist())
    expected = {
        f"boundaryc/_{folder}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder in ("templates", "schemas")
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
    }

    assert expected
    assert expected <= names
    assert not {name for name in names if not name.startswith("boundaryc")}


def test_the_wheel_says_what_it_needs(wheel: zipfile.ZipFile) -> None:
    """Its command, and an extra for everything that not everybody wants."""
    (metadata,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    said = message_from_string(wheel.read(metadata).decode())
    extras = {"demo", "dev", "kernels", "verify", "watch"}
    assert {*said.get_all("Provides-Extra", [])} == extras
    for name in extras:
        needs = [Requirement(one) for one in said.get_all("Requires-Dist", [])]
        own = [one for one in needs if one.marker and one.marker.evaluate({"extra": name})]
        assert own, name
    entry = metadata.replace("METADATA", "entry_points.txt")
    assert "boundaryc = boundaryc.cli:script" in wheel.read(entry).decode()


@pytest.fixture(scope="module")
def used(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a user has worked with what is installed, from the first file to a check."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "stack.yaml").write_text(STACK, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", USE, str(installed)],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "files compared: all fresh" in done.stderr
    return folder


def test_what_is_installed_compiles(used: Path) -> None:
    """With its own templates and schemas, the runtime beside the code and no import of ours."""
    texts = [path.read_text(encoding="utf-8") for path in (used / "generated").rglob("*.py")]
    assert len(texts) > 40
    assert not [text for text in texts if "from boundaryc" in text or "import boundaryc" in text]


def test_vendored_code_needs_only_torch(used: Path, installed: Path, tmp_path: Path) -> None:
    """Two ranks over gloo, compared with one; then the installed runtime with no more."""
    for name, path in dict(_only("torch")).items():
        (tmp_path / name).symlink_to(path)
    done = subprocess.run(
        [
            *(sys.executable, "-I", "-S", str(ROOT / "tests/vendored_program.py")),
            *(str(tmp_path), str(used), str(installed)),
        ],
        cwd=used,
        env={"OMP_NUM_THREADS": "1", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines()
    packages = said[0].removeprefix("installed: ").split()
    assert "torch" in packages
    assert not {"boundaryc", "numpy", "pydantic", "triton"} & {*packages}
    assert {line.partition(":")[0] for line in said[1:3]} == {"rank 0", "rank 1"}
    assert said[3] == "imported: boundaryc/runtime/__init__.py"


def _only(name: str, seen: frozenset[str] = frozenset()) -> Iterator[tuple[str, Path]]:
    """What a distribution and those that it needs install, by name in the folder they are in.

    But for triton, which builds of torch for GPUs need and which runs nothing here.
    """
    found = distribution(name)
    yield from _top(found)
    for one in map(Requirement, found.requires or ()):
        wanted = one.marker is None or one.marker.evaluate({"extra": ""})
        if wanted and one.name != "triton" and one.name not in seen:
            yield from _only(one.name, seen | {name})


def _top(found: Distribution) -> Iterator[tuple[str, Path]]:
    """The files and folders of a distribution in site-packages."""
    for part in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
        path = Path(str(found.locate_file(part)))
        if path.exists():
            yield part, path
