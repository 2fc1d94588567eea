"""A tiny stack, as small as one can be published."""

from __future__ import annotations

from pathlib import Path

from boundaryc.emit.files import Origin, digest, with_header
from boundaryc.emit.manifest import sealed
from boundaryc.emit.output import Output

ORIGIN = Origin("stack.yaml", "boundaryc compile stack.yaml", "0" * 64)


def output(**modules: str) -> Output:
    """A tiny output: modules by name, with headers and a manifest."""
    files = {f"{name}.py": with_header(ORIGIN, text) for name, text in modules.items()}
    files["plan.json"] = '{"stack": "tiny"}\n'
    hashes = {name: f"sha256:{digest(text)}" for name, text in files.items()}
    files["manifest.json"] = sealed({"boundaryc": "0", "stack": "tiny", "files": hashes})
    return Output("tiny", ORIGIN, files)


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


OLD, NEW = {"a": "A = 1\n", "b": ""}, {"a": "A = 2\n", "c": ""}


def tree(files: Output | None) -> dict[str, str]:
    """What the folder of the tiny stack holds with ``files`` published."""
    return {f"tiny/{name}": text for name, text in files.files.items()} if files else {}
