"""Comparing traces: where ranks or runs part, with both sides and the node of the YAML file."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from boundaryc.report.trace import TraceError, compare

MEMBERS = {"tp": [[0, 1, 2, 3]], "attn_tp": [[0, 1], [2, 3]], "attn_dp": [[0, 2], [1, 3]]}


def call(op: str, group: str, **changes: Any) -> dict[str, Any]:
    """A collective at the boundary from attention to experts, of two rows."""
    return {
        "op": op,
        "group": group,
        "rows": 2,
        "tail": [8],
        "sizes": None,
        "dtype": "bfloat16",
        "bytes": 32,
        "boundary": "attention -> experts",
        "function": "attention_to_experts",
        "site": "tp4_dp2/ordinary.py:40",
        **changes,
    }


FORWARD = [
    call("all_reduce", "attn_tp"),
    call("all_gather", "attn_dp"),
    call("all_reduce", "tp", rows=4, boundary="experts -> final norm", function="experts_to_norm"),
]


def write(
    folder: Path, calls: dict[int, list[dict[str, Any]]], about: dict[int, dict[str, Any]]
) -> Path:
    """The traces of ranks that made these calls; ``about`` changes what some say of themselves."""
    folder.mkdir(exist_ok=True)
    for rank, made in calls.items():
        header = {"trace": 1, "rank": rank, "world_rank": rank, "stack": "s", "topology": "tp4_dp2"}
        header |= {"manifest": "m", "policy": "ar", "layers": "0..3", **about.get(rank, {})}
        counts: dict[str, int] = {}
        lines: list[dict[str, Any]] = [header]
        for seq, one in enumerate(made):
            group = one["group"]
            members = next(m for m in MEMBERS[group] if rank % 4 in m)
            counts[group] = counts.get(group, -1) + 1
            lines.append({"seq": seq, "group_seq": counts[group], "members": members, **one})
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"s-{header['layers']}-rank{header['world_rank']}.jsonl").write_text(text)
    return folder


def run(
    folder: Path,
    changed: dict[int, list[dict[str, Any]]] | None = None,
    about: dict[int, dict[str, Any]] | None = None,
) -> Path:
    """Four ranks that make the calls of `FORWARD` twice, but for those changed."""
    calls = dict.fromkeys(range(4), FORWARD * 2)
    return write(folder, {**calls, **(changed or {})}, about or {})


def test_equal_ranks_agree(tmp_path: Path) -> None:
    """All members of each group make equal calls, though two groups of a label differ."""
    uneven = [
        [*FORWARD[:1], call("all_gather", "attn_dp", rows=rows, sizes=[2, 5])] for rows in (2, 5)
    ]
    equal = compare(run(tmp_path / "a"))
    sized = compare(run(tmp_path / "b", {rank: uneven[rank // 2] for rank in range(4)}))

    for report, calls in ((equal, 24), (sized, 8)):
        assert report.agree
        assert report.first is None
        assert str(report) == f"no divergence in 4 traces, {calls} collectives"


@pytest.mark.parametrize(
    ("index", "changes", "where"),
    [
        (3, {"op": "reduce_scatter"}, "group attn_tp, ranks [2, 3], call 1"),
        (3, {"dtype": "float32"}, "group attn_tp, ranks [2, 3], call 1"),
        (3, {"rows": 3}, "group attn_tp, ranks [2, 3], call 1"),
        (3, {"tail": [4]}, "group attn_tp, ranks [2, 3], call 1"),
        (3, {"boundary": "mlp -> attention"}, "group attn_tp, ranks [2, 3], call 1"),
        (4, {"sizes": [2, 2]}, "group attn_dp, ranks [1, 3], call 1"),
    ],
)
def test_a_different_call_of_one_rank(
    tmp_path: Path, index: int, changes: dict[str, Any], where: str
) -> None:
    """Each thing that members must agree on is compared, and only the call that differs is told."""
    made = [*FORWARD * 2]
    made[index] = {**made[index], **changes}

    report = compare(run(tmp_path / "a", {3: made}))

    assert len(report.divergences) == 1
    assert report.first is not None
    assert report.first.where == where
    assert report.first.node == "stages.attention -> stages.experts"
    assert report.first.seq == index
    other = "rank 2" if index == 3 else "rank 1"
    assert (report.first.first.who, report.first.second.who) == (other, "rank 3")
    assert report.first.first.did != report.first.second.did


def test_a_gather_of_other_rows_than_its_sizes_say(tmp_path: Path) -> None:
    """Rows differ between members of a variable gather, but not from their own size."""
    gather = [call("all_gather", "attn_dp", sizes=[2, 2])]
    wrong = [{**gather[0], "rows": 3}]

    report = compare(write(tmp_path / "a", {0: gather, 1: gather, 2: gather, 3: wrong}, {}))

    assert [one.where for one in report.divergences] == ["group attn_dp, ranks [1, 3], call 0"]


def test_sizes_that_differ(tmp_path: Path) -> None:
    """Members that expect other rows of each other, though each sends what it says itself."""
    gather = [call("all_gather", "attn_dp", sizes=[2, 2])]
    wrong = [{**gather[0], "sizes": [3, 2]}]

    report = compare(write(tmp_path / "a", {0: gather, 1: gather, 2: gather, 3: wrong}, {}))

    assert [one.where for one in report.divergences] == ["group attn_dp, ranks [1, 3], call 0"]


def test_a_skipped_call_shows_what_the_rank_did_instead(tmp_path: Path) -> None:
    """Ranks that wait, and the one that went elsewhere: the first of several divergences."""
    made = FORWARD[:1] + FORWARD[2:]
    waiting = {0: FORWARD, 1: FORWARD[:2], 2: FORWARD, 3: made}

    report = compare(write(tmp_path / "a", waiting, {}))

    assert len(report.divergences) == 2
    text = str(report)
    assert "first divergence in 4 traces, 10 collectives:\ngroup attn_dp, ranks [1, 3]" in text
    assert "  YAML: stages.attention -> stages.experts\n" in text
    assert "  rank 1: all_gather(attn_dp) of [2, 8] bfloat16 at attention -> experts (tp4" in text
    assert "  rank 3: no such call; its last one is all_reduce(tp) of [4, 8]" in text
    assert text.endswith("1 more, which may follow from it")


def test_what_ranks_loaded_comes_first(tmp_path: Path) -> None:
    """Another tree, policy or range of layers explains whatever follows."""
    report = compare(run(tmp_path / "a", {2: FORWARD}, {2: {"policy": "rsv"}}))

    assert report.first is not None
    assert str(report.first) == "policy that was loaded\n  rank 0: ar\n  rank 2: rsv"
    assert len(report.divergences) > 1


def test_exits_name_the_stage_that_leaves(tmp_path: Path) -> None:
    """A stage's own sum has no edge; its function has the stage's name."""
    left = call(
        "all_reduce", "tp", boundary="Compute sums over tp itself", function="mlp_or_experts_reduce"
    )
    ranks = {rank: [left] for rank in range(3)} | {3: [{**left, "rows": 9}]}

    report = compare(write(tmp_path / "a", ranks, {}))

    assert report.first is not None
    assert report.first.node == "stages.mlp, stages.experts"


def test_two_runs(tmp_path: Path) -> None:
    """The first call that changed is found on each rank; policies and lines of code may differ."""
    made = [*FORWARD, {**FORWARD[0], "op": "reduce_scatter"}, *FORWARD[1:]]
    one = run(tmp_path / "a")
    same = run(tmp_path / "b", about={rank: {"policy": "rsv"} for rank in range(4)})
    other = run(tmp_path / "c", dict.fromkeys(range(2, 4), made))
    longer = run(tmp_path / "d", {1: FORWARD * 3})

    assert compare(one, same).agree
    report = compare(one, other)
    assert [d.where for d in report.divergences] == ["rank 2, call 3", "rank 3, call 3"]
    assert report.first is not None
    assert report.first.first.did.startswith("all_reduce(attn_tp)")
    assert report.first.second.did.startswith("reduce_scatter(attn_tp)")
    report = compare(one, longer)
    assert [d.where for d in report.divergences] == ["rank 1, call 6"]
    assert "no such call; its last one is" in str(report)
    moved = [{**one_call, "site": "tp4_dp2/ordinary.py:99"} for one_call in FORWARD * 2]
    assert compare(one, run(tmp_path / "e", {0: moved})).agree


def test_runs_of_different_ranks(tmp_path: Path) -> None:
    """A rank without a counterpart is a divergence, not a crash."""
    part = write(tmp_path / "b", dict.fromkeys(range(3), FORWARD * 2), {})

    report = compare(run(tmp_path / "a"), part)

    assert "rank 3" in str(report)
    assert "run A: traced\n  run B: no trace" in str(report)


def test_pipeline_stages_and_stacks_are_compared_apart(tmp_path: Path) -> None:
    """Ranks of another stage and of a draft make other calls, and that is right."""
    folder = run(tmp_path / "a")
    later = {rank: {"world_rank": 4 + rank, "layers": "4..7"} for rank in range(4)}
    write(folder, dict.fromkeys(range(4), FORWARD[:1]), later)
    draft = {rank: {"layers": "0..0", "topology": "tp4"} for rank in range(4)}
    write(folder, dict.fromkeys(range(4), FORWARD[:2]), draft)

    report = compare(folder)

    assert report.agree
    assert report.ranks == 12


def test_files_that_are_no_traces(tmp_path: Path) -> None:
    """Only an unfinished last line is forgiven: the process may have been killed."""
    with pytest.raises(TraceError, match="no traces"):
        compare(tmp_path)
    folder = run(tmp_path / "a")
    path = folder / "s-0..3-rank2.jsonl"
    whole = path.read_text()
    path.write_text(whole + '{"seq": 6, "op": "all_')
    assert compare(folder).agree
    path.write_text(whole + "{}\n")
    with pytest.raises(TraceError, match=r"rank2\.jsonl: a record lacks 'seq'"):
        compare(folder)
    path.write_text(whole + "nonsense\n")
    with pytest.raises(TraceError, match=r"rank2\.jsonl:8: not a record"):
        compare(folder)
    path.write_text("")
    with pytest.raises(TraceError, match="not a trace of version 1"):
        compare(folder)
    (folder / "again.jsonl").write_text((folder / "s-0..3-rank1.jsonl").read_text())
    path.write_text(whole)
    with pytest.raises(TraceError, match="more than one run"):
        compare(folder)


def test_as_json(tmp_path: Path) -> None:
    """The report for programs says the same."""
    report = compare(run(tmp_path / "a", {3: FORWARD})).document()

    assert report.agree is False
    assert json.loads(json.dumps(asdict(report)))["divergences"][0]["sides"][1]["who"] == "rank 3"


def test_it_needs_no_torch() -> None:
    """A trace can be compared where nothing but Python is installed."""
    code = "import sys, boundaryc.report.trace; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
