"""What is installed is what the repository holds."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_wheel_carries_templates_and_schemas(tmp_path: Path) -> None:
    """They are top-level folders here and inside the package there."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        f"boundaryc/_{folder}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder in ("templates", "schemas")
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
    }

    assert expected
    assert expected <= names
    assert not {name for name in names if not name.startswith("boundaryc")}
