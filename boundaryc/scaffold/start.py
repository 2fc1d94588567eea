"""A stack file to begin with: its text, what it means, and what is left to its author."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from boundaryc.emit.render import render
from boundaryc.language.diagnostics import BoundarycError, Diagnostic, Label, Severity
from boundaryc.language.limits import MAX_LAYERS, MAX_WIDTH
from boundaryc.language.lint_config import lint_config
from boundaryc.language.loader import loads
from boundaryc.language.model import Stack
from boundaryc.language.names import name_problem
from boundaryc.language.spans import Position, Span, split_lines
from boundaryc.language.topologies import VARIANTS, inapplicable
from boundaryc.scaffold import schedule
from boundaryc.scaffold.answers import Answers
from boundaryc.scaffold.config import Config
from boundaryc.scaffold.families import FAMILIES, SHARDED, Facts, Family, number, read_eps
from boundaryc.scaffold.ranks import topology_line, usual
from boundaryc.scaffold.schedule import layer_lines
from boundaryc.scaffold.unknown import UNKNOWN, Place, todos

_WIDTHS = ("hidden_size", "n_embd", "d_model", "dim")
_DEPTHS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")
_EPS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")
_BIASES = ("attention_bias", "mlp_bias", "use_bias", "projectors_bias")
_NO_EPS = " # TODO eps: the config says none"
_TODO = re.compile("# TODO ([a-z ]+):")
_DRAFTS = ("num_nextn_predict_layers", "num_mtp_layers")


class MisfitError(ValueError):
    """Topologies or variants were asked for that do not fit each other or the model."""


@dataclass(frozen=True, slots=True)
class View:
    """What the templates of stack files are given; every text is YAML."""

    stack: str
    hidden_size: int
    eps: str
    eps_from: str
    layers: tuple[str, ...]
    topologies: tuple[str, ...] = ()
    variants: tuple[str, ...] = ("ordinary",)
    facts: Facts = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    todo: Mapping[Place, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sketch:
    """A stack file but for the ranks it is for: its template, and the variants it can have."""

    template: str
    view: View
    sparse: bool = False
    variants: tuple[str, ...] = SHARDED


@dataclass(frozen=True, slots=True)
class Started:
    """A stack file to begin with.

    ``family`` is the known one, None where there is none or no config was given. ``findings`` are
    warnings about ``text``: what is not known of the model, and what its config says and the file
    does not.
    """

    text: str
    stack: Stack
    family: str | None
    findings: tuple[Diagnostic, ...]


def started(
    config: Config | None, topologies: Sequence[str], variants: Sequence[str], source: str
) -> Started:
    """The stack file of a model, or of a small dense one without a config.

    Topologies are words such as ``tp8-attn_dp4``; without any, and without variants, there are
    usual ones. ``source`` names the file. Raises BoundarycError for what is wrong in the config,
    RanksError for a topology that is none, MisfitError for what does not fit.
    """
    family = None if config is None else _family(config)
    if config is None:
        sketch = Sketch("dense", View("model", 1024, "1.0e-6", "", _small()))
    else:
        sketch = _known(family, config) if family else _unknown(config)
    lines = tuple(topology_line(word) for word in topologies or usual(sketch.sparse))
    text, stack = _written(sketch, lines, tuple(variants), source)
    findings: list[Diagnostic] = []
    if config is not None:
        findings += lint_config(stack, config.values, config.places)
    if config is not None and family is None:
        findings.insert(0, _questions(config, text, source))
    return Started(text, stack, family.name if family else None, tuple(findings))


def _family(config: Config) -> Family | None:
    return next((FAMILIES[one] for one in config.model_types if one in FAMILIES), None)


def _small() -> tuple[str, ...]:
    return layer_lines((schedule.DENSE,) * 4)


def _known(family: Family, config: Config) -> Sketch:
    answers = Answers(config)
    width = answers.integer("hidden_size", 1, MAX_WIDTH)
    eps = read_eps(answers, *family.eps)
    layers = family.layers(answers)
    facts = family.facts(answers, layers) if layers else {}
    notes = tuple(_notes(family, answers))
    answers.done()
    view = View(
        stack=family.name,
        hidden_size=width,
        eps=number(eps),
        eps_from=_eps_from(family.eps[0], answers),
        layers=layer_lines(layers),
        facts=facts,
        notes=notes,
    )
    sparse = any("experts" in layer for layer in layers)
    return Sketch(family.name, view, sparse, family.variants)


def _eps_from(key: str, answers: Answers) -> str:
    if key not in answers.assumed:
        return f" # {key}"
    return f" # Transformers' {key}: the config has none"


def _notes(family: Family, answers: Answers) -> Iterator[str]:
    """Comments on what the config says and a stack file does not."""
    biased = [key for key in _BIASES if answers.flag(key)]
    if family.biases and biased:
        yield f"# Output projections have biases ({', '.join(biased)})."
        yield "# They are compute's: one rank of each sum adds them."
    key = answers.first(*_DRAFTS)
    if not family.drafts and answers.integer(key, 0, 64, 0):
        yield f"# {key}: layers of multi-token prediction are stacks of their own, in `drafts`,"
        yield "# which are not written here."


def _unknown(config: Config) -> Sketch:
    """A skeleton: sizes are asked for under all the names that configs have for them."""
    answers = Answers(config)
    width = answers.integer(answers.first(*_WIDTHS), 1, MAX_WIDTH)
    count = answers.integer(answers.first(*_DEPTHS), 1, MAX_LAYERS)
    key = answers.first(*_EPS)
    eps = read_eps(answers, key, 1e-6)
    answers.done()
    view = View(
        stack=_named(config),
        hidden_size=width,
        eps=number(eps),
        eps_from=f" # {key}" if answers.has(key) else _NO_EPS,
        layers=layer_lines((schedule.DENSE,) * count),
        todo=todos(config),
    )
    return Sketch("unknown", view)


def _named(config: Config) -> str:
    """The name of a stack that is like the model's type, where that makes a name."""
    for said in config.model_types:
        name = re.sub("[^a-z0-9]+", "_", said.lower()).strip("_")
        if name_problem("stack", name) is None:
            return name
    return "model"


