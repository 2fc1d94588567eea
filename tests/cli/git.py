"""Repositories of git as users have them, whatever the configuration of who runs the tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

WHO = {
    **{f"GIT_{who}_{what}": "tester" for who in ("AUTHOR", "COMMITTER") for what in ("NAME",)},
    **{f"GIT_{who}_EMAIL": "tester@example.com" for who in ("AUTHOR", "COMMITTER")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


def clean(patch: pytest.MonkeyPatch) -> None:
    """Makes git know nothing but the repository that it is called in."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        patch.delenv(name)
    for name, value in WHO.items():
        patch.setenv(name, value)


def git(
    *words: str, cwd: Path, env: Mapping[str, str] | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Runs git; an AssertionError with what it says where it fails, unless ``check`` is False."""
    done = subprocess.run(
        ["git", *words], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert not check or not done.returncode, done.stdout + done.stderr
    return done


def repository(folder: Path) -> Path:
    """A new repository on the branch ``main``."""
    folder.mkdir(parents=True, exist_ok=True)
    git("init", "-q", "-b", "main", cwd=folder)
    return folder
