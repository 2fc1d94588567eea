"""The page of `boundaryc report` in Chromium: what people do with it, and what they see then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

from boundaryc.report.deployment import read_source
from boundaryc.report.origin_line import generated_line
from boundaryc.report.page import page
from boundaryc.report.page_data import report
from boundaryc.report.page_model import Report, ReportedCrossing, ReportedPlan, ReportedWay
from boundaryc.report.text import number
from tests.cli.process import ROOT
from tests.report.browser import chromium, requests, screenshot, sized, themed

FILE = "examples/qwen3_moe/stack.yaml"
TOPOLOGIES = ("tp4_dp2", "tp8", "tp8_cp8")
TOKENS = (1, 64, 4096)


@dataclass(frozen=True)
class Opened:
    """A page in a browser, with the data that it was made from."""

    browser: Chrome
    data: Report
    address: str

    def one(self, selector: str) -> WebElement:
        """The first element of a CSS selector."""
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        """All of them."""
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        """What they say, seen or not."""
        script = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)"
        found: list[str] = self.browser.execute_script(script, selector)
        return found

    def choose(self, name: str, value: str) -> None:
        """Chooses in one of the lists at the top."""
        Select(self.one(f"#{name}")).select_by_value(value)

    def chosen(self, name: str) -> str:
        """What is chosen there."""
        return str(self.one(f"#{name}").get_property("value"))

    @property
    def plan(self) -> ReportedPlan:
        """The plan that is chosen."""
        asked = tuple(self.chosen(name) for name in ("topology", "variant", "policy"))
        (found,) = [
            one for one in self.data.plans if (one.topology, one.variant, one.policy) == asked
        ]
        return found

    def crossing(self, boundary: int) -> ReportedCrossing:
        """One of its boundaries."""
        return self.data.crossings[self.plan.crossings[boundary]]

    def runs(self, boundary: int) -> ReportedWay:
        """What runs there in the batch that is chosen."""
        tokens = int(self.chosen("tokens"))
        (batch,) = [one for one in self.plan.batches if one.tokens == tokens]
        return self.data.ways[self.crossing(boundary).ways[batch.runs[boundary]]]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """The page of an example, in a browser for all tests here."""
    with chromium() as browser, pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        data = report(read_source(Path(FILE)), TOPOLOGIES, TOKENS)
        path = tmp_path_factory.mktemp("page") / "report.html"
        path.write_text(page(data), encoding="utf-8", newline="\n")
        yield Opened(browser, data, path.as_uri())


@pytest.fixture
def shown(opened: Opened) -> Iterator[Opened]:
    """The page as it is at first; afterwards nothing went wrong and nothing was asked for."""
    opened.browser.get("about:blank")
    opened.browser.get_log("browser")
    requests(opened.browser)
    sized(opened.browser, 1400)
    themed(opened.browser, "light")
    opened.browser.get(opened.address)
    yield opened
    assert opened.browser.get_log("browser") == []
    assert {one.partition("#")[0] for one in requests(opened.browser)} == {opened.address}


def check_the_plan(shown: Opened, boundary: int) -> None:
    """What the plan says of a boundary is the data's, every number as text has it."""
    crossing, taken = shown.crossing(boundary), shown.runs(boundary)
    assert shown.texts("#plan h3") == [crossing.boundary]
    assert crossing.words in shown.texts("#plan > p")
    way = taken.way
    assert shown.texts("#plan .way[open] h4") == [way.when or "all batches"]
    operations = shown.texts("#plan .way[open] .tables > div:last-child td:first-child")
    assert operations == [one.operation for one in way.works]
    cells = shown.texts("#plan .way[open] .tables > div:last-child td.n")
    said = [number(one.bytes_per_token) if one.collectives else "" for one in way.works]
    assert cells == (said if any(said) else [])
    row = shown.texts("#plan tr.on td")
    assert row[:4] == [
        shown.chosen("variant"),
        taken.sends or "nothing",
        number(way.collectives),
        number(way.bytes_per_token),
    ]
    assert shown.texts("#plan .way[open] dd.why") == [way.why]
    lies = shown.texts("#plan .way[open] .tables > div:first-child tr td:nth-child(3)")
    assert lies == [
        one.before if one.before == one.after else f"{one.before} → {one.after}" for one in way.axes
    ]
    other = way.next_best
    (next_best,) = shown.texts("#plan .way[open] dd.next-best") or [""]
    assert (other is None) == (next_best == "")
    if other is not None:
        assert f", {number(other.bytes_per_token)} B/token): {other.verdict}" in next_best


