"""One number between generated packages and the runtime, and what happens where it does not fit."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import boundaryc.emit.abi
from boundaryc import __version__, runtime
from boundaryc.runtime import BoundaryError, SingleGroups, abi
from boundaryc.runtime.abi import require

GENERATED = Path(__file__).resolve().parents[2] / "generated"

INTERFACE = Path(__file__).with_name("interface.txt")
"""The number, and what the code that is generated for it takes of the runtime, by module.

Where a line is missing, generated code needs something that runtimes of this number lack: raise
`ABI` and add it. Where one is of no use, code of this number would not run any more: keep it, or
raise `OLDEST` and take it out.
"""

TAKES = re.compile(r"^\s*from boundaryc\.(runtime(?:\.\w+)?) import (\([^)]*\)|[^\n]+)", re.M)


@pytest.fixture
def package() -> ModuleType:
    """A generated package as a fresh process imports it, but for the modules that it uses later."""
    for name in [name for name in sys.modules if re.match(r"generated\.qwen3(\.|$)", name)]:
        del sys.modules[name]
    return importlib.import_module("generated.qwen3")


def test_there_is_one_number() -> None:
    """What the compiler writes is what the runtime beside it is; published packages say it."""
    assert boundaryc.emit.abi.ABI == abi.ABI
    assert abi.OLDEST <= abi.ABI
    texts = [path.read_text(encoding="utf-8") for path in GENERATED.glob("*/__init__.py")]
    assert texts
    assert all(f"\nABI = {abi.ABI}\n" in text for text in texts)


def test_what_is_between_is_recorded() -> None:
    """A change of it is one of the number, too."""
    head, *known = INTERFACE.read_text(encoding="utf-8").splitlines()
    assert head == f"ABI {abi.ABI}"
    assert known == sorted(known)
    used = set()
    for path in GENERATED.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        used |= {f"runtime {name}" for name in re.findall(r"\bruntime\.([A-Za-z]\w+)\(", text)}
        for module, names in TAKES.findall(text):
            found = re.findall(r"\w+(?: as \w+)?", names.partition("#")[0])
            used |= {f"{module} {name.partition(' ')[0]}" for name in found}

    assert used - {*known} == set()
    for module, name in (line.split() for line in known):
        assert hasattr(importlib.import_module(f"boundaryc.{module}"), name), name


@pytest.mark.parametrize(("oldest", "newest"), [(1, 1), (0, 1), (1, 2), (0, 2)])
def test_the_ends_of_the_range_are_in_it(
    oldest: int, newest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abi, "OLDEST", oldest)
    monkeypatch.setattr(abi, "ABI", newest)

    require(1, "generated.qwen3")


def test_a_package_that_is_too_new(package: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told before anything is imported that an older runtime lacks."""
    monkeypatch.setattr(package, "ABI", 7)
    monkeypatch.delattr(runtime, "AttentionBoundary")

    with pytest.raises(BoundaryError) as refused:
        package.load("tp1", SingleGroups())

    folder = Path(abi.__file__).parent
    assert str(refused.value) == (
        "generated.qwen3 was compiled for version 7 of the runtime's interface, and the runtime "
        f"in {folder} runs version 1: upgrade the runtime (pip install --upgrade boundaryc), or "
        "compile the package with the boundaryc that is installed "
        "(boundaryc compile examples/qwen3/stack.yaml)"
    )
    with pytest.raises(BoundaryError, match="version 7"):
        _ = package.AttentionMlp
    assert package.supports("tp1") is None  # which needs no runtime


def test_a_package_that_is_too_old(package: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abi, "OLDEST", 3)
    monkeypatch.setattr(abi, "ABI", 5)

    with pytest.raises(BoundaryError) as refused:
        package.load("tp1", SingleGroups())

    assert "compiled for version 1 of" in str(refused.value)
    assert (
        "runs versions 3 to 5: compile it again (boundaryc compile examples/qwen3/stack.yaml)"
        in (str(refused.value))
    )
    assert f"(pip install 'boundaryc=={__version__}')" in str(refused.value)


def test_a_package_without_a_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less is known of it, and the numbers are told all the same."""
    monkeypatch.setattr(abi, "OLDEST", 2)
    monkeypatch.setattr(abi, "ABI", 2)

    with pytest.raises(BoundaryError, match=r"version 1 .* runs version 2: compile it again"):
        require(1, "nowhere.to_be_found")
