"""The same bytes under all conditions that have no meaning."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.emit.compiled import MOE, ROOT, compiled
from tests.emit.soak import contents

QWEN3 = ROOT / "examples/qwen3/stack.yaml"
NAMES = ("qwen3", "qwen3_moe")

COMPILE = "import sys; from boundaryc.cli import main; sys.exit(main(sys.argv[1:]))"
REVERSED = """
import contextlib, os
scan, names = os.scandir, os.listdir
class Reversed(contextlib.ExitStack):
    def __init__(self, *path):
        super().__init__()
        self.entries = iter(sorted(scan(*path), key=lambda entry: entry.name, reverse=True))
    def __iter__(self):
        return self
    def __next__(self):
        return next(self.entries)
os.scandir = Reversed
os.listdir = lambda *path: sorted(names(*path), reverse=True)
"""
"""What the file system lists comes in the opposite order."""


def same(text: str) -> str:
    """As it is."""
    return text


def other_order(text: str) -> str:
    """The keys at the top, and those of all mappings that are written a key a line, backwards."""
    blocks = [block for block in re.split(r"^(?=\w)", text, flags=re.M) if block[:1].isalpha()]
    return "".join(map(_backwards, reversed(blocks)))


def _backwards(block: str) -> str:
    head, *lines = [line for line in block.splitlines() if not line.lstrip().startswith("#")]
    rows = [line for line in lines if line.strip()]
    if head.endswith(":") and all(re.match(r"  \w+: ", row) for row in rows):
        rows.reverse()
    return "\n".join([head, *rows]) + "\n"


def comments(text: str) -> str:
    """Another one above each line at the top, and empty lines."""
    return re.sub(r"^(?=\w)", "\n# a comment\n\n", text, flags=re.M)


def windows(text: str) -> str:
    """Line ends and the byte order mark of an editor on Windows."""
    return "\ufeff" + text.replace("\n", "\r\n")


@dataclass(frozen=True)
class Condition:
    """How a compilation is run, without a meaning for what it writes."""

    name: str
    environment: dict[str, str] = field(default_factory=dict)
    text: Callable[[str], str] = same
    before: str = "pass"
    umask: int = 0o022
    folder: str = "."
    jobs: int = 1
    reverse: bool = False


CONDITIONS = (
    Condition("plain"),
    Condition("hash seed", {"PYTHONHASHSEED": "4711"}),
    Condition("time zone", {"TZ": "Asia/Kathmandu"}),
    Condition("locale", {"LC_ALL": "tr_TR.ISO-8859-9", "PYTHONUTF8": "0", "LANG": "tr_TR"}),
    Condition("ASCII", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    Condition("umask and folder", umask=0o077, folder="elsewhere/deep"),
    Condition("jobs", jobs=2, environment={"PYTHONHASHSEED": "1"}),
    Condition("order of keys", text=other_order, reverse=True),
    Condition("line ends", text=windows),
    Condition("comments", text=comments),
    Condition("listing order", before=REVERSED),
    Condition("optimised", {"PYTHONOPTIMIZE": "2"}),
)


def compile_under(condition: Condition, root: Path) -> dict[str, bytes]:
    """Compiles both examples in copies below ``root``; what is published."""
    sources = []
    for name in NAMES:
        source = root / f"examples/{name}/stack.yaml"
        source.parent.mkdir(parents=True)
        text = (ROOT / f"examples/{name}/stack.yaml").read_text(encoding="utf-8")
        source.write_bytes(condition.text(text).encode())
        sources.append(source)
    folder = root / condition.folder
    folder.mkdir(parents=True, exist_ok=True)
    out = root / "generated"
    words = [*sources[:: -1 if condition.reverse else 1], "--out", out, "--jobs", condition.jobs]
    done = subprocess.run(
        [sys.executable, "-c", f"{condition.before}\n{COMPILE}", "compile", *map(str, words)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **condition.environment},
        umask=condition.umask,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return contents(out)


def test_the_examples_are_what_is_compared() -> None:
    """Other texts are other texts, and mean the same to a reader."""
    text = MOE.read_text(encoding="utf-8")
    for change in (other_order, comments, windows):
        assert change(text) != text
    assert sorted(re.findall(r"\w+:", other_order(text))) == sorted(
        re.findall(r"\w+:", re.sub(r"#.*", "", text))
    )


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda condition: condition.name)
def test_the_same_bytes(tmp_path: Path, condition: Condition) -> None:
    """Headers and manifests too."""
    expected = {
        f"{name}/{file}": text.encode()
        for name, source in zip(NAMES, (QWEN3, MOE), strict=True)
        for file, text in compiled(source).output.files.items()
    }

    found = compile_under(condition, tmp_path / "root")

    assert found.keys() == expected.keys()
    assert [name for name, data in found.items() if data != expected[name]] == []
