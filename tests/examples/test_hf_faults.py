"""Models that differ in meaning are far off: by a hundred times what the comparison allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from boundaryc.runtime import exits
from boundaryc.verify.modules import import_package
from examples.hf import parts, program
from examples.hf.cases import Case
from examples.hf_ranks import Compiled, Harness
from tests.verify.subjects import compiled

FAR = 100

SUM = "    hidden = groups.tp.all_reduce(hidden)\n"
NORM = "    hidden = rms_norm(hidden, output_norm.weight)\n"
ADD = "    hidden, stream.residual = add_rms_norm(hidden, stream.residual, norm.weight)\n"
SANDWICH = """\
    hidden, stream.residual = rms_add_rms_norm(
        hidden,
        stream.residual,
        output_norm.weight,
        norm.weight,
    )
"""
RAW = "    stream.residual = rms_add(hidden, stream.residual, output_norm.weight)\n"
CAPTURE = '    stream.capture("aux", stream.residual, owned=True)\n'
UPDATE = "hyper_update(hidden, stream.residual, *stream.kept)"
MIXED = "runtime.hyper_update(x, residual, mix, post)"
TRANSPOSED = "mix.view(-1, 4, 4).transpose(1, 2).flatten(1)"


@dataclass(frozen=True, slots=True)
class Damage:
    """An edit of what a stack is compiled to on a topology, wherever ``old`` stands."""

    name: str
    topology: str
    old: str
    new: str


DAMAGES = {
    "norm_on_a_partial": Damage("glm4", "tp4", SUM + SANDWICH, NORM + SUM + ADD),
    "post_norm_left_out": Damage("glm4", "tp4", SANDWICH, ADD),
    "capture_of_the_residual_before": Damage("qwen3", "tp4", ADD + CAPTURE, CAPTURE + ADD),
    "pre_norm_for_post_norm": Damage(
        *("olmo2", "tp4"),
        RAW + "    return stream.residual\n",
        "    stream.residual = stream.residual + hidden\n"
        "    return rms_norm(stream.residual, output_norm.weight)\n",
    ),
    "norm_of_the_output_alone": Damage(
        *("llama", "tp4"),
        ADD,
        "    stream.residual = stream.residual + hidden\n"
        "    hidden = rms_norm(hidden, norm.weight)\n",
    ),
    "norm_offset_left_out": Damage("gemma3", "tp4", "OFFSET = 1.0\n", "OFFSET = 0.0\n"),
    "scale_left_out": Damage("granite", "tp4", "norm.weight, 0.22)", "norm.weight)"),
    "post_norm_for_pre_norm": Damage(
        *("qwen3", "tp4"),
        ADD,
        "    stream.residual = stream.residual + rms_norm(hidden, norm.weight)\n"
        "    hidden = stream.residual.clone()\n",
    ),
    "sum_ended_twice": Damage(
        *("nemotron_h", "tp4"),
        'sum over tp."""\n    return hidden',
        'sum over tp."""\n    return batch.groups.tp.all_reduce(hidden)',
    ),
    "sum_never_ended": Damage("qwen3", "tp4", SUM, ""),
    "residual_of_the_layer_before": Damage(
        *("qwen3", "tp4_dp2"),
        "hidden, stream.residual = add_rms_norm(hidden",
        "hidden, _ = add_rms_norm(hidden",
    ),
    "coefficients_of_the_stage_before": Damage(
        *("glm5_next", "tp4"),
        "    return runtime.rms_norm(mixed, weight, EPS), streams, own",
        "    return runtime.rms_norm(mixed, weight, EPS), streams, (mix, post)",
    ),
    "output_summed_before_it_is_merged": Damage(
        *("cohere2", "tp4"),
        "contribution = add(*outputs)",
        "contribution = add(outputs[0], batch.groups.tp.all_reduce(outputs[1]))",
    ),
    "multiplier_on_both_sides_of_a_sum": Damage(
        "falcon_h1", "tp4", "hidden = hidden * 0.6", "hidden = hidden * 0.6 * 0.6"
    ),
    "residual_not_replaced_by_its_norm": Damage(
        *("deepnorm", "tp4"),
        "hidden, stream.residual = replaced(",
        "hidden, _ = replaced(",
    ),
    "mixing_matrix_transposed": Damage(
        *("glm5_next", "tp4"),
        MIXED,
        MIXED.replace("mix", TRANSPOSED),
    ),
    "streams_without_the_last_output": Damage(
        *("glm5_next", "tp4"),
        f"    stream.residual = {UPDATE}\n    return hyper_mean_rms_norm(",
        "    return hyper_mean_rms_norm(",
    ),
}


