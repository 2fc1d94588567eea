"""Faults in what is written: statements, exits, tables, layout and templates."""

from __future__ import annotations

from tests.verify.faults.fault import Fault

MOVES, SCRIPT = "boundaryc/emit/moves.py", "boundaryc/emit/script.py"
DRAFTS, ENDS = "boundaryc/emit/drafts.py", "boundaryc/emit/ends.py"
VIEWS = "boundaryc/emit/topology_views.py"


def _fault(
    name: str, does: str, path: str, old: str, new: str, *seen_by: str, area: str = "emitter"
) -> Fault:
    return Fault(name, area, does, path, old, new, seen_by)


FAULTS = (
    _fault(
        "sum-dropped",
        "An all-reduce is not written.",
        MOVES,
        'self._complete(step, f"groups.{group}.all_reduce({self.value})")\n'
        '        self._say(f"sum over {group}")',
        'self._complete(step, self.value)\n        self._say(f"sum over {group}")',
        "values",
    ),
    _fault(
        "sum-twice",
        "An all-reduce is written twice.",
        MOVES,
        'self._complete(step, f"groups.{group}.all_reduce({self.value})")\n'
        '        self._say(f"sum over {group}")',
        'self._put(f"{self.value} = groups.{group}.all_reduce({self.value})")\n'
        '        self._complete(step, f"groups.{group}.all_reduce({self.value})")\n'
        '        self._say(f"sum over {group}")',
        "values",
    ),
    _fault(
        "sum-in-the-wrong-group",
        "A sum is done over all ranks instead of those that owe it.",
        MOVES,
        "    def _all_reduce(self, step: Step, axes: int) -> None:\n"
        "        group = self.scope.group(axes)",
        "    def _all_reduce(self, step: Step, axes: int) -> None:\n"
        "        group = self.scope.group(self.scope.mesh.every)",
        "values",
    ),
    _fault(
        "placed-sum-without-the-sum",
        "A placed sum is over the gathered ranks only: what they owed stays partial.",
        MOVES,
        "group = self.scope.group(gather | total)",
        "group = self.scope.group(gather)",
        "values",
    ),
    _fault(
        "norm-before-sum",
        "The norm sees the residual before the contribution is added.",
        SCRIPT,
        "        self.script.lines += lines\n",
        "        if kernel.adds and kernel.norm:\n"
        '            self._put(f"added = {self.residual} + {self.value}")\n'
        '            wrong = f"(0 * {self.value}, "\n'
        '            lines = [one.replace(f"({self.value}, ", wrong) for one in lines]\n'
        '            lines.append(f"{self._written} = added")\n'
        "        self.script.lines += lines\n",
        "values",
    ),
    _fault(
        "residual-on-every-rank",
        "Every rank of a sum adds the residual to its partial, not one.",
        SCRIPT,
        "        if alone:\n",
        "        if False:\n",
        "values",
    ),
    _fault(
        "residual-on-the-wrong-rows",
        "The residual joins a sum at the rows' beginning, not at its own place.",
        SCRIPT,
        "move_calls.moved(PLACE, own, self.scope.row(extra, state.residual))",
        'move_calls.moved(PLACE, own, self.scope.row(extra, state.residual)) + ".flip(0)"',
        "values",
    ),
    _fault(
        "wrong-rows",
        "A slice takes rows by the sizes of the coarser side.",
        MOVES,
        "self.scope.row(axes, step.after.rows)\n        for name",
        "self.scope.row(axes, axes)\n        for name",
        "values",
        "refusals",
    ),
    _fault(
        "gather-of-the-wrong-value",
        "A gather of the residual gathers what came in instead.",
        MOVES,
        "all_gather({self.residual}{sizes})",
        "all_gather({self.value}{sizes})",
        "refusals",
    ),
    _fault(
        "gather-without-sizes",
        "A variable gather is written without its sizes.",
        MOVES,
        '        return f", rows.{self.scope.row(axes, finer)}.sizes"',
        '        return ""',
        "census",
    ),
    _fault(
        "joined-sum-is-no-stream",
        "A joined sum is taken for an input: the residual is never written.",
        MOVES,
        "        if step.after.phase is Phase.STREAM:\n            self._write(expression)",
        "        if step.after.phase is Phase.INITIAL:\n            self._write(expression)",
        "values",
    ),
    _fault(
        "residual-kept-at-the-entry",
        "The stream is entered and the residual is not set.",
        SCRIPT,
        "self._write(entered)",
        'self._put(f"{self.value} = {entered}")',
        "refusals",
    ),
    _fault(
        "update-forgets-its-parameters",
        "A declared update runs with the parameters of the read.",
        SCRIPT,
        '        params = ["*stream.params"]',
        '        params = ["*stream.params[::-1]"]',
        "values",
    ),
    _fault(
        "update-twice",
        "A declared update is applied twice.",
        SCRIPT,
        'self._write(f"{name}({arguments})")',
        'self._write(f"{name}({arguments})")\n'
        '        arguments = ", ".join([self.value, self.residual, *params])\n'
        '        self._write(f"{name}({arguments})")',
        "values",
    ),
    _fault(
        "raw-read-aliases-the-input",
        "A raw read of the stream returns what came in.",
        SCRIPT,
        'self._put(f"{self.value} = {self.residual}")',
        'self._put(f"{self.value} = {self.value}")',
        "values",
    ),
    _fault(
        "flag-says-scatter-never",
        "An exit that ends in a scatter says that compute must sum.",
        ENDS,
        'return ExitDraft(f"{producer}_exit", bool(owes) and not scatter, scatter, reduce, left)',
        'return ExitDraft(f"{producer}_exit", bool(owes) and not scatter, scatter,'
        " _sum_inside(producer, scope, owes) if owes else reduce, left)",
        "values",
    ),
    _fault(
        "exit-sums-nowhere",
        "Where compute must sum itself, its exit keeps the partial.",
        ENDS,
        "        reduce = _sum_inside(producer, scope, owes)\n",
        "        reduce = _kept(producer, scope.mesh, owes)\n",
        "values",
    ),
    _fault(
        "exit-sums-and-leaves-the-sum",
        "Compute sums itself and the exit sums again.",
        ENDS,
        "        left = leave(boundary, scope, calls, rest)",
        "        left = leave(boundary, scope, calls, sequence)",
        "values",
    ),
    _fault(
        "params-not-carried",
        "The parameters of an update are not left with the contribution.",
        ENDS,
        "    if calls.carried and state.phase is not Phase.STREAM:",
        "    if calls.carried and state.phase is Phase.STREAM:",
        "refusals",
    ),
    _fault(
        "update-not-kept",
        "The result of a declared update is dropped.",
        SCRIPT,
        'self._write(f"{name}({arguments})")',
        'self._put(f"{name}({arguments})")',
        "values",
    ),
    _fault(
        "merge-by-name-alone",
        "Functions that differ only in their statements are taken for one.",
        DRAFTS,
        "        return (self.base, self.params, self.doc, self.body)",
        "        return (self.base, self.params)",
        "values",
    ),
    _fault(
        "columns-merged-too-far",
        "A kind of batch falls to a column that was planned for even rows.",
        "boundaryc/emit/columns.py",
        "    return first is not None and alike[first] == wanted",
        "    return first is not None",
        "traffic",
    ),
    _fault(
        "layers-of-the-first-policy",
        "Every policy gets the tables of the first one.",
        "boundaryc/emit/tables.py",
        "_layer(functions, shape, kinds, by_place, policy) for shape",
        "_layer(functions, shape, kinds, by_place, next(iter(by_shape), policy)) for shape",
        "traffic",
    ),
    _fault(
        "groups-over-all-ranks",
        "The layout asks for every group over all ranks.",
        VIEWS,
        'provider.collective(", "MESH", quoted(mesh.names(axes)))',
        'provider.collective(", "MESH", quoted(mesh.names(mesh.every)))',
        "values",
        area="layout",
    ),
    _fault(
        "members-of-the-coarser-side",
        "Row counts of a move are those of rows that nothing cuts further.",
        VIEWS,
        'f"finer={quoted(mesh.names(finer))}"',
        'f"finer={quoted(mesh.names(moved))}"',
        "values",
        "refusals",
        area="layout",
    ),
    _fault(
        "even-column-for-all",
        "The columns of a topology do not say what must be even.",
        VIEWS,
        'words += [f"even={quoted(atoms)}"] if atoms else []',
        "words += []",
        "census",
        area="layout",
    ),
    _fault(
        "norm-of-the-rounded-sum",
        "The fused norm adds the residual and returns it unchanged.",
        "boundaryc/emit/norms.py",
        "        if not how:\n            return lines",
        '        if not how:\n            return (*lines[:-1], f"{lines[-1]}[0], residual")',
        "values",
        area="template",
    ),
    _fault(
        "eps-forgotten",
        "The norm runs with another epsilon.",
        "templates/rowwise.py.jinja",
        "EPS = {{ view.eps }}\n",
        "EPS = {{ view.eps }}0\n",
        "values",
        area="template",
    ),
    _fault(
        "tables-without-a-policy",
        "The topology's module binds the tables of its first policy only.",
        "templates/topology.py.jinja",
        "    tables = TABLES",
        '    tables = dict.fromkeys(TABLES, TABLES["auto"])',
        "traffic",
        area="template",
    ),
    _fault(
        "policy-not-passed-on",
        "`load` forgets the policy.",
        "templates/stack.py.jinja",
        "        groups, policy=policy, layers=layers",
        "        groups, layers=layers",
        "traffic",
        area="template",
    ),
)
