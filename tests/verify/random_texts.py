"""Random stack files: what the language can say, and now and then what it must refuse."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from tests.verify.random_branches import fitting
from tests.verify.random_ends import UNNORMED, fused
from tests.verify.random_meshes import rarely, topologies, variants
from tests.verify.random_residuals import Residual, residuals, unread

Draw = st.DrawFn

ATTENTIONS = ("attention", "mixer", "attention_b", "table", "a")
FFNS = ("mlp", "experts", "mlp_gate", "column", "any", "mlp_exit", "b2")
"""Names of stages; some are those of classes that generated code imports, or join to such."""

BESIDE = {"side": "dense", "shortcut": "sparse", "look": "attention", "beside_ffn": "dense"}
"""Stages of branches, by name: attention, dense or sparse."""

LORA = "lora: true"

LASTING = ("outlives_producer", "at_producer")
"""One of these is claimed, nearly always, of an update with parameters."""

OPERATIONS = {
    "plain": (
        "update",
        "plain_add",
        (),
        ("plain_add", "row_wise", "outlives_producer", "at_producer", "quantized_sum"),
    ),
    "in_place": (
        "update",
        "added_in_place",
        (),
        ("plain_add", "row_wise", "outlives_producer", "at_producer"),
    ),
    "decayed": ("update", "decayed_add", (), ("row_wise", "outlives_producer", "at_producer")),
    "gated": ("update", "gated_add", ("gate",), ("row_wise", "linear", *LASTING)),
    "squashed": ("update", "squashed_add", ("gate", "norm"), ("row_wise", *LASTING)),
    "scaled": ("read", "scaled_read", ("scale",), ("row_wise",)),
    "centred": ("read", "centred_read", (), ("row_wise",)),
    "shaped": ("read", "shaped_read", ("scale", "shift"), ("row_wise",)),
    "same": ("read", "same_read", (), ("row_wise",)),
}
"""By name: role, function in `tests.verify.operations`, parameters, and facts that are true."""

TERMS = ("bias", "shared", "gate", "norm", "value", "any", "gated_add", "same_read")
"""Names of additive terms; some are those of params, of functions, and of what is imported."""

AXES = ("attn_dp", "attn_cp", "attn_tp")
ROUNDINGS = ("fp32", "rounded")
POLICIES = ("ar", "rs", "rsv", "rs+rsv")


@dataclass(frozen=True)
class Case:
    """A stack file, and the number from which batches, cells and schedules are drawn."""

    text: str
    seed: int

    def __repr__(self) -> str:
        return f"Case(seed={self.seed}, text:\n{self.text})"


@st.composite
def cases(draw: Draw) -> Case:
    """A stack file with everything that a run of it draws."""
    kinds = _kinds(draw)
    layers = draw(st.lists(_layer(tuple(kinds)), min_size=1, max_size=5))
    used = [name for name in kinds if any(name in layer for layer in layers) or rarely(draw)]
    operations: dict[str, str] = {}
    residual = residuals(draw)
    width = draw(st.sampled_from((64, 64, 96, 4096)))
    stages = [
        f"  {name}: {_stage(draw, kinds[name], operations, width, residual)}" for name in used
    ]
    beside = draw(st.lists(st.sampled_from(sorted(BESIDE)), min_size=1, max_size=3, unique=True))
    if draw(st.integers(0, 4)) != 2 or residual:
        beside = []
    stages += _branch_stages(draw, beside, operations, width)
    fork = draw(st.sampled_from(used))
    every = {kinds[name] for name in used} | {BESIDE[name] for name in beside}
    meshes, able = topologies(draw, every)
    if beside and not rarely(draw):
        able = {"ordinary"}
        stages, operations = fitting(stages, fork, beside[-1], operations)
    drafts = _drafts(draw, {name: kinds[name] for name in used}, operations, width, residual)
    if residual:
        residual.declare(operations)
    switches = [] if beside else _switches(draw)
    stages, ends = fused(draw, stages, layers[-1][-1], alone=not beside and LORA not in switches)
    if residual and UNNORMED in ends and not drafts:
        residual = unread(residual, operations)
    lines = [
        "boundaryc: 1",
        "stack: sample",
        f"hidden_size: {width}",
        f"norm: {_norm(draw, '1.0e-6')}",
        *([residual.line] if residual else []),
        "stages:",
        *stages,
        *_layers(draw, layers),
        *meshes,
        f"variants: [{', '.join(variants(draw, able))}]",
        *_operations(operations),
        *_branch(draw, fork, beside),
        f"policy: {{auto: {draw(st.sampled_from(POLICIES))}}}",
        *drafts,
        *(pipeline := _pipeline(draw, len(layers))),
        *_captures(draw, len(layers), cuts=bool(pipeline)),
        *_extras(draw, len(layers)),
        *switches,
        *ends,
    ]
    return Case("\n".join(lines) + "\n", draw(st.integers(0, 2**32 - 1)))


def _switches(draw: Draw) -> list[str]:
    """Two-batch overlap and LoRA, which are not for a stack with a branch."""
    switches = ("overlap: {two_batch: true}", LORA)
    return [switch for switch in switches if draw(st.integers(0, 3)) == 2]


def _branch_stages(
    draw: Draw, names: list[str], operations: dict[str, str], width: int
) -> list[str]:
    """The stages of a branch: the first says nothing of its read, the last has no update."""
    lines = []
    for index, name in enumerate(names):
        kind, ends = BESIDE[name], index in (0, len(names) - 1)
        words = [f"kind: {'attention' if kind == 'attention' else 'ffn'}"]
        words += ["sparse: true"] if kind == "sparse" else []
        words += [_additive(draw, kind)] if draw(st.integers(0, 3)) == 2 else []
        if not index and names[1:] and draw(st.integers(0, 2)) == 1:
            words.append(_own_update(draw, operations))
        whole = f"{{{', '.join(words)}}}"
        stage = whole if ends and not rarely(draw) else _stage(draw, kind, operations, width)
        lines.append(f"  {name}: {stage}")
    return lines


def _own_update(draw: Draw, operations: dict[str, str]) -> str:
    """An update from outside, declared; it may write over what the stage beside it still reads."""
    name = draw(
        st.sampled_from([name for name, known in OPERATIONS.items() if known[0] == "update"])
    )
    if name not in operations:
        operations[name] = _operation(draw, name)
    return f"update: {name}"


def _branch(draw: Draw, fork: str, beside: list[str]) -> list[str]:
    """A branch of the stages `beside`, next to the stage `fork`."""
    if not beside:
        return []
    words = [f"beside: {fork}", f"stages: [{', '.join(beside)}]"]
    words += [f"merges_sum: {draw(st.sampled_from(('allow', 'never')))}"]
    return [f"branch: {{{', '.join(words)}}}"]


def _pipeline(draw: Draw, layers: int) -> list[str]:
    """In one case of three a stack that may be cut; seldom one that has no place for a cut."""
    if draw(st.integers(0, 2)) != 1 or (layers < 2 and not rarely(draw)):
        return []
    payload = draw(st.sampled_from(("partial", "complete")))
    return [f"pipeline: {{payload: {payload}}}", *(["segments: true"] * draw(st.booleans()))]


def _captures(draw: Draw, layers: int, *, cuts: bool) -> list[str]:
    """In one case of three one or two captures; where there are cuts most of them travel."""
    if draw(st.integers(0, 2)) != 1:
        return []
    found = []
    for name in ("eagle", "probe")[: draw(st.integers(1, 2))]:
        places = draw(st.lists(st.integers(0, layers - 1), min_size=1, max_size=3, unique=True))
        words = [f"{draw(st.sampled_from(('after', 'before')))}: {places}"]
        words.append(f"rows: {draw(st.sampled_from(('producer', 'input')))}")
        if (cuts or rarely(draw)) and draw(st.integers(0, 2)):
            words.append("travels: true")
        found.append(f"{name}: {{{', '.join(words)}}}")
    return [f"captures: {{{', '.join(found)}}}"]


def _extras(draw: Draw, layers: int) -> list[str]:
    """In one case of four one or two extras; seldom after a layer that is not there."""
    if draw(st.integers(0, 3)) != 2:
        return []
    known = st.integers(0, layers - 1 + rarely(draw))
    found = []
    for name in ("deepstack", "vision")[: draw(st.integers(1, 2))]:
        after = draw(st.lists(known, min_size=1, max_size=3, unique=True))
        found.append(f"{name}: {{after: {after}}}")
    return [f"extras: {{{', '.join(found)}}}"]


def _kinds(draw: Draw) -> dict[str, str]:
    """The stages to choose from, by name: attention, dense or sparse."""
    attentions = draw(st.lists(st.sampled_from(ATTENTIONS), max_size=2, unique=True))
    ffns = draw(st.lists(st.sampled_from(FFNS), min_size=not attentions, max_size=3, unique=True))
    kinds = dict.fromkeys(attentions, "attention")
    return kinds | {name: draw(st.sampled_from(("dense", "sparse"))) for name in ffns}


def _layer(names: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(names), min_size=1, max_size=min(4, len(names)), unique=True)


def _stage(
    draw: Draw,
    kind: str,
    operations: dict[str, str],
    width: int,
    residual: Residual | None = None,
) -> str:
    words = [f"kind: {'attention' if kind == 'attention' else 'ffn'}"]
    if kind == "sparse":
        words.append("sparse: true")
    if not residual and draw(st.integers(0, 7)) == 5:
        return f"{{{', '.join([*words, *_named(draw, kind)])}}}"
    words += residual.words(draw, operations) if residual else []
    roles = (("read", ("norm", "raw")), ("update", ("add",)))
    for role, built_in in () if residual else roles:
        own = tuple(name for name, known in OPERATIONS.items() if known[0] == role)
        chosen = draw(st.sampled_from((*built_in * 3, *own)))
        if chosen in OPERATIONS and chosen not in operations:
            operations[chosen] = _operation(draw, chosen)
        if chosen != built_in[0]:
            words.append(f"{role}: {chosen}")
    if kind == "attention" and draw(st.booleans()) and draw(st.booleans()):
        words.append("order: token")
    declared = operations.get("plain", "") if "update: plain" in words else ""
    plain = "[plain_add" in declared
    if residual:
        return f"{{{', '.join([*words, *_of_any(draw, kind)])}}}"
    if draw(st.booleans()) and (plain or "update" not in " ".join(words) or rarely(draw)):
        words.append("joins_sum: allow")
    added = "quantized_sum" in declared or "update" not in " ".join(words)
    if draw(st.booleans()) and (added or rarely(draw)):
        words.append(f"quantized_sum: {draw(st.sampled_from(('fp8', 'int8')))}")
    own_read = any(f"read: {name}" in words for name in OPERATIONS)
    if draw(st.integers(0, 3)) == 2 and (not own_read or rarely(draw)):
        words.append(f"quantize: {_quantization(draw, width)}")
    elif kind == "attention" and draw(st.integers(0, 3)) == 2:
        words.append("latent_input: true")
    if draw(st.integers(0, 3)) == 2 and (kind == "attention" or rarely(draw)):
        words.append(f"gathers_tp_input: {draw(st.sampled_from(('false', 'true')))}")
    if kind != "attention" and rarely(draw):
        words.append("reduction: local_tail")
    elif kind != "attention" and draw(st.integers(0, 3)) == 2:
        words.append(f"defer: {draw(st.sampled_from(('true', 'false')))}")
    if draw(st.integers(0, 3)) == 2:
        words.append(_additive(draw, kind))
    if draw(st.integers(0, 3)) == 2 and ("read: " not in " ".join(words) or rarely(draw)):
        words.append(f"norm: {_norm(draw, draw(st.sampled_from(('1.0e-6', '1.0e-5', '0.25'))))}")
    return f"{{{', '.join(words)}}}"


def _of_any(draw: Draw, kind: str) -> list[str]:
    """Keys that go with any read and update."""
    words = [_additive(draw, kind)] if draw(st.integers(0, 3)) == 2 else []
    if kind != "attention" and draw(st.integers(0, 3)) == 2:
        words.append(draw(st.sampled_from(("defer: false", "transform: {scale: 0.5}"))))
    return words


def _named(draw: Draw, kind: str) -> list[str]:
    """A read and an update under one name, and what goes with them."""
    name = draw(st.sampled_from(("sandwich", "post_norm")))
    words = [f"update: {name}", *([f"read: {name}"] if draw(st.booleans()) else [])]
    words += [f"norm: {_norm(draw, '0.25')}"] if draw(st.booleans()) else []
    words += [_additive(draw, kind)] if draw(st.integers(0, 3)) == 2 else []
    return words + (["transform: norm"] if rarely(draw) else [])


def _norm(draw: Draw, eps: str) -> str:
    """A norm: the stack's, or a stage's own."""
    kind = draw(st.sampled_from(("rms", "rms", "rms", "layer", "layer", "none")))
    if kind == "none":
        return "{kind: none}"
    words = [f"kind: {kind}", f"eps: {eps}", f"accumulate: {draw(st.sampled_from(ROUNDINGS))}"]
    words += ["bias: true"] if kind == "layer" and draw(st.booleans()) else []
    offset = draw(st.sampled_from(("", "", "1", "-0.5")))
    return f"{{{', '.join([*words, *([f'weight_offset: {offset}'] if offset else [])])}}}"


def _quantization(draw: Draw, width: int) -> str:
    """A quantisation that exists, with few exceptions."""
    scales = ["token", "static", *(["group128"] if width % 128 == 0 or rarely(draw) else [])]
    form, scale = "fp8", draw(st.sampled_from(scales))
    if scale == "token" or rarely(draw):
        form = draw(st.sampled_from(("fp8", "int8")))
    keep = ", keep: true" if draw(st.booleans()) else ""
    return f"{{format: {form}, scale: {scale}{keep}}}"


def _drafts(
    draw: Draw,
    kinds: dict[str, str],
    operations: dict[str, str],
    width: int,
    residual: Residual | None,
) -> list[str]:
    """In one case of four a draft of the stack's stages, one of which it may replace."""
    if draw(st.integers(0, 3)) != 2:
        return []
    layers = draw(st.lists(_layer(tuple(kinds)), min_size=1, max_size=2))
    (form,) = _layers(draw, layers)
    words = [form]
    if draw(st.booleans()):
        name = draw(st.sampled_from(sorted({name for layer in layers for name in layer})))
        own = _stage(draw, kinds[name], operations, width, residual)
        words.append(f"stages: {{{name}: {own}}}")
    words.append(f"entry: {draw(st.sampled_from(('complete', 'partial')))}")
    if draw(st.booleans()):
        words.append(f"policy: {{auto: {draw(st.sampled_from(POLICIES))}}}")
    return [f"drafts: {{next: {{{', '.join(words)}}}}}"]


