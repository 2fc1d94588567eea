"""The GitHub action's script, in real repositories with a base and a head."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from boundaryc.cli import Exit, main
from tests.cli import git as of_git
from tests.cli.git import git, repository
from tests.cli.process import ROOT
from tests.report.seeded import BASE

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
[STEP] = ACTION["runs"]["steps"]
REAL = f'exec "{sys.executable}" -m boundaryc "$@"'


class Ran(NamedTuple):
    """What a run of the action did: its exit code, the log, and the job's summary."""

    code: int
    log: str
    summary: str


class Job:
    """A pull request's checkout, and an environment with a boundaryc."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.programs = folder / "checkout", folder / "bin"
        self.summary, self.event = folder / "summary.md", folder / "event.json"
        self.programs.mkdir()
        patch.setenv("PATH", f"{self.programs}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("PYTHONPATH", str(ROOT))
        repository(self.folder)
        patch.chdir(self.folder)
        self.boundaryc(REAL)

    def boundaryc(self, script: str) -> None:
        """Makes the command what ``script`` does."""
        program = self.programs / "boundaryc"
        program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        program.chmod(0o755)

    def commit(self, text: str, *, compiled: bool = True) -> str:
        """Commits a stack file, and what it compiles to; the revision."""
        (self.folder / "stack.yaml").write_text(text, encoding="utf-8")
        if compiled:
            assert main(["compile", "-q"]) == Exit.OK
        return self.commit_all()

    def commit_all(self) -> str:
        """Commits what there is; the revision."""
        git("add", "-A", cwd=self.folder)
        git("commit", "-qm", "one", "--allow-empty", cwd=self.folder)
        return git("rev-parse", "HEAD", cwd=self.folder).stdout.strip()

    def run(self, into: str | None = None, ref: str = "", **inputs: str) -> Ran:
        """The action's step, as a runner starts it; of a pull request ``into`` a revision."""
        event = {"pull_request": {"base": {"sha": into}}} if into else {"ref": "refs/heads/main"}
        self.event.write_text(json.dumps(event), encoding="utf-8")
        self.summary.write_text("", encoding="utf-8")
        given = {name: said.get("default", "") for name, said in ACTION["inputs"].items()}
        given |= {name.replace("_", "-"): value for name, value in inputs.items()}
        given["python"] = sys.executable
        environment = {
            **os.environ,
            "GITHUB_EVENT_PATH": str(self.event),
            "GITHUB_REF": ref,
            "GITHUB_SHA": git("rev-parse", "HEAD", cwd=self.folder).stdout.strip(),
            "GITHUB_STEP_SUMMARY": str(self.summary),
        }
        for name, value in STEP["env"].items():
            known = re.fullmatch(r"\$\{\{ (github\.action_path|inputs\.([\w-]+)) \}\}", value)
            assert known, value
            environment[name] = given[known[2]] if known[2] else str(ROOT)
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEP["run"]],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        summary = self.summary.read_text(encoding="utf-8")
        return Ran(done.returncode, done.stdout + done.stderr, summary)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """The checkout of a pull request."""
    of_git.clean(monkeypatch)
    for name in [name for name in os.environ if name.startswith(("GITHUB_", "RUNNER_"))]:
        monkeypatch.delenv(name)
    return Job(tmp_path, monkeypatch)


def test_inputs_reach_no_script() -> None:
    """They are variables of the environment, each declared and each described."""
    assert "${{" not in STEP["run"]
    assert ACTION["runs"]["using"] == "composite"
    used = {value for value in STEP["env"].values() if "inputs." in value}
    assert used == {f"${{{{ inputs.{name} }}}}" for name in ACTION["inputs"]}
    assert all(said["description"] for said in ACTION["inputs"].values())
    assert ACTION["inputs"]["args"]["default"].startswith("check")


def test_a_pull_request_is_told_what_it_changes(job: Job) -> None:
    """Beside the lines of the stack file and in the summary; what breaks fails if asked."""
    base = job.commit(BASE)
    job.commit(BASE.replace("attn_dp: 2", "attn_dp: 4").replace("1.0e-6", "1.0e-5"))

    ran = job.run(base)
    assert ran.code == 0, ran.log
    assert "all fresh" in ran.log
    assert re.search(
        "^::warning file=stack.yaml,line=11,title=boundaryc diff%3A tiny::", ran.log, re.M
    )
    eps = "changed setting norm.eps: 1e-06 -> 1e-05"
    assert f"::notice file=stack.yaml,line=4,title=boundaryc diff%3A tiny::{eps}\n" in ran.log
    assert "::" not in ran.summary
    assert "breaks callers: the groups and the rows of its ranks are others" in ran.summary
    assert ran.summary.count("```") == 2

    failing = job.run(base, breaking="fail")
    assert failing.code == 1
    assert "::error file=stack.yaml,line=11," in failing.log


def test_what_is_stale_fails(job: Job) -> None:
    """Whatever the comparison says; and it is annotated."""
    base = job.commit(BASE)
    job.commit(BASE.replace("1.0e-6", "1.0e-5"), compiled=False)

    ran = job.run(base)

    assert ran.code == 1
    assert "::error file=generated/tiny/__init__.py,title=boundaryc check%3A stale::" in ran.log
    assert "changed setting norm.eps" in ran.summary


