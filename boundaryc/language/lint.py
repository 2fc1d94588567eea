"""What is valid and still worth a second look: warnings and notes, never errors.

A rule reports what can be left out or can never have an effect. Defaults that are written out are
not reported, because they explain a file; values that only repeat another value are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from boundaryc.language.allow import apply_allows
from boundaryc.language.diagnostics import Diagnostic, Label, Severity
from boundaryc.language.drafts import of_draft
from boundaryc.language.model import BUILTIN, OperationDecl, Stack, Stage, TopologySpec
from boundaryc.language.reader import read
from boundaryc.language.topologies import inapplicable


@dataclass(frozen=True, slots=True)
class Subject:
    """A stack, and by path what its file writes: defaults that are left out are not in it."""

    stack: Stack
    written: Mapping[str, object]


Rule = Callable[[Subject], Iterator[Diagnostic]]


def lint(stack: Stack, text: str) -> tuple[Diagnostic, ...]:
    """What the rules find in `stack`, in file order, without what comments in `text` allow.

    `text` is what the stack was loaded from. Warnings are meant to be acted on; notes only inform.
    A comment `# boundaryc: allow BC601 because ...`, on the line of a finding or alone on the line
    above it, suppresses it; one without a reason or without an effect is a finding itself.
    """
    text = text.removeprefix("\ufeff")
    written = read(text, stack.source).written()
    found = [item for rule in _RULES for item in rule(Subject(stack, written))]
    for draft in stack.drafts:
        found += _own_findings(draft, stack, written)
    return apply_allows(stack, text, list(dict.fromkeys(found)))


def _own_findings(
    draft: Stack, target: Stack, written: Mapping[str, object]
) -> Iterator[Diagnostic]:
    """What the rules find in a draft, but for a policy that is inherited and meant for others."""
    subject = Subject(draft, of_draft(draft.name.removeprefix(f"{target.name}_"), written))
    policy = target.span("policy.auto")
    for rule in _RULES:
        yield from (item for item in rule(subject) if policy is None or item.span != policy)


def _finding(
    stack: Stack,
    code: str,
    path: str,
    message: str,
    help: str,  # noqa: A002 - the word users see
    other: tuple[str, str] | None = None,
    severity: Severity = Severity.WARNING,
) -> Diagnostic:
    span = stack.span(other[0]) if other else None
    labels = (Label(span, other[1]),) if other and span else ()
    return Diagnostic(code, severity, message, stack.span(path), labels, help)


def _repeated_sizes(subject: Subject) -> Iterator[Diagnostic]:
    """BC601: sizes of a topology that follow from its other sizes."""
    stack = subject.stack
    for spec in stack.topologies:
        path = f"topologies.{spec.name}"
        if f"{path}.moe.tp" in stack.spans:
            message = f"moe `tp: {spec.moe.tp}` is what remains of tp = {spec.tp} anyway"
            yield _finding(stack, "BC601", f"{path}.moe.tp", message, "leave out moe `tp`")
        plain = spec.moe.dp == spec.moe.ep == 1 and not spec.moe.all_to_all
        if f"{path}.moe" in stack.spans and plain and f"{path}.moe.tp" not in stack.spans:
            message = "`moe` says what holds without it: all ranks share every expert"
            yield _finding(stack, "BC601", f"{path}.moe", message, "leave out `moe`")
        yield from _dense_spelling(subject, spec, f"{path}.dense_tp")


def _dense_spelling(subject: Subject, spec: TopologySpec, path: str) -> Iterator[Diagnostic]:
    """BC601: `attn_tp` where it is as many as another word of `dense_tp` says."""
    stack = subject.stack
    if path not in stack.spans or subject.written.get(path) == "tp":
        return
    if spec.dense_tp == spec.tp:
        message = f"`dense_tp` is {spec.tp} ranks, which are all of them, as without it"
        yield _finding(stack, "BC601", path, message, "leave out `dense_tp`")
    elif spec.dense_tp == 1 and subject.written.get(path) == "attn_tp":
        message = "`dense_tp: attn_tp` is one rank here"
        yield _finding(stack, "BC601", path, message, "write `dense_tp: 1`")


def _repeated_layers(subject: Subject) -> Iterator[Diagnostic]:
    """BC601: an entry of `at` with the stages that `default` gives those layers."""
    stack = subject.stack
    prefix = "layers.at."
    default = subject.written.get("layers.default")
    for path, stages in subject.written.items():
        if path.startswith(prefix) and default is not None and stages == default:
            message = f"`{path.removeprefix(prefix)}` has the stages of `default`"
            other = ("layers.default", "the same stages")
            yield _finding(stack, "BC601", path, message, "leave out this entry", other)


def _factors_of_one(subject: Subject) -> Iterator[Diagnostic]:
    """BC601: factors that change nothing."""
    stack = subject.stack
    for stage in stack.stages:
        path = f"stages.{stage.name}"
        if stage.update_scale == 1:
            message = "a sum scaled by 1 is what `add` does"
            yield _finding(stack, "BC601", f"{path}.update", message, "leave out `update`")
        if stage.transform is not None and stage.transform.scale == 1:
            message = "a transform that scales by 1 changes nothing"
            yield _finding(stack, "BC601", f"{path}.transform", message, "leave out `transform`")


def _repeated_norms(subject: Subject) -> Iterator[Diagnostic]:
    """BC601: a norm of a stage that is the stack's."""
    stack = subject.stack
    for stage in stack.stages:
        path = f"stages.{stage.name}.norm"
        same = subject.written.get(f"{path}.kind") == stack.norm.kind
        if stage.norm is None and path in stack.spans and same:
            message = f"the norm of `{stage.name}` is the stack's"
            other = ("norm", "the same norm")
            yield _finding(stack, "BC601", path, message, "leave out `norm`", other)


