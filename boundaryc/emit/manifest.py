"""The manifest: what was generated, from which meaning, by which version, on whose claims."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

from boundaryc import __version__
from boundaryc.emit.files import Origin, digest
from boundaryc.operations import Operation
from boundaryc.plan.result import StackPlan

NAME = "manifest.json"
LANGUAGE = 1


def manifest(plan: StackPlan, origin: Origin, files: Mapping[str, str]) -> str:
    """The manifest's text: one line per file, sorted; the only place that names a version."""
    document = {
        "boundaryc": __version__,
        "claims": {
            name: claims(operation)
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
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def claims(operation: Operation) -> dict[str, object]:
    """What the author of an operation from outside says about it, unverified."""
    facts: list[str] = []
    for field in dataclasses.fields(operation.facts):
        value = getattr(operation.facts, field.name)
        if value is True:
            facts.append(field.name)
        elif value:
            facts.append(f"{field.name}: {', '.join(sorted(value))}")
    return {"by": operation.call, "facts": facts}