@pytest.mark.parametrize(
    ("check", "diff", "code"),
    [(0, 0, 0), (1, 0, 1), (3, 0, 3), (0, 1, 1), (0, 2, 2), (0, 3, 3), (2, 3, 2)],
)
def test_no_failure_is_hidden(job: Job, check: int, diff: int, code: int) -> None:
    """Neither of the command nor of the comparison, whose words are in the summary too."""
    job.boundaryc(f'echo "said $1"; echo "why $1" >&2; [ $1 = check ] && exit {check}; exit {diff}')
    base = job.commit_all()

    ran = job.run(base)

    assert ran.code == code
    assert ("why diff" in ran.summary) is (diff > 1)
    assert "why check" in ran.log


def test_the_base_is_fetched(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout of depth 1 has it not; for a merge of GitHub's it is what was merged into."""
    old = job.commit_all()
    base = job.commit_all()
    git("checkout", "-qb", "topic", old, cwd=job.folder)
    (job.folder / "new").touch()
    job.commit_all()
    git("checkout", "-q", "main", cwd=job.folder)
    git("merge", "-q", "--no-ff", "-m", "merge", "topic", cwd=job.folder)
    git("config", "uploadpack.allowAnySHA1InWant", "true", cwd=job.folder)
    shallow = tmp_path / "shallow"
    git("clone", "-q", "--depth=1", job.folder.as_uri(), str(shallow), cwd=tmp_path)
    job.folder = shallow
    monkeypatch.chdir(shallow)
    job.boundaryc('[ $1 = check ] || echo "between $2 and $3"')

    assert f"between {old} and HEAD" in job.run(old).summary
    assert f"between {base} and HEAD" in job.run(old, ref="refs/pull/7/merge").summary
    gone = job.run("0" * 40)
    assert gone.code == 2
    assert "cannot be fetched from origin" in gone.log


def test_where_there_is_nothing_to_compare(job: Job) -> None:
    """No pull request, a base without the stack, and comparing switched off."""
    job.commit_all()
    base = git("rev-parse", "HEAD", cwd=job.folder).stdout.strip()
    job.commit(BASE)

    first = job.run(base)
    assert first.code == 0, first.log
    assert "added stack tiny" in first.summary
    job.boundaryc("[ $1 = check ]")
    for ran in (job.run(), job.run(base, diff="false"), job.run(base, path="no/such")):
        assert (ran.code, ran.summary) == (0, "")


def test_what_is_wrong_in_the_base_is_left_out(job: Job) -> None:
    """The pull request that mends it passes and is told; other stacks are compared."""
    (job.folder / "other.yaml").write_text(BASE.replace("tiny", "other"), encoding="utf-8")
    base = job.commit(BASE.replace("rms", "rsm"), compiled=False)
    changed = BASE.replace("tiny", "other").replace("1.0e-6", "1.0e-5")
    (job.folder / "other.yaml").write_text(changed, encoding="utf-8")
    job.commit(BASE)
    assert main(["compile", "-q", "other.yaml"]) == Exit.OK
    job.commit_all()

    ran = job.run(base)

    assert ran.code == 0, ran.log
    left_out = rf"::notice title=boundaryc diff::{base}:stack.yaml is not compared: BC\d+: "
    assert re.search(left_out, ran.log)
    said = " ".join(ran.summary.split())
    assert f"not compared: {base}:stack.yaml is no valid stack file: BC" in said
    assert "changed setting norm.eps: 1e-06 -> 1e-05" in ran.summary
    assert "tiny" not in ran.summary


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"args": "check; touch pwned"}, 0),
        ({"args": "check $(touch pwned) `touch pwned`"}, 0),
        ({"args": "check 'open"}, 2),
        ({"args": " "}, 2),
        ({"path": '"; touch pwned; "', "base": "HEAD"}, 0),
        ({"base": "HEAD; touch pwned"}, 2),
        ({"base": "--upload-pack=touch pwned"}, 2),
        ({"working-directory": "$(touch pwned)"}, 2),
        ({"breaking": '"; touch pwned; "'}, 2),
    ],
    ids=str,
)
def test_no_input_is_run(job: Job, given: dict[str, str], code: int) -> None:
    """Words of a command are words; what cannot be meant is refused."""
    job.commit_all()
    job.boundaryc("exit 0")

    ran = job.run(**given)

    assert not list(job.folder.rglob("pwned"))
    assert ran.code == code
    assert ("::error title=boundaryc action::" in ran.log) is (code == 2)


def test_a_job_without_boundaryc_installs_what_compiles(
    job: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All that it depends on but torch, whose runtime a check does not use; a failure is one."""
    needed = runpy.run_path(str(ROOT / "action/main.py"))["_needed"]()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {*project["dependencies"]} - {*needed} == {"torch>=2.6"}

    (job.programs / "boundaryc").unlink()
    where = os.environ["PATH"].split(os.pathsep)
    kept = [one for one in where if not (Path(one) / "boundaryc").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(kept))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("RUNNER_TEMP", str(tmp_path))
    job.commit_all()
    ran = job.run()
    assert ran.code == 2
    assert "pip install" in ran.log
