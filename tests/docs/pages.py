"""What tests of the documentation ask of its pages: named tests, links and their targets."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MADE = {"docs/proof.md", "docs/hugging_face.md"}
"""Pages that `make prove` writes: a link to one of them is right before it is made."""


@cache
def collected(name: str) -> frozenset[str]:
    """The tests of a file that pytest runs, by name; none of a file that is not there."""
    path = ROOT / name
    if not path.name.startswith("test_") or not path.exists():
        return frozenset()
    body = ast.parse(path.read_text("utf-8")).body
    marked = [node for node in body if isinstance(node, ast.Assign)]
    if any("pytestmark" in ast.unparse(node) for node in marked):
        return frozenset()
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    return frozenset(
        node.name
        for node in functions
        if node.name.startswith("test_")
        and not any(re.search(r"mark\.(skip|xfail)\b", ast.unparse(m)) for m in node.decorator_list)
    )


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)


def links(page: Path) -> Iterator[tuple[str, str]]:
    """The relative links of a page: the path, which may be empty, and the section, likewise."""
    spoken = re.sub(r"`[^`\n]*`", "", prose(page))
    for target in re.findall(r"\]\(([^)\s]+)\)", spoken):
        if not re.match(r"[a-z]+:", target):
            path, _, section = target.partition("#")
            yield path, section


@cache
def sections(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: list[str] = []
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.M):
        said = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", said.strip().lower()).replace(" ", "-")
        found.append(f"{anchor}-{found.count(anchor)}" if anchor in found else anchor)
    return frozenset(found)


def rows(text: str) -> list[list[str]]:
    """The cells of all tables of a text, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    ruled = {index for index, line in enumerate(lines) if re.fullmatch(r"\|[-:|]+\|", line)}
    heads = {index - 1 for index in ruled}
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for index, line in enumerate(lines)
        if index not in ruled | heads
    ]
