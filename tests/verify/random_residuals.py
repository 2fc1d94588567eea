"""Residual sets of random stack files, with the reads and updates that go with them."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

Draw = st.DrawFn
CALL = "tests.verify.stream_operations"
SCALE = "params: [scale]"
STATE = "state: {gate: 2, turn: 1}"
HYPER_STATE = "state: {mix: 4, post: 2}"

OF_TWO = {
    "both": f"{{role: enter, call: {CALL}:two_streams, streams: 2}}",
    "gated_two": f"{{role: read, call: {CALL}:gated_streams, streams: 2, {STATE}, {SCALE}}}",
    "merged": f"{{role: update, call: {CALL}:gated_update, streams: 2, {STATE}}}",
    "early_two": f"{{role: update, call: {CALL}:gated_update, streams: 2, {STATE}, "
    "facts: [at_producer]}",
    "shifted": f"{{role: update, call: {CALL}:shifted_streams, streams: 2, {STATE}, "
    "params: [shift], facts: [outlives_producer]}",
    "second": f"{{role: read, call: {CALL}:second_stream, streams: 2}}",
    "early_hyper": f"{{role: update, call: boundaryc.runtime:hyper_update, streams: 2, "
    f"{HYPER_STATE}, facts: [at_producer]}}",
}
"""Operations of a residual of two streams, by name."""
OF_ONE = {
    "tripled": f"{{role: enter, call: {CALL}:tripled}}",
    "doubled": f"{{role: read, call: {CALL}:doubled}}",
    "into": f"{{role: read, call: {CALL}:normed_into, facts: [rewrites_residual], {SCALE}}}",
    "rewritten": f"{{role: read, call: {CALL}:kept_and_rewritten, facts: [rewrites_residual], "
    "state: {mean: 1}}",
    "with_mean": f"{{role: update, call: {CALL}:with_mean, state: {{mean: 1}}}}",
    "in_stream": f"{{role: update, call: {CALL}:written_in_place, "
    "facts: [writes_stream, at_producer], params: [gate]}",
    "placed": f"{{role: read, call: {CALL}:placed_read, facts: [per_call], params: [scale]}}",
    "placed_update": f"{{role: update, call: {CALL}:placed_update, facts: [per_call]}}",
}
"""Operations of a residual of one stream that keep, write, or take something of every batch."""


@dataclass(frozen=True, slots=True)
class Residual:
    """A set: its line in the file, and what its stages may say of their reads and updates."""

    line: str
    known: dict[str, str]
    pairs: tuple[tuple[str, str], ...]
    ends: tuple[str, ...] = field(default=())

    def words(self, draw: Draw, operations: dict[str, str]) -> list[str]:
        """What one stage says of its read and its update; declares the operations."""
        read, update = draw(st.sampled_from(self.pairs))
        for name in (read, update):
            if name in self.known:
                operations[name] = self.known[name]
        said = (("read", read), ("update", update))
        return [f"{role}: {name}" for role, name in said if name]

    def declare(self, operations: dict[str, str]) -> None:
        """Declares the operations of the set itself."""
        operations |= {name: self.known[name] for name in self.ends}


def unread(residual: Residual, operations: dict[str, str]) -> Residual:
    """The same for a stack whose end reads nothing; its final read is not declared."""
    name = residual.line.partition("leave: ")[2].rstrip("}").split(", ")[0]
    ends = tuple(one for one in residual.ends if one != name)
    if name in residual.ends:
        operations.pop(name, None)
    line = residual.line.replace(f", leave: {name}", "") if name else residual.line
    return Residual(line, residual.known, residual.pairs, ends)


HYPER = Residual(
    "residual: {kind: hyper_connections, streams: 2, iterations: 2%s}",
    OF_TWO,
    (("", ""), ("", ""), ("", "early_hyper"), ("gated_two", "merged"), ("gated_two", "early_two")),
)
TWO = Residual(
    "residual: {kind: custom, streams: 2, enter: both, leave: second, read: gated_two, "
    "update: merged}",
    OF_TWO,
    (("", ""), ("", "early_two"), ("", "shifted"), ("hyper_connections", "hyper_connections")),
    ("both", "second", "gated_two", "merged"),
)
ONE = Residual(
    "residual: {kind: custom, streams: 1, enter: tripled}",
    OF_ONE,
    (
        *(("", ""), ("doubled", ""), ("into", ""), ("rewritten", "with_mean")),
        *(("placed", ""), ("", "placed_update"), ("into", "in_stream"), ("placed", "in_stream")),
    ),
    ("tripled",),
)


def residuals(draw: Draw) -> Residual | None:
    """In one case of six a residual that is not the plain one."""
    if draw(st.integers(0, 5)) != 3:
        return None
    found = draw(st.sampled_from((HYPER, TWO, ONE)))
    leave = draw(st.sampled_from(("", ", leave: learned_head")))
    line = found.line % leave if found is HYPER else found.line
    return Residual(line, found.known, found.pairs, found.ends)
