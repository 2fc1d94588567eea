"""The part of random stack files that is about fused sums and the end of a stack."""

from __future__ import annotations

from hypothesis import strategies as st

Draw = st.DrawFn

AGAINST = ("transform", "additive", "reduction", "defer: false", "update")
"""What a stage that hands on what it has not finalised does not say."""

UNNORMED = "terminal: {norm: false}"
PROVIDERS = (
    *("kernels", "kernels, others", "symmetric_memory"),
    *("builtin", "kernels, builtin, others"),
)


def fused(draw: Draw, stages: list[str], last: str, *, alone: bool) -> tuple[list[str], list[str]]:
    """The lines of stages, some of which may hand on, and those of `fusion` and `terminal`.

    ``alone``: there is neither a branch nor an adapter, which exclude such stages. ``last`` is the
    last stage of the last layer.
    """
    ends: list[str] = []
    fusion = draw(st.integers(0, 2)) == 1
    if fusion:
        names = draw(st.sampled_from(PROVIDERS))
        ends.append(f"fusion: {{providers: [{names}]}}")
    if fusion and alone:
        stages = [_handing_on(draw, line) for line in stages]
    how = draw(st.integers(0, 5))
    finishes = any(line.strip().startswith(f"{last}:") and "deferred" in line for line in stages)
    if finishes and how < 4:
        ends.append("terminal: {finalize: deferred}")
    elif how == 5:
        ends.append(UNNORMED)
    return stages, ends


def _handing_on(draw: Draw, line: str) -> str:
    """A stage's line; a MoE that nothing speaks against may defer its finalize."""
    if "sparse: true" not in line or any(word in line for word in AGAINST):
        return line
    return f"{line[:-1]}, finalize: deferred}}" if draw(st.integers(0, 3)) else line
