"""From a line of generated code back to the node of the stack file that it comes from."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from boundaryc.emit.files import MARK, carries_header
from boundaryc.language import Stack
from boundaryc.report.deployment import AskedError, Source, read_source
from boundaryc.report.explained import Lever
from boundaryc.report.levers import lever

_FROM = re.compile(r"From (?:the )?(\w+)(?:, fused,)? to (?!the next stage)(?:the )?(\w+)")


@dataclass(frozen=True, slots=True)
class GeneratedLine:
    """What a line of generated code belongs to.

    ``name`` is the function, class or constant around it, empty outside of all; ``boundary`` what
    it serves, where that is one boundary. ``nodes`` are the nodes of the stack file it comes from,
    ``more`` the command that explains them.
    """

    file: str
    line: int
    text: str
    name: str
    says: str
    boundary: str
    nodes: tuple[Lever, ...]
    more: str


def generated_line(path: Path, number: int) -> GeneratedLine:
    """Explains one line of a generated module.

    Raises AskedError for a file that is not generated, a line that is not in it, and where the
    stack file is not found; BoundarycError for what is wrong in that file.
    """
    text = path.read_text(encoding="utf-8")
    if not carries_header(text):
        raise AskedError(f"{path} is not generated: it does not begin with {MARK!r}")
    lines = text.splitlines()
    if not 1 <= number <= len(lines):
        raise AskedError(f"{path} has lines 1 to {len(lines)}")
    source = read_source(_source(path, lines[0]))
    stack = _of_file(source.stack, path)
    node = _around(ast.parse(text), number)
    name, says = _name(node), _says(node)
    ends = _ends(stack, name, says)
    nodes = tuple(_nodes(Source(stack, source.text), path, ends))
    topology = path.parent.name
    here = [one for one in stack.topologies if one.name == topology]
    more = f"boundaryc explain {stack.source}{_selector(stack, ends)}"
    more += f" --topology {topology}" if here else ""
    variant = _variant(stack, path)
    more += f" --variant {variant}" if variant else ""
    more += f" --draft {stack.name}" if stack is not source.stack else ""
    boundary = " -> ".join(ends) if len(ends) == 2 else ""
    text = lines[number - 1].strip()
    return GeneratedLine(str(path), number, text, name, says, boundary, nodes, more)


@dataclass(frozen=True, slots=True)
class Fragment:
    """Lines ``first`` to ``last`` of a generated module, and what they come from.

    ``ends`` are the stages that they serve: two for a boundary, one for the end of one.
    """

    first: int
    last: int
    name: str
    says: str
    ends: tuple[str, ...]
    nodes: tuple[Lever, ...]


def fragments(source: Source, path: Path, text: str) -> Iterator[Fragment]:
    """What the lines of a generated module come from.

    The first fragment is the whole module, with what all lines come from; the others are its
    statements, with what theirs come from besides. ``path`` is where the module is or would be;
    ``source`` has the stack it belongs to.
    """
    yield Fragment(1, len(text.splitlines()), "", "", (), tuple(_around_nodes(source, path)))
    for node in ast.parse(text).body:
        name, says = _name(node), _says(node)
        ends = _ends(source.stack, name, says)
        decorated = getattr(node, "decorator_list", [])
        first = min(one.lineno for one in (node, *decorated))
        nodes = tuple(_end_nodes(source, ends))
        yield Fragment(first, node.end_lineno or first, name, says, ends, nodes)


def _source(path: Path, header: str) -> Path:
    """The stack file that a header names: relative to a folder that holds both."""
    named = header.removeprefix(f"{MARK} from ").removesuffix(". Do not edit.")
    for folder in path.absolute().parents:
        if (folder / named).is_file():
            found = folder / named
            here = Path.cwd()
            return found.relative_to(here) if found.is_relative_to(here) else found
    raise AskedError(f"{path} was generated from {named}, which is in no folder above it")


def _of_file(stack: Stack, path: Path) -> Stack:
    """The stack of a file's family whose package a module is in."""
    folders = {one.name for one in path.absolute().parents}
    drafts = [one for one in stack.drafts if one.name in folders]
    return drafts[0] if drafts else stack


def _around(module: ast.Module, number: int) -> ast.stmt | None:
    """The statement of the module that holds a line."""
    for node in module.body:
        if node.lineno <= number <= (node.end_lineno or node.lineno):
            return node
    return None


def _name(node: ast.stmt | None) -> str:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ""


def _says(node: ast.stmt | None) -> str:
    """The first line of a docstring."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return (ast.get_docstring(node) or "").partition("\n")[0]
    return ""


def _ends(stack: Stack, name: str, says: str) -> tuple[str, ...]:
    """The stages that something generated serves: two for a boundary, one for the end of one."""
    found = _FROM.match(says)
    if found:
        return found[1], found[2]
    words = name.lower()
    stages = "|".join(sorted((one.name for one in stack.stages), key=len, reverse=True))
    both = re.match(rf"(start|{stages})_to_({stages}|final)", words)
    if both:
        return both[1], both[2]
    one = re.match(rf"({stages})(?:_|$)", words)
    return (one[1],) if one else ()


def _variant(stack: Stack, path: Path) -> str:
    """The batch variant of a module, empty for one that serves all."""
    own = (name for name in stack.variants if f"{path.stem}_".startswith(f"{name}_"))
    return next(own, "")


def _selector(stack: Stack, ends: tuple[str, ...]) -> str:
    """The first place of a boundary in the stack, as `explain` takes it: ``:5.experts``."""
    before = "start"
    for index, layer in enumerate(stack.layers):
        for name in layer:
            if (before, name) == ends:
                return f":{index}.{name}"
            before = name
    return ""


def _nodes(source: Source, path: Path, ends: tuple[str, ...]) -> Iterator[Lever]:
    yield from _end_nodes(source, ends)
    yield from _around_nodes(source, path)


def _end_nodes(source: Source, ends: tuple[str, ...]) -> Iterator[Lever]:
    """The nodes of the stages that a statement serves."""
    known = {one.name for one in source.stack.stages}
    for name in dict.fromkeys(ends):
        if name in known:
            yield lever(source, f"stages.{name}", "the stage at this end")
        elif name in ("final", "end"):
            yield lever(source, "norm", "the norm that ends the stack")


def _around_nodes(source: Source, path: Path) -> Iterator[Lever]:
    """The nodes that all lines of a module come from."""
    stack, topology = source.stack, path.parent.name
    if topology in {one.name for one in stack.topologies}:
        yield lever(source, f"topologies.{topology}", "the topology of this folder")
    if variant := _variant(stack, path):
        yield lever(source, "variants", f"lists {variant}")
    if path.stem in ("rowwise", "kernels") or path.stem.startswith("kernels_of_"):
        yield lever(source, "norm", "what norms round and add")
        yield lever(source, "hidden_size", "the columns of a row")
    yield lever(source, "stack", "the stack")
