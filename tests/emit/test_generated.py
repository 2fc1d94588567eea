"""The generated functions: what a reader sees, and what they may not contain."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from boundaryc.emit.parts import LONGEST
from tests.emit.compiled import FIXTURES, MOE, ROOT, WIDE, compiled, function

GENERATED = ROOT / "generated"
SOURCES = [MOE, WIDE]


def variants(source: Path) -> Iterator[tuple[str, str]]:
    """The modules of batch variants of a compiled stack."""
    for name, text in compiled(source).output.files.items():
        if name.partition("/")[2].startswith(("ordinary", "sequence_parallel")):
            yield name, text


def test_a_reader_learns_from_one_file_what_a_layer_sends_and_why() -> None:
    """The third acceptance of the emitter, as far as a test can read."""
    text = compiled(MOE).output.files["tp4_dp2/ordinary.py"]
    doc = ast.get_docstring(ast.parse(text)) or ""

    assert "4 ranks = attn_dp 2 x attn_tp 2, outermost first." in doc
    assert "AttentionExperts layers: attention, experts" in doc
    lines = [" ".join(line.split()) for line in doc.splitlines()]
    assert any(
        line.startswith("attention -> experts all_reduce(tp) completes the sum that attention")
        for line in lines
    )
    assert (
        "experts -> attention all_reduce(tp) completes the sum that experts left over tp" in lines
    )


def test_a_placed_sum() -> None:
    """Rows of all groups and the sum over heads in one collective."""
    text = compiled(MOE).output.files["tp4_dp2/ordinary.py"]

    assert (
        function(text, "attention_to_experts")
        == '''\
def attention_to_experts(hidden: Tensor | OwedOutput, batch: Batch, norm: Norm) -> Tensor:
    """From attention to experts: sum over attn_tp and gather over attn_dp at once, add, norm.

    in   rows attn_dp, owes attn_tp    residual rows all
    out  rows all                      residual rows all
    collectives:
      all_reduce(tp)  completes the sum that attention left over attn_tp and brings together the
                      rows of attn_dp, each rank adding to its own place
    """
    groups, rows, stream = batch.groups, batch.rows, batch.stream
    hidden = stream.take(hidden)
    hidden = place_rows(hidden, rows.attn_dp)
    hidden = groups.tp.all_reduce(hidden)
    hidden, stream.residual = add_rms_norm(hidden, stream.residual, norm.weight)
    return hidden'''
    )


def test_a_sum_that_compute_completes() -> None:
    """At the end of the stack the sum is inside compute, and the decision says so once."""
    text = compiled(MOE).output.files["tp4_dp2/ordinary.py"]

    reduce = function(text, "experts_reduce_to_final")
    assert reduce.endswith("    return batch.groups.tp.all_reduce(hidden)")
    leave = function(text, "experts_leave_to_final")
    assert "all_reduce" not in leave
    assert (
        "EXPERTS_EXIT_TO_FINAL = ExitDecision(\n"
        "    fuse_mlp_allreduce=False,\n"
        "    mlp_reduce_scatter=False,\n"
        "    reduce=experts_reduce_to_final,\n"
        "    leave=experts_leave_to_final,\n"
        ")\n"
    ) in text


def test_a_sum_that_crosses_the_hand_off() -> None:
    """Compute keeps its partial and the next stage completes it."""
    text = compiled(MOE).output.files["tp4_dp2/ordinary.py"]

    assert "EXPERTS_EXIT = ExitDecision(\n    fuse_mlp_allreduce=True," in text
    leave = function(text, "experts_leave")
    assert "return batch.stream.owe(hidden, access=OWES_TP_ON_ALL)" in leave


def test_variable_sizes_only_where_the_batch_needs_them() -> None:
    """Even batches move fixed sizes; uneven ones look their sizes up."""
    text = compiled(MOE).output.files["tp4_dp4/ordinary.py"]

    assert "groups.tp.all_gather(hidden)" in function(text, "attention_to_mlp")
    assert "groups.tp.all_gather(hidden, rows.tp.sizes)" in function(
        text, "attention_to_mlp_uneven"
    )


def test_operations_from_outside_are_called_by_convention() -> None:
    """Update parameters travel with the contribution; read parameters are arguments."""
    text = compiled(WIDE).output.files["tp1/ordinary.py"]

    assert "from tests.emit.operations import gated_add, plain_add, scaled_read" in text
    leave = function(text, "mlp_leave")
    assert "return batch.stream.pend(hidden, (gate,), access=COMPLETE_ON_ALL)" in leave
    read = function(text, "attention_to_mlp")
    assert "batch: Batch, scale: Any, shift: Any" in read
    assert "return scaled_read(stream.residual, scale, shift)" in read
    after = function(text, "mlp_to_attention")
    assert "stream.residual = gated_add(hidden, stream.residual, *stream.params)" in after


def test_an_update_at_the_producer_leaves_a_written_stream() -> None:
    """The producer's own parameters are used and nothing of it survives the hand-off."""
    text = compiled(WIDE).output.files["tp1/ordinary.py"]

    leave = function(text, "experts_leave")
    assert "stream.residual = gated_add(hidden, stream.residual, gate)" in leave
    assert "return stream.keep(stream.residual, access=WRITTEN_ON_ALL)" in leave
    assert "    stream.take(hidden)\n" in function(text, "experts_to_tail")


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_functions_are_straight_lines(source: Path) -> None:
    """No branch, no loop, no lookup by name or type; only a join tests its rank, once."""
    for name, text in variants(source):
        for node in ast.walk(ast.parse(text)):
            place = f"{name}:{getattr(node, 'lineno', 0)}"
            assert not isinstance(node, (ast.For, ast.While, ast.Try, ast.IfExp)), place
            if isinstance(node, ast.If):
                assert ast.unparse(node.test).endswith(".rank == 0"), place
            if isinstance(node, ast.Subscript):
                assert not isinstance(node.ctx, ast.Load) or place.startswith("annotation"), place
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"getattr", "isinstance", "hasattr", "dict"}, place


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_names_are_not_numbered(source: Path) -> None:
    """Functions that share a name are told apart by words."""
    for name, text in variants(source):
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                assert not node.name.rpartition("_")[2].isdigit(), f"{name}: {node.name}"


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_every_function_is_used(source: Path) -> None:
    """What a module defines, its topology's tables or its own decisions name."""
    files = compiled(source).output.files
    for name, text in variants(source):
        folder, _, module = name.removesuffix(".py").partition("/")
        beside = (f"{folder}/__init__.py", f"{folder}/boundaries")
        tables = "".join(text for path, text in files.items() if path.startswith(beside))
        own = [other for path, other in files.items() if path.startswith(f"{folder}/")]
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                named = f"{module}.{node.name}," in tables or f"{module}.{node.name})" in tables
                used = (f"={node.name},", f"CaptureMove({node.name}")
                named |= any(word in other for word in used for other in own)
                assert named, f"{name}: {node.name}"


