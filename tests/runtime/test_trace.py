"""Traces of collectives: asked for by the environment on real ranks, by the API on simulated."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from boundaryc.report.trace import compare
from boundaryc.runtime import FileSink, SingleGroups, TracedGroups
from boundaryc.runtime.trace import TRACE_VARIABLE, caller
from boundaryc.verify.world import World, WorldError
from tests.gloo.pool import shared_pool
from tests.runtime import sample
from tests.runtime.ranks import Model

ROWS = (2, 5)


def forward(groups: Any, *, policy: str = "rsv") -> None:
    """The sample's forward on one simulated rank."""
    stack = sample.load("tp4_dp2", groups, policy=policy)
    batch = stack.batch(rows_per_dp=ROWS, padding="sum_len", mode="prefill")
    Model(stack, groups.rank).forward(batch)


def test_the_environment_traces_every_collective(tmp_path: Path) -> None:
    """One file a rank, each line what really ran below, in order."""
    results = shared_pool().run("tests.runtime.ranks:traced", str(tmp_path))

    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"sample-tp4_dp2-0..3-rank{rank}.jsonl" for rank in range(4)]
    for rank, (log, _) in enumerate(results):
        lines = [json.loads(line) for line in (tmp_path / names[rank]).read_text().splitlines()]
        assert lines[0] == {
            "trace": 1,
            "rank": rank,
            "world_rank": rank,
            "stack": "sample",
            "topology": "tp4_dp2",
            "manifest": "",
            "policy": "rsv",
            "layers": "0..3",
        }
        calls = lines[1:]
        assert [f"{call['op']}({call['group']})" for call in calls] == log
        assert [call["seq"] for call in calls] == list(range(len(calls)))
        check_calls(rank, calls)
    assert compare(tmp_path).agree


def check_calls(rank: int, calls: list[dict[str, Any]]) -> None:
    """The first three calls of a rank, in full and where groups and sizes matter."""
    first, gather, scatter = calls[:3]
    rows = ROWS[rank // 2]
    assert first == {
        "seq": 0,
        "group_seq": 0,
        "op": "all_reduce",
        "group": "attn_tp",
        "members": [[0, 1], [2, 3]][rank // 2],
        "rows": rows,
        "tail": [8],
        "sizes": None,
        "dtype": "float64",
        "bytes": rows * 8 * 8,
        "boundary": "attention -> mlp or experts",
        "function": "attention_to_mlp_or_experts",
        "site": first["site"],
    }
    path, _, line = first["site"].partition(":")
    assert path == "tp4_dp2/ordinary.py"
    source = Path(sample.tp4_dp2.ordinary.__file__).read_text().splitlines()
    assert "groups.attn_tp.all_reduce" in source[int(line) - 1]
    assert (gather["sizes"], gather["members"]) == ([2, 5], [[0, 2], [1, 3]][rank % 2])
    assert (scatter["group_seq"], scatter["rows"]) == (1, 7)
    assert scatter["boundary"].startswith("Scatters the sum over attn_dp to its rows")


def test_nothing_is_wrapped_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Off is free: the stack holds the provider's own collectives."""
    monkeypatch.delenv(TRACE_VARIABLE, raising=False)
    world: World[str] = World(4)
    kinds = world.run(lambda groups: type(sample.load("tp4_dp2", groups).groups.attn_tp).__name__)
    assert set(kinds) == {"SimulatedCollective"}


def test_the_api_takes_any_sink() -> None:
    """Records of a rank go to its own sink; the results are the provider's."""
    records: list[list[Any]] = [[] for _ in range(4)]

    World[None](4).run(
        lambda groups: forward(TracedGroups(groups, records[groups.rank].append, about={"run": 7}))
    )

    for rank, of_rank in enumerate(records):
        assert of_rank[0] == {"trace": 1, "rank": rank, "world_rank": rank, "run": 7}
        assert len(of_rank) == 17
        assert {record["boundary"] for record in of_rank[1:]} == {
            "attention -> mlp or experts",
            "mlp or experts -> attention",
            of_rank[3]["boundary"],
            "Completes the sum for the final norm",
        }


@pytest.mark.parametrize("odd", [0, 3])
def test_the_last_record_is_the_call_that_hangs(tmp_path: Path, odd: int) -> None:
    """Ranks that disagree stop in a call that is already on disk, and the comparer finds it."""

    def program(groups: Any) -> None:
        policy = "ar" if groups.rank == odd else "rsv"
        about = {"stack": "sample", "topology": "tp4_dp2", "policy": policy}
        sink = FileSink(tmp_path / f"rank{groups.rank}.jsonl")
        forward(TracedGroups(groups, sink, about=about), policy=policy)

    with pytest.raises(WorldError, match="deadlock"):
        World[None](4).run(program)

    report = compare(tmp_path)
    assert report.first is not None
    assert report.first.where == "policy that was loaded"
    parted = next(one for one in report.divergences if one.seq >= 0)
    text = "".join(str(one) for one in report.divergences)
    assert f"rank {odd}: all_reduce(tp) of [7, 8]" in text
    assert parted.seq == 2
    assert parted.node


def test_callers_outside_generated_code_have_no_boundary() -> None:
    """A collective that no boundary calls is recorded all the same."""
    records: list[Any] = []
    mesh = sample.tp4_dp2.MESH.__class__(())
    group = TracedGroups(SingleGroups(), records.append).collective(mesh, ())

    assert group.all_gather(torch.zeros(0, 3)).shape == (0, 3)
    assert (records[1]["rows"], records[1]["bytes"]) == (0, 0)
    assert records[1]["function"] == "test_callers_outside_generated_code_have_no_boundary"


@pytest.mark.parametrize(
    ("doc", "boundary"),
    [
        ("From attention to the mlp: sum over tp, add, norm.", "attention -> mlp"),
        ("From attention to mlp.", "attention -> mlp"),
        ("From attention, completed, to mlp: cut over tp, add, norm.", "attention -> mlp"),
        ("From mlp to the end of the stack: add.", "mlp -> end of the stack"),
        ("Leaves a complete output to what follows: sum over tp.", "Leaves a complete output to"),
        ("", ""),
    ],
)
def test_what_a_docstring_says_of_its_boundary(doc: str, boundary: str) -> None:
    """Up to a colon and without a full stop."""
    space: dict[str, Any] = {"caller": caller, "sys": sys}
    exec(f"def f():\n    {doc!r}\n    return caller(sys._getframe())", space)
    assert space["f"]()["boundary"].startswith(boundary)
    assert not str(space["f"]()["boundary"]).endswith((".", "norm", "tp"))
