"""What a process says in its log of a stack that it has loaded."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

LOGGER = logging.getLogger("boundaryc")


def announce(stack: type, rank: int, about: Mapping[str, object]) -> None:
    """Logs what a loaded stack sends in a layer, and which optional paths it does not take.

    One record of level INFO, on the first rank of a pipeline stage only: what it says is the same
    on all of them. ``about`` has the stack's name, topology, policy and layers; the rest is what
    the compiler wrote into the topology's ``plan.json``.
    """
    if rank or not LOGGER.isEnabledFor(logging.INFO):
        return
    head = (
        f"{about['stack']} on {about['topology']}: policy {about['policy']}, "
        f"layers {about['layers']}"
    )
    lines = _summary(stack.__module__, str(about["policy"]))
    LOGGER.info("%s", "\n  ".join([head, *lines]))


def _summary(package: str, policy: str) -> Iterator[str]:
    """The lines of a policy."""
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    try:
        text = Path(file).with_name("plan.json").read_text(encoding="utf-8") if file else ""
    except OSError:
        text = ""
    if not text:
        yield "what it runs is not said: there is no plan.json beside the generated package"
        return
    for one in json.loads(text).get("summary", ()):
        if policy in one["policies"]:
            yield from one["lines"]
