"""What the GitHub action runs: a command of boundaryc, and what the change means to its reviewers.

It needs nothing but Python. All that is asked for comes from the environment, see `action.yml`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MOST = 60_000
"""Characters of a job's summary; GitHub refuses one of more than a mebibyte."""


class AskedError(Exception):
    """It cannot be run as asked."""


def main() -> int:
    """The exit code of the command, or else that of the comparison."""
    try:
        told = {name: _input(name) for name in ("BREAKING", "DIFF")}
        _one_of("breaking", told["BREAKING"], "warn", "fail")
        _one_of("diff", told["DIFF"], "true", "false")
        words = shlex.split(_input("ARGS"))
        if not words:
            raise AskedError("`args` is empty: name a command, such as `check --full`")
        boundaryc = _boundaryc()
        code = _run([*boundaryc, words[0], "--output-format", "github", *words[1:]]).returncode
        if told["DIFF"] == "true":
            compared = _compared(boundaryc, fails=told["BREAKING"] == "fail")
            code = code or compared
    except (AskedError, ValueError, OSError) as problem:
        print(f"::error title=boundaryc action::{_one_line(str(problem))}")
        return 2
    return code


def _input(name: str) -> str:
    return os.environ.get(f"BOUNDARYC_{name}", "").strip()


def _one_of(name: str, value: str, *allowed: str) -> None:
    if value not in allowed:
        raise AskedError(f"`{name}` is {value!r}; it is one of {', '.join(allowed)}")


def _boundaryc() -> list[str]:
    """The command: the job's own, which compiles as its users do, else one that is installed."""
    found = shutil.which("boundaryc")
    if found is not None:
        return [found]
    folder = Path(os.environ.get("RUNNER_TEMP") or ROOT) / "boundaryc-action"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        _quietly([sys.executable, "-m", "venv", str(folder)])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    version = _input("VERSION")
    _quietly([*pip, *_needed()])
    _quietly([*pip, "--no-deps", f"boundaryc=={version}" if version else str(ROOT)])
    return [str(python), "-m", "boundaryc"]


def _needed() -> list[str]:
    """What boundaryc needs to compile: all that it names but torch, which only the runtime uses."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [one for one in project["dependencies"] if not re.match(r"torch\b", one)]


def _compared(boundaryc: list[str], *, fails: bool) -> int:
    """Annotates the change, and writes it into the job's summary; the exit code of `diff`."""
    base = _base()
    if base is None:
        print("no pull request and no `base`: nothing is compared")
        return 0
    if _git("cat-file", "-e", f"{base}^{{commit}}") is None:
        fetched = _git("fetch", "--quiet", "--no-tags", "--depth=1", "origin", base)
        if fetched is None or _git("cat-file", "-e", f"{base}^{{commit}}") is None:
            raise AskedError(f"the revision {base} is not here, and cannot be fetched from origin")
    path = _input("PATH")
    if path and _git("cat-file", "-e", f"{base}:{path}") is None:
        print(f"{path} is not in {base}: there is nothing to compare with")
        return 0
    old, new = (f"{one}:{path}" if path else one for one in (base, "HEAD"))
    words = [*boundaryc, "diff", old, new, "--no-code", "--skip-wrong", "--output-format", "github"]
    done = _run([*words, "--breaking"] if fails else words)
    said = [line for line in done.stdout.splitlines() if not line.startswith("::")]
    if done.returncode not in (0, 1) or not said:
        said += done.stderr.splitlines()
    _summarise("\n".join(said).strip())
    return done.returncode


def _base() -> str | None:
    """The revision to compare with; None where there is none."""
    asked = _input("BASE")
    if asked:
        if asked.startswith("-"):
            raise AskedError(f"`base` is {asked!r}, which is no revision")
        return asked
    event = os.environ.get("GITHUB_EVENT_PATH")
    said = json.loads(Path(event).read_text(encoding="utf-8")) if event else {}
    request = said.get("pull_request")
    if not request:
        return None
    return _merged_into() or str(request["base"]["sha"])


def _merged_into() -> str | None:
    """What a merge that GitHub made for the pull request was made with, which may have moved on."""
    if not re.fullmatch(r"refs/pull/\d+/merge", os.environ.get("GITHUB_REF", "")):
        return None
    # As the commit says it: a checkout of depth 1 has no parents otherwise.
    parents = re.findall(r"^parent (\w+)$", _git("cat-file", "-p", "HEAD") or "", re.M)
    here = (_git("rev-parse", "HEAD") or "").strip()
    return parents[0] if len(parents) == 2 and here == os.environ.get("GITHUB_SHA") else None


def _summarise(text: str) -> None:
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if not summary:
        return
    cut = "" if len(text) <= MOST else "\n... and more; see the log"
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    with Path(summary).open("a", encoding="utf-8") as file:
        file.write(f"### boundaryc: what this changes\n\n{fence}\n{text[:MOST]}{cut}\n{fence}\n")


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command, and shows what it prints; annotations are among it."""
    print(f"$ {shlex.join(words)}", flush=True)
    done = subprocess.run(
        words, cwd=_directory(), capture_output=True, text=True, encoding="utf-8", check=False
    )
    for stream, text in ((sys.stdout, done.stdout), (sys.stderr, done.stderr)):
        stream.write(text)
        stream.flush()
    return done


def _quietly(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode:
        raise AskedError(f"{shlex.join(words)} failed: {done.stderr.strip()}")


def _git(*words: str) -> str | None:
    """What git says; None where it fails."""
    done = subprocess.run(
        ["git", *words],
        cwd=_directory(),
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    return None if done.returncode else done.stdout


def _directory() -> Path:
    folder = Path(_input("DIRECTORY") or ".")
    if not folder.is_dir():
        raise AskedError(f"`working-directory` is {str(folder)!r}, which is no folder")
    return folder


def _one_line(text: str) -> str:
    for char in "%\r\n":
        text = text.replace(char, f"%{ord(char):02X}")
    return text


if __name__ == "__main__":
    sys.exit(main())
