"""The page of `boundaryc report`: what it embeds, that it is whole, and that it can be read."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from boundaryc.emit.render import templates_directory
from boundaryc.language import loads
from boundaryc.report.deployment import Source, deployed, read_source
from boundaryc.report.explain import explain, scope_of
from boundaryc.report.origin_line import generated_line
from boundaryc.report.page import document, page
from boundaryc.report.page_data import report
from boundaryc.report.page_model import Report, ReportedFile
from tests.cli.process import MOE, ROOT
from tests.report.example import QWEN3_MOE


class Parsed(HTMLParser):
    """The texts of a page's elements, and every attribute that could load something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {}
        self.loads: list[str] = []
        self.policy = ""
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remembers what is open and what it names."""
        known = dict(attrs)
        self.inside = f"{tag} {known.get('type', '')}".strip()
        self.texts.setdefault(self.inside, []).append("")
        self.loads += [str(known[name]) for name in ("src", "href") if name in known]
        if known.get("http-equiv") == "Content-Security-Policy":
            self.policy = str(known["content"])

    def handle_endtag(self, tag: str) -> None:
        """What follows belongs to none of those that are looked at."""
        self.inside = ""

    def handle_data(self, data: str) -> None:
        """Adds to the element that was opened last."""
        if self.inside:
            self.texts[self.inside][-1] += data


def code(found: Report, file: ReportedFile) -> str:
    """The text of a module."""
    return "".join(f"{found.code[place]}\n" for place in file.text)


@pytest.fixture(scope="module")
def moe() -> Report:
    """The example with ten topologies and three variants."""
    return report(read_source(MOE))


@pytest.fixture(scope="module")
def text(moe: Report) -> str:
    """Its page."""
    return page(moe)


def test_it_is_small_and_the_same_every_time(moe: Report, text: str) -> None:
    """One file for all topologies; what plans share is in it once."""
    assert len(text.encode()) < 800_000
    assert text == page(moe)
    ways = sum(len(moe.crossings[at].ways) for plan in moe.plans for at in plan.crossings)
    assert len(moe.ways) < ways / 4
    assert len(moe.plans) == 4 * sum(len(one.variants) for one in moe.topologies)


def test_it_loads_nothing(text: str) -> None:
    """No address but empty data and places of the page, and a policy that permits no other."""
    found = Parsed(text)

    assert {one[:1] for one in found.loads} == {"#", "d"}
    assert [one for one in found.loads if one[0] == "d"] == ["data:,"]
    assert found.policy.startswith("default-src 'none'; img-src data:;")
    for name in ("style", "script"):
        (own,) = found.texts[name]
        digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in found.policy


def test_what_it_embeds_is_its_data_whatever_is_in_it() -> None:
    """A stack file may hold what would end a script, open a comment, or look like an escape."""
    nasty = "# </script><script>alert(1)</script> <!-- &amp; ' \" \\u003c\n"
    stack = f"{QWEN3_MOE}{nasty}"
    found = report(Source(loads(stack, "a<b>&.yaml"), stack), ["tp8"], [64])
    html = page(found)
    parsed = Parsed(html)

    assert json.loads(parsed.texts["script application/json"][0]) == json.loads(
        json.dumps(document(found))
    )
    assert html.count("</script") == 2
    assert "alert(1)</" not in html
    assert "a&lt;b&gt;&amp;.yaml" in html
    assert found.text.endswith(nasty)


def test_its_places_are_in_its_lists(moe: Report) -> None:
    """Everything that refers to another list, and every function that a way runs as."""
    boundaries = {at for edge in moe.boundaries for at in edge}
    assert len(moe.boundaries) == len(moe.graph.edges)
    for plan in moe.plans:
        assert boundaries == set(range(len(plan.crossings)))
        at = (plan.topology, plan.variant)
        files = [one for one in moe.files if (one.topology, one.variant) == at]
        defined = {moe.origins[one.origin].name for file in files for one in file.lines}
        for place, at in enumerate(plan.crossings):
            crossing = moe.crossings[at]
            assert len(crossing.functions) == len(crossing.ways)
            assert set().union(*crossing.functions) <= defined
            assert {len(moe.ways) > one for one in crossing.ways} == {True}
            assert {len(moe.levers) > one for one in crossing.levers} == {True}
            assert all(batch.runs[place] < len(crossing.ways) for batch in plan.batches)
    for file in moe.files:
        assert file.lines[0].first == 1
        assert max(one.last for one in file.lines) == len(file.text)


@pytest.mark.parametrize("topology", ["tp4_dp2", "tp8_cp8"])
def test_it_says_what_explain_says(moe: Report, topology: str) -> None:
    """Of one topology and variant planned alone, as that command plans them."""
    variant = "ordinary"
    source = read_source(MOE)
    alone = deployed(source, topology, (variant,))
    for plan in moe.plans:
        if (plan.topology, plan.variant) == (topology, variant):
            said = explain(
                scope_of(source, alone, plan.policy, variant, None, None), None, None, None
            )
            assert plan.few_rows == said.few_rows
            for at, crossing in zip(plan.crossings, said.crossings, strict=True):
                found = moe.crossings[at]
                assert (found.boundary, found.place) == (crossing.boundary, crossing.place)
                assert tuple(moe.ways[way].way for way in found.ways) == crossing.ways
                assert tuple(moe.levers[one] for one in found.levers) == crossing.levers


def test_its_code_is_what_is_published_and_its_lines_lead_where_explain_leads(
    moe: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every module, and a line of each of its statements and of what lies between them."""
    monkeypatch.chdir(ROOT)
    for file in moe.files:
        assert code(moe, file) == (ROOT / file.path).read_text(encoding="utf-8")
    file = next(one for one in moe.files if one.path.endswith("tp4_dp2/ordinary.py"))
    for one in file.lines[1:]:
        said = generated_line(Path(file.path), one.first)
        origin = moe.origins[one.origin]
        assert (origin.name, origin.says) == (said.name, said.says)
        general = moe.origins[file.lines[0].origin]
        nodes = [moe.levers[node] for node in (*origin.nodes, *general.nodes)]
        assert [(node.path, node.line) for node in nodes] == [
            (node.path, node.line) for node in said.nodes
        ]


