"""What the checks of one file share: the tree, and the errors found so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from boundaryc.language.diagnostics import Diagnostic, Label, error
from boundaryc.language.names import name_problem
from boundaryc.language.planned import SHIPPED, Gates
from boundaryc.language.reader import MAX_ERRORS, Path, Tree
from boundaryc.language.shape import not_yet
from boundaryc.language.spans import Span


class TooManyErrorsError(Exception):
    """So many errors have been found that nobody would read more."""


@dataclass(slots=True)
class Context:
    """Collects the errors of the meaning phase; nothing is raised before all checks have run.

    Paths are relative to `root`, which is the document itself or a draft in it.
    """

    tree: Tree
    gates: Gates = SHIPPED
    root: Path = ()
    errors: list[Diagnostic] = field(default_factory=list)

    def inside(self, *path: str) -> Context:
        """The same for paths relative to `path`; errors go to the same list."""
        return Context(self.tree, self.gates, (*self.root, *path), self.errors)

    def report(
        self,
        code: str,
        path: Path,
        message: str,
        help: str,  # noqa: A002 - the word users see
        *,
        key: bool = False,
        other: tuple[Path, str] | None = None,
    ) -> None:
        """Record an error at the value of `path`, or at its key.

        `other` is a second place and its label.
        """
        span = self._span(path, key)
        labels = [Label(self._span(other[0], key=True), other[1])] if other else []
        self._add(error(code, message, span, help=help, labels=labels))

    def unsupported(self, word: str, path: Path, *, key: bool = False) -> None:
        """Rejects by name what the language has, if this version does not build it."""
        if self.gates.closed(word):
            self._add(not_yet(word, self._span(path, key)))

    def _span(self, path: Path, key: bool) -> Span:
        path = (*self.root, *path)
        return self.tree.key(path) if key else self.tree.value(path)

    def _add(self, found: Diagnostic) -> None:
        self.errors.append(found)
        if len(self.errors) >= MAX_ERRORS:
            raise TooManyErrorsError

    def name(self, kind: str, name: str, path: Path) -> None:
        """Checks that `name`, written at `path`, may be the name of a `kind`."""
        problem = name_problem(kind, name)
        if problem:
            code, message, help_ = problem
            self.report(code, path, message, help_)

    def repeats(self, words: list[str], path: Path) -> None:
        """Reports each entry of a list that was in it before."""
        seen: dict[str, int] = {}
        for index, word in enumerate(words):
            first = seen.setdefault(word, index)
            if first != index:
                other: tuple[Path, str] = ((*path, first), "first here")
                message = f"`{word}` is listed twice"
                self.report("BC210", (*path, index), message, "remove one of the two", other=other)