def test_an_edge_a_variant_and_a_topology(shown: Opened) -> None:
    """A click on an edge shows its plan; the plan follows every choice."""
    for edge, stands in enumerate(shown.data.boundaries):
        shown.one(f'[data-edge="{edge}"] rect').click()
        assert shown.one(f'[data-edge="{edge}"]').get_attribute("aria-checked") == "true"
        check_the_plan(shown, stands[0])
    (last,) = shown.data.boundaries[-1]
    shown.choose("variant", "sequence_parallel")
    check_the_plan(shown, last)
    shown.one("#plan td .link").click()  # the other variant, in the plan's own table
    assert shown.chosen("variant") == "ordinary"
    check_the_plan(shown, last)
    shown.choose("variant", "sequence_parallel")
    shown.choose("topology", "tp8_cp8")  # which has no such variant
    assert shown.chosen("variant") == "ordinary"
    check_the_plan(shown, last)
    shown.choose("variant", "context_parallel")
    shown.choose("tokens", "64")
    shown.choose("policy", "ar")
    check_the_plan(shown, last)
    for edge, stands in enumerate(shown.data.boundaries):
        sends = {shown.runs(at).sends or "nothing is sent" for at in stands}
        if len(sends) == 1:
            assert shown.texts(f'[data-edge="{edge}"] .sends') == list(sends)
    shown.choose("tokens", "")
    ways = len(shown.crossing(last).ways)
    assert len(shown.all("#plan .way[open]")) == ways


def test_from_a_line_of_code_to_the_stack_file_and_back(shown: Opened) -> None:
    """Its nodes are marked, those that `explain` names for the published file."""
    shown.one("#plan .functions .link").click()
    name = shown.one("#plan .functions .link").text
    line = shown.one('#code-lines [aria-selected="true"] .no').text
    file = f"generated/qwen3_moe/{shown.chosen('topology')}/ordinary.py"
    assert name in shown.one('#code-lines [aria-selected="true"] .src').text
    shown.one(f"#code-{int(line)} .no").click()

    said = generated_line(ROOT / file, int(line))
    lines = sorted({node.line for node in said.nodes if node.line})
    assert shown.texts("#yaml-lines .marked .no") == list(map(str, lines))
    first = next(node for node in said.nodes if node.line)
    assert shown.texts('#yaml-lines [aria-selected="true"] .no') == [str(first.line)]
    assert first.text in shown.one('#yaml-lines [aria-selected="true"] .src').text
    assert f"{name}" in shown.one("#origin").text
    assert said.says in shown.one("#origin").text
    shown.one(f"#yaml-{first.line} .no").click()
    marked = shown.texts("#code-lines .marked .no")
    assert line in marked
    assert len(marked) < len(shown.all("#code-lines .line"))


def test_the_keyboard_alone(shown: Opened) -> None:
    """Edges, lines of code and the stack file, from where the focus is."""
    graph = shown.one('.edge[aria-checked="true"]')
    at = int(str(graph.get_attribute("data-edge")))
    graph.send_keys(Keys.ARROW_DOWN)
    focused = shown.browser.switch_to.active_element
    assert focused.get_attribute("data-edge") == str(at + 1)
    assert focused.get_attribute("aria-checked") == "true"
    check_the_plan(shown, shown.data.boundaries[at + 1][0])
    pane = shown.one("#code-lines")
    pane.send_keys(Keys.END, Keys.ARROW_UP, Keys.HOME, Keys.PAGE_DOWN, Keys.ARROW_DOWN)
    assert pane.get_attribute("aria-activedescendant") == "code-22"
    pane.send_keys(Keys.ENTER)
    assert shown.browser.switch_to.active_element.get_attribute("id") == "yaml-lines"
    plot = shown.one("#plots svg")
    plot.send_keys(Keys.ARROW_RIGHT)
    assert "with 64 tokens" in shown.one("#plots output").text


