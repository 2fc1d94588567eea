"""Every relative link of the documentation leads to a file, and to a section of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, MADE, ROOT, links, sections

PAGES = sorted([ROOT / "README.md", *DOCS.glob("*.md"), *(ROOT / "examples").glob("*/README.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for path, section in links(page):
        target = (page.parent / path).resolve() if path else page
        if target.is_relative_to(ROOT) and str(target.relative_to(ROOT)) in MADE:
            continue
        assert target.exists(), path
        assert not section or section in sections(target), f"{path}#{section}"
