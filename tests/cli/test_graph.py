"""`boundaryc graph`: small whatever the depth, in three formats and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from boundaryc.cli import Exit, main
from boundaryc.report.schemas import result_schema
from tests.cli.process import ROOT
from tests.language.json_check import problems
from tests.report.example import QWEN3_MOE


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's stack file."""
    monkeypatch.chdir(tmp_path)
    Path("stack.yaml").write_text(QWEN3_MOE, encoding="utf-8")
    return "stack.yaml"


def drawn(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command that succeeds prints."""
    assert main(["graph", *words]) == Exit.OK
    return capsys.readouterr().out


def test_text(stack: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every layer that repeats once, with what edges send and how often they are met."""
    few = drawn(capsys, stack, "--topology", "tp8_dp4", "--tokens", "64")

    assert few == (
        "qwen3_moe, 48 layers: tp8_dp4, ordinary batches of 64 tokens, policy rs+rsv\n"
        "start\n"
        "  -> attention: residual all_gather(attn_dp)\n"
        "layers 0-47 (x48)\n"
        "  attention\n"
        "    -> experts: placed all_reduce(tp), x48\n"
        "  experts\n"
        "    -> attention: all_reduce(tp), x47\n"
        "    -> final norm: all_reduce(tp)\n"
        "final norm\n"
    )
    assert "reduce_scatter(tp) + all_gather(attn_tp), x47" in drawn(
        capsys, stack, "--topology", "tp8_dp4"
    )
    assert "all_reduce" not in drawn(capsys, stack)


def test_other_formats(stack: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Mermaid, in which `end` is a word of its own, and DOT."""
    mermaid = drawn(capsys, stack, "--topology", "tp8", "--format", "mermaid")
    assert mermaid.splitlines()[1] == "flowchart TD"
    assert '  g0_0_1 -->|"all_reduce(tp), x47"| g0_0_0' in mermaid
    assert mermaid.count("end_") == 2
    dot = drawn(capsys, stack, "--topology", "tp8", "--format", "dot")
    assert dot.startswith('digraph "qwen3_moe" {')
    assert dot.count("{") == dot.count("}")
    assert '"g0_0_1" -> "end" [label="all_reduce(tp)"];' in dot


@pytest.mark.parametrize("example", ["longcat_flash", "nemotron_h", "qwen3_moe"])
def test_svg(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A picture by itself, for light and dark, in which no text covers another or an arrow."""
    file = str(ROOT / f"examples/{example}/stack.yaml")
    words = [file, "--topology", "tp4_dp2"]
    drawn_ = json.loads(drawn(capsys, *words, "--json"))
    picture = drawn(capsys, *words, "--format", "svg")
    assert re.findall(r"https?:[^\"]*", picture) == ["http://www.w3.org/2000/svg"]
    assert "prefers-color-scheme: dark" in picture
    root = ElementTree.fromstring(picture)
    texts = [one for one in root.iter() if one.tag.endswith("}text")]
    said = " ".join(str(one.text) for one in texts)
    assert all(edge["sends"] in said for edge in drawn_["edges"])
    assert all(node["name"] in said for node in drawn_["nodes"])
    paths = [one for one in root.iter() if (one.get("class") or "").startswith("edge")]
    assert len(paths) == len(drawn_["edges"])
    boxes = [extent(one) for one in texts]
    for at, box in enumerate(boxes):
        assert 0 <= box[0] < box[2] <= float(root.attrib["width"])
        assert 0 <= box[1] < box[3] <= float(root.attrib["height"])
        assert not any(meet(box, other) for other in boxes[:at])
    nodes = [corners(one) for one in root.iter() if one.get("class") == "node"]
    for node in nodes:
        inside = [box for box in boxes if meet(box, node)]
        assert len(inside) == 1
        assert node[0] < inside[0][0] < inside[0][2] < node[2]
    for path in paths:
        for piece in pieces(path.attrib["d"]):
            assert not any(meet(piece, box) for box in boxes)


Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def corners(node: ElementTree.Element) -> Box:
    """The box of a node."""
    x, y, wide, high = (float(node.attrib[name]) for name in ("x", "y", "width", "height"))
    return x, y, x + wide, y + high


def extent(text: ElementTree.Element) -> Box:
    """What a text covers."""
    x, y, wide = float(text.attrib["x"]), float(text.attrib["y"]), len(text.text or "") * 7.2
    left = x - {"start": 0, "middle": wide / 2, "end": wide}[text.attrib["text-anchor"]]
    return left, y - 9, left + wide, y + 3


def pieces(way: str) -> Iterator[Box]:
    """The straight pieces of a path."""
    x, y = map(float, re.findall(r"-?[\d.]+", way.partition("H")[0].partition("V")[0]))
    for turn, number in re.findall(r"([HV])(-?[\d.]+)", way):
        across, down = (float(number), y) if turn == "H" else (x, float(number))
        yield min(x, across), min(y, down), max(x, across), max(y, down)
        x, y = across, down


def meet(one: Box, other: Box) -> bool:
    """Whether two boxes have something in common."""
    across = one[0] < other[2] and other[0] < one[2]
    return across and one[1] < other[3] and other[1] < one[3]


def test_a_branch_and_a_period(stack: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A branch takes an input and ends in a merge; several layers may repeat together."""
    text = drawn(capsys, str(ROOT / "examples/longcat_flash/stack.yaml"))
    assert "    -> dense: its input, x3\n    -> merge: x3\n" in text
    assert "  merge\n    -> attention: x2\n    -> final norm\n" in text
    Path("two.yaml").write_text(
        QWEN3_MOE.replace("  attention:", "  mamba: {kind: mixer}\n  attention:", 1).replace(
            "{count: 48, default: [attention, experts]}",
            "{count: 8, default: [attention, experts], at: "
            "{0: [mamba], 2: [mamba], 4: [mamba], 6: [mamba]}}",
        ),
        encoding="utf-8",
    )
    assert "layers 0-7 (2 layers x4)\n  mamba\n    -> attention: x4\n" in drawn(capsys, "two.yaml")


def test_selectors_and_json(stack: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A node with its neighbours on either side."""
    for selector, names in (
        ("experts", {"experts"}),
        ("1+experts", {"attention", "experts"}),
        ("start+2", {"start", "attention", "experts"}),
        ("+final_norm", {"start", "attention", "experts", "final norm"}),
        ("experts+1", {"attention", "experts", "final norm"}),
    ):
        found = json.loads(drawn(capsys, stack, "--select", selector, "--json"))
        schema = result_schema("graph")
        assert list(problems(found, schema, schema)) == []
        assert {node["name"] for node in found["nodes"]} == names
    for words, said in (
        (("--select", "x"), "there is no 'x'; there is start, attention, experts, final_norm"),
        (("--select", "+"), "is not a selector"),
        (("--topology", "tp9"), "has no topology 'tp9'"),
        (("--topology", "tp8", "--variant", "x"), "does not list 'x'"),
    ):
        assert main(["graph", stack, *words]) == Exit.UNUSABLE
        assert said in " ".join(capsys.readouterr().err.split())
