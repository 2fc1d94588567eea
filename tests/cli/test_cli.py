"""The command line as its users meet it: what it prints where, and how it ends."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import click
import pytest

from boundaryc import __version__
from boundaryc.cli import Exit, main, run
from tests.cli.process import MOE, ROOT, command

DOCUMENT = ROOT / "docs/cli.md"


def test_exit_codes() -> None:
    """Few, each with one meaning, and all of them in the documentation."""
    documented = re.findall(r"^\| (\d+) \| `(\w+)` \|", DOCUMENT.read_text("utf-8"), re.M)

    assert [(int(number), name) for number, name in documented] == [
        (int(code), code.name) for code in Exit
    ]
    text = run.boundaryc.help or ""
    assert set(re.findall(r"\b\d+\b", text)) == {str(int(code)) for code in Exit}


def test_every_command_and_option_is_documented() -> None:
    """In one place, with an example of each command."""
    text = DOCUMENT.read_text("utf-8")
    for name in run.COMMANDS:
        assert f"\n## {name}\n" in text
        section = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert f"boundaryc {name}" in section
        command = run.boundaryc.get_command(click.Context(run.boundaryc), name)
        assert command is not None
        for option in command.params:
            common = {"--output-format", "--json", "--quiet", "--out", "--jobs"}
            if isinstance(option, click.Option) and not common & set(option.opts):
                assert option.opts[0] in section, (name, option.opts)


def test_compile_then_check(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The result is on standard output, what to know about it on standard error."""
    assert main(["compile", "models/stack.yaml"]) == Exit.OK
    first = capsys.readouterr()
    files = sum(path.is_file() for path in (project / "generated").rglob("*"))
    assert first.out == f"{files} written, 0 unchanged, 0 removed\n"
    assert "note: qwen3: no sequence_parallel on tp1" in first.err

    assert main(["compile"]) == Exit.OK
    assert capsys.readouterr().out == f"0 written, {files} unchanged, 0 removed\n"

    assert main(["check"]) == Exit.OK
    fresh = capsys.readouterr()
    assert (fresh.out, fresh.err) == ("", f"{files} files compared: all fresh\n")


