"""The words of docs/plans.md: its introduction, its tables, and why a plan is cheaper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.plans.compare import Compared, Crossing
    from boundaryc.report.moves import Sent

INTRODUCTION = """\
# Plans

Written by `python -m benchmarks.plans` from the plans themselves; a test keeps it fresh.

Both example stacks, at 2,048 columns of bfloat16 (a row is 4,096 bytes), on published deployments:
what each boundary sends in each batch variant, in batches of few and of many rows, under the policy
`auto` (rs+rsv). `few` is planned for the fewest collectives, then bytes; `many` for bytes, with a
collective worth what a rank sends in its latency, at 8,192 rows. Numbers come from the cost model;
nothing here was timed.

**Rows sent** are those that all ranks together send for each token of the batch: an all-reduce over
n ranks moves 2 (n - 1) / n of its payload on each, a reduce-scatter or a gather (n - 1) / n.
**Bytes** are those rows in bytes, averaged over the ranks.

**Least** is a lower bound for the layouts that the two stages declare: a row that owes a sum over k
ranks and is needed by h ranks takes at least (k - 1) + (h - 1) sends, because every other partial
must leave its rank and only then can h - 1 further ranks be told; a complete row takes h less those
of the h that hold it already. The residual is free to rest anywhere, so it adds nothing.

**Reference** is sglang 0.5.23 by its rules, not run: an all-reduce and a slice unless a scatter is
eligible, a fixed-size one only where all groups are padded to the largest (`max_len`), a variable
one only where tp = attn_dp = ep; under attention data parallelism the sum over heads and the gather
over groups are one placed all-reduce over all ranks; sequence-parallel batches scatter and gather;
in input-scattered batches the residual joins the sum, and so it may in ours there (`joins_sum:
allow` on every stage). Where a rule has two outcomes (context parallelism with and without a
scatter back, a gather of complete rows by its own collective or by a placed sum) the cheaper one is
shown. Only the boundaries that a deep stack meets again and again are compared."""

BRANCH = """\
28 layers of an attention and of experts, beside which there is a branch of a dense FFN, another
attention and another dense FFN (`merges_sum: allow`). `input of experts -> dense` takes what was
read for the experts to the branch, both `-> merge` bring an output to where the two are added, and
`merge ->` is what follows with their sum. There is no reference: its rules know no branch."""


def reasons(found: Sequence[Compared]) -> list[str]:
    """One line for each comparison in which a layer of ours is cheaper than the reference's."""
    lines = []
    for one in found:
        for side in ("sum_len", "max_len"):
            if one.rank("ours") >= one.rank(side):
                continue
            lines.append(f"* {' '.join(one.names)} rows, {side}: {_saved(one, side)}.")
            apart = [crossing for crossing in one.layer if _differs(crossing, side)]
            lines += [f"  * {_why(crossing, side)}" for crossing in apart]
    return lines or ["Nowhere."]


def _differs(crossing: Crossing, side: str) -> bool:
    ours, theirs = _measure(crossing.ours), _measure(getattr(crossing, side))
    return ours != theirs


def _measure(sent: Sequence[Sent]) -> tuple[int, Fraction]:
    return len(sent), sum((one.rows for one in sent), Fraction())


def _saved(one: Compared, side: str) -> str:
    ours, theirs = one.sent("ours"), one.sent(side)
    words = []
    if ours[0] != theirs[0]:
        words.append(f"{theirs[0]} -> {ours[0]} collectives")
    if ours[1] != theirs[1]:
        words.append(f"{float(theirs[1]):g} -> {float(ours[1]):g} rows")
    return ", ".join(words)


def _why(crossing: Crossing, side: str) -> str:
    theirs: Sequence[Sent] = getattr(crossing, side)
    ours_text, theirs_text = _texts(crossing.ours), _texts(theirs)
    return f"{crossing.name}: {ours_text} for {theirs_text} ({_cause(crossing.ours, theirs)})"


def _cause(ours: Sequence[Sent], theirs: Sequence[Sent]) -> str:
    scatters = any("scatter" in one.text for one in ours)
    if scatters and not any("scatter" in one.text for one in theirs):
        return "the sum ends on the rows that are needed, with sizes from leaf counts"
    if _measure(ours)[1] < _measure(theirs)[1]:
        return "over fewer ranks, or on rows that are cut already"
    if len(ours) < len(theirs):
        return "one collective where bytes do not decide"
    return "what the others pay for"


def _texts(sent: Sequence[Sent]) -> str:
    return " + ".join(one.text for one in sent) or "nothing"


def tables(one: Compared, row: int, *, alike: bool) -> Iterator[str]:
    """The table of one comparison: a line for each boundary.

    ``alike``: batches of few and of many rows have the same plans, so that one table serves both.
    """
    ranks = one.topology.spec.tp
    yield f"## {' '.join(one.names[:-1])}, {'few and many' if alike else one.names[-1]} rows"
    yield ""
    yield "| boundary | operations | collectives | rows sent | bytes | least | reference |"
    yield "|---|---|---:|---:|---:|---:|---|"
    seen: set[tuple[object, ...]] = set()
    for crossing in one.crossings:
        name = crossing.name.partition(",")[0]
        key = (name, crossing.operations)
        if key in seen:
            continue
        seen.add(key)
        rows = _measure(crossing.ours)[1]
        cells = [
            name,
            ", ".join(crossing.operations),
            str(len(crossing.ours)),
            f"{float(rows):g}",
            f"{float(rows * row / ranks):g}",
            f"{float(Fraction(crossing.least * row, ranks)):g}",
            _reference(crossing),
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""


def _reference(crossing: Crossing) -> str:
    if not crossing.repeats or crossing.sum_len is None or crossing.max_len is None:
        return ""
    if crossing.sum_len == crossing.max_len:
        return _texts(crossing.sum_len)
    return f"{_texts(crossing.sum_len)}; max_len: {_texts(crossing.max_len)}"