@cache
def harness(name: str) -> Harness:
    """One for each architecture."""
    return Harness(name)


def far(name: str, case: Case, made: Compiled | None = None) -> bool:
    """Whether a run is off by enough to be noticed whatever the tolerance is."""
    judge = harness(name)
    return judge.run(case, made) >= FAR * judge.reference.tolerance


def case_on(topology: str, **changes: Any) -> Case:
    """A run on a topology with several sequences in each attention-DP group."""
    plain = Case(topology, "plain", "ordinary", "auto", "unpadded", "uneven")
    return replace(plain, **changes)


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_stack_is_far_off(name: str) -> None:
    """Generated code that means something else."""
    damage, judge = DAMAGES[name], harness(DAMAGES[name].name)
    plan, files = compiled(judge.text(damage.topology, "captures"))
    assert any(damage.old in file for file in files.values())
    damaged = {path: file.replace(damage.old, damage.new) for path, file in files.items()}

    made = (plan.stack, import_package(damaged, damage.name))
    assert far(damage.name, case_on(damage.topology, edition="captures"), made)


def test_a_branch_that_is_merged_one_stage_early_is_far_off() -> None:
    """Its last stage reads the output of the stage beside it already."""
    text = yaml.safe_load(harness("longcat_flash").text("tp4", "plain"))
    early = text["branch"]["stages"].pop()
    text["layers"]["default"].append(early)
    plan, files = compiled(yaml.safe_dump(text, sort_keys=False))

    made = (plan.stack, import_package(files, "longcat_flash"))
    assert far("longcat_flash", case_on("tp4"), made)


def bias_on_every_rank(patch: pytest.MonkeyPatch) -> None:
    """What every rank holds whole is added by each of them."""
    own = parts.Parts.mixed

    def mixed(self: Any, sublayer: Any, sequence: int, x: Tensor, part: Any) -> Tensor:
        bias = sublayer.module.get_submodule(sublayer.output).bias
        return own(self, sublayer, sequence, x, part) + (bias if part.index else 0)

    patch.setattr(parts.Parts, "mixed", mixed)


def experts_on_every_rank(patch: pytest.MonkeyPatch) -> None:
    """Every rank of a sum computes with all experts."""
    patch.setattr(parts, "_own_experts", lambda *_: {})


def tokens_in_shard_order(patch: pytest.MonkeyPatch) -> None:
    """Context-parallel attention sees the tokens of its shards one shard after the other."""
    patch.setattr(
        program, "in_order", lambda group, x, at: program.gathered(group, x[: len(at)])[0]
    )


def experts_without_dispatch(patch: pytest.MonkeyPatch) -> None:
    """Each rank takes what its own experts make of its rows for the whole output."""

    def own_part(group: Any, x: Tensor, sizes: tuple[int, ...]) -> Tensor:
        return x.split(sizes)[group.rank]

    patch.setattr(program, "scattered_sum", own_part)


def tail_on_every_rank(patch: pytest.MonkeyPatch) -> None:
    """What no rank can cut is added by each of a sum that the boundary does."""
    patch.setattr(exits.Exit, "adds_tail", True)