def _additive(draw: Draw, kind: str) -> str:
    """One to three replicated terms; seldom one that a partial sum cannot have."""
    names = draw(st.lists(st.sampled_from(TERMS), min_size=1, max_size=3, unique=True))
    known = ("rank0", "divided", "after_sum")
    possible = known if kind != "attention" or rarely(draw) else known[:2]
    terms = (f"{name}: {draw(st.sampled_from(possible))}" for name in names)
    return f"additive: {{{', '.join(terms)}}}"


def _operation(draw: Draw, name: str) -> str:
    """The declaration of an operation with some of its facts, all of which are true."""
    role, function, params, facts = OPERATIONS[name]
    chosen = draw(st.sets(st.sampled_from(facts)))
    if role == "update" and params and not chosen & {*LASTING} and not rarely(draw):
        chosen.add(draw(st.sampled_from(LASTING)))
    if "plain_add" not in chosen and not rarely(draw):
        chosen.discard("quantized_sum")
    claimed = sorted(chosen, key=facts.index)
    words = [f"role: {role}", f"call: tests.verify.operations:{function}"]
    words += [f"facts: [{', '.join(claimed)}]"] if claimed else []
    words += [f"params: [{', '.join(params)}]"] if params else []
    if role == "read" and draw(st.integers(0, 4)) == 4:
        axes = draw(st.lists(st.sampled_from(AXES), min_size=1, max_size=2, unique=True))
        words.append(f"read_{draw(st.sampled_from(('local', 'whole')))}: [{', '.join(axes)}]")
    return f"{{{', '.join(words)}}}"


def _operations(declared: dict[str, str]) -> list[str]:
    if not declared:
        return []
    return ["operations:", *(f"  {name}: {text}" for name, text in declared.items())]


def _layers(draw: Draw, layers: list[list[str]]) -> list[str]:
    """The layers in one of the two forms."""
    lists = [f"[{', '.join(layer)}]" for layer in layers]
    if draw(st.booleans()):
        different = list(dict.fromkeys(lists))
        letters = dict(zip(different, "ABCDE", strict=False))
        pattern = "".join(letters[one] for one in lists)
        meanings = ", ".join(f"{letter}: {one}" for one, letter in letters.items())
        return [f'layers: {{pattern: "{pattern}", stages: {{{meanings}}}}}']
    common = max(lists, key=lists.count)
    others = [f"{index}: {one}" for index, one in enumerate(lists) if one != common]
    at = f", at: {{{', '.join(others)}}}" if others else ""
    return [f"layers: {{count: {len(lists)}, default: {common}{at}}}"]