def _dead_policy(subject: Subject) -> Iterator[Diagnostic]:
    """BC602: a policy where no ffn leaves a sum that it could scatter."""
    stack = subject.stack
    heirs = [one for one in stack.family if one.span("policy.auto") == stack.span("policy.auto")]
    ffns = [stage for one in heirs for stage in one.stages if stage.kind == "ffn"]
    owed = any(_owes(stage, spec) for stage in ffns for spec in stack.topologies)
    if "policy.auto" in stack.spans and stack.policy_auto != "ar" and not owed:
        message = f"the policy {stack.policy_auto} can never apply: no ffn leaves a sum to scatter"
        yield _finding(stack, "BC602", "policy.auto", message, "leave out `policy`")


def _dead_stage_keys(subject: Subject) -> Iterator[Diagnostic]:
    """BC602: keys of a stage that no listed variant or topology gives a meaning."""
    stack = subject.stack
    shards = "context_parallel" in stack.variants
    for stage in stack.stages:
        path = f"stages.{stage.name}"
        if stage.order == "token" and not shards:
            message = "`order: token` can never apply: the variant context_parallel is not listed"
            help_ = "leave out `order`, or list the variant"
            yield _finding(stack, "BC602", f"{path}.order", message, help_)
        if not stage.gathers_tp_input and "input_scattered" not in stack.variants:
            message = "`gathers_tp_input` can never apply: no variant scatters an input"
            help_ = "leave out `gathers_tp_input`, or list the variant input_scattered"
            yield _finding(stack, "BC602", f"{path}.gathers_tp_input", message, help_)
        if stage.joins_sum and not any(_owes(stage, spec) for spec in stack.topologies):
            message = f"`joins_sum: allow` can never apply: `{stage.name}` leaves no sum"
            yield _finding(stack, "BC602", f"{path}.joins_sum", message, "leave out `joins_sum`")
        deferred = stage.finalize == "deferred" and BUILTIN not in stack.fusion
        if deferred and not any(_owes(stage, spec) for spec in stack.topologies):
            message = f"`finalize: deferred` can never apply: `{stage.name}` leaves no sum"
            yield _finding(stack, "BC602", f"{path}.finalize", message, "leave out `finalize`")


def _dead_link(subject: Subject) -> Iterator[Diagnostic]:
    """BC602: the speed of links between one rank."""
    stack = subject.stack
    for spec in stack.topologies:
        path = f"topologies.{spec.name}.link"
        if spec.tp == 1 and path in stack.spans:
            message = "`link` can never apply: one rank sends nothing"
            yield _finding(stack, "BC602", path, message, "leave out `link`")


def _dead_fusion(subject: Subject) -> Iterator[Diagnostic]:
    """BC602: fusion providers where nothing is summed, own kernels where nothing is handed on."""
    stack = subject.stack
    finishes = any(stage.finalize == "deferred" for stage in stack.stages)
    if BUILTIN in stack.fusion and finishes:
        return  # with or without a sum
    if BUILTIN in stack.fusion:
        message = f"`{BUILTIN}` can never apply: no stage has `finalize: deferred`"
        yield _finding(stack, "BC602", "fusion", message, f"leave out `{BUILTIN}`")
    if stack.fusion and all(spec.tp == 1 for spec in stack.topologies):
        message = "`fusion` can never apply: one rank sums nothing"
        yield _finding(stack, "BC602", "fusion", message, "leave out `fusion`")