def tail_in_every_part(patch: pytest.MonkeyPatch) -> None:
    """What no rank can cut is added before the sum."""
    own, tail = parts.Parts.experts, parts.Parts.tail
    patch.setattr(
        parts.Parts,
        "experts",
        lambda self, sublayer, x, parallel: (
            own(self, sublayer, x, parallel) + tail(self, sublayer, x)
        ),
    )
    patch.setattr(parts.Parts, "tail", lambda self, sublayer, x: torch.zeros_like(x))


def shared_experts_on_every_rank(patch: pytest.MonkeyPatch) -> None:
    """Only routed experts are cut."""
    own = parts._own_experts

    def routed(*given: Any) -> dict[str, Tensor]:
        return {name: part for name, part in own(*given).items() if part.dim() == 3}

    patch.setattr(parts, "_own_experts", routed)


def whole_input_on_every_rank(patch: pytest.MonkeyPatch) -> None:
    """A draft's input is complete, and summed for all that."""
    patch.setattr(program, "partial_embedding", lambda embedding, given, part: embedding(given))


def norms_of_another_layer(patch: pytest.MonkeyPatch) -> None:
    """A layer is bound to the norms of its neighbour."""
    judge = harness("qwen3").reference.architecture
    own = judge.bindings
    other = replace(judge, bindings=lambda model, index: own(model, index ^ 1))
    reference = replace(harness("qwen3").reference, architecture=other)
    patch.setitem(harness("qwen3").__dict__, "reference", reference)


def multipliers_left_out(patch: pytest.MonkeyPatch) -> None:
    """Embeddings enter the stack, and logits leave the model, as they are."""
    judge = harness("granite").reference
    plain = replace(judge.architecture, multipliers=(1.0, 1.0))
    patch.setitem(harness("granite").__dict__, "reference", replace(judge, architecture=plain))


def images_of_another_layer(patch: pytest.MonkeyPatch) -> None:
    """What is for the output of one layer is added to that of the other."""
    judge = harness("qwen3_vl_text").reference.architecture
    own = judge.extras
    other = replace(
        judge, extras=lambda model, index, ids: own(model, 1 - index if index < 2 else index, ids)
    )
    reference = replace(harness("qwen3_vl_text").reference, architecture=other)
    patch.setitem(harness("qwen3_vl_text").__dict__, "reference", reference)


MISTAKES: list[tuple[Callable[[pytest.MonkeyPatch], None], str, Case]] = [
    (bias_on_every_rank, "qwen3", case_on("tp4")),
    (bias_on_every_rank, "starcoder2", case_on("tp4")),
    (experts_on_every_rank, "nemotron_h", case_on("tp4")),
    (experts_on_every_rank, "mixtral", case_on("tp4")),
    (multipliers_left_out, "granite", case_on("tp4")),
    (
        tokens_in_shard_order,
        "qwen3",
        case_on("tp4_cp2", variant="context_parallel", split="zigzag"),
    ),
    (experts_without_dispatch, "qwen3_moe", case_on("tp4_dp2_dense1")),
    (norms_of_another_layer, "qwen3", case_on("tp4")),
    (images_of_another_layer, "qwen3_vl_text", case_on("tp4")),
    (tail_on_every_rank, "longcat_flash", case_on("tp4_dp4", placement="even")),
    (tail_in_every_part, "longcat_flash", case_on("tp4")),
    (shared_experts_on_every_rank, "deepseek_v3", case_on("tp4")),
    (whole_input_on_every_rank, "deepseek_v3_nextn", case_on("tp4", entry="partial")),
]


@pytest.mark.parametrize(
    ("mistake", "name", "case"), MISTAKES, ids=lambda one: getattr(one, "__name__", "")
)
def test_a_model_that_computes_something_else_is_far_off(
    mistake: Callable[[pytest.MonkeyPatch], None],
    name: str,
    case: Case,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compute that does not keep to the contract of its boundary."""
    whole = harness(name)
    assert whole.run(case) <= whole.reference.tolerance
    whole.__dict__.pop("_parts", None)
    mistake(monkeypatch)

    assert far(name, case)
    whole.__dict__.pop("_parts", None)
