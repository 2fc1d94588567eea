"""Every batch variant: where it applies, what is said where it does not, and a sample that runs."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from boundaryc.emit.build import Build, build
from boundaryc.language import BoundarycError
from boundaryc.plan.compose import plan_stack
from boundaryc.runtime import BoundaryError, ContextParallel
from boundaryc.verify.cells import Cell
from boundaryc.verify.matrix import Selection, matrix
from boundaryc.verify.modules import forget, import_package
from boundaryc.verify.run import Prover
from boundaryc.verify.world import SimulatedGroups, World
from tests.verify.subjects import prover

MATRIX = Path(__file__).parents[1] / "fixtures" / "matrix"
STACKS = ("dense", "moe")


def _sample(cells: list[Cell]) -> list[Cell]:
    """For each topology, variant, split, entry and size one cell, turning through the rest."""
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        key = (cell.topology, cell.variant, cell.split, cell.entry, cell.many)
        groups.setdefault(key, []).append(cell)
    return [group[7 * number % len(group)] for number, group in enumerate(groups.values())]


@pytest.mark.parametrize("name", STACKS)
def test_a_sample_of_the_matrix_holds(name: str, tmp_path: Path) -> None:
    """30 topologies up to 64 ranks, all variants; `make prove` runs every cell."""
    built = build(MATRIX / f"{name}.yaml", tmp_path)[0]
    plan = plan_stack(built.stack)
    ranks = {topology.spec.name: topology.spec.tp for topology in plan.topologies}
    assert len(ranks) == 30
    assert max(ranks.values()) == 64
    cells = _sample(list(matrix(plan, Selection())))
    package = import_package(built.output.files, built.stack.name)
    try:
        prover = Prover(plan, package)
        failed = [
            (str(cell), outcome.failure)
            for index, cell in enumerate(cells)
            if (outcome := prover.run(cell, schedule=index)).failure
        ]
    finally:
        forget(package)
    assert failed == []
    assert {(cell.topology, cell.variant) for cell in cells} == {
        (topology.spec.name, variant)
        for topology in plan.topologies
        for variant in topology.row_multiples
    }


def _built(tmp_path: Path, topologies: str, variants: str) -> Build:
    source = tmp_path / "stack.yaml"
    source.write_text(
        "boundaryc: 1\nstack: sample\nhidden_size: 64\nnorm: {kind: rms, eps: 1.0e-6}\n"
        "stages: {attention: {kind: attention}, mlp: {kind: ffn}}\n"
        "layers: {count: 2, default: [attention, mlp]}\n"
        f"topologies: {topologies}\nvariants: [{variants}]\n"
    )
    return build(source, tmp_path / "out")[0]


def test_a_variant_that_applies_nowhere_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BoundarycError, match="context_parallel applies to no topology"):
        _built(tmp_path, "{tp2: {tp: 2}}", "ordinary, context_parallel")


def test_a_variant_that_does_not_apply_somewhere_is_said(tmp_path: Path) -> None:
    built = _built(tmp_path, "{tp1: {tp: 1}, tp2: {tp: 2}, dp2: {tp: 2, attn_dp: 2}}",
                   "ordinary, sequence_parallel")  # fmt: skip
    assert built.notes == (
        "sample: no sequence_parallel on tp1, dp2: "
        "attn_tp is 1, so there are no token slices to keep",
    )


def test_an_active_variant_that_was_not_compiled_is_refused(tmp_path: Path) -> None:
    """In the words of the specification, and never on ordinary rows in its place."""
    built = _built(tmp_path, "{cp2: {tp: 4, attn_cp: 2}}", "ordinary, context_parallel")
    package = import_package(built.output.files, "sample")
    try:
        loaded = package.load("cp2", SimulatedGroups(World[None](4), 0))
        facts = {"rows_per_dp": [8], "padding": "sum_len", "mode": "prefill"}
        assert loaded.batch(**facts, cp=ContextParallel("zigzag", ((8,),))).local_rows == 4
        for switch, name in (
            ({"sequence_parallel": True}, "SEQUENCE_PARALLEL"),
            ({"input_scattered": True}, "INPUT_SCATTERED"),
        ):
            message = f"no stage boundary path for the active {name} batch"
            with pytest.raises(BoundaryError, match=message):
                loaded.batch(**facts, **switch)
    finally:
        forget(package)


SUPPORTS = """
import sys
sys.modules["torch"] = None  # any import of torch fails
sys.path.insert(0, sys.argv[1])
import sample
for asked in (
    ("tp2",), ("tp2", "sequence_parallel", "rsv"), ("cp2", "context_parallel", "ar", 1),
    ("tp9",), ("tp2", "context_parallel"), ("tp1", "sequence_parallel"),
    ("tp2", "input_scattered"), ("tp2", "sideways"), ("tp2", "ordinary", "best"),
    ("tp2", "ordinary", "auto", 4),
):
    print(sample.supports(*asked))