def _written(
    sketch: Sketch, topologies: tuple[str, ...], variants: tuple[str, ...], source: str
) -> tuple[str, Stack]:
    """The text, with all variants that any of its topologies gives a meaning if none are asked."""
    view = replace(sketch.view, topologies=topologies, variants=variants or ("ordinary",))
    for one in variants:
        if one not in VARIANTS:
            raise MisfitError(f"there is no variant {one[:40]!r}; there is {', '.join(VARIANTS)}")
    text, stack = _loaded(sketch.template, view, source)
    if variants:
        return text, stack
    able = tuple(
        one
        for one in sketch.variants
        if any(inapplicable(one, spec) is None for spec in stack.topologies)
    )
    return _loaded(sketch.template, replace(view, variants=able), source)


def _loaded(template: str, view: View, source: str) -> tuple[str, Stack]:
    text = render(f"init/{template}.yaml.jinja", view)
    try:
        return text, loads(text, source)
    except BoundarycError as problem:
        found = "; ".join(f"{one.message} ({one.code}): {one.help}" for one in problem.diagnostics)
        raise MisfitError(f"these topologies and variants cannot be: {found}") from problem


def _questions(config: Config, text: str, source: str) -> Diagnostic:
    """One finding that points at every TODO, with what to write for each."""
    write = {one.what: one.write for one in UNKNOWN} | {"eps": "the eps of the model's code"}
    labels = tuple(
        Label(
            Span(source, Position(line, match.start() + 3), Position(line, match.start() + 7)),
            f"write {write[match[1]]}",
        )
        for line, words in enumerate(split_lines(text), 1)
        if (match := _TODO.search(words))
    )
    called = ", ".join(repr(one)[:60] for one in config.model_types) or "nothing"
    message = f"no known family: model_type is {called}, so this file is a skeleton"
    help_ = "read the decoder layer in the model's modeling_*.py, answer every TODO and remove it"
    return Diagnostic("BC608", Severity.WARNING, message, labels[0].span, labels, help_)
