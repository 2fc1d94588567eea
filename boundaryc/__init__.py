"""Compiles a description of a decoder stack into the code that runs between its stages.

    stack = boundaryc.load("stack.yaml")     # what the file means
    plan = boundaryc.plan(stack)             # which operations run at which boundary
    boundaryc.compile("stack.yaml")          # the code, published under generated/
    boundaryc.check(["stack.yaml"])          # whether what is published is what it would be

Nothing heavy is imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boundaryc.api import check, compile, load, plan  # noqa: A004 - our verbs

__version__ = "0.1.0"

__all__ = ["__version__", "check", "compile", "load", "plan"]


def __getattr__(name: str) -> Any:
    if name in ("check", "compile", "load", "plan"):
        from boundaryc import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
