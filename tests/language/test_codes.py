"""Each code, whoever raises it: explained, with an example that gives it and one that does not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from boundaryc.language import CODES, Severity
from boundaryc.language.explain import base, complete, explain, explanation
from tests.language.derived import COMMAND, DERIVED, NOT_YAML, ROOT, failing, found_in

RAISED = re.compile(r"\bBC\d{3,}\b")
FOLDER = ROOT / "boundaryc" / "language" / "explanations"


def _raised() -> dict[str, Path]:
    """Each code that a module of the compiler mentions, and one that does."""
    paths = sorted((ROOT / "boundaryc").rglob("*.py"))
    return {
        code: path
        for path in paths
        if path.name != "codes.py"
        for code in RAISED.findall(path.read_text(encoding="utf-8"))
    }


def test_every_code_is_registered_and_explained() -> None:
    """A code that any package raises is in the registry, and has its file of explanations."""
    unknown = {code: str(path) for code, path in _raised().items() if code not in CODES}
    assert not unknown, "add these to boundaryc/language/codes.py"
    explained = {path.stem for path in FOLDER.glob("*.md")}
    assert explained == set(CODES), "one file in boundaryc/language/explanations for each code"


def test_no_code_is_idle() -> None:
    """What is registered is raised somewhere."""
    assert set(CODES) <= set(_raised())


@pytest.mark.parametrize("code", CODES)
def test_the_failing_example_gives_exactly_its_code(code: str) -> None:
    """And the diagnostic says what to do; lint warns or notes, everything else is an error."""
    found, _ = failing(explanation(code))

    assert [item.code for item in found] == [code]
    assert found[0].help
    assert (found[0].severity is Severity.ERROR) == (not code.startswith("BC6"))


@pytest.mark.parametrize("code", CODES)
def test_the_fixed_example_is_fine(code: str) -> None:
    """Nothing at all is reported for it."""
    parts = explanation(code)
    if parts.working == "yaml":
        assert found_in(complete(parts.works)) == ()
    else:
        assert code in NOT_YAML


def test_the_base_is_fine() -> None:
    """The examples start from a file without a finding, and their lines keep their numbers."""
    assert found_in(base()) == ()
    assert complete("hidden_size: 4\n").splitlines()[:2] == ["hidden_size: 4", "boundaryc: 1"]
    assert complete("hidden_size: 4\n").count("hidden_size") == 1


def test_explain_has_all_of_it() -> None:
    """The title, the story and both examples; a wrong code names a close one."""
    text = explain("BC205")
    assert text.startswith("BC205: the sizes of a topology do not multiply out\n\n`tp = attn_dp")
    assert "Fails:\n\n    topologies:\n      tp4: {tp: 4, attn_dp: 3}\n\nWorks:\n\n" in text
    assert text.endswith("attn_dp: 2}\n")
    with pytest.raises(ValueError, match=r"there is no code BC025; did you mean BC\d+\?"):
        explain("BC025")
    with pytest.raises(ValueError, match=r"there is no code \.\./stack$"):
        explain("../stack")


@pytest.mark.parametrize("name", DERIVED)
def test_derived_files_are_fresh(name: str) -> None:
    """Schemas, docs/diagnostics.md and the snapshots are what the code would write today."""
    path = ROOT / name
    assert path.is_file(), f"run `{COMMAND}`"
    assert path.read_text(encoding="utf-8") == DERIVED[name](), f"stale: run `{COMMAND}`"


def test_the_reference_has_every_code() -> None:
    """Each with the rendering of its failing example."""
    text = (ROOT / "docs" / "diagnostics.md").read_text(encoding="utf-8")
    for code, title in CODES.items():
        section = text.partition(f"## {code}: {title}\n")[2].partition("\n## ")[0]
        assert f"[{code}]: " in section, code
