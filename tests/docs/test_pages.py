"""The index has every page; the design and the engine's guide name what there is."""

from __future__ import annotations

import re
from inspect import signature

import pytest

from boundaryc import runtime
from tests.docs.pages import DOCS, MADE, ROOT, links, rows

DESIGN = (DOCS / "design.md").read_text("utf-8")
ENGINES = (DOCS / "engines.md").read_text("utf-8")
PATH = re.compile(r"`((?:boundaryc|tests|templates|benchmarks|examples|docs)/[^`<> ]*)`")


def test_the_index_has_every_page() -> None:
    named = {path for path, _ in links(DOCS / "index.md") if "/" not in path}
    made = {page.removeprefix("docs/") for page in MADE}

    assert named | {"index.md"} == {page.name for page in DOCS.glob("*.md")} | made


@pytest.mark.parametrize("page", ["design.md", "engines.md", "features.md", "language.md"])
def test_paths_exist(page: str) -> None:
    text = (DOCS / page).read_text("utf-8")
    for path in PATH.findall(text):
        assert (ROOT / path.partition("::")[0]).exists(), path


def test_the_module_map_is_that_of_the_package() -> None:
    """Every part of boundaryc has a row, and every module that a row names is in that part."""
    section = DESIGN.partition("\n## Module map\n")[2].partition("\n## ")[0]
    parts = {row[0].strip("`"): row[1] for row in rows(section)}
    folders = [path.parent for path in (ROOT / "boundaryc").glob("*/__init__.py")]

    assert set(parts) == {f"boundaryc/{folder.name}" for folder in folders}
    for part, text in parts.items():
        for name in re.findall(r"`([\w*]+\.py)`", text):
            assert list((ROOT / part).glob(name)), f"{part} has no {name}"


def test_where_to_change_what() -> None:
    """The places are modules of the package, or files of the repository."""
    section = DESIGN.partition("\n## Where to change what\n")[2]
    modules = {path.name for path in (ROOT / "boundaryc").rglob("*.py")}

    assert set(re.findall(r"`(\w+\.py)`", section)) <= modules


def test_what_engines_call_is_there() -> None:
    """Methods of stacks and batches, arguments of `prepare`, and classes of the runtime."""
    code = re.findall(r"`([^`\n]+)`", ENGINES)
    called = {found for one in code for found in re.findall(r"\b(stack|batch)\.(\w+)\b(?!\.)", one)}
    owners = {"stack": (runtime.Stack, runtime.FusingStack), "batch": (runtime.Batch,)}
    asked = {found for one in code for found in re.findall(r"^prepare\(\.\.\., (\w+)=", one)}
    classes = {one for one in code if re.fullmatch(r"[A-Z][a-zA-Z]+(\(\))?", one)}

    for kind, name in called - {("stack", "yaml")}:
        assert any(hasattr(owner, name) for owner in owners[kind]), f"{kind}.{name}"
    assert len(called) > 10
    assert asked < set(signature(runtime.AttentionBoundary.detour).parameters)
    assert len(asked) == 2
    others = {"Groups", "DeviceMesh"}  # of a generated package, and of torch
    unknown = {name.removesuffix("()") for name in classes} - others - set(runtime.__all__)
    assert {name for name in unknown if not _is_an_engines(name)} == set()


def _is_an_engines(name: str) -> bool:
    """Whether it is a class of `boundaryc.engines`, or one of the facts about an engine."""
    adapters = (ROOT / "boundaryc/engines").glob("*.py")
    facts = (ROOT / "tests/engines").glob("*facts*.json")
    return any(f"class {name}" in path.read_text("utf-8") for path in adapters) or any(
        re.search(rf"\b{name}\b", path.read_text("utf-8")) for path in facts
    )