def test_the_costs(shown: Opened) -> None:
    """The table has the lines of `cost`, best first, and the plots have its numbers."""
    shown.choose("topology", "tp4_dp2")
    for tokens in TOKENS:
        shown.choose("tokens", str(tokens))
        lines = [
            one
            for one in shown.data.costs.lines
            if (one.tokens, one.policy) == (tokens, shown.data.auto)
        ]
        cells = shown.texts("#cost-table td.n")
        assert cells == [
            number(value)
            for one in lines
            for value in (
                one.ranks,
                one.rows,
                one.layer_collectives,
                one.layer_bytes,
                one.forward_collectives,
                one.forward_bytes,
                one.microseconds,
            )
        ]
        (own,) = [one for one in lines if (one.topology, one.variant) == ("tp4_dp2", "ordinary")]
        facts = " ".join(shown.texts("#facts dd"))
        assert f"{number(own.forward_bytes)} B" in facts
        assert f"{number(own.microseconds)} µs" in facts
    for name in ("forward_bytes", "microseconds"):
        selector = f'[data-plot="{name}"] .series.on circle'
        values = [one.get_attribute("data-value") for one in shown.all(selector)]
        points = [
            getattr(one, name)
            for tokens in TOKENS
            for one in shown.data.costs.lines
            if (one.topology, one.variant) == ("tp4_dp2", "ordinary")
            and (one.tokens, one.policy) == (tokens, shown.data.auto)
        ]
        assert [float(str(one)) for one in values] == points
    shown.one('[data-sort="forward_bytes"]').click()
    column = shown.texts("#cost-table tbody tr td:nth-last-child(2)")
    numbers = [float(one.replace(",", "")) for one in column]
    assert numbers == sorted(numbers)
    shown.one('#compare input[value="variants"]').click()
    assert {one.get_attribute("data-names") for one in shown.all("#plots .series")} == {
        "ordinary",
        "sequence_parallel",
    }


def test_an_address_that_was_sent(shown: Opened) -> None:
    """It shows what its sender saw; what there is not in it is left out."""
    shown.choose("topology", "tp8")
    shown.choose("tokens", "1")
    shown.choose("tokens", "")
    shown.one('[data-edge="0"] rect').click()
    address = shown.browser.current_url
    shown.browser.get("about:blank")
    shown.browser.get(address)
    assert (shown.chosen("topology"), shown.chosen("tokens")) == ("tp8", "")
    assert shown.one('[data-edge="0"]').get_attribute("aria-checked") == "true"
    shown.browser.get("about:blank")
    shown.browser.get(f"{shown.address}#topology=tp9&variant=x&edge=99&line=4&tokens=3&policy=")
    assert shown.chosen("policy") == shown.data.auto


@pytest.mark.parametrize("width", [1400, 1100, 760, 420])
def test_no_table_of_the_plan_is_cut_off(shown: Opened, width: int) -> None:
    """They stand below each other where they do not fit beside each other."""
    sized(shown.browser, width)
    found = "[...document.querySelectorAll('#plan .way[open] .tables > *')]"
    excess = f"return {found}.map((one) => one.scrollWidth - one.clientWidth)"
    assert shown.browser.execute_script(excess) == [0, 0]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_both_themes_wide_and_narrow(shown: Opened, theme: str, tmp_path: Path) -> None:
    """As the system prefers it, else by the button; no page is wider than its window."""
    themed(shown.browser, theme)
    pictures = set()
    for width in (1400, 420):
        sized(shown.browser, width)
        excess = "const page = document.documentElement; return page.scrollWidth - page.clientWidth"
        assert shown.browser.execute_script(excess) == 0
        picture = screenshot(shown.browser, tmp_path / f"{theme}-{width}.png")
        assert picture.startswith(b"\x89PNG")
        pictures.add(picture)
    paper = "return getComputedStyle(document.body).backgroundColor"
    before = shown.browser.execute_script(paper)
    assert before == {"light": "rgb(246, 246, 244)", "dark": "rgb(18, 20, 22)"}[theme]
    shown.one("#theme").click()
    assert shown.browser.execute_script(paper) != before
    pictures.add(screenshot(shown.browser, tmp_path / "other.png"))
    assert len(pictures) == 3
    shown.one("#theme").click()
    shown.browser.execute_script("localStorage.clear()")
