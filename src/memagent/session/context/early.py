"""Summaries that are begun before they are due, in the background."""

from __future__ import annotations

import asyncio

from memagent.errors import MemagentError
from memagent.session.context.compaction import Early, State
from memagent.session.context.layout import Layout
from memagent.session.context.summarise import Spent, Summariser


class Beginner:
    """Begins at most one summary at a time, and hands it out once it is due.

    Whoever wants it waits for it, even where a new one would be as fast: so what a session does depends on its
    messages and replies alone, not on how long they took. It is begun even where there may be no more summaries, so
    that a session which is continued with more of them is the same up to there.

    Args:
        share: of the limit, from which a summary is begun; None begins none.
    """

    def __init__(self, share: float | None) -> None:
        self._share = share
        self._task: asyncio.Task[Early | None] | None = None
        self._spent = Spent()

    def begin(self, layout: Layout, summariser: Summariser, state: State) -> None:
        """Begins a summary of the turns so far if it is time, and none is under way."""
        if self._share is None or self._task is not None or not state.turns:
            return
        early = self._share * layout.limit <= state.tokens < layout.limit
        if not early or state.turns[-1].pending:
            return
        spent = self._spent

        async def summary() -> Early | None:
            try:
                made = await summariser.summary(layout, state.past, state.turns, spent, early=True)
                return Early(state, made)
            except MemagentError as error:  # it is made again when it is due
                spent.retried.append(f"{type(error).__name__}: {error}")
                return None

        self._task = asyncio.create_task(summary())

    async def finished(self, spent: Spent) -> Early | None:
        """The summary that was begun, once it is through; None without one, or where it failed.

        It is handed out again until it is forgotten.

        Args:
            spent: what it cost is added here, once.
        """
        if self._task is None:
            return None
        await asyncio.wait([self._task])  # being cancelled here does not cancel it
        spent.take(self._spent)
        return None if self._task.cancelled() else self._task.result()

    async def forget(self) -> None:
        """Ends what is under way, and makes room for the next."""
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])
