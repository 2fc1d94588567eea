"""A project of a user."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.process import QWEN3


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one stack, which is the current directory."""
    (tmp_path / "models").mkdir()
    shutil.copyfile(QWEN3, tmp_path / "models/stack.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path
