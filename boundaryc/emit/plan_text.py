"""Operations as the words of a plan."""

from __future__ import annotations

from dataclasses import fields

from boundaryc.plan import ops
from boundaryc.topology import Mesh


def op_text(mesh: Mesh, op: ops.Operation) -> str:
    """An operation as a line: ``reduce_scatter attn_tp variable``."""
    name = "".join(f"_{c.lower()}" if c.isupper() else c for c in type(op).__name__).lstrip("_")
    words = [name]
    for field in fields(op):
        value = getattr(op, field.name)
        if field.name == "variable":
            words += ["variable"] * value
        elif field.name == "to_tokens":
            words.append("to tokens" if value else "to shards")
        elif field.name == "index":
            words.append(str(value))
        elif field.name == "axes":
            words.append(mesh.label(value))
        elif value:
            words.append(f"{field.name} {mesh.label(value)}")
    return " ".join(words)
