"""What the checks of one file share: the tree, and the errors found so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from boundaryc.language.diagnostics import Diagnostic, Label, error
from boundaryc.language.names import name_problem
from boundaryc.language.reader import MAX_ERRORS, Path, Tree
from boundaryc.language.shape import not_yet


class TooManyErrorsError(Exception):
    """So many errors have been found that nobody would read more."""


@dataclass(slots=True)
class Context:
    """Collects the errors of the meaning phase; nothing is raised before all checks have run."""

    tree: Tree
    errors: list[Diagnostic] = field(default_factory=list)

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
        span = self.tree.key(path) if key else self.tree.value(path)
        labels = [Label(self.tree.key(other[0]), other[1])] if other else []
        self._add(error(code, message, span, help=help, labels=labels))

    def unsupported(self, word: str, path: Path, *, key: bool = False) -> None:
        """Rejects by name what the language has and this version does not build."""
        span = self.tree.key(path) if key else self.tree.value(path)
        self._add(not_yet(word, span))

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
