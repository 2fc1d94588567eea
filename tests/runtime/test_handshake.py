"""Start-up handshakes: ranks that differ get an error that names them, never a hang."""

from __future__ import annotations

import re
from typing import Any

import pytest

from boundaryc.runtime import BoundaryError, ContextParallel, MappedGroups, TracedGroups
from boundaryc.runtime.handshake import CHECK_VARIABLE
from boundaryc.verify.world import World
from tests.gloo.pool import shared_pool
from tests.runtime import sample
from tests.runtime.ranks import _load_and_start

LOADS = {
    "policy": ("the first step", "  policy: {}rsv{}rs"),
    "unknown policy": ("the first step", "  policy: {}rsv{}fast"),
    "topology": ("the first step", "  topology: {}tp4_dp2{}tp2"),
    "layers": ("the first step", "  layers: {}0..3{}1..2"),
    "manifest": ("the first step", "  manifest: {}{}sha256:other"),
    "rows": ("a forward", "  plan: {}1{}0\n  rows_per_dp: {}(2, 5){}(4, 4)"),
    "mode": ("a forward", "  mode: {}prefill{}decode"),
}


def message(what: str, odd: int) -> str:
    """The error that all ranks get when rank ``odd`` differs."""
    when, lines = LOADS[what]
    if odd == 0:
        lines = re.sub(r"\{\}([^{}\n]*)\{\}([^{}\n]*)", r"{}\2{}\1", lines)
    other = odd or 1
    lines = re.sub(r"\{\}([^{}\n]*)\{\}", rf"rank 0 has \1, rank {other} has ", lines)
    return f"ranks 0 and {other} differ before {when}:\n{lines}"


@pytest.mark.parametrize("what", LOADS)
def test_real_ranks_that_differ_all_get_the_error(what: str) -> None:
    """Four gloo ranks, one of which loads or starts something else."""
    for error, seconds in shared_pool().run("tests.runtime.ranks:checked", 2, what):
        assert error == message(what, 2)
        assert seconds < 20


def test_real_ranks_that_agree_go_on() -> None:
    """Nothing is raised, and the ranks are still usable."""
    results = shared_pool().run("tests.runtime.ranks:checked", 2, "nothing")

    assert [error for error, _ in results] == [""] * 4


@pytest.mark.parametrize("odd", [0, 1, 3])
@pytest.mark.parametrize("what", [what for what in LOADS if what != "topology"])
def test_simulated_ranks(monkeypatch: pytest.MonkeyPatch, what: str, odd: int) -> None:
    """The same with every rank in one process, whichever rank is the odd one."""
    monkeypatch.setenv(CHECK_VARIABLE, "1")

    def program(groups: Any) -> str:
        try:
            _load_and_start(groups, what if groups.rank == odd else "nothing")
        except BoundaryError as error:
            return str(error)
        return ""

    assert World[str](4).run(program) == [message(what, odd)] * 4


@pytest.mark.parametrize("value", ["", "0", None])
def test_off_costs_nothing(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    """Without the variable no collective runs, and ranks that differ are not told apart."""
    if value is None:
        monkeypatch.delenv(CHECK_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(CHECK_VARIABLE, value)
    world: World[None] = World(4)

    world.run(lambda groups: _load_and_start(groups, "rows" if groups.rank == 2 else "nothing"))

    assert world.traces() == [[], [], [], []]


def test_each_group_is_asked_where_none_has_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine may give only the groups that boundaries use: every rank hears of a difference."""
    monkeypatch.setenv(CHECK_VARIABLE, "1")

    def program(groups: Any, policy: str) -> str:
        mesh = sample.tp4_dp2.MESH
        labels = {"attn_dp": ("attn_dp",), "attn_tp": ("attn_tp",)}
        given = {label: groups.collective(mesh, axes) for label, axes in labels.items()}
        try:
            handshaking(MappedGroups(groups.rank, given), policy)
        except BoundaryError as error:
            return str(error).splitlines()[0]
        return ""

    for odd in range(4):
        errors = World[str](4).run(
            lambda groups, odd=odd: program(groups, "rs" if groups.rank == odd else "rsv")
        )
        assert all(f"{odd} differ" in error or f"ranks {odd} and" in error for error in errors)
    assert World[str](4).run(lambda groups: program(groups, "rsv")) == [""] * 4


class TwoGroups:
    """The groups that the boundaries of policy rsv use."""

    def __init__(self, provider: Any) -> None:
        self.attn_dp = provider.collective(sample.tp4_dp2.MESH, ("attn_dp",))
        self.attn_tp = provider.collective(sample.tp4_dp2.MESH, ("attn_tp",))


class TwoGroupStack(sample.tp4_dp2.Stack):
    """The sample without a group of all ranks."""

    groups_type = TwoGroups  # type: ignore[assignment]


def handshaking(provider: Any, policy: str) -> None:
    """Loads the stack that has two groups."""
    TwoGroupStack(provider, policy=policy)


def test_long_facts_are_compared_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that differ beyond what fits into the message still differ."""
    monkeypatch.setenv(CHECK_VARIABLE, "1")

    def program(groups: Any) -> str:
        stack = sample.load("tp4_dp2", TracedGroups(groups, lambda record: None))
        last = (4, 6) if groups.rank == 1 else (5, 5)
        cp = ContextParallel("zigzag", ((5,) * 998 + last, ()))
        try:
            stack.start(
                stack.batch(rows_per_dp=[5000, 0], padding="sum_len", mode="prefill", cp=cp)
            )
        except BoundaryError as error:
            return str(error)
        return ""

    errors = World[str](4).run(program)
    assert len(set(errors)) == 1
    assert errors[0].startswith("ranks 0 and 1 differ before a forward:\n  cp: rank 0 has Context")
    assert errors[0].count("sha256") == 2


def test_a_trace_names_who_asked_for_a_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handshake is no boundary: its caller is the code that loads the stack."""
    monkeypatch.setenv(CHECK_VARIABLE, "1")
    records: list[Any] = []

    def program(groups: Any) -> None:
        _load_and_start(TracedGroups(groups, records.append), "nothing")

    World[None](4).run(program)

    calls = [record for record in records if "op" in record]
    assert len(calls) == 3 * 4
    assert {call["function"] for call in calls} == {"_load_and_start"}