def test_check_says_what_is_wrong_and_how_to_put_it_right(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """File list, diff, count, and a command made of the user's own words."""
    main(["compile", "models/stack.yaml", "--out", "out"])
    (project / "out/qwen3/tp2/layout.py").unlink()
    edited = project / "out/qwen3/rowwise.py"
    edited.write_text(edited.read_text().replace("EPS = 1e-06", "EPS = 1e-05"))
    capsys.readouterr()

    assert main(["check", "models/stack.yaml", "--out", "out"]) == Exit.FINDINGS
    shown = capsys.readouterr()
    assert "edited by hand: out/qwen3/rowwise.py\n" in shown.out
    assert "missing: out/qwen3/tp2/layout.py\n" in shown.out
    assert "-EPS = 1e-05\n+EPS = 1e-06\n" in shown.out
    assert "1 edited by hand, 1 missing" in shown.err
    assert "fix: boundaryc compile models/stack.yaml --out out\n" in shown.err

    assert main(["check", "models/stack.yaml", "--out", "out", "--no-diff"]) == Exit.FINDINGS
    assert "EPS" not in capsys.readouterr().out


def test_a_long_diff_is_cut_with_a_count(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody scrolls through a file that is not there."""
    main(["compile", "models/stack.yaml"])
    (project / "generated/qwen3/tp4/sequence_parallel.py").unlink()
    capsys.readouterr()

    main(["check"])

    assert " more lines\n" in capsys.readouterr().out


def test_an_orphan_of_a_source_that_is_gone(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compiling cannot put it right, so the command is another one."""
    main(["compile", "models/stack.yaml"])
    (project / "models/stack.yaml").unlink()
    shutil.copyfile(MOE, project / "stack.yaml")
    main(["compile", "stack.yaml"])
    capsys.readouterr()

    assert main(["check", "stack.yaml", "--no-diff"]) == Exit.FINDINGS
    shown = capsys.readouterr()
    assert "orphaned: generated/qwen3/layers.py\n" in shown.out
    assert "fix: rm -- generated/qwen3/" in shown.err


def test_an_error_in_the_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Is shown where it is, and ends a check as a finding, whatever the files are like."""
    main(["compile", "models/stack.yaml"])
    source = project / "models/stack.yaml"
    source.write_text(source.read_text().replace("kind: ffn", "kind: fnf"))
    capsys.readouterr()

    for verb in ("compile", "check"):
        assert main([verb, "models/stack.yaml"]) == Exit.FINDINGS
        shown = capsys.readouterr()
        assert shown.out == ""
        assert "--> models/stack.yaml:" in shown.err
        assert "^^^" in shown.err


def test_nothing_is_written_if_one_file_is_wrong(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All files are compiled before any is published."""
    (project / "bad.yaml").write_text("boundaryc: 1\n")

    assert main(["compile", "models/stack.yaml", "bad.yaml"]) == Exit.FINDINGS
    assert not (project / "generated").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["compile", "no/such.yaml"],
        ["compile", "--bad-option"],
        ["nonsense"],
        ["check"],
        ["compile", "--out", "models/stack.yaml"],
    ],
)
def test_what_cannot_be_run(
    project: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """Ends with 2 and says why; `check` with nothing to check is never green."""
    assert main(words) == Exit.UNUSABLE
    assert capsys.readouterr().err


def test_two_files_of_one_stack(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Would overwrite each other."""
    shutil.copyfile(project / "models/stack.yaml", project / "again.yaml")

    assert main(["compile", "models/stack.yaml", "again.yaml"]) == Exit.UNUSABLE
    assert "are both the stack `qwen3`" in capsys.readouterr().err


def test_a_file_that_is_not_ours(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Is not overwritten."""
    (project / "generated/qwen3").mkdir(parents=True)
    (project / "generated/qwen3/layers.py").write_text("mine = 1\n")

    assert main(["compile", "models/stack.yaml"]) == Exit.UNUSABLE
    assert "was not written by boundaryc" in capsys.readouterr().err


def test_a_bug_is_ours(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The traceback goes to a file, and the message says what to do with it."""

    def broken(*sources: object, **options: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("boundaryc.api.compile", broken)
    monkeypatch.setattr("tempfile.tempdir", str(project))

    assert main(["compile", "models/stack.yaml"]) == Exit.BUG
    shown = capsys.readouterr().err
    assert "This is a bug. Please report it with" in shown
    report = next(project.glob("boundaryc-*.txt"))
    assert "ZeroDivisionError: oops" in report.read_text()


def test_an_interruption(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends as shells expect."""

    def interrupted(*sources: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("boundaryc.api.compile", interrupted)

    assert main(["compile", "models/stack.yaml"]) == Exit.INTERRUPTED


def test_a_plan_that_does_not_exist(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names the boundary, the requirement, the kind of batch and the topology, with their lines."""
    shutil.copyfile(Path(__file__).parent / "impossible.yaml", project / "impossible.yaml")

    assert main(["compile", "impossible.yaml"]) == Exit.FINDINGS
    shown = capsys.readouterr().err
    assert "error[BC401]: no plan from" in shown
    assert "`mlp`" in shown
    assert "sequence_parallel batches" in shown
    assert "--> impossible.yaml:" in shown
    assert "on this topology" in shown


def test_axes_that_do_not_nest(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Points at the topology."""
    source = project / "models/stack.yaml"
    text = source.read_text().replace("  tp2: {tp: 2}", "  tp12: {tp: 12, attn_dp: 3}")
    text = text.replace("mlp: {kind: ffn}", "mlp: {kind: ffn, sparse: true}")
    source.write_text(text.replace("attn_dp: 3}", "attn_dp: 3, moe: {dp: 2, ep: 6}}"))

    assert main(["compile", "models/stack.yaml"]) == Exit.FINDINGS
    shown = capsys.readouterr().err
    assert "error[BC402]: topology `tp12`" in shown
    assert "do not nest" in shown


def test_the_version_costs_nothing(tmp_path: Path) -> None:
    """Nothing but the standard library is imported for it, nor for the package itself."""
    program = (
        "import sys; from boundaryc.cli import main; code = main(['--version']); "
        "heavy = {'click', 'jinja2', 'yaml', 'pydantic', 'networkx', 'torch', 'rich'}; "
        "sys.exit(code or len(heavy & set(sys.modules)))"
    )
    done = command("-c", program, folder=tmp_path)

    assert (done.returncode, done.stdout) == (0, f"boundaryc {__version__}\n")


def test_a_command_imports_only_what_it_needs(project: Path) -> None:
    """Compiling needs neither torch nor triton."""
    program = (
        "import sys; from boundaryc.cli import main; "
        "code = main(['compile', 'models/stack.yaml']); "
        "sys.exit(code or len({'torch', 'triton'} & set(sys.modules)))"
    )

    assert command("-c", program, folder=project).returncode == 0


def test_every_command_can_be_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    """And explains itself, with an example."""
    for name in ("", *run.COMMANDS, "trace compare"):
        assert main([*name.split(), "--help"]) == Exit.OK
        shown = capsys.readouterr().out
        assert f"Usage: boundaryc {name}".rstrip() in shown
        assert f"boundaryc {name or 'compile'} " in shown.partition("\n")[2]


def test_python_m(tmp_path: Path) -> None:
    """`python -m boundaryc` is the same program."""
    done = command("-m", "boundaryc", "--version", folder=tmp_path)

    assert done.stdout == f"boundaryc {__version__}\n"