def test_a_part_of_the_topologies(moe: Report) -> None:
    """Their plans and modules as in the whole; a variant need not apply to any of them."""
    part = report(read_source(MOE), ["tp4", "tp2"], [64])

    assert [one.name for one in part.topologies] == ["tp2", "tp4"]
    assert {(one.topology, one.variant) for one in part.plans} == {
        (name, variant) for name in ("tp2", "tp4") for variant in ("ordinary", "sequence_parallel")
    }
    texts = {one.path: code(moe, one) for one in moe.files}
    assert all(texts[one.path] == code(part, one) for one in part.files)
    assert {one.topology for one in part.files} == {"", "tp2", "tp4"}


def luminance(color: str) -> float:
    """That of `#rrggbb`, as WCAG defines it."""
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_both_themes_can_be_read() -> None:
    """Texts have a contrast of 4.5 on all that they stand on, lines and frames one of 3."""
    style = (templates_directory() / "report/style.css").read_text(encoding="utf-8")
    colors = dict(re.findall(r"--([\w-]+): light-dark\((#\w{6}, #\w{6})\)", style))
    assert len(colors) == style.count("light-dark(")
    grounds = {
        "text": ("page", "panel", "inset", "tint"),
        "muted": ("page", "panel", "inset", "tint"),
        "accent": ("page", "panel", "inset", "tint"),
        "owed": ("owed-tint",),
        "word": ("panel", "inset", "tint"),
        "string": ("panel", "inset", "tint"),
        "edge": ("page", "panel", "inset"),
    }
    for theme in (0, 1):
        for ink, under in grounds.items():
            for ground in under:
                pair = [luminance(colors[one].split(", ")[theme]) for one in (ink, ground)]
                contrast = (max(pair) + 0.05) / (min(pair) + 0.05)
                assert contrast >= (3 if ink == "edge" else 4.5), (ink, ground, theme, contrast)
