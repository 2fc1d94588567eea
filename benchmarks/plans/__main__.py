"""`python -m benchmarks.plans`: writes docs/plans.md and says what it found; nothing is timed.

Exits 1 where a layer of ours is dearer than the reference's.
"""

from __future__ import annotations

from benchmarks.plans.compare import ROOT, compared, page

SIDES = ("sum_len", "max_len")


def main() -> int:
    """Writes the page."""
    found = compared()
    (ROOT / "docs" / "plans.md").write_text(page(found), encoding="utf-8")
    ranks = [(one.rank("ours"), min(map(one.rank, SIDES))) for one in found]
    dearer = [one.names for one, (ours, theirs) in zip(found, ranks, strict=True) if ours > theirs]
    cheaper = sum(ours < theirs for ours, theirs in ranks)
    least = sum(one.sent("ours")[1] == one.least for one in found)
    print(
        f"{len(found)} layers: {cheaper} cheaper than the reference's best, {len(dearer)} dearer; "
        f"{least} send no row more than any system must"
    )
    for names in dearer:
        print(f"dearer: {' '.join(names)}")
    return int(bool(dearer))


if __name__ == "__main__":
    raise SystemExit(main())
