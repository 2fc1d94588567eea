"""The recipe for another model is the example that it adds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from boundaryc.language.codes import CODES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/add-a-model.md").read_text("utf-8")


@pytest.mark.parametrize(("language", "file"), [("yaml", "stack.yaml"), ("python", "hf.py")])
def test_what_the_recipe_writes_is_the_example(language: str, file: str) -> None:
    """Word for word, so that the tests of the example are those of the recipe."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)

    assert found
    assert found[1] == (ROOT / "examples/llama" / file).read_text("utf-8")


def test_what_the_recipe_names_exists() -> None:
    """Codes of refusals, and files."""
    codes = set(re.findall(r"\bBC\d{3}\b", PAGE))
    files = set(re.findall(r"`((?:examples|tests)/[^`*<]+)`", PAGE))

    assert codes <= set(CODES)
    assert [file for file in files if not (ROOT / file).exists()] == []
