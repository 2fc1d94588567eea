"""One planned boundary as statements: what each operation is in Python, and why it is there."""

from __future__ import annotations

from boundaryc.emit import move_calls, quantized
from boundaryc.emit.calls import OWN_NAMES, Script
from boundaryc.emit.fused import FusedSum
from boundaryc.emit.kernel_calls import Tensors, added, fused, fusible, kernel_of
from boundaryc.emit.moves import Mover, held
from boundaryc.emit.steps import Step
from boundaryc.emit.stream_calls import stream_call
from boundaryc.operations import Operation
from boundaryc.plan import ops
from boundaryc.plan.kernels import grouped
from boundaryc.plan.row_moves import PLACE


class Writer(Mover):
    """Writes steps as statements into a script."""

    def write(self, sequence: tuple[Step, ...]) -> Script:
        """Writes ``sequence``; row-wise neighbours for which there is a kernel become one call."""
        index = 0
        while index < len(sequence):
            if self.calls.fused is not None and isinstance(sequence[index].op, ops.AllReduce):
                index += self._attempted(self.calls.fused, sequence[index:])
            else:
                index += self._written_from(sequence[index:])
        if self._unpacked:
            carried = self.calls.carried
            names = [self._local(name) if name in self._unpacked else "_" for name in carried]
            tuple_ = f"({names[0]},)" if len(names) == 1 else ", ".join(names)
            self.script.lines.insert(0, f"{tuple_} = stream.params")
        return self.script

    def _written_from(self, sequence: tuple[Step, ...]) -> int:
        """Writes what ``sequence`` begins with, and says how many steps that were."""
        operations = [step.op for step in sequence]
        names = Tensors(self.value, self.residual, self._written)
        streams = stream_call(operations, self.calls, names)
        if streams is not None:
            self._call(streams.function)
            self._put(streams.statement)
            self._say(*streams.words)
            self.residual = streams.residual
            return streams.operations
        quantize = self.calls.quantize
        if quantize and operations[:2] == [ops.Reorder(to_tokens=True), ops.Quantize()]:
            self._reorder_and_quantize(sequence[0], quantize)
            return 2
        group = grouped(operations, fusible(self.calls))[0]
        kernel = kernel_of(group, self.calls)
        if kernel is None:
            self._step(sequence[0])
            return 1
        reads = any(isinstance(op, ops.Read) for op in group)
        lines, words = fused(kernel, self.calls, names, reads=reads, bound=self._bound)
        self.script.lines += lines
        self._say(*words)
        self._call(kernel.name)
        if kernel.adds:
            self.residual = self._written
        return len(group)

    def _attempted(self, attempt: FusedSum, sequence: tuple[Step, ...]) -> int:
        """Writes a sum, an add and a norm behind the attempt to have them done by one kernel."""
        before, self.script.lines = self.script.lines, []
        written = 0
        while written < 3:
            written += self._written_from(sequence[written:3])
        unfused, self.script.lines = self.script.lines, before
        name = self.scope.fused_sum(attempt)
        self._put(f"fused = groups.{name}.complete({self.value}, batch, norm.weight)")
        self._put("if fused is None:")
        self.script.lines += [f"    {line}" for line in unfused]
        self._put("else:")
        self._put(f"    {self.value}, {self._written} = fused")
        self.script.summary[-1] += ", in one kernel where a provider has one"
        return written

    def _step(self, step: Step) -> None:
        match step.op:
            case ops.AllReduce(axes):
                self._all_reduce(step, axes)
            case ops.QuantizedAllReduce(axes):
                self._quantized_all_reduce(step, axes)
            case ops.ReduceScatter(axes, variable):
                self._reduce_scatter(step, axes, variable)
            case ops.GatherSum(gather, total):
                self._gather_sum(step, gather, total)
            case ops.AllGather(axes, variable):
                self._all_gather(step, axes, variable)
            case ops.Slice(axes):
                self._slice(step, axes)
            case ops.ResidualSlice(axes):
                self._residual_slice(step, axes)
            case ops.ResidualGather(axes, variable):
                self._residual_gather(step, axes, variable)
            case ops.Reorder(to_tokens):
                self._reorder(step, to_tokens)
            case ops.Join():
                self._join(step)
            case ops.Capture():
                self._capture(step, step.op)
            case ops.Transform():
                self._transform()
            case ops.Update():
                self._update(step)
            case ops.Read():
                self._read(step)
            case ops.Quantize():
                self._quantize()
            case ops.Enter():
                self._enter()
            case _:
                raise TypeError(f"{step.op} has no text")

    def _join(self, step: Step) -> None:
        own, state = self.residual, step.before
        extra, alone = state.residual & ~state.rows, state.owes & ~state.residual
        if extra:
            own = move_calls.moved(PLACE, own, self.scope.row(extra, state.residual))
            self._call(PLACE)
        statement = f"{self.value} = join({self.value}, {own})"
        if alone:
            self._put(f"if groups.{self.scope.group(alone)}.rank == 0:")
            statement = f"    {statement}"
        self._put(statement)
        self._call("join")
        self._say("add the residual to one partial")
        self.script.moves_residual = True

    def _transform(self) -> None:
        transform = self.calls.transform
        assert transform is not None
        if transform.name == "scale":
            self._put(f"{self.value} = {self.value} * {self.calls.factor!r}")
            self._say(f"scale by {self.calls.factor!r}")
            return
        params = self._bound(transform)
        if transform.call is None:
            self._call(self.calls.output_norm.function)
            self._put(f"{self.value} = {self.calls.output_norm.of(self.value, params[0])}")
            self._say("norm of the output")
            return
        arguments = ", ".join([f"{self.value}{self._own}", *params])
        self._put(f"{self.value} = {self._imported(transform)}({arguments})")
        self._say(transform.name)

    def _update(self, step: Step) -> None:
        update = self.calls.update
        if update is None or update.call is None:
            self._call("add")
            scale = "" if self.calls.scale is None else f", {self.calls.scale!r}"
            self._write(f"add({self.value}, {self.residual}{scale})")
            self._say(added(self.calls))
            return
        name = self._imported(update)
        params = ["*stream.params"]
        if self.at_producer or self.calls.carried != update.params:
            params = self._bound(update)
        elif not update.params:
            params = []
        given = [f"{name}{self._own}" for name in (self.value, self.residual)]
        kept = ["*stream.kept"] * bool(update.facts.state)
        arguments = ", ".join([*given, *kept, *params, *self._of_call(update, step)])
        if update.facts.writes_stream:
            self._put(f"{name}({arguments})")
        else:
            self._write(f"{name}({arguments})")
        self._say(update.name)

    def _enter(self) -> None:
        entered, enter = f"stream.enter({self.value})", self.calls.enter
        if enter is not None:
            entered = f"{self._imported(enter)}({', '.join([entered, *enter.settings])})"
        self._write(entered)
        self._say("enter")

    def _of_call(self, operation: Operation, step: Step) -> list[str]:
        """What an operation takes of every batch, on the rows that it works on."""
        if not operation.facts.per_call:
            return []
        given, rows = f'batch.input_of("{operation.name}")', step.before.rows
        if rows != self.calls.given_on:
            given = f"rows.{self.scope.row(rows & ~self.calls.given_on, rows)}.take({given})"
        return [given]

    def _bound(self, operation: Operation) -> list[str]:
        """The producer's parameters by name: an exit is given them, others find them carried."""
        if self.at_producer:
            return list(operation.params)
        self._unpacked.update(operation.params)
        return [self._local(name) for name in operation.params]

    def _local(self, param: str) -> str:
        """What a carried parameter is called where the function has names of its own."""
        return f"{param}_of_output" if param in {*self.calls.read.params, *OWN_NAMES} else param

    def _read(self, step: Step) -> None:
        read = self.calls.read
        if read.facts.plain_norm and read.call is None:
            self._call(self.calls.norm.function)
            self._put(f"{self.value} = {self.calls.norm.of(self.residual, 'norm')}")
            self._say("norm")
        elif read.call is None:
            self._put(f"{self.value} = {self.residual}")
            self._say("read the residual")
        else:
            params = [name for name in read.params if name != "norm" or not read.normed]
            given = [self.residual, *params, *self._of_call(read, step), *read.settings]
            results = [self.value]
            if read.facts.rewrites_residual:
                results.append(self._written)
                self.residual = self._written
            results += ["stream.kept"] * bool(read.facts.state)
            self._put(f"{', '.join(results)} = {self._imported(read)}({', '.join(given)})")
            self._say(read.name)
            if read.normed:
                self._call(self.calls.norm.function)
                self._put(f"{self.value} = {self.calls.norm.of(self.value, 'norm')}")
                self._say("norm")

    def _quantize(self) -> None:
        quantize = self.calls.quantize
        assert quantize is not None
        self._call(quantized.helper(quantize))
        self._put(quantized.made(quantize, self.value))
        self._say(quantized.said(quantize))

    def _capture(self, step: Step, op: ops.Capture) -> None:
        name, value, owned = self.calls.captures[op.index], self.residual, self.calls.kept
        if op.gather:
            group = self.scope.group(op.gather)
            sizes = self._sizes(op.gather, step.before.residual, op.variable)
            value, owned = f"groups.{group}.all_gather({value}{sizes})", True
            self.script.uneven |= op.variable
            rows = step.before.residual & ~op.gather
            why = f"{name} keeps the residual on {held(self.scope.mesh.words(rows))}"
            self._collect(f"all_gather({group})", why)
        elif op.cut:
            place = self.scope.row(op.cut, step.before.residual | op.cut)
            value = f"rows.{place}.take({value})"
        self._put(f'stream.capture("{name}", {value}{", owned=True" * owned})')
        self._say(f"capture for {name}")

    def _imported(self, operation: Operation) -> str:
        self.script.custom.add(operation.name)
        return self.calls.names[operation.name]
