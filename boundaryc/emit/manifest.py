"""The manifest: what was generated, from which meaning, by which compiler, on whose claims."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boundaryc import __version__
from boundaryc.emit.files import Origin, digest
from boundaryc.emit.fingerprint import fingerprint

if TYPE_CHECKING:
    from boundaryc.operations import Operation
    from boundaryc.plan.result import StackPlan

NAME = "manifest.json"

VENDORED = "runtime"
"""What a manifest calls the hash of the runtime that the stack has a copy of; else it has none."""

LANGUAGE = 1


def manifest(plan: StackPlan, origin: Origin, files: Mapping[str, str]) -> str:
    """The manifest's text: one line per file, sorted; the only place that names a version.

    ``body`` is the hash of all else in it, so that the hashes of the files cannot be put together
    from two manifests, as a merge would.
    """
    document: dict[str, Any] = {
        **inputs(plan.stack.name, origin),
        "claims": {
            name: {"by": operation.call, "facts": claims(operation)}
            for name, operation in sorted(plan.operations.items())
            if operation.outside
        },
        "files": {name: f"sha256:{digest(text)}" for name, text in sorted(files.items())},
    }
    return sealed(document)


def inputs(stack: str, origin: Origin) -> dict[str, object]:
    """What decides all of a stack's output, as its manifest says it."""
    document: dict[str, object] = {
        "boundaryc": __version__,
        "compiler": f"sha256:{fingerprint()}",
        "from": origin.source,
        "language": LANGUAGE,
        "regenerate": origin.command,
        "source": f"sha256:{origin.digest}",
        "stack": stack,
    }
    if origin.back is not None:
        document["path"] = origin.back
    return document


def sealed(document: Mapping[str, Any]) -> str:
    """The text of a manifest, with the hash of what it says."""
    rest = {key: value for key, value in document.items() if key != "body"}
    body = {"body": f"sha256:{digest(_text(rest))}"}
    return _text(rest | body)


def by_another_compiler(found: str, expected: str) -> bool:
    """Whether a whole manifest says what is expected and only names another compiler.

    Then that compiler made the very same files, and there is nothing to do.
    """
    try:
        before, after = json.loads(found), json.loads(expected)
    except ValueError:
        return False
    if not isinstance(before, dict) or sealed(before) != found:
        return False
    own = ("boundaryc", "compiler", "body")
    return all(before.get(key) == after.get(key) for key in {*before, *after}.difference(own))


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def tree_hash(origin: Origin, bodies: Mapping[str, str]) -> str:
    """What ranks compare to know that they run the same code: of the meaning and of every body.

    A file that is to hold the hash is among ``bodies`` with an empty one.
    """
    lines = [f"{name} {digest(body)}" for name, body in sorted(bodies.items())]
    return digest("\n".join([origin.digest, *lines]))


@dataclass(frozen=True)
class Recorded:
    """What a published manifest says: its stack, the hash of each file, and where its source is.

    ``path`` leads from the output folder to the source; None if the manifest does not say.
    ``said`` is all that it says, and ``text`` how.
    """

    stack: str
    files: Mapping[str, str]
    path: str | None
    said: Mapping[str, object]
    text: str

    @cached_property
    def intact(self) -> bool:
        """Whether nobody has changed it: the text is what `sealed` makes of what it says."""
        # Without what `body` says the text is what the hash is of: it need not be put together.
        body = self.said.get("body")
        rest = self.text.replace(f'  "body": {json.dumps(body)},\n', "", 1)
        return body == f"sha256:{digest(rest)}" and _text(self.said) == self.text


def read_manifest(folder: Path) -> Recorded | None:
    """The manifest in a stack's folder; None if there is none that we could have written."""
    file = folder / NAME
    try:
        text = file.read_bytes().decode("utf-8") if file.is_file() else ""
        document = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or "boundaryc" not in document:
        return None
    stack, files, path = document.get("stack"), document.get("files"), document.get("path")
    if not isinstance(stack, str) or not isinstance(files, dict):
        return None
    hashes = {str(name): str(value) for name, value in files.items()}
    return Recorded(stack, hashes, path if isinstance(path, str) else None, document, text)


def keeps_runtime(folder: Path) -> bool:
    """Whether what is published in a stack's folder has a runtime of its own."""
    recorded = read_manifest(folder)
    return recorded is not None and VENDORED in recorded.said


def claims(operation: Operation) -> list[str]:
    """What the author of an operation from outside says about it, unverified."""
    facts: list[str] = []
    for field in dataclasses.fields(operation.facts):
        value = getattr(operation.facts, field.name)
        if value is True:
            facts.append(field.name)
        elif field.name == "streams":
            facts += [f"streams: {value}"] * (value > 1)
        elif field.name == "state":
            facts += [f"state: {', '.join(f'{name} {width}' for name, width in value)}"] * bool(
                value
            )
        elif value:
            facts.append(f"{field.name}: {', '.join(sorted(value))}")
    return facts
