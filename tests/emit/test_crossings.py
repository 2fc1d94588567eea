"""Ways across boundaries that do the same are one function, which says which ways it is."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from boundaryc.emit.crossings import Crossing, name_of, traits_of
from boundaryc.emit.naming import suffixes
from tests.emit.compiled import ROOT, function

GENERATED = ROOT / "generated"


def functions(path: Path) -> Iterator[tuple[str, str]]:
    """What each function of a module takes and does, and where it is."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            statements = [ast.unparse(statement) for statement in node.body[1:]]
            yield "\n".join([ast.unparse(node.args), *statements]), f"{path}: {node.name}"


def test_no_two_functions_do_the_same() -> None:
    """Of those for a model that uses outputs between stages: of a batch variant in all examples."""
    found: dict[tuple[Path, str, str], list[str]] = defaultdict(list)
    for path in GENERATED.rglob("*_access*.py"):
        variant = path.name.partition("_access")[0]
        for does, name in functions(path):
            found[path.parent, variant, does].append(name)

    assert len(found) > 500
    assert [names for names in found.values() if len(names) > 1] == []


def test_what_several_ways_have_in_common_and_which_they_are() -> None:
    """One function for what two stages leave in three states; tables name it wherever it runs."""
    text = (GENERATED / "deepseek_v3/tp4/input_scattered_access.py").read_text("utf-8")
    own = function(text, "output_to_attention")

    assert '"""From an output to attention: add, norm, cut over tp, make its latent and' in own
    assert (
        "    for: mlp and experts (completed, handed on, finished by other ranks) to attention\n"
        in own
    )
    for field in ("completed", "handed", "received"):
        assert text.count(f"    {field}=output_to_attention,\n") == 2
    assert "    for: the written stream to mlp, experts and the final norm\n" in text


def test_names_say_what_not_all_namesakes_have() -> None:
    """The fewest words; a way alone is called by all that it is."""
    ways = [
        Crossing(source, state, target, target)
        for source in ("mlp", "experts")
        for state in ("completed", "handed")
        for target in ("attention", "final")
    ]
    few, many = ways[:3], ways

    assert name_of(ways[:1]) == "mlp_completed_to_attention"
    assert name_of(ways[:2]) == "mlp_completed_to_next"
    assert name_of([ways[0], ways[2]]) == "mlp_output_to_attention"
    assert name_of([ways[0], ways[4]]) == "completed_to_attention"
    assert name_of([Crossing("", "written", "final", "the final norm"), *ways]) == "written_to_next"
    assert suffixes(traits_of([few, many])) == ("", "_experts")
