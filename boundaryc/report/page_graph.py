"""Where the nodes and edges of a drawing lie on a page: from top to bottom, a branch at the right.

Every edge has a plate that says what it sends. Plates stand above the node that an edge leads to;
that of an edge that leads back stands below its source, inside the layers that it repeats.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from boundaryc.report.drawing import Drawing, DrawnEdge, DrawnGroup, DrawnNode

NODE = (132, 32)
PLATE = (278, 42)
GAP = 14
LANE = 18
"""What lines that pass others keep from plates."""
PAD = 8
"""Between a group of layers and what is around it."""
TITLE = 22
BRANCH = PLATE[0] + 2 * LANE
"""From the main line to a branch."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle."""

    x: int
    y: int
    width: int
    height: int

    @property
    def right(self) -> int:
        """Its right side."""
        return self.x + self.width

    @property
    def bottom(self) -> int:
        """Its lower side."""
        return self.y + self.height

    @property
    def middle(self) -> tuple[int, int]:
        """Its centre."""
        return self.x + self.width // 2, self.y + self.height // 2


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A stage, the start, the end or a merge."""

    node: DrawnNode
    box: Box


@dataclass(frozen=True, slots=True)
class PlacedEdge:
    """An edge: ``line`` is an SVG path, ``plate`` where it says what it sends."""

    edge: DrawnEdge
    source: str
    target: str
    line: str
    plate: Box


@dataclass(frozen=True, slots=True)
class PlacedGroup:
    """Layers in a frame."""

    group: DrawnGroup
    box: Box


@dataclass(frozen=True, slots=True)
class Placed:
    """The whole drawing; ``edges`` in the order of the drawing's."""

    width: int
    height: int
    groups: tuple[PlacedGroup, ...]
    nodes: tuple[PlacedNode, ...]
    edges: tuple[PlacedEdge, ...]


def placed(found: Drawing) -> Placed:
    """Places a drawing."""
    table = _Table(found)
    for node in found.nodes:
        table.add(node)
    table.close()
    names = {node.id: node.name for node in found.nodes}
    edges = tuple(
        PlacedEdge(edge, names[edge.source], names[edge.target], table.line(at), table.plates[at])
        for at, edge in enumerate(found.edges)
    )
    nodes = tuple(PlacedNode(node, table.boxes[node.id]) for node in found.nodes)
    groups = tuple(
        PlacedGroup(group, table.frames[group.id])
        for group in found.groups
        if group.id in table.frames
    )
    return Placed(table.width, max(table.foot) - GAP + PAD, groups, nodes, edges)


@dataclass(slots=True)
class _Table:
    """What has been placed so far; ``foot`` is where the next thing of each column goes."""

    found: Drawing
    order: dict[str, int] = field(init=False)
    columns: dict[str, int] = field(default_factory=dict)
    boxes: dict[str, Box] = field(default_factory=dict)
    plates: dict[int, Box] = field(default_factory=dict)
    frames: dict[str, Box] = field(default_factory=dict)
    foot: list[int] = field(default_factory=lambda: [PAD, PAD])
    group: str = ""
    top: int = 0
    into: dict[str, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.order = {node.id: at for at, node in enumerate(self.found.nodes)}
        self.into = defaultdict(list)
        for at, edge in enumerate(self.found.edges):
            self.into[edge.source if self.back(edge) else edge.target].append(at)

    @property
    def width(self) -> int:
        """That of the drawing: of one column, or of two where there is a branch."""
        branches = any(edge.input for edge in self.found.edges)
        return 2 * (PAD + LANE) + PLATE[0] + (BRANCH if branches else 0)

    def back(self, edge: DrawnEdge) -> bool:
        """Whether an edge leads to a node that came before."""
        return self.order[edge.target] <= self.order[edge.source]

    def add(self, node: DrawnNode) -> None:
        """Places a node below the plates of the edges that lead to it."""
        meeting = self.into[node.id]
        ahead = [at for at in meeting if not self.back(self.found.edges[at])]
        column = self.columns[node.id] = self._column(ahead)
        if node.group != self.group:
            self.close()
        for at in ahead:
            edge = self.found.edges[at]
            own = self.columns[edge.source] if not edge.input else column
            if edge.input:  # beside its source
                beside = self.boxes[edge.source].middle[1] - PLATE[1] // 2
                self.foot[column] = max(self.foot[column], beside)
            self.plates[at] = self._put(own, PLATE)
        if node.group != self.group:
            self._open(node.group)
        if len({self.columns[self.found.edges[at].source] for at in ahead}) > 1:  # a merge
            self.foot[column] = max(self.foot)
        self.boxes[node.id] = self._put(column, NODE)
        for at in meeting:
            if at not in ahead:
                self.plates[at] = self._put(column, PLATE)

    def _column(self, ahead: list[int]) -> int:
        edges = [self.found.edges[at] for at in ahead]
        if any(edge.input for edge in edges):
            return 1
        return min((self.columns[edge.source] for edge in edges), default=0)

    def _put(self, column: int, size: tuple[int, int]) -> Box:
        """The next place of a column."""
        width, height = size
        middle = PAD + LANE + PLATE[0] // 2 + column * BRANCH
        box = Box(middle - width // 2, self.foot[column], width, height)
        self.foot[column] = box.bottom + GAP
        return box

    def _open(self, group: str) -> None:
        self.group, self.top = group, max(self.foot)
        start = self.top + TITLE if group else self.top
        self.foot = [start, start]

    def close(self) -> None:
        """Frames the layers that were placed last."""
        if self.group:
            bottom = max(self.foot) - GAP + PAD
            side = PAD // 2
            frame = Box(side, self.top, self.width - 2 * side, bottom - self.top)
            self.frames[self.group] = frame
            self.foot = [bottom + GAP, bottom + GAP]
        self.group = ""

    def line(self, at: int) -> str:
        """The path of an edge: through its plate, around others where they are in the way."""
        edge, plate = self.found.edges[at], self.plates[at]
        source, target = self.boxes[edge.source], self.boxes[edge.target]
        middle, height = plate.middle
        if self.back(edge):
            lane = self.width - PAD - LANE // 2
            down = f"M{middle} {source.bottom}V{plate.y}"
            return f"{down}M{plate.right} {height}H{lane}V{target.middle[1]}H{target.right}"
        if edge.input:
            start = f"M{source.right} {height}H{plate.x}"
        elif self._hidden(at):
            lane = PAD + LANE // 2
            start = f"M{source.x} {source.middle[1]}H{lane}V{height}H{plate.x}"
        else:
            start = f"M{middle} {source.bottom}V{plate.y}"
        if middle != target.middle[0]:
            return f"{start}M{middle} {plate.bottom}V{target.middle[1]}H{target.right}"
        return f"{start}M{middle} {plate.bottom}V{target.y}"

    def _hidden(self, at: int) -> bool:
        """Whether something stands between a plate and the source above it."""
        plate, source = self.plates[at], self.boxes[self.found.edges[at].source]
        return any(
            source.bottom <= box.y and box.bottom <= plate.y and box.middle[0] == plate.middle[0]
            for box in (*self.plates.values(), *self.boxes.values())
        )
