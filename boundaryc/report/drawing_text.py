"""A drawing as text for people, as Mermaid and as DOT."""

from __future__ import annotations

import json
from collections.abc import Iterator

from boundaryc.report.drawing import Drawing, DrawnEdge, DrawnNode
from boundaryc.report.text import wrapped


def edge_text(edge: DrawnEdge) -> str:
    """What stands at an edge; empty for nothing."""
    words = ["its input"] if edge.input else []
    words += [edge.sends] if edge.sends else []
    words += [f"x{edge.times}"] if edge.times > 1 else []
    return ", ".join(words)


def by_group(found: Drawing) -> Iterator[tuple[str, str, list[DrawnNode]]]:
    """The nodes in the order of the stack: the id of a group, its title, and what is in it."""
    titles = {group.id: group.title for group in found.groups}
    groups: dict[str, list[DrawnNode]] = {}
    for node in found.nodes:
        groups.setdefault(node.group or node.id, []).append(node)
    for key, nodes in groups.items():
        yield key, titles.get(key, ""), nodes


def text(found: Drawing, width: int) -> Iterator[str]:
    """Every node with the edges that leave it."""
    yield from wrapped(headline(found), width)
    names = {node.id: node.name for node in found.nodes}
    for _, title, nodes in by_group(found):
        yield from [title] if title else []
        indent = "  " if title else ""
        for node in nodes:
            yield f"{indent}{node.name}"
            for edge in found.edges:
                if edge.source == node.id:
                    said = edge_text(edge)
                    line = f"-> {names[edge.target]}{': ' if said else ''}{said}"
                    yield from wrapped(line, width, f"{indent}  ")


def headline(found: Drawing) -> str:
    """What is drawn."""
    return f"{found.stack}, {found.layers} layers{f': {found.what}' if found.what else ''}"


def mermaid(found: Drawing, width: int = 0) -> Iterator[str]:
    """A flowchart for Mermaid; groups are subgraphs. Not wrapped."""
    yield f"%% {headline(found)}"
    yield "flowchart TD"
    for key, title, nodes in by_group(found):
        if title:
            yield f'  subgraph {key}["{title}"]'
        for node in nodes:
            yield f'  {"  " if title else ""}{_id(node.id)}["{node.name}"]'
        if title:
            yield "  end"
    for edge in found.edges:
        arrow = "-.->" if edge.input else "-->"
        said = f'|"{edge_text(edge)}"|' if edge_text(edge) else ""
        yield f"  {_id(edge.source)} {arrow}{said} {_id(edge.target)}"


def _id(name: str) -> str:
    """Mermaid has ``end`` for itself."""
    return "end_" if name == "end" else name


def dot(found: Drawing, width: int = 0) -> Iterator[str]:
    """A digraph for Graphviz; groups are clusters. Not wrapped."""
    yield f"digraph {json.dumps(found.stack)} {{"
    yield f"  label={_quoted(headline(found))}; labelloc=t;"
    yield '  node [shape=box, fontname="sans-serif"]; edge [fontname="sans-serif"];'
    for key, title, nodes in by_group(found):
        if title:
            yield f"  subgraph cluster_{key} {{ label={_quoted(title)};"
        for node in nodes:
            yield f"  {'  ' if title else ''}{_quoted(node.id)} [label={_quoted(node.name)}];"
        if title:
            yield "  }"
    for edge in found.edges:
        style = ", style=dashed" if edge.input else ""
        ends = f"{_quoted(edge.source)} -> {_quoted(edge.target)}"
        yield f"  {ends} [label={_quoted(edge_text(edge))}{style}];"
    yield "}"


def _quoted(words: str) -> str:
    return json.dumps(words, ensure_ascii=False)