"""


def test_supports_says_why_not_without_torch(tmp_path: Path) -> None:
    """A reason or None for each of an engine's arguments."""
    topologies = "{tp1: {tp: 1}, tp2: {tp: 2}, cp2: {tp: 2, attn_cp: 2}}"
    built = _built(tmp_path, topologies, "ordinary, context_parallel, sequence_parallel")
    for name, text in built.output.files.items():
        path = tmp_path / "out" / "sample" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", SUPPORTS, str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "None",
        "None",
        "None",
        "unknown topology 'tp9'; known: tp1, cp2, tp2",
        "no context_parallel batches on tp2: attn_cp is 1, so there are no token shards",
        "no sequence_parallel batches on tp1: attn_tp is 1, so there are no token slices to keep",
        "no input_scattered batches on tp2: the stack does not list this variant",
        "unknown variant 'sideways'; known: ordinary, sequence_parallel, context_parallel, "
        "input_scattered",
        "unknown policy 'best'; known: auto, ar, rs, rsv, rs+rsv",
        "4 pipeline stages: the stack file declares no `pipeline`",
    ]


def test_the_manifest_hash_follows_what_a_topology_runs(tmp_path: Path) -> None:
    """Equal for equal code, of its own for each topology, another for another meaning."""

    def hashes(eps: str) -> dict[str, str]:
        built = _built(tmp_path, "{tp1: {tp: 1}, tp2: {tp: 2}}", "ordinary")
        (tmp_path / "stack.yaml").write_text(
            (tmp_path / "stack.yaml").read_text().replace("1.0e-6", eps)
        )
        built = build(tmp_path / "stack.yaml", tmp_path / "out")[0]
        package = import_package(built.output.files, "sample")
        try:
            groups = SimulatedGroups(World[None](2), 0)
            return {name: package.load(name, groups).manifest_hash for name in ("tp1", "tp2")}
        finally:
            forget(package)

    first, again, other = hashes("1.0e-6"), hashes("1.0e-6"), hashes("1.0e-5")
    assert first == again
    assert len({*first.values(), *other.values()}) == 4
    assert all(len(one) == 64 for one in first.values())


def _deep(tmp_path: Path, count: int) -> dict[str, str]:
    """The files of a stack of ``count`` layers."""
    text = (MATRIX / "dense.yaml").read_text().replace("count: 4", f"count: {count}")
    source = tmp_path / "deep.yaml"
    source.write_text(text)
    return dict(build(source, tmp_path / "out")[0].output.files)


def _body(text: str) -> str:
    return text.partition("\n\n")[2]


def test_a_thousand_layers_are_no_longer_than_four(tmp_path: Path) -> None:
    """The same modules byte for byte below their headers; `benchmarks/compile.py` has the times."""
    shallow, deep = _deep(tmp_path, 4), _deep(tmp_path, 1000)
    assert shallow.keys() == deep.keys()
    for name, text in shallow.items():
        counted = name.endswith(("layers.py", "/__init__.py", "manifest.json"))
        if not counted:
            assert _body(text) == _body(deep[name]), name
        assert len(text.splitlines()) == len(deep[name].splitlines()), name


@pytest.mark.parametrize("policy", ["ar", "rs", "rsv", "rs+rsv"])
def test_auto_is_what_the_file_says(policy: str) -> None:
    """A stack loaded without a policy has the functions of that one, and of no other."""
    stack = f"""\
boundaryc: 1
stack: sample
hidden_size: 64
norm: {{kind: rms, eps: 1.0e-6}}
stages: {{attention: {{kind: attention}}, mlp: {{kind: ffn}}}}
layers: {{count: 3, default: [attention, mlp]}}
topologies: {{tp4: {{tp: 4, attn_dp: 4}}}}
policy: {{auto: {policy}}}
"""
    package = prover(stack).subject.package
    tables = import_module(f"{package.__name__}.tp4").Stack.tables
    assert tables["auto"] is tables[policy]
    assert any(tables["auto"] is not table for table in tables.values())
