"""The manifest: what was generated, from which meaning, by which version, on whose claims."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from boundaryc import __version__
from boundaryc.emit.files import Origin, digest
from boundaryc.operations import Operation
from boundaryc.plan.result import StackPlan

NAME = "manifest.json"
LANGUAGE = 1


def manifest(plan: StackPlan, origin: Origin, files: Mapping[str, str]) -> str:
    """The manifest's text: one line per file, sorted; the only place that names a version."""
    document: dict[str, object] = {
        "boundaryc": __version__,
        "claims": {
            name: {"by": operation.call, "facts": claims(operation)}
            for name, operation in sorted(plan.operations.items())
            if operation.call is not None
        },
        "files": {name: f"sha256:{digest(text)}" for name, text in sorted(files.items())},
        "from": origin.source,
        "language": LANGUAGE,
        "regenerate": origin.command,
        "source": f"sha256:{origin.digest}",
        "stack": plan.stack.name,
    }
    if origin.back is not None:
        document["path"] = origin.back
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a published manifest says: its stack, the hash of each file, and where its source is.

    ``path`` leads from the output folder to the source; None if the manifest does not say.
    """

    stack: str
    files: Mapping[str, str]
    path: str | None


def read_manifest(folder: Path) -> Recorded | None:
    """The manifest in a stack's folder; None if there is none that we could have written."""
    try:
        document = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or "boundaryc" not in document:
        return None
    stack, files, path = document.get("stack"), document.get("files"), document.get("path")
    if not isinstance(stack, str) or not isinstance(files, dict):
        return None
    hashes = {str(name): str(value) for name, value in files.items()}
    return Recorded(stack, hashes, path if isinstance(path, str) else None)


def claims(operation: Operation) -> list[str]:
    """What the author of an operation from outside says about it, unverified."""
    facts: list[str] = []
    for field in dataclasses.fields(operation.facts):
        value = getattr(operation.facts, field.name)
        if value is True:
            facts.append(field.name)
        elif value:
            facts.append(f"{field.name}: {', '.join(sorted(value))}")
    return facts