def test_no_module_is_too_long_to_read() -> None:
    """Of the examples: what would be longer is divided by stage, or by kernel."""
    modules = list(GENERATED.rglob("*.py"))
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in modules}
    long = [path for path, length in lengths.items() if length > LONGEST]

    assert len(modules) > 300
    assert long == []
    assert any(path.name == "ordinary_access_to_experts.py" for path in modules)


def test_tables_that_would_be_too_long_name_boundaries_of_other_modules() -> None:
    """Of many kinds of batch: each is imported once, and where it is defined it is all that is."""
    files = compiled(WIDE).output.files
    tables, boundaries = files["tp16_dp4/__init__.py"], files["tp16_dp4/boundaries.py"]
    defined = [
        ast.unparse(one.targets[0])
        for one in ast.parse(boundaries).body
        if isinstance(one, ast.Assign)
    ]

    lengths = [len(text.splitlines()) for name, text in files.items() if name.endswith(".py")]
    assert max(lengths) <= LONGEST
    imported = tables.partition("from .boundaries import (\n")[2].partition(")")[0]
    assert sorted(defined) == imported.replace(",", "").split()
    assert all(f" {name}," in tables or f"({name}," in tables for name in defined)
    assert "tp4/boundaries.py" not in files


def test_a_deep_stack_is_no_longer_than_a_shallow_one(tmp_path: Path) -> None:
    """A thousand layers of a pattern give the code of a few."""
    lengths = []
    for count in (6, 1000):
        source = tmp_path / f"deep{count}.yaml"
        text = (FIXTURES / "deep.yaml").read_text(encoding="utf-8")
        source.write_text(text.replace("PATTERN", "AMAE" * (count // 2)), encoding="utf-8")
        files = compiled(source).output.files
        lengths.append({name: len(text.splitlines()) for name, text in files.items()})

    assert lengths[0] == lengths[1]
