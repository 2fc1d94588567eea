"""What a kernel that finalises takes in place of one row a token: rows of experts."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from boundaryc.emit.layout_text import bracketed
from boundaryc.emit.views import Lines

PARAMS = (
    *(("x", "Tensor"), ("gates", "Tensor")),
    *(("index", "Tensor | None"), ("shared", "Tensor | None")),
)
"""What its function takes first, see `runtime.ExpertRows`."""

NAMES = tuple(name for name, _ in PARAMS)
"""The same by name."""

FORM = ("SLOTS", "INDEXED", "SHARES")
"""Constants of a call: rows of a token, whether an index names them, and whether one is shared."""


def taken(others: Collection[str]) -> tuple[str, ...]:
    """What the kernel itself takes: rows first, then ``others``, of which some are rows."""
    rows = [name for name in others if name in ("residual", "addition")]
    params = [name for name in others if name not in rows]
    return ("x", *rows, "shared", "gates", "index", *params)


def given(tensors: Collection[str]) -> list[str]:
    """The arguments of a launch, of which three come from the call before it."""
    return [name for name in tensors if name not in ("shared", "gates", "index", "x")]


def launched(name: str, tensors: Collection[str], made: str, numbers: Sequence[str]) -> Lines:
    """The statements that launch the kernel called ``name`` with what it takes."""
    others = given(tensors)
    rows = [one for one in others if one in ("residual", "addition")]
    params = [one for one in others if one not in rows]
    inputs = f"({', '.join(['x', *rows, '*experts', *params])})"
    constants = f"({', '.join(['*form', *numbers])})" if numbers else "form"
    return (
        f"experts, form = expert_inputs({', '.join(NAMES)})",
        *bracketed(f"{name}(", [inputs, made, constants], ")", indent=8),
    )


def checked(others: Collection[str]) -> Lines:
    """The statement that refuses rows which the kernel would read past the end of."""
    rows = [name for name in others if name == "residual"]
    return bracketed("check_experts(", ["WIDTH.value", *NAMES, *rows], ")", indent=4)
