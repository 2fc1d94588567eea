"""Where the page draws the stage graph: nothing covers anything, and every edge joins its ends."""

from __future__ import annotations

import re
from itertools import combinations, pairwise

import pytest

from boundaryc.graph.build import build_graph
from boundaryc.language import load, loads
from boundaryc.plan.result import StackPlan
from boundaryc.report.drawing import boundaries, drawing
from boundaryc.report.page_graph import Box, Placed, placed
from tests.cli.process import ROOT
from tests.report.example import QWEN3_MOE

ONE_STAGE = QWEN3_MOE.replace("default: [attention, experts]", "default: [experts]")
ALTERNATING = QWEN3_MOE.replace(
    "{count: 48, default: [attention, experts]}",
    "{count: 9, default: [attention, experts], at: {1: [attention], 3: [attention], 8: []}}",
)
STACKS = {
    "deep": loads(QWEN3_MOE, "stack.yaml"),
    "one stage": loads(ONE_STAGE.replace("  attention: {kind: attention}\n", ""), "stack.yaml"),
    "alternating": loads(ALTERNATING, "stack.yaml"),
    "dense first": load(ROOT / "examples/qwen3_moe/stack.yaml"),
    "branch": load(ROOT / "examples/longcat_flash/stack.yaml"),
    "many kinds": load(ROOT / "examples/nemotron_h/stack.yaml"),
}


@pytest.fixture(params=STACKS)
def plan(request: pytest.FixtureRequest) -> StackPlan:
    """A stack with its graph; drawing needs no more of a plan."""
    stack = STACKS[request.param]
    return StackPlan(stack, build_graph(stack), {}, ())


def drawn(plan: StackPlan) -> Placed:
    """Its drawing."""
    return placed(drawing(plan, lambda edge: "", ""))


def apart(one: Box, other: Box) -> bool:
    """Whether two boxes have nothing in common."""
    return (
        one.right <= other.x
        or other.right <= one.x
        or one.bottom <= other.y
        or other.bottom <= one.y
    )


def corners(line: str) -> list[tuple[int, int]]:
    """The points of a path of M, H and V."""
    found = [(0, 0)]
    for command, first, second in re.findall(r"([MHV])(\d+)(?: (\d+))?", line):
        x, y = found[-1]
        to = {"M": (int(first), int(second or 0)), "H": (int(first), y), "V": (x, int(first))}
        found.append(to[command])
    return found[1:]


def on_edge(box: Box, point: tuple[int, int]) -> bool:
    """Whether a point is on the sides of a box."""
    x, y = point
    sides = x in (box.x, box.right) or y in (box.y, box.bottom)
    return sides and box.x <= x <= box.right and box.y <= y <= box.bottom


def test_nothing_covers_anything(plan: StackPlan) -> None:
    """Nodes and plates stand apart, inside the picture; a frame holds the nodes of its group."""
    found = drawn(plan)
    boxes = [one.box for one in found.nodes] + [one.plate for one in found.edges]
    assert all(apart(one, other) for one, other in combinations(boxes, 2))
    assert all(box.x >= 0 and box.right <= found.width for box in boxes)
    assert max(box.bottom for box in boxes) <= found.height
    frames = {one.group.id: one.box for one in found.groups}
    assert len(frames) == len({one.node.group for one in found.nodes} - {""})
    assert all(apart(one, other) for one, other in combinations(frames.values(), 2))
    for one in found.nodes:
        for group, frame in frames.items():
            assert apart(one.box, frame) == (one.node.group != group)


def test_every_line_goes_from_its_source_by_its_plate_to_its_target(plan: StackPlan) -> None:
    """In two pieces, whose ends are on the boxes that they join; none runs through a node."""
    found = drawn(plan)
    nodes = {one.node.id: one.box for one in found.nodes}
    for edge in found.edges:
        first, second = (f"M{piece}" for piece in edge.line.split("M")[1:])
        start, end = corners(first)[0], corners(first)[-1]
        assert on_edge(nodes[edge.edge.source], start)
        assert on_edge(edge.plate, end)
        assert on_edge(edge.plate, corners(second)[0])
        assert on_edge(nodes[edge.edge.target], corners(second)[-1])
        for piece in (first, second):
            points = corners(piece)
            for (x, y), (u, v) in pairwise(points):
                stretch = Box(min(x, u), min(y, v), abs(x - u), abs(y - v))
                others = list(nodes.values())
                others += [one.plate for one in found.edges if one is not edge]
                inner = [Box(b.x + 1, b.y + 1, b.width - 2, b.height - 2) for b in others]
                assert all(apart(stretch, box) for box in inner), (edge.source, edge.target)


def test_edges_stand_for_all_boundaries(plan: StackPlan) -> None:
    """Each boundary of the stack at one edge or more, between the stages that it joins."""
    found, edges = drawn(plan), plan.graph.edges()
    stands = boundaries(plan)
    assert {at for one in stands for at in one} == set(range(len(edges)))
    for drawn_edge, one in zip(found.edges, stands, strict=True):
        for at in one:
            assert drawn_edge.target in (edges[at].consumer, "final norm", "end of the stack")
            assert drawn_edge.edge.input == edges[at].forks
