"""A drawing as SVG, whole in itself: a column of nodes, with lanes beside it for other edges.

Stages follow each other, so a column in the order of the stack leaves few edges that are no step to
the next node: those that go back run left of it, those that skip nodes on its right. Text is set in
a font of fixed width, whose extent is known without one. Colours follow the reader's page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from xml.sax.saxutils import escape

from boundaryc.report.drawing import Drawing, DrawnEdge
from boundaryc.report.drawing_text import by_group, edge_text, headline

LETTER, LINE = 7.2, 15
"""Width of a letter and height of a line, at 12 pixels."""
MARGIN, BOX, AIR, TITLE = 16, 30, 14, 24
"""Around the drawing; the height of a node; between things; above the nodes of a group."""
WIDEST = 34
"""Letters of a line of what an edge sends."""

STYLE = """\
.boundaryc-graph { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
  --paper: #ffffff; --ink: #1f2328; --soft: #f3f5f7; --line: #59636e; }
@media (prefers-color-scheme: dark) { .boundaryc-graph {
  --paper: #0d1117; --ink: #e6edf3; --soft: #1b222b; --line: #9198a1; } }
.boundaryc-graph .paper { fill: var(--paper); }
.boundaryc-graph text { fill: var(--ink); }
.boundaryc-graph .group { fill: var(--soft); stroke: var(--line); stroke-dasharray: 4 3; }
.boundaryc-graph .node { fill: var(--paper); stroke: var(--ink); }
.boundaryc-graph .edge { fill: none; stroke: var(--line); stroke-width: 1.3; }
.boundaryc-graph .input { stroke-dasharray: 5 4; }
.boundaryc-graph .tip { fill: var(--line); }"""


@dataclass(frozen=True, slots=True)
class _Lane:
    """An edge beside the column: on its left or right, and how far from the groups."""

    edge: DrawnEdge
    left: bool
    away: float


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where everything is.

    ``tops`` are those of the nodes, ``groups`` titles with the top and bottom of each. ``middle``
    is that of the column, ``half`` the half of a node's width; groups reach from ``west`` to
    ``east``.
    """

    tops: dict[str, float]
    groups: tuple[tuple[str, float, float], ...]
    lanes: tuple[_Lane, ...]
    middle: float
    half: float
    west: float
    east: float
    width: float
    height: float


def svg(found: Drawing, width: int = 0) -> Iterator[str]:
    """A picture; it needs neither another program nor the network. Not wrapped."""
    head = wrap(headline(found), 64)
    at = _laid_out(found, head)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="boundaryc-graph" role="img" '
        f'width="{at.width:g}" height="{at.height:g}" viewBox="0 0 {at.width:g} {at.height:g}">'
    )
    yield f"<title>{escape(' '.join(head))}</title>"
    yield f"<style>\n{STYLE}\n</style>"
    yield (
        '<defs><marker id="boundaryc-tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>'
    )
    yield f'<rect class="paper" width="{at.width:g}" height="{at.height:g}"/>'
    yield from _text(head, MARGIN, MARGIN + LINE - 3)
    for title, top, bottom in at.groups:
        yield (
            f'<rect class="group" x="{at.west:g}" y="{top:g}" width="{at.east - at.west:g}" '
            f'height="{bottom - top:g}" rx="8"/>'
        )
        yield from _text([title], at.east - 10, top + 17, anchor="end")
    yield from _edges(found, at)
    for node in found.nodes:
        top = at.tops[node.id]
        yield (
            f'<rect class="node" x="{at.middle - at.half:g}" y="{top:g}" width="{2 * at.half:g}" '
            f'height="{BOX}" rx="5"/>'
        )
        yield from _text([node.name], at.middle, top + 19, anchor="middle")
    yield "</svg>"


def _text(lines: Sequence[str], x: float, y: float, anchor: str = "start") -> Iterator[str]:
    for row, line in enumerate(lines):
        place = f'x="{x:g}" y="{y + row * LINE:g}" text-anchor="{anchor}"'
        yield f"<text {place}>{escape(line)}</text>"


def _label(edge: DrawnEdge) -> list[str]:
    return wrap(edge_text(edge), WIDEST, break_long_words=False, break_on_hyphens=False)


def _extent(lines: Iterable[str]) -> float:
    return max((len(line) for line in lines), default=0) * LETTER


def _laid_out(found: Drawing, head: Sequence[str]) -> _Layout:
    order = {node.id: index for index, node in enumerate(found.nodes)}
    steps = {one.source: one for one in found.edges if order[one.target] == order[one.source] + 1}
    tops, groups, height = _column(found, steps, MARGIN + LINE * len(head) + AIR)
    beside = [one for one in found.edges if steps.get(one.source) != one]
    half = max(_extent(node.name for node in found.nodes) / 2 + AIR, 50)
    back = [one for one in beside if order[one.target] <= order[one.source]]
    lanes, left = _lanes(back, tops, left=True)
    skips, right = _lanes([one for one in beside if one not in back], tops, left=False)
    texts = [title for title, _, _ in groups]  # right of the column, as what its edges send
    texts += [line for one in steps.values() for line in _label(one)]
    reach = max(_extent(texts) + 8 + AIR, half + AIR)
    west = MARGIN + left
    middle = west + AIR + half
    east = middle + reach
    width = max(east + right, MARGIN + _extent(head)) + MARGIN
    return _Layout(
        tops, groups, (*lanes, *skips), middle, half, west, east, round(width), round(height)
    )


def _column(
    found: Drawing, steps: dict[str, DrawnEdge], top: float
) -> tuple[dict[str, float], tuple[tuple[str, float, float], ...], float]:
    """The tops of the nodes, the groups around them, and where all of it ends."""
    tops: dict[str, float] = {}
    groups = []
    for _, title, nodes in by_group(found):
        begins = top
        top += TITLE + 4 if title else 0
        for node in nodes:
            tops[node.id] = top
            edge = steps.get(node.id)
            top += BOX + (LINE * len(_label(edge)) + 2 * AIR - 4 if edge else AIR)
        if title:
            groups.append((title, begins, top))
            top += AIR
    return tops, tuple(groups), top + MARGIN - AIR


def _lanes(
    edges: Sequence[DrawnEdge], tops: dict[str, float], *, left: bool
) -> tuple[list[_Lane], float]:
    """The edges on one side, short ones inside, and how much room they take."""

    def ends(edge: DrawnEdge) -> tuple[float, float]:
        low, high = sorted((tops[edge.source], tops[edge.target]))
        return low, high + BOX

    shared: list[list[DrawnEdge]] = []
    for edge in sorted(edges, key=lambda one: (ends(one)[1] - ends(one)[0], ends(one))):
        low, high = ends(edge)
        free = (
            lane
            for lane in shared
            if all(high < ends(other)[0] or ends(other)[1] < low for other in lane)
        )
        lane = next(free, None)
        if lane is None:
            shared.append(lane := [])
        lane.append(edge)
    found, away = [], 0.0
    for lane in shared:
        away += AIR
        found += [_Lane(edge, left, away) for edge in lane]
        away += max(_extent(_label(edge)) for edge in lane) + 6
    return found, away


def _edges(found: Drawing, at: _Layout) -> Iterator[str]:
    beside = {id(lane.edge) for lane in at.lanes}
    for edge in found.edges:
        if id(edge) not in beside:
            low, high = at.tops[edge.source] + BOX, at.tops[edge.target]
            yield _path(edge, f"M{at.middle:g} {low:g}V{high:g}")
            yield from _text(_label(edge), at.middle + 8, low + LINE)
    for lane in at.lanes:
        edge, side = lane.edge, -1 if lane.left else 1
        near = at.middle + side * at.half
        far = at.west - lane.away if lane.left else at.east + lane.away
        leaves = at.tops[edge.source] + BOX / 2 + 6
        enters = at.tops[edge.target] + BOX / 2 - 6
        yield _path(edge, f"M{near:g} {leaves:g}H{far:g}V{enters:g}H{near:g}")
        label = _label(edge)
        top = (leaves + enters) / 2 - LINE * len(label) / 2 + LINE - 4
        yield from _text(label, far + side * 5, top, anchor="end" if lane.left else "start")


def _path(edge: DrawnEdge, way: str) -> str:
    kind = "edge input" if edge.input else "edge"
    return f'<path class="{kind}" d="{way}" marker-end="url(#boundaryc-tip)"/>'
