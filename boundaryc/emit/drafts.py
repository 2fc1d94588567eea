"""The functions of one boundary before they have names, and how one of them is written."""

from __future__ import annotations

from dataclasses import dataclass, field

from boundaryc.emit.crossings import Crossing
from boundaryc.emit.doc_text import told
from boundaryc.emit.how import Collective
from boundaryc.emit.layout_text import bracketed, broken, indented


@dataclass(frozen=True, slots=True)
class Draft:
    """A function without a name. Drafts with the same ``key`` are one function.

    ``base`` is the name it would like, ``params`` and ``returns`` its typed signature, ``doc`` its
    docstring line by line, ``body`` its statements. ``needs`` are names to import; ``access`` is
    what an exit leaves in the stream. A ``crossing`` has its name and those in ``doc`` elsewhere.
    ``left`` are the arguments of a `Left` that stands for the function, where it does nothing else.
    """

    base: str
    params: tuple[str, ...]
    returns: str
    doc: tuple[str, ...]
    body: tuple[str, ...]
    how: str = ""
    uneven: str = "even"
    needs: frozenset[str] = frozenset()
    custom: frozenset[str] = frozenset()
    sends: tuple[Collective, ...] = ()
    access: str = ""
    crossing: Crossing | None = None
    left: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two drafts the same function."""
        return (self.base, self.params, self.doc, self.body)


@dataclass(frozen=True, slots=True)
class ExitDraft:
    """The exit of a stage: its flags, and the functions that go with them.

    ``finalizes``: a kernel of the stack finishes rows of experts where no fused one does.
    """

    base: str
    fuse: bool
    scatter: bool
    reduce: Draft
    leave: Draft
    adds_tail: Draft | None = None
    before_sum: Draft | None = None
    after_sum: Draft | None = None
    fused: Draft | None = None
    finalizes: bool = False

    def functions(self) -> tuple[Draft, ...]:
        """Every function that it names, in the order in which they run."""
        sums = (self.before_sum, self.reduce, self.adds_tail, self.after_sum)
        found = (*sums, self.leave, self.fused)
        return tuple(function for function in found if function)

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two exits the same."""
        functions = tuple(function.key for function in self.functions())
        return (self.base, self.fuse, self.scatter, self.finalizes, functions)


@dataclass(frozen=True, slots=True)
class Drafts:
    """All functions of one boundary. Exactly one of ``exit`` and ``leave`` is set after a stage.

    Before a merge there is no ``prepare``; behind one, ``merge`` adds the two outputs.
    """

    prepare: Draft | None
    leave: Draft | None = field(default=None)
    exit: ExitDraft | None = field(default=None)
    merge: Draft | None = field(default=None)
    postprocess: Draft | None = field(default=None)

    def bases(self) -> tuple[str, ...]:
        """The plain names of the functions, in the order in which they run."""
        names = [self.leave.base] if self.leave else []
        if self.exit:
            names += [*(function.base for function in self.exit.functions()), self.exit.base]
        last = (self.postprocess, self.merge, self.prepare)
        return (*names, *(one.base for one in last if one))


def sends(drafts: Drafts) -> tuple[Collective, ...]:
    """All collectives of a boundary, those inside the producer's exit first."""
    exit_ = drafts.exit
    leaves = (drafts.leave,) if drafts.leave else (exit_.reduce, exit_.leave) if exit_ else ()
    functions = (*leaves, drafts.merge, drafts.prepare)
    return tuple(sent for function in functions if function for sent in function.sends)


def rendered(draft: Draft, name: str, following: str, when: tuple[str, ...]) -> tuple[str, ...]:
    """The function's lines under its final ``name``; ``when`` ends its docstring.

    ``following`` names what comes next, where the docstring speaks of it.
    """
    doc = [*told(draft.doc[0], following), *draft.doc[1:]]
    if when:
        doc += ([""] if len(doc) == 1 else []) + list(when)
    if draft.left:
        said = [f"# {line}".rstrip() for line in doc]
        return (*said, *bracketed(f"{name} = Left(", draft.left, ")"))
    if len(doc) == 1 and len(doc[0]) <= 90:
        doc = [f'"""{doc[0]}"""']
    else:
        doc = [f'"""{doc[0]}', *doc[1:], '"""']
    head = bracketed(f"def {name}(", draft.params, f") -> {draft.returns}:")
    lines = [part for line in draft.body for part in broken(line, indent=4)]
    return (*head, *indented([*doc, *lines]))
