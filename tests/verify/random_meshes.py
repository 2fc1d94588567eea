"""Random topologies, and the batch variants that they can run."""

from __future__ import annotations

from hypothesis import strategies as st

Draw = st.DrawFn

RANKS = (1, 2, 2, 3, 4, 4, 4, 6, 8, 8, 12, 16)
VARIANTS = ("ordinary", "sequence_parallel", "context_parallel", "input_scattered")


def rarely(draw: Draw) -> bool:
    """True about once in forty; not for an end of the range, which is drawn more often."""
    return draw(st.integers(0, 39)) == 17


def topologies(draw: Draw, kinds: set[str]) -> tuple[list[str], set[str]]:
    """The lines of one or two topologies, and the variants that one of them or more can run."""
    lines, variants = ["topologies:"], {"ordinary"}
    for name in ("one", "two")[: draw(st.sampled_from((1, 1, 1, 2)))]:
        words, able = _topology(draw, kinds)
        lines.append(f"  {'layers' if rarely(draw) else name}: {{{', '.join(words)}}}")
        variants |= able
    return lines, variants


def _topology(draw: Draw, kinds: set[str]) -> tuple[list[str], set[str]]:
    tp = draw(st.sampled_from(RANKS))
    dp = draw(_part(tp))
    cp = draw(_part(tp // dp)) if draw(st.booleans()) else 1
    words = [f"tp: {tp}", f"attn_dp: {dp + rarely(draw)}", f"attn_cp: {cp}"]
    variants = {"context_parallel"} if cp > 1 else set()
    if tp > dp * cp:
        variants |= {"sequence_parallel", *(["input_scattered"] if dp * cp == 1 else [])}
    if "dense" in kinds or rarely(draw):
        words.append(f"dense_tp: {draw(st.sampled_from(('tp', 'attn_tp', '1')))}")
    if "sparse" in kinds or rarely(draw):
        moe_dp = draw(st.one_of(st.just(1), _part(tp)))
        moe_ep, a2a = draw(_part(tp // moe_dp)), draw(st.booleans())
        words.append(f"moe: {{dp: {moe_dp}, ep: {moe_ep}, all_to_all: {str(a2a).lower()}}}")
        variants -= {"input_scattered"} if a2a else set()
    if draw(st.integers(0, 3)) == 2:
        words.append("link: {latency_us: 0.001, bandwidth_gb_s: 1}")
    if draw(st.integers(0, 3)) == 2:
        words.append("variable_scatter: false")
    return words, variants


def _part(whole: int) -> st.SearchStrategy[int]:
    """A divisor."""
    return st.sampled_from([part for part in range(1, whole + 1) if whole % part == 0])


def variants(draw: Draw, able: set[str]) -> list[str]:
    """One or two variants; seldom one that no topology can run."""
    known = VARIANTS if rarely(draw) else [name for name in VARIANTS if name in able]
    chosen = draw(st.lists(st.sampled_from(known), min_size=1, max_size=2, unique=True))
    # a batch with too few tokens for every shard runs on ordinary rows
    needs = "context_parallel" in chosen and "ordinary" not in chosen
    return [*chosen, "ordinary"] if needs else chosen
