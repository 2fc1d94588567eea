"""Sums and moves of rows as statements, and why each collective runs."""

from __future__ import annotations

from boundaryc.emit import move_calls, quantized
from boundaryc.emit.calls import Calls, Names, Script
from boundaryc.emit.how import Collective, How
from boundaryc.emit.scope import Scope
from boundaryc.emit.steps import Step
from boundaryc.language.model import Quantize
from boundaryc.plan.row_moves import PLACE
from boundaryc.plan.state import Phase


class Mover:
    """Writes what moves a value, its residual or both into a script.

    ``wanted`` says for what rows are gathered, where that is not the consumer's input. ``spares``:
    the stream stays as it is, so that functions from outside, which may write over what they are
    given, are given copies.
    """

    def __init__(
        self,
        scope: Scope,
        calls: Calls,
        *,
        at_producer: bool,
        names: Names | None = None,
        wanted: str = "the output is to lie",
        spares: bool = False,
    ) -> None:
        names = names or Names()
        self.scope, self.calls, self.at_producer = scope, calls, at_producer
        self.value, self.residual, self._written = names.value, names.residual, names.written
        self.wanted = wanted
        self._own = ".clone()" if spares else ""
        self.script = Script()
        self._unpacked: set[str] = set()

    def _all_reduce(self, step: Step, axes: int) -> None:
        group = self.scope.group(axes)
        self._complete(step, f"groups.{group}.all_reduce({self.value})")
        self._say(f"sum over {group}")
        self._collect(f"all_reduce({group})", self._completes(step, group))
        self.script.how.append(How.ALL_REDUCE)

    def _quantized_all_reduce(self, step: Step, axes: int) -> None:
        group, form = self.scope.group(axes), self.calls.quantized_sum
        self._call("quantized_all_reduce")
        self._put(f'{self.value} = quantized_all_reduce({self.value}, groups.{group}, "{form}")')
        self._say(f"sum over {group} as {form}")
        text = f"quantized_all_reduce({group})"
        self._collect(text, f"{self._completes(step, group)}, as {form} with scales")
        self.script.how.append(How.QUANTIZED)

    def _reduce_scatter(self, step: Step, axes: int, variable: bool) -> None:
        group, sizes = self.scope.group(axes), self._sizes(axes, step.after.rows, variable)
        self._complete(step, f"groups.{group}.reduce_scatter({self.value}{sizes})")
        self._say(f"sum and scatter over {group}")
        words = self.scope.mesh.words(step.after.rows)
        why = f"{self._completes(step, group)} and leaves each rank its own part, rows {words}"
        self._collect(f"reduce_scatter({group})", why)
        self.script.how.append(How.VARIABLE_REDUCE_SCATTER if variable else How.REDUCE_SCATTER)

    def _gather_sum(self, step: Step, gather: int, total: int) -> None:
        place = self.scope.row(gather, step.before.rows)
        group = self.scope.group(gather | total)
        self._put(f"{self.value} = {move_calls.moved(PLACE, self.value, place)}")
        self._call(PLACE)
        self._complete(step, f"groups.{group}.all_reduce({self.value})")
        owed, moved = self.scope.mesh.label(total), self.scope.mesh.label(gather)
        self._say(f"sum over {owed} and gather over {moved} at once")
        why = f"{self._completes(step, owed)} and brings together the rows of {moved}"
        self._collect(f"all_reduce({group})", f"{why}, each rank adding to its own place")
        self.script.how.append(How.GATHER_SUM)

    def _all_gather(self, step: Step, axes: int, variable: bool) -> None:
        group, sizes = self.scope.group(axes), self._sizes(axes, step.before.rows, variable)
        self.script.uneven |= variable
        self._say(f"gather over {group}")
        words = self.scope.mesh.words
        if step.before.phase is Phase.INPUT:
            why = f"{self.calls.consumer} computes on {held(words(step.after.rows))}"
        else:
            why = f"{self.wanted} on {held(words(step.after.rows))}"
        for name, which in self._moving(step).items():
            self._put(f"{name} = groups.{group}.all_gather({name}{sizes})")
            self._collect(f"all_gather({group})", f"{why}: {which}" if which else why)

    def _residual_gather(self, step: Step, axes: int, variable: bool) -> None:
        group, sizes = self.scope.group(axes), self._sizes(axes, step.before.residual, variable)
        self.script.uneven |= variable
        self._write(f"groups.{group}.all_gather({self.residual}{sizes})")
        kept = self._keep(step, f"groups.{group}.all_gather(part{sizes})")
        self._say(f"gather residual over {group}")
        words = self.scope.mesh.words
        why = f"moves the residual from {held(words(step.before.residual))}"
        self._collect(f"all_gather({group})", f"{why} to {held(words(step.after.residual))}")
        for name in kept:
            self._collect(f"all_gather({group})", f"moves its {name} along")
        self.script.moves_residual = True

    def _sizes(self, axes: int, finer: int, variable: bool) -> str:
        if not variable:
            return ""
        return f", rows.{self.scope.row(axes, finer)}.sizes"

    def _slice(self, step: Step, axes: int) -> None:
        place = self.scope.row(axes, step.after.rows)
        for name in self._moving(step):
            self._put(f"{name} = rows.{place}.take({name})")
        self._say(f"cut over {place}")

    def _residual_slice(self, step: Step, axes: int) -> None:
        place = self.scope.row(axes, step.after.residual)
        self._write(f"rows.{place}.take({self.residual})")
        self._keep(step, f"rows.{place}.take(part)")
        self._say(f"cut residual over {place}")
        self.script.moves_residual = True

    def _reorder(self, step: Step, to_tokens: bool) -> None:
        order = "tokens" if to_tokens else "shards"
        name, place = f"to_{order}", self.scope.order(step.before.rows)
        for tensor in self._moving(step):
            if tensor == quantized.SCALES:  # of few columns
                self._put(f"{tensor} = rows.{place}.{name}({tensor})")
                continue
            self._put(f"{tensor} = {move_calls.moved(name, tensor, place)}")
            self._call(name)
        self._say(f"to {order.removesuffix('s')} order")

    def _reorder_and_quantize(self, step: Step, quantize: Quantize) -> None:
        order = self.scope.order(step.before.rows)
        name, statement = move_calls.moved_and_quantised(quantize, self.value, order)
        self._put(statement)
        self._call(name)
        self._say("to token order", quantized.said(quantize))

    def _keep(self, step: Step, moved: str) -> tuple[str, ...]:
        """Moves what a read kept with the residual's rows; its names."""
        kept = self.calls.read.facts.state
        if step.before.phase is Phase.CONTRIBUTION:
            kept = self.calls.update.facts.state if self.calls.update else ()
        if step.before.phase is Phase.STREAM or not kept:
            return ()
        self._put(f"stream.kept = tuple({moved} for part in stream.kept)")
        return tuple(name for name, _ in kept)

    def _moving(self, step: Step) -> dict[str, str]:
        """The tensors whose rows a move of the value takes along, and words where there are two."""
        quantize = self.calls.quantize
        if not step.before.quantized or quantize is None:
            return {self.value: ""}
        return quantized.with_rows(quantize, self.value)

    def _completes(self, step: Step, label: str) -> str:
        verb = "does a part of" if step.after.owes else "completes"
        return f"{verb} the sum that {self.calls.producer or 'the embeddings'} left over {label}"

    def _write(self, expression: str) -> None:
        """The residual that the function goes on with."""
        self._put(f"{self._written} = {expression}")
        self.residual = self._written

    def _complete(self, step: Step, expression: str) -> None:
        """A joined partial whose last sum is done is the stream."""
        if step.after.phase is Phase.STREAM:
            self._write(expression)
        else:
            self._put(f"{self.value} = {expression}")

    def _put(self, line: str) -> None:
        self.script.lines.append(line)

    def _say(self, *words: str) -> None:
        self.script.summary.extend(words)

    def _call(self, helper: str) -> None:
        self.script.helpers.add(helper)

    def _collect(self, text: str, why: str) -> None:
        self.script.collectives.append(Collective(text, why))


def held(words: str) -> str:
    """Rows, as the end of a sentence."""
    return "all rows" if words == "all" else f"rows {words}"
