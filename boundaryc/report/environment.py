"""What a bug report needs to know: versions, devices, and variables of ours that are set."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from boundaryc import __version__
from boundaryc.emit.fingerprint import fingerprint
from boundaryc.report.text import table

PACKAGES = (
    "torch",
    "triton",
    "click",
    "greenlet",
    "jinja2",
    "networkx",
    "pydantic",
    "pyyaml",
    "rich",
    "transformers",
)
"""What we import, or the examples do."""

VARIABLES = ("BOUNDARYC_CHECK", "BOUNDARYC_TRACE", "TRITON_INTERPRET", "CUDA_VISIBLE_DEVICES")
"""Environment variables that change what runs."""


@dataclass(frozen=True, slots=True)
class Named:
    """A thing and what it is here; an empty value is a package that is not installed."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Environment:
    """Where boundaryc runs.

    ``compiler`` is the hash of its sources and templates, which manifests record. ``devices`` are
    the GPUs that torch sees, ``cuda`` and ``nccl`` what torch was built with, empty without torch
    or without these; ``problem`` is why torch cannot be imported, empty where it can.
    """

    boundaryc: str
    compiler: str
    python: str
    platform: str
    packages: tuple[Named, ...]
    cuda: str
    nccl: str
    devices: tuple[str, ...]
    variables: tuple[Named, ...]
    problem: str


def environment() -> Environment:
    """What runs here. Imports torch, where it is installed, to ask it for its devices."""
    cuda, nccl, devices, problem = _torch()
    return Environment(
        boundaryc=__version__,
        compiler=fingerprint(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=platform.platform(),
        packages=tuple(Named(name, _installed(name)) for name in PACKAGES),
        cuda=cuda,
        nccl=nccl,
        devices=devices,
        variables=tuple(Named(name, os.environ[name]) for name in VARIABLES if name in os.environ),
        problem=problem,
    )


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _torch() -> tuple[str, str, tuple[str, ...], str]:
    """CUDA, NCCL, the devices, and what keeps torch from being imported."""
    try:
        import torch
    except Exception as problem:  # a broken installation is what the report is for
        return "", "", (), f"{type(problem).__name__}: {problem}"
    cuda = str(torch.version.cuda or "")
    if not torch.cuda.is_available():
        return cuda, "", (), ""
    names = tuple(torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count()))
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    return cuda, nccl, names, ""


def text(found: Environment, width: int) -> Iterator[str]:
    """One line each, for people and for issues."""
    rows = [
        ("boundaryc", found.boundaryc),
        ("compiler", found.compiler),
        ("python", found.python),
        ("platform", found.platform),
        *((one.name, one.value or "not installed") for one in found.packages),
        ("cuda", found.cuda or "none"),
        ("nccl", found.nccl),
        ("devices", ", ".join(found.devices) or "none"),
        *((one.name, one.value) for one in found.variables),
        ("problem", found.problem),
    ]
    shown = [(name, value) for name, value in rows if value]
    yield from table(("name", "value"), shown, width)
