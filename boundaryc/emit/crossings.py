"""Ways across boundaries that are one function: what it is called, and what is told of it.

A way is written without the names of the stages between which it leads, so that ways which do the
same are the same draft. The names are put in when it is known which ways these are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from boundaryc.emit.doc_text import sent
from boundaryc.emit.how import Collective
from boundaryc.emit.layout_text import listed, wrapped
from boundaryc.emit.naming import Traits

ORIGIN, SOURCE, TARGET, SHOWN = "{origin}", "{source}", "{target}", "{shown}"
"""Stand in a draft for where its ways begin, for their stages, and for what people call the last.

They are no part of a statement.
"""
WRITTEN = "written"
STATES = {
    WRITTEN: "by the model",
    "completed": "completed",
    "handed": "handed on",
    "received": "finished by other ranks",
    "fused": "fused",
    "finalized": "not finalised",
    "with_addition": "with an addition",
}
"""In which state an output is when a way takes it, as a word of an identifier and for people."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """One way across a boundary: from the output of ``source``, in a key of ``STATES``, on.

    ``source`` is empty where it does not matter whose output was written; ``shown`` is what people
    call ``target``.
    """

    source: str
    state: str
    target: str
    shown: str


@dataclass(frozen=True, slots=True)
class _Ways:
    """The stages and states of several ways, each once."""

    sources: tuple[str, ...]
    states: tuple[str, ...]
    targets: tuple[str, ...]

    @classmethod
    def of(cls, crossings: Iterable[Crossing]) -> _Ways:
        found = tuple(crossings)
        return cls(
            _distinct(one.source for one in found),
            tuple(state for state in STATES if state in {one.state for one in found}),
            _distinct(one.target for one in found),
        )


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def name_of(crossings: Iterable[Crossing]) -> str:
    """What a function of these ways would like to be called: by what all of them have in common.

    >>> one = Crossing("mlp", "completed", "attention", "attention")
    >>> name_of([one]), name_of([one, Crossing("experts", "handed", "attention", "attention")])
    ('mlp_completed_to_attention', 'output_to_attention')
    """
    ways = _Ways.of(crossings)
    words = [WRITTEN]
    if WRITTEN not in ways.states:
        words = list(ways.sources) if len(ways.sources) == 1 else []
        words += ways.states if len(ways.states) == 1 else ["output"]
    target = ways.targets[0] if len(ways.targets) == 1 else "next"
    return "_".join([*words, "to", target])


def traits_of(group: Iterable[Iterable[Crossing]]) -> list[Traits]:
    """What tells functions of several ways from their namesakes: what not all of these have."""
    every = [_Ways.of(crossings) for crossings in group]
    found: list[dict[str, str]] = [{} for _ in every]
    for trait in ("targets", "sources", "states"):
        names = [{name or "stream" for name in getattr(ways, trait)} for ways in every]
        common = set.intersection(*names)
        for own, traits in zip(names, found, strict=True):
            traits[trait] = "_or_".join(sorted(own - common or own))
    return list(found)


def each_of(crossings: Iterable[Crossing]) -> str:
    """All ways as words of an identifier, where nothing shorter tells functions apart."""
    each = (f"{one.source or 'stream'}_{one.state}_to_{one.target}" for one in crossings)
    return "_or_".join(sorted(each))


def told_of(
    doc: Sequence[str], sends: Sequence[Collective], crossings: Iterable[Crossing]
) -> tuple[str, ...]:
    """The docstring ``doc`` of these ways, with all names; several are listed at its end."""
    found = tuple(crossings)
    words = _words(found)
    lines = list(doc)
    if sends:
        lines[lines.index("collectives:") :] = sent(
            [Collective(one.text, _put(words, one.why)) for one in sends]
        )
    lines[0] = _put(words, lines[0])
    if len(found) > 1:
        lines += wrapped("for: ", "; ".join(_listed(found)), indent=4)
    return tuple(lines)


def _put(words: dict[str, str], text: str) -> str:
    for name, word in words.items():
        text = text.replace(name, word)
    return text


def _words(crossings: Sequence[Crossing]) -> dict[str, str]:
    """What stands for the names of stages in a docstring."""
    ways = _Ways.of(crossings)
    origin = "From the written stream"
    if WRITTEN not in ways.states:
        origin = f"From {ways.sources[0] if len(ways.sources) == 1 else 'an output'}"
        origin += f", {STATES[ways.states[0]]}," if len(ways.states) == 1 else ""
    return {
        ORIGIN: origin,
        SHOWN: crossings[0].shown if len(ways.targets) == 1 else "the next stage",
        SOURCE: listed([name for name in ways.sources if name], "or"),
        TARGET: listed(ways.targets, "or"),
    }


def _listed(crossings: Sequence[Crossing]) -> list[str]:
    """The ways for people: those that differ in one respect are told together."""
    states: dict[tuple[str, str], list[str]] = {}
    for one in crossings:
        source = "the written stream" if one.state == WRITTEN else one.source
        states.setdefault((source, one.shown), []).append(STATES[one.state])
    sources: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for (source, shown), own in states.items():
        sources.setdefault((tuple(own), shown), []).append(source)
    targets: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (own_states, shown), own in sources.items():
        targets.setdefault((own_states, tuple(own)), []).append(shown)
    alike = len({one.state for one in crossings}) == 1  # then the first line says in which
    return [
        f"{listed(of)}{'' if alike else ' (' + ', '.join(own_states) + ')'} to {listed(to)}"
        for (own_states, of), to in targets.items()
    ]
