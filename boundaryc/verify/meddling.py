"""A forward whose model uses outputs between stages, through every accessor there is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from boundaryc.graph.build import ENTRY, Edge
from boundaryc.plan.access import handed_off
from boundaryc.plan.state import Phase
from boundaryc.runtime import BoundaryError, HandoffOutput
from boundaryc.runtime.stream import Form
from boundaryc.verify.binding import bound_last
from boundaryc.verify.fixture import Place
from boundaryc.verify.oracle import end
from boundaryc.verify.ranks import MismatchError, RankProgram


class _Collector:
    """Keeps what it is shown: a copy, and the value itself where that is said to be safe."""

    def __init__(self) -> None:
        self.shown: list[Tensor] = []
        self.owned: list[tuple[Tensor, Tensor]] = []

    def capture(self, value: Tensor, *, owned: bool = False) -> None:
        """Takes a value."""
        self.shown.append(value.clone())
        if owned:
            self.owned.append((value, self.shown[-1]))


class MeddlingProgram(RankProgram):
    """One rank's forward with the scene's deeds between its stages."""

    def __init__(self, scene: Any, groups: Any) -> None:
        super().__init__(scene, groups)
        self._collector = _Collector()
        self._before_cut: set[Place] = set()

    def forward(self) -> float:
        """Runs the stack; what was captured and owned must not have changed in the end."""
        error = super().forward()
        for value, copy in self._collector.owned:
            if not torch.equal(value, copy):
                raise MismatchError("an owned capture was written after it was taken")
        return error

    def _enter(self, place: Place, edge: Edge, boundary: Any, hidden: Any) -> Any:
        acts = self._acts(place)
        hidden = self._meddle(place, edge, hidden)
        if self.scene.subject.plan.stack.stage(place.stage).kind == "ffn":
            return super()._enter(place, edge, boundary, hidden)
        collector = self._collector
        wanted: dict[str, Any] = {**self._added(place, edge)}
        asked = [act for act in ("show", "collect") if act in acts]
        expected = self.scene.reference.shown[place]
        if wanted:  # the two do not go together
            asked = [act for act in asked if act == "show"]
        if "show" in asked:
            wanted["capture_output"] = collector.capture
        if "collect" in asked:
            wanted["captured_last_layer_outputs"] = collector
        before = len(collector.shown)
        x = boundary.prepare(hidden, self.batch, **wanted)
        goal = self.scene.boundaries[edge].goal
        rows = {
            "show": self._on_stack_rows(),
            "collect": self.scene.held(self.rank, goal.rows, by_token=goal.by_token),
        }
        before_enter = edge.producer == ENTRY and self.scene.cell.entry == "complete"
        for act, value in zip(asked, collector.shown[before:], strict=True):
            if before_enter and act == "show" and "write" not in acts:
                self._compare(
                    f"{place}: {act}", value, rows[act], self.scene.reference.outputs[place]
                )
                continue
            self._compare(f"{place}: {act}", value, rows[act], expected)
        return x

    def _end(self, hidden: Any) -> None:
        graph, place = self.scene.subject.plan.graph, end(self.scene.subject.plan.stack)
        hidden = self._meddle(place, graph.last, hidden)
        expected, acts = self.scene.reference.residuals[place], self._acts(place)
        if "fold" in acts and "show" not in acts:
            out = self.stack.take_output(hidden, self.batch)
            self._compare("the end's output", out, self._on_stack_rows(), expected)
            if not self.scene.subject.plan.stack.terminal.norm:  # else nothing crosses that end
                self._check_captures(place, graph.last)
            return
        if "show" not in acts or not self.scene.subject.plan.stack.terminal.norm:
            super()._end(hidden)
            return
        read, shown = bound_last(self.scene.subject), _Collector()
        out = self.stack.norm(hidden, self.batch, *read, capture_output=shown.capture)
        self._compare("the final norm", out, self._on_stack_rows(), self.scene.reference.output)
        (residual,) = shown.shown
        self._compare("the end's capture", residual, self._on_stack_rows(), expected)
        self._check_captures(place, graph.last)

    def _cross(self, index: int, hidden: Any) -> Any:
        """Half of what is done around a cut is done before it, the other half behind it.

        An update with parameters runs before the cut, so all that its output allows does too.
        """
        plan = self.scene.subject.plan
        behind = (
            (Place(at, edge.consumer), edge)
            for at, edges in enumerate(plan.graph.walk)
            for edge in edges
            if at >= index
        )
        place, edge = next(behind, (end(plan.stack), plan.graph.last))
        update = plan.operations[plan.stack.stage(edge.producer).update]
        bound = update.params or update.facts.per_call
        if (bound or index % 2) and place not in self._before_cut:
            hidden = self._meddle(place, edge, hidden)
            self._before_cut.add(place)
        return super()._cross(index, hidden)

    def _acts(self, place: Place) -> tuple[str, ...]:
        assert self.scene.deeds is not None
        return self.scene.deeds.acts[place]

    def _meddle(self, place: Place, edge: Edge, hidden: Any) -> Any:
        """Everything that is done with an output before the next stage takes it."""
        stack, batch, reference = self.stack, self.batch, self.scene.reference
        assert self.scene.deeds is not None
        changes = self.scene.deeds.changes
        for act in () if place in self._before_cut else self._acts(place):
            match act:
                case "complete":
                    hidden = stack.complete_output(hidden, batch)
                case "add":
                    extra = self._own(changes.extras[place])
                    hidden = stack.add_to_output(hidden, batch, extra)
                    self._compare_output(place, edge, hidden)
                case "snapshot" if isinstance(batch.stream.value, HandoffOutput):
                    _refuses_snapshot(stack, batch, hidden)
                case "snapshot":
                    value = stack.snapshot(hidden, batch)
                    entering = edge.producer == ENTRY
                    expected = (reference.outputs if entering else reference.updated)[place]
                    self._compare(f"{place}: {act}", value, self._on_stack_rows(), expected)
                case "fold":
                    hidden = stack.fold(hidden, batch)
                    expected = reference.updated[place]
                    self._compare(f"{place}: {act}", hidden, self._on_stack_rows(), expected)
                case "write":
                    hidden = stack.written(hidden + self._own(changes.additions[place]), batch)
                case "add to written":
                    extra = self._own(changes.additions[place])
                    hidden = stack.add_to_output(hidden, batch, extra)
                case _:
                    pass
        return hidden

    def _compare_output(self, place: Place, edge: Edge, value: Tensor) -> None:
        """The completed output lies on the rows on which its producer left it."""
        boundary = self.scene.boundaries[edge]
        state = handed_off(boundary)
        if self.batch.stream.form is Form.RECEIVED:
            expected = self.scene.reference.outputs[place]
            self._compare(f"{place}: output", value, self._on_stack_rows(), expected)
            return
        if edge.producer == ENTRY or state.phase is not Phase.CONTRIBUTION or state.joined:
            return
        held = self.scene.held(self.rank, state.rows, by_token=state.by_token)
        self._compare(f"{place}: output", value, held, self.scene.reference.outputs[place])


def _refuses_snapshot(stack: Any, batch: Any, hidden: Any) -> None:
    """That a hand-off is not shown, as it is finished once."""
    try:
        stack.snapshot(hidden, batch)
    except BoundaryError:
        return
    raise MismatchError("a snapshot of a hand-off was taken")
