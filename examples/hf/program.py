"""A Hugging Face model on one rank: its own sublayers, and generated boundaries between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from boundaryc.language.model import Stack, Stage
from boundaryc.runtime import GroupProvider
from boundaryc.topology.contracts import CONTEXT_PARALLEL, INPUT_SCATTERED
from examples.common.parallel import Parallel
from examples.hf.cases import Case, Requests, facts, requests
from examples.hf.exchange import gathered, in_order, inner, scattered_sum
from examples.hf.parts import Parts, partial_embedding
from examples.hf.reference import LENGTHS, Reference

PAD = 1e30
"""What pad rows hold where the stack is entered: what leaks from them is no small number."""


@dataclass(frozen=True)
class Scene:
    """What all ranks of a run share; ``package`` has the boundaries of ``stack``."""

    case: Case
    stack: Stack
    package: ModuleType
    reference: Reference
    parts: Parts
    parallel: Parallel

    @property
    def sequences(self) -> Requests:
        """The sequences of every attention-DP group."""
        parallel = self.parallel
        groups = parallel.tp // (parallel.attn_cp * parallel.attn_tp)
        longer = self.case.variant == CONTEXT_PARALLEL
        return requests(self.case.placement, groups, longer=longer)


class RankProgram:
    """One rank's forward, and by how much its logits and captures are off."""

    def __init__(self, scene: Scene, groups: GroupProvider) -> None:
        self.scene, self.groups = scene, groups
        self.parallel = scene.parallel.at(groups.rank)
        bounds = [0, *scene.case.cuts, len(scene.stack.layers)]
        self._runs = {first: range(first, stop) for first, stop in pairwise(bounds)}
        self._load(0)
        self.batch = self.stack.batch(**facts(scene.case, scene.sequences))
        self.own: tuple[int, ...] = scene.sequences[self.parallel.group]
        self.hidden: Any = None
        self.error = 0.0

    def forward(self) -> float:
        """Runs the stack; returns the largest difference from the model on this rank's rows."""
        self.stack.start(self.batch)
        self.hidden = self._embedded()
        layers = range(len(self.scene.stack.layers))
        if self.scene.case.halves:
            self._overlapped(layers)
        else:
            for _ in self.run(layers):
                pass
            self.leave()
        return self.error

    def run(self, layers: range) -> Iterator[None]:
        """Runs some layers; others may run after every stage."""
        for index in layers:
            if index in self.scene.case.cuts:
                self._cross(index)
            reference = self.scene.reference
            bound = reference.architecture.bindings(reference.model, index)
            layer = self.stack.layer(index).bind(**bound)
            for name in self.scene.stack.layers[index]:
                self._stage(index, layer, self.scene.stack.stage(name))
                if name == self.scene.stack.layers[index][-1]:
                    self._add_extras(index)
                yield

    def leave(self) -> None:
        """Ends the stack and compares logits and captures."""
        model = self.scene.reference.model
        final = self.scene.reference.architecture.leave(model)
        self.hidden = self.stack.norm(self.hidden, self.batch, *final)
        self._compare_logits(self.batch)
        self._compare_captures()

    def _load(self, first: int) -> None:
        case = self.scene.case
        layers = self._runs[first] if case.cuts else None
        self.stack = self.scene.package.load(
            case.topology, self.groups, policy=case.policy, layers=layers
        )

    def _cross(self, index: int) -> None:
        """Goes on as the ranks do that run the layers from ``index`` on."""
        sent = self.stack.to_pp(self.hidden, self.batch)
        sent = {name: tensor.clone() for name, tensor in sent.items()}
        self._load(index)
        self.batch = self.stack.batch(**facts(self.scene.case, self.scene.sequences))
        self.hidden = self.stack.from_pp(sent, self.batch)

    def _add_extras(self, index: int) -> None:
        """Adds to a layer's output what the model adds there."""
        reference = self.scene.reference
        own = reference.architecture.extras(reference.model, index, self.given())
        if own:
            added = {name: self._on_stack_rows(tensor) for name, tensor in own.items()}
            self.hidden = self.stack.add_extras(self.hidden, self.batch, **added)

    def _overlapped(self, layers: range) -> None:
        """Runs the whole stack in two halves, each with some of every group's sequences."""
        whole = self.scene.sequences
        split = [
            (group[: -(-len(group) // 2)], group[len(group) // 2 + len(group) % 2 :])
            for group in whole
        ]
        children = self.batch.split([_tokens(first) for first, _ in split])
        given = self.stack.split(self.hidden, self.batch, children)
        own = split[self.parallel.group]
        halves = [
            HalfProgram(self, batch, hidden, part)
            for batch, hidden, part in zip(children, given, own, strict=True)
        ]
        for _ in zip_longest(*(half.run(layers) for half in halves)):
            pass
        for half in halves:
            half.leave()
        self.hidden = self.stack.merge([half.hidden for half in halves], children, self.batch)
        self._compare_logits(self.batch)
        self.error = max(self.error, *(half.error for half in halves))

    # Compute

    def _stage(self, index: int, layer: Any, stage: Stage) -> None:
        """Runs one stage of a layer; one beside a branch leaves its output for the branch's end."""
        boundary, branch = getattr(layer, stage.name), self.scene.stack.branch
        beside = getattr(layer, branch.beside) if branch else None
        if branch and stage.name == branch.stages[0]:
            given = boundary.branch_input(beside, self.hidden, self.batch)
        else:
            given = boundary.prepare(self.hidden, self.batch)
        x = given[1] if stage.latent_input else given
        output = self._computed(index, stage, boundary, x)
        if branch and stage.name == branch.beside:
            self.hidden, self._beside = given, output
        elif beside and branch and stage.name == branch.stages[-1]:
            self.hidden = beside.merge_branch(output, self._beside, self.batch)
        else:
            self.hidden = output

    def _computed(self, index: int, stage: Stage, boundary: Any, x: Tensor) -> Any:
        """What a stage leaves for the input ``x``."""
        branch = self.scene.stack.branch
        apart = branch is not None and stage.name == branch.beside
        if stage.reduction == "partial":
            leave = boundary.branch_output if apart else boundary.finish
            return leave(self._part(index, stage, x), self.batch)
        if stage.kind == "ffn" and self.scene.case.halves == "alone":
            return boundary.postprocess(
                self._summed(stage, self._part(index, stage, x)), self.batch
            )
        with boundary.exit(self.batch) as output:
            y = output.reduce_output(self._part(index, stage, x))
            if stage.reduction == "local_tail" and output.adds_tail:
                sublayer = self.scene.reference.sublayers[index][stage.name]
                y = y + self.scene.parts.tail(sublayer, x)
        return output.branch_output(y) if apart else output.finish(y)

    def _part(self, index: int, stage: Stage, x: Tensor) -> Tensor:
        """This rank's part of a stage's output."""
        sublayer = self.scene.reference.sublayers[index][stage.name]
        parts, parallel = self.scene.parts, self.parallel
        if stage.kind != "ffn":
            return self._mixed(index, stage, x)
        if not stage.sparse:
            return parts.dense(sublayer, x, parallel.dense)
        if not parallel.all_to_all:
            return parts.experts(sublayer, x, parallel)
        replica = inner(self.stack.mesh, parallel.moe_ep * parallel.moe_tp)
        group = self.groups.collective(self.stack.mesh, replica)
        rows, sizes = gathered(group, x)
        return scattered_sum(group, parts.experts(sublayer, rows, parallel), sizes)

    def _summed(self, stage: Stage, y: Tensor) -> Tensor:
        """The sum of an FFN's output, which compute does by itself."""
        parallel = self.parallel
        if stage.sparse and parallel.all_to_all:
            return y
        ranks = parallel.moe_ep * parallel.moe_tp if stage.sparse else parallel.dense_tp
        axes = inner(self.stack.mesh, ranks)
        return self.groups.collective(self.stack.mesh, axes).all_reduce(y) if axes else y

    def _mixed(self, index: int, stage: Stage, x: Tensor) -> Tensor:
        """This rank's part of a mixer's output, which depends on all tokens of its group."""
        batch, mesh = self.batch, self.stack.mesh
        tokens, at = x, torch.arange(batch.group_real_rows)
        if batch.variant == CONTEXT_PARALLEL and stage.order == "shard":
            over = tuple(name for name, _, axis in mesh.atoms if axis == "attn_cp")
            at = batch.local_tokens()
            tokens = in_order(self.groups.collective(mesh, over), x, at)
        elif batch.variant == INPUT_SCATTERED and stage.gathers_tp_input and not stage.latent_input:
            tokens, _ = gathered(self.groups.collective(mesh, mesh.names), x)
        whole = self._over_sequences(index, stage, tokens[: batch.group_real_rows])
        rows = tokens if batch.variant == INPUT_SCATTERED else x
        y = rows.new_full((len(rows), self.scene.stack.hidden_size), PAD)
        y[: len(at)] = whole[at]
        return y

    def _over_sequences(self, index: int, stage: Stage, tokens: Tensor) -> Tensor:
        """A mixer's part for all tokens of this rank's group, sequence by sequence."""
        sublayer, heads = self.scene.reference.sublayers[index][stage.name], self.parallel.heads
        pieces = tokens.split([LENGTHS[one] for one in self.own])
        found = [
            self.scene.parts.mixed(sublayer, one, piece, heads)
            for one, piece in zip(self.own, pieces, strict=True)
        ]
        return torch.cat(found) if found else tokens.new_empty(0, self.scene.stack.hidden_size)

    # What is compared

    def _rows_of(self, values: Sequence[Tensor], batch: Any) -> Tensor:
        """This rank's rows of something known for every sequence, without pads."""
        every = torch.cat([values[one] for one in self.own]) if self.own else values[0][:0]
        if batch.variant != CONTEXT_PARALLEL:
            return every
        at: Tensor = batch.local_tokens()
        return every[at]

    def given(self) -> Tensor:
        """What the model's input embeddings take for this rank's tokens."""
        return self._rows_of(self.scene.reference.ids, self.batch)

    def _embedded(self) -> Tensor:
        """The stack's input on this rank, or this rank's part of it."""
        model = self.scene.reference.model
        embedding = model.get_input_embeddings()  # type: ignore[operator]
        own = self.given()
        if self.scene.case.entry == "partial":
            own = partial_embedding(embedding, own, self.parallel.heads)
        else:
            own = embedding(own)
        return self._on_stack_rows(own * self.scene.reference.architecture.multipliers[0])

    def _on_stack_rows(self, own: Tensor) -> Tensor:
        """This rank's rows of something, and pads behind them."""
        hidden = own.new_full((self.batch.stack_rows, own.shape[1]), PAD)
        hidden[: len(own)] = own
        return hidden

    def _compare_logits(self, batch: Any) -> None:
        reference = self.scene.reference
        expected = self._rows_of(reference.logits, batch)
        if not len(expected):
            return  # the final norm is skipped, or has pads alone
        head = reference.model.get_output_embeddings()  # type: ignore[operator]
        logits = head(self.hidden[: len(expected)]) * reference.architecture.multipliers[1]
        self._compare(logits, expected)

    def _compare_captures(self) -> None:
        """The residuals before every layer, where the edition takes them."""
        if not self.scene.stack.captures:
            return
        taken = self.batch.captured("aux")
        if len(taken) != len(self.scene.stack.layers):
            self.error = float("inf")
        for layer, value in enumerate(taken):
            entered = [one[layer] for one in self.scene.reference.entered]
            expected = self._rows_of(entered, self.batch)
            self._compare(value[: len(expected)], expected)

    def _compare(self, value: Tensor, expected: Tensor) -> None:
        if value.shape != expected.shape:
            self.error = float("inf")
        elif len(expected):
            # A NaN must not pass as small: it is no number's lesser.
            off = (value - expected).abs().nan_to_num(nan=float("inf")).max()
            self.error = max(self.error, float(off))


class HalfProgram(RankProgram):
    """One half of an overlapped batch, on the stack of the whole one."""

    def __init__(self, whole: RankProgram, batch: Any, hidden: Any, own: tuple[int, ...]) -> None:
        self.scene, self.groups, self.parallel = whole.scene, whole.groups, whole.parallel
        self.stack, self.batch, self.hidden, self.own = whole.stack, batch, hidden, own
        self.error = 0.0


def _tokens(sequences: tuple[int, ...]) -> int:
    return sum(LENGTHS[one] for one in sequences)