def _needless_rows(subject: Subject) -> Iterator[Diagnostic]:
    """BC603: rows that a read asks for although any rows would do, or there is nothing to cut."""
    stack = subject.stack
    for operation in stack.operations:
        for key in ("read_local", "read_whole"):
            for axis in sorted(getattr(operation, key)):
                yield from _needless_axis(stack, operation, key, axis)

    for stage in stack.stages:
        for key in ("before_gather", "needs_every_row"):
            for axis in sorted(getattr(stage, key)):
                yield from _absent_axis(stack, f"stages.{stage.name}.{key}", key, axis)


def _needless_axis(
    stack: Stack, operation: OperationDecl, key: str, axis: str
) -> Iterator[Diagnostic]:
    path = f"operations.{operation.name}.{key}"
    if "row_wise" in operation.facts:
        message = f"`{key}` is not needed: a row_wise read gives the same on any rows"
        help_ = f"leave out `{axis}`, so that rows may move where it is cheapest"
        yield _finding(stack, "BC603", path, message, help_)
    else:
        yield from _absent_axis(stack, path, key, axis)


def _absent_axis(stack: Stack, path: str, key: str, axis: str) -> Iterator[Diagnostic]:
    if all(getattr(spec, axis) == 1 for spec in stack.topologies):
        message = f"`{key}: {axis}` has no effect: {axis} is 1 in every topology"
        help_ = f"leave out `{axis}`, or add a topology that has it"
        yield _finding(stack, "BC603", path, message, help_)


def _equal_topologies(subject: Subject) -> Iterator[Diagnostic]:
    """BC604: topologies that differ in nothing but their name."""
    stack = subject.stack
    seen: dict[tuple[object, ...], str] = {}
    for spec in sorted(stack.topologies, key=lambda spec: _line(stack, spec)):
        key = (spec.tp, spec.attn_dp, spec.attn_cp, spec.dense_tp, spec.moe, spec.alpha)
        first = seen.setdefault(key, spec.name)
        if first != spec.name:
            message = f"`{spec.name}` and `{first}` are the same topology"
            other = (f"topologies.{first}", "the other one")
            yield _finding(
                stack, "BC604", f"topologies.{spec.name}", message, "remove one of the two", other
            )


def _skipped_variants(subject: Subject) -> Iterator[Diagnostic]:
    """BC605: for each variant, the topologies it is not compiled for, as a note."""
    stack = subject.stack
    listed = subject.written.get("variants")
    order = listed if isinstance(listed, list) else ["ordinary"]
    for variant in stack.variants:
        reasons = {spec.name: inapplicable(variant, spec) for spec in stack.topologies}
        skipped = [name for name, why in reasons.items() if why]
        if skipped:
            message = f"{variant} is not compiled for {', '.join(skipped)}"
            help_ = f"nothing to do: {'; '.join(sorted({why for why in reasons.values() if why}))}"
            path = f"variants.{order.index(variant)}"
            yield _finding(stack, "BC605", path, message, help_, severity=Severity.NOTE)


def _idle_shards(subject: Subject) -> Iterator[Diagnostic]:
    """BC606: context shards in a stack whose batches never cut rows over them."""
    stack = subject.stack
    if "context_parallel" in stack.variants:
        return
    for spec in stack.topologies:
        if spec.attn_cp > 1:
            message = f"attn_cp is {spec.attn_cp} and no variant cuts rows over it"
            help_ = "list the variant context_parallel, or leave out `attn_cp`"
            yield _finding(stack, "BC606", f"topologies.{spec.name}.attn_cp", message, help_)


def _line(stack: Stack, spec: TopologySpec) -> tuple[int, int]:
    """Where a topology is written, so that the later of two is reported."""
    span = stack.span(f"topologies.{spec.name}")
    return (span.start.line, span.start.column) if span else (0, 0)


def _owes(stage: Stage, spec: TopologySpec) -> bool:
    """Whether the output of `stage` is a sum over more than one rank."""
    if stage.kind != "ffn":
        return spec.attn_tp > 1
    if stage.sparse:
        return not spec.moe.all_to_all and spec.tp > spec.moe.dp
    return spec.dense_tp > 1


_RULES: tuple[Rule, ...] = (
    _repeated_sizes,
    _repeated_layers,
    _factors_of_one,
    _repeated_norms,
    _dead_policy,
    _dead_stage_keys,
    _dead_link,
    _dead_fusion,
    _needless_rows,
    _equal_topologies,
    _skipped_variants,
    _idle_shards,
)
