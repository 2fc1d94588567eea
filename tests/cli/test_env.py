"""`boundaryc env`, and the schemas of everything that commands print as JSON."""

from __future__ import annotations

import json
import sys

import pytest

from boundaryc import __version__
from boundaryc.cli import Exit, main
from boundaryc.cli.schema import NAMES
from boundaryc.language.json_schema import SCHEMAS
from boundaryc.report.schemas import RESULTS, result_schema, result_schema_text
from tests.cli.process import ROOT
from tests.language.json_check import problems


def test_what_a_report_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As text and as JSON, with a variable of ours that is set."""
    monkeypatch.setenv("BOUNDARYC_TRACE", "traces")
    monkeypatch.delenv("COLUMNS", raising=False)  # a run on several processes sets it
    assert main(["env"]) == Exit.OK
    text = capsys.readouterr().out
    assert main(["env", "--json"]) == Exit.OK
    found = json.loads(capsys.readouterr().out)

    assert f"boundaryc{' ' * 8}{__version__}" in text
    assert "BOUNDARYC_TRACE  traces" in text
    schema = result_schema("env")
    assert list(problems(found, schema, schema)) == []
    packages = {one["name"]: one["value"] for one in found["packages"]}
    assert packages["torch"]
    assert found["problem"] == ""


def test_a_torch_that_is_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is what the report says, and no failure of it."""
    monkeypatch.setitem(sys.modules, "torch", None)

    assert main(["env", "--json"]) == Exit.OK
    assert "ModuleNotFoundError" in json.loads(capsys.readouterr().out)["problem"]


def test_published_schemas(capsys: pytest.CaptureFixture[str]) -> None:
    """Of everything that has one; fresh, and printed as they are published."""
    assert set(NAMES) == {*SCHEMAS, *RESULTS}
    for kind in RESULTS:
        text = (ROOT / f"schemas/{kind}.schema.json").read_text("utf-8")
        assert text == result_schema_text(kind)
        assert main(["schema", kind]) == Exit.OK
        assert capsys.readouterr().out == text
        assert json.loads(text)["description"]
