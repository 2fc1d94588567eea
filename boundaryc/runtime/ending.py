"""The ends of stacks whose final norm is a layer norm, and of those without one."""

from __future__ import annotations

from typing import Any, NoReturn

from torch import Tensor

from boundaryc.runtime.access import UNWRITTEN
from boundaryc.runtime.batch import Batch, GroupsT, LeavingBatch, RowsT
from boundaryc.runtime.crossing import crossing
from boundaryc.runtime.errors import BoundaryError
from boundaryc.runtime.owed import OwedOutput
from boundaryc.runtime.params import check_bias
from boundaryc.runtime.places import ANY
from boundaryc.runtime.stack import Stack
from boundaryc.runtime.stream import StreamState
from boundaryc.runtime.table import LayerT


class LayerNormStack(Stack[GroupsT, RowsT, LayerT]):
    """A stack whose final norm is a layer norm; ``final_bias``: the file gives it a bias."""

    final_bias: bool = False

    def norm(
        self,
        hidden: Tensor | OwedOutput,
        batch: Batch[GroupsT, RowsT],
        *read: Any,
        **options: Any,
    ) -> Tensor:
        """As `Stack.norm`; BoundaryError for a norm that has a bias where the file declares none.

        Or the reverse; the stream is kept.
        """
        check_bias("the final norm", *read[:1], declared=self.final_bias)
        return super().norm(hidden, batch, *read, **options)


class UnnormedStack(Stack[GroupsT, RowsT, LayerT]):
    """A stack whose file says ``terminal: {norm: false}``: its last update runs at its producer."""

    def norm(self, *args: Any, **kwargs: Any) -> NoReturn:
        """BoundaryError: what leaves this stack is the written residual."""
        raise BoundaryError(
            "this stack ends without a norm, as its file says: leave it through take_output"
        )

    def take_output(self, hidden: Tensor | OwedOutput, batch: Batch[GroupsT, RowsT]) -> Tensor:
        """As `Stack.take_output`; behind the last stage the stack file's captures are taken too."""
        stream = batch.stream
        if stream.at not in (ANY, self._end) or stream.state is StreamState.INITIAL:
            return super().take_output(hidden, batch)
        stream.check(hidden)
        if stream.state is StreamState.PENDING:
            raise BoundaryError(UNWRITTEN)
        final = crossing(self._table.norm[batch.plan], self._table.norm_resume, batch)
        leaving = LeavingBatch(batch)
        output: Tensor = final(hidden, leaving, None)
        return output
