"""The model around the generated boundaries, as one simulated rank runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from boundaryc.graph.build import ENTRY, Edge
from boundaryc.language.model import Stage
from boundaryc.plan.access import handed_off
from boundaryc.plan.ops import QuantizedAllReduce
from boundaryc.plan.result import Boundary
from boundaryc.plan.state import Phase
from boundaryc.topology.contracts import CONTEXT_PARALLEL, mixer_input, regime
from boundaryc.verify.batches import coordinates
from boundaryc.verify.binding import bind_arguments, of_every_batch, qkv_latent
from boundaryc.verify.fixture import Place, mix
from boundaryc.verify.fusing import ended, left
from boundaryc.verify.oracle import end
from boundaryc.verify.parts import crossings, on_time, scattered, share, spoil
from boundaryc.verify.pipeline import Pipeline, batch_facts
from boundaryc.verify.quantized import judged, stands_for
from boundaryc.verify.scene import PAD, TOLERANCE, Held, Scene
from boundaryc.verify.world import SimulatedGroups


class MismatchError(Exception):
    """A rank holds something else than the oracle says it must."""


class RankProgram:
    """One rank's forward: every input, every residual and the output are compared on the way.

    ``without_exits``: FFNs sum by themselves and end in ``postprocess``, as in two-batch overlap.
    """

    without_exits = False

    def __init__(self, scene: Scene, groups: SimulatedGroups) -> None:
        self.scene, self.rank = scene, groups.rank
        self._pipeline = Pipeline(scene, groups)
        self.stack = self._pipeline.stack(0)
        self.batch = self.stack.batch(**batch_facts(scene.cell))
        self._groups = groups
        self._give()
        self.hidden: Any = None  # what the last stage left; in the end the stack's output
        self.error = 0.0
        self._captured: list[tuple[str, Tensor, Tensor]] = []
        self._crossed = crossings(scene)
        self._beside: Callable[[], Any] = lambda: None

    def forward(self) -> float:
        """Runs the whole stack; returns the largest error. MismatchError where it is too large."""
        for _ in self.stages():
            pass
        return self.error

    def stages(self) -> Iterator[None]:
        """Runs the whole stack; others may run after every stage."""
        self.stack.start(self.batch)
        self.hidden = self._embed()
        yield from self.run(range(len(self.scene.subject.plan.graph.walk)))
        self.end()

    def run(self, layers: range) -> Iterator[None]:
        """Runs some layers from what the one before them left; others may run after every stage."""
        for index in layers:
            if index in self.scene.cell.cuts:
                self.hidden = self._cross(index, self.hidden)
            layer = self._bind(index)
            for edge in self.scene.subject.plan.graph.walk[index]:
                place = Place(index, edge.consumer)
                self.hidden = self._stage(place, edge, layer, self.hidden)
                yield

    def end(self) -> None:
        """Leaves the stack; what was captured must not have changed by then."""
        self._end(self.hidden)
        if not all(torch.equal(value, copy) for _, value, copy in self._captured):
            raise MismatchError("a capture was written after it was taken")
        for capture in self.scene.subject.plan.stack.captures:
            found, taken = self.batch.captured(capture.name), self._captured
            kept = [copy for name, _, copy in taken if name == capture.name]
            if capture.travels and not (
                len(found) == len(kept) and all(map(torch.equal, found, kept))
            ):
                raise MismatchError(f"{capture.name} did not arrive as it was taken")

    def _cross(self, index: int, hidden: Any) -> Any:
        """Hands the stream over to the ranks that run the layers from ``index`` on."""
        self.stack, self.batch, hidden = self._pipeline.cross(index, self.stack, self.batch, hidden)
        self._give()
        return hidden

    def _give(self) -> None:
        """Gives the batch what operations take of every batch."""
        own = self._own(self.scene.subject.fixture.given(self.scene.tokens))
        self.batch.give(**dict.fromkeys(of_every_batch(self.scene.subject.plan), own))

    def _end(self, hidden: Any) -> None:
        """Leaves the stack."""
        self.hidden = out = left(self.scene, self.stack, self.batch, hidden)
        rows = self.scene.boundaries[self.scene.subject.plan.graph.last].goal.rows
        held = self.scene.held(self.rank, rows)
        self._compare("the final norm", out, held, self.scene.reference.output)
        self._check_captures(end(self.scene.subject.plan.stack), self.scene.subject.plan.graph.last)

    def _check_captures(self, place: Place, edge: Edge) -> None:
        """What the stack file's captures took at a boundary."""
        demands = regime(self.scene.variant, self.scene.topology.mesh)
        expected = self.scene.reference.shown[place]
        stack, behind = self.scene.subject.plan.stack, end(self.scene.subject.plan.stack)
        inputs = mixer_input(None if place == behind else stack.stage(place.stage), demands)
        for capture in stack.captures:
            # More than one is taken where layers without stages stand between those that it names.
            taken = edge.target.captures.count(capture.name)
            rows = demands.rows if capture.rows == "producer" else inputs
            held = self.scene.held(self.rank, rows)
            for value in self.batch.captured(capture.name)[-taken:] if taken else ():
                self._compare(f"{place}: {capture.name}", value, held, expected)
                self._captured.append((capture.name, value, value.clone()))

    def _enter(self, place: Place, edge: Edge, boundary: Any, hidden: Any) -> Any:
        """What a stage computes on, from what the one before it left."""
        return boundary.prepare(hidden, self.batch, **self._added(place, edge))

    def _added(self, place: Place, edge: Edge) -> dict[str, Tensor]:
        """The tensor that the model adds after the update, where the stage takes one."""
        stage = self.scene.subject.plan.stack.stage(place.stage)
        if not stage.post_addition or edge.producer == ENTRY:
            return {}
        addition = self.scene.subject.fixture.addition(place, self.scene.tokens)
        return {"post_residual_addition": self._own(addition)}

    def _on_stack_rows(self) -> Held:
        """The rows on which the stack is entered and left."""
        mesh = self.scene.topology.mesh
        return self.scene.held(self.rank, regime(self.scene.variant, mesh).rows)

    def _own(self, value: Tensor) -> Tensor:
        """This rank's rows of something like the stack's input, pads included."""
        held = self._on_stack_rows()
        own = value.new_zeros(held.count, value.shape[1])
        own[held.positions] = value[held.tokens]
        return own

    def _embed(self) -> Tensor:
        """The stack's input; a partial one is this rank's share of the columns."""
        start = self.scene.boundaries[self.scene.subject.plan.graph.edges()[0]].start
        held = self.scene.held(self.rank, start.rows)
        width = self.scene.subject.fixture.width
        hidden = torch.full((held.count, width), PAD, dtype=torch.float64)
        hidden[held.positions] = self.scene.tokens[held.tokens]
        part, parts = share(self.scene.topology.mesh, self.rank, start.owes)
        if parts > 1:
            own = torch.zeros_like(hidden)
            columns = slice(width * part // parts, width * (part + 1) // parts)
            own[:, columns] = hidden[:, columns]
            hidden = own
        return scattered(hidden)

    def _bind(self, index: int) -> Any:
        subject = self.scene.subject
        bound: dict[str, object] = {}
        for stage in subject.plan.stack.layers[index]:
            params = subject.fixture.weights[Place(index, stage)].params
            bound |= bind_arguments(subject.plan, stage, params)
        return self.stack.layer(index).bind(**bound)

    def _stage(self, place: Place, edge: Edge, layer: Any, hidden: Any) -> Any:
        """Runs one stage, and adds what the stack file says to the output of its layer."""
        output, stack = self._ran(place, edge, layer, hidden), self.scene.subject.plan.stack
        named = [one.name for one in stack.extras if place.layer in one.layers]
        if not named or place.stage != stack.layers[place.layer][-1]:
            return output
        fixture, tokens = self.scene.subject.fixture, self.scene.tokens
        given = {name: self._own(fixture.extra(place, name, tokens)) for name in named}
        return self.stack.add_extras(output, self.batch, **given)

    def _ran(self, place: Place, edge: Edge, layer: Any, hidden: Any) -> Any:
        boundary, goal = getattr(layer, place.stage), self.scene.boundaries[edge].goal
        reference, branch = self.scene.reference, self.scene.subject.plan.stack.branch
        if branch is not None and edge.forks:
            given = boundary.branch_input(getattr(layer, branch.beside), hidden, self.batch)
        else:
            given = self._enter(place, edge, boundary, hidden)
        self._check_captures(place, edge)
        if self.scene.subject.plan.stack.stage(place.stage).latent_input:
            given, latent = given
            self._check_latent(place, latent, self._following(edge))
        held = self.scene.held(self.rank, goal.rows, by_token=goal.by_token)
        self._check_published(place, held)
        x = self._read(place, given, held)
        residual = self.batch.stream.residual
        rest = self.scene.held(self.rank, goal.residual)
        self._compare(f"{place}: residual", residual, rest, reference.residuals[place])
        kept = self.batch.stream.kept if reference.kept.get(place) else ()
        for index, value in enumerate(kept):
            self._compare(f"{place}: state {index}", value, rest, reference.kept[place][index])
        compute = partial(self._computed, place, edge, boundary, x, held)
        if branch is not None and place.stage == branch.beside:
            self._beside = on_time(compute, early=place.layer % 2 == 0)
            return given
        output = compute()
        if not edge.forks:  # else the stage beside the branch may still compute on it
            spoil(given, residual)
        if branch is not None and place.stage == branch.stages[-1]:
            beside = getattr(layer, branch.beside)
            return beside.merge_branch(output, self._beside(), self.batch)
        return output

    def _computed(self, place: Place, edge: Edge, boundary: Any, x: Tensor, held: Held) -> Any:
        """What a stage leaves for the input ``x``: this rank's part of its output, finished."""
        stack = self.scene.subject.plan.stack
        stage, following = stack.stage(place.stage), self._following(edge)
        merges = stack.branch is not None and place.stage == stack.branch.beside
        terms = self.scene.subject.fixture.terms(place, stage, x)
        if stage.reduction == "partial":
            y = self._attend(place, x, held, following)
            self._bring(place, y, following, terms)
            leave = boundary.branch_output if merges else boundary.finish
            return self._left(place, leave(y, self.batch, **terms))
        if stage.kind == "ffn" and self.without_exits:
            y = self._alone(place, stage, x, following)
            return boundary.postprocess(y, self.batch, **terms)  # its sum never travels quantised
        with boundary.exit(self.batch) as exit_:
            if stage.kind == "ffn":
                y = self._feed_forward(place, x, following)
            else:
                y = self._attend(place, x, held, following)
            y = self._reduce(exit_, y, terms)
            if stage.reduction == "local_tail" and exit_.adds_tail:
                y = scattered(y + self.scene.subject.fixture.tail(place, x))
        self._bring(place, y, following, {})
        return self._left(place, exit_.branch_output(y) if merges else exit_.finish(y))

    def _bring(self, place: Place, y: Any, following: Boundary, terms: dict[str, Tensor]) -> None:
        """Notes what this rank adds to a sum that may travel quantised."""
        quantized = self.scene.subject.plan.stack.stage(place.stage).quantized_sum is not None
        if not quantized or not isinstance(y, Tensor):
            return
        start, sums = following.start, self.scene.sums
        held = self.scene.held(self.rank, start.rows, by_token=start.by_token)
        part, _ = share(self.scene.topology.mesh, self.rank, start.owes)
        sums.bring(place, f"part {part}", y[held.positions], held.tokens)
        for name, term in terms.items():
            own = term if term.dim() == 1 else term[held.positions]
            sums.bring(place, name, own, held.tokens)

    def _left(self, place: Place, output: Any) -> Any:
        """What a stage left; where its sum travelled quantised, judged by what that may cost.

        The model goes on with the oracle's numbers, from which no later comparison is off.
        """
        form = self.scene.subject.plan.stack.stage(place.stage).quantized_sum
        if form is None:
            return output
        boundary = self.scene.boundaries[self._crossed[place]]
        lossy = [op for op in boundary.path.ops if isinstance(op, QuantizedAllReduce)]
        if not lossy:
            return output
        state, reference = handed_off(boundary), self.scene.reference
        written = state.phase is Phase.STREAM
        right = (reference.written if written else reference.sums)[place]
        held = self.scene.held(self.rank, state.rows, by_token=state.by_token)
        if output.shape[0] != held.count:
            raise MismatchError(f"{place}: output: {output.shape[0]} rows, must be {held.count}")
        at = coordinates(self.scene.topology.mesh, self.rank)
        group = tuple(-1 if lossy[0].axes >> index & 1 else own for index, own in enumerate(at))
        own, expected = output[held.positions], right[held.tokens]
        wrong = self.scene.sums.judge(place, str(form), group, own, expected, held.tokens)
        if wrong:
            raise MismatchError(f"{place}: output: {wrong}")
        output[held.positions] = expected
        return output

    def _alone(self, place: Place, stage: Stage, x: Tensor, following: Boundary) -> Tensor:
        """The whole output of an FFN that runs without an exit, and so sums by itself."""
        y, owes = self._feed_forward(place, x, following), following.start.owes
        if owes:
            mesh = self.scene.topology.mesh
            y = self._groups.collective(self.stack.mesh, mesh.names(owes)).all_reduce(y)
        if stage.reduction == "local_tail":
            y = y + self.scene.subject.fixture.tail(place, x)
        return scattered(y)

    def _check_latent(self, place: Place, latent: Tensor, following: Boundary) -> None:
        """That the latent of an input lies on all rows for which attention returns its output."""
        start = following.start
        held = self.scene.held(self.rank, start.rows, by_token=start.by_token)
        expected = qkv_latent(self.scene.reference.inputs[place], self.batch)
        self._compare(f"{place}: latent", latent, held, expected)

    def _check_published(self, place: Place, held: Held) -> None:
        """That the batch says which tokens a stage computes on, where its stack has LoRA."""
        expected = torch.full((held.count,), -1)
        expected[held.positions] = held.tokens
        published = self.batch.lora_rows
        if not self.scene.subject.plan.stack.lora:
            right = published is None
        else:
            right = published is not None and torch.equal(published, expected)
        if not right:
            raise MismatchError(f"{place}: published rows {published}, must be {expected}")

    def _read(self, place: Place, given: Any, held: Held) -> Tensor:
        """What the stage computes on, float64, from what it was given, which is compared.

        Of a quantised input the tokens go on with the oracle's numbers: those of this rank may
        differ by one code each, which no later comparison could tell from an error.
        """
        how = self.scene.subject.plan.stack.stage(place.stage).quantize
        right = self.scene.reference.inputs[place]
        if how is None:
            self._compare(f"{place}: input", given, held, right)
            return given  # type: ignore[no-any-return]
        values, scales, *kept = given
        if len(kept) != how.keep:
            raise MismatchError(f"{place}: {len(given)} tensors")
        expected = self.scene.reference.quantized[place]
        for x in kept:
            self._compare(f"{place}: unquantised input", x, held, expected.exact)
        moved = [values] if how.scale == "static" else [values, scales]
        if any(one.shape[0] != held.count for one in moved):
            rows = " and ".join(str(one.shape[0]) for one in moved)
            raise MismatchError(f"{place}: quantised input: {rows} rows, must be {held.count}")
        own = scales if how.scale == "static" else scales[held.positions]
        wrong = judged(how, values[held.positions], own, expected, held.tokens)
        if wrong:
            raise MismatchError(f"{place}: quantised input: {wrong}")
        x = stands_for(values, scales)
        x[held.positions] = right[held.tokens]
        return x

    def _reduce(self, exit_: Any, y: Tensor, terms: dict[str, Tensor]) -> Any:
        """The sum of a stage's output, where compute has to do it."""
        return ended(exit_, self.batch, y, terms)

    def _feed_forward(self, place: Place, x: Tensor, following: Boundary) -> Tensor:
        """This rank's part of an FFN's output, for the rows it was given."""
        part, parts = share(self.scene.topology.mesh, self.rank, following.start.owes)
        return scattered(self.scene.subject.fixture.partial(place, x, part, parts))

    def _attend(self, place: Place, x: Tensor, held: Held, following: Boundary) -> Tensor:
        """This rank's part of attention's output. Pad rows are never computed on.

        Rows of a request that other ranks hold are what the oracle says they are: this rank's own
        were just compared with it.
        """
        start, fixture = following.start, self.scene.subject.fixture
        part, parts = share(self.scene.topology.mesh, self.rank, start.owes)
        out = self.scene.held(self.rank, start.rows, by_token=start.by_token)
        y = torch.full((out.count, fixture.width), PAD, dtype=torch.float64)
        seen = self.scene.mixed[place][out.tokens]
        if out is held and self.scene.variant != CONTEXT_PARALLEL:
            seen = mix(x[held.positions])
        y[out.positions] = fixture.partial(place, seen, part, parts)
        return scattered(y)

    def _following(self, edge: Edge) -> Boundary:
        """A boundary that this stage's output crosses; all of them start from one contract."""
        every = self.scene.boundaries.items()
        return next(b for e, b in every if e.source == edge.target and not e.forks)

    def _compare(self, what: str, value: Tensor, held: Held, expected: Tensor) -> None:
        if value.shape[0] != held.count:
            raise MismatchError(f"{what}: {value.shape[0]} rows, must be {held.count}")
        if not len(held.tokens):
            return
        right = expected[held.tokens]
        error = float((value[held.positions] - right).abs().max() / right.abs().max().clamp(min=1))
        self.error = max(self.error, error)
        if not error <= TOLERANCE:
            raise MismatchError(f"{what}: error {error:.3g}")
