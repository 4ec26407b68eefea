"""`Session`: a conversation with a `ToolAgent`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memagent.prompts.output import Output
from memagent.run.agent import OnEvent
from memagent.run.result import SessionResult
from memagent.run.stream import EventStream
from memagent.run.sync import check_run_id, new_run_id
from memagent.session.loop import ToolLoop
from memagent.session.said import Said

if TYPE_CHECKING:
    from pydantic import BaseModel

    from memagent.session.agent import ToolAgent


class SessionStream(EventStream[SessionResult]):
    """One tool session as an async iterator of events; `result` at its end."""

    @property
    def result(self) -> SessionResult:
        """The result of the session.

        Raises:
            ConfigError: the events were not consumed to the end.
        """
        return self.outcome


class Session:
    """A conversation in one working context, stored as one run: `ToolAgent.session` makes or reopens it.

    It holds nothing but its id, so it needs no closing, and may be reopened by another process between any two
    messages, and after a crash.
    """

    def __init__(self, agent: ToolAgent, run_id: str | None) -> None:
        self.run_id = new_run_id() if run_id is None else check_run_id(run_id)
        self._agent = agent

    def send(
        self,
        text: str,
        output_type: type[BaseModel] | None = None,
        *,
        on_event: OnEvent | None = None,
    ) -> SessionResult:
        """Sends a message, and works until it is answered or a limit is reached.

        If the last message has no answer yet, the same text resumes it; otherwise it is a new message.

        Args:
            text: the task, or what to say next. It stays in the context word for word, however often that is
                summarised, for as long as later messages leave room.
            output_type: a pydantic model: the answer is an instance of it (`result.output`). An answer that doesn't
                validate is shown to the model with the problem, up to twice.
            on_event: called with each event since the message was sent, in this thread.

        Raises:
            RunMismatch: another message is unanswered, or the agent's settings or tools differ from the session's.
            RunBusy: the session is at work on a message.
            QuestionTooLong: the text would not stay word for word.
            OutputInvalid: no answer validated.
            MemagentError: see `memagent.errors`; `error.run_id` names a session that can be resumed.
        """
        return self._agent._finish(self.stream(text, output_type), on_event)  # pyright: ignore[reportPrivateUsage]

    async def asend(self, text: str, output_type: type[BaseModel] | None = None) -> SessionResult:
        """Async version of `send`."""
        return await self.stream(text, output_type).finish()

    def stream(self, text: str, output_type: type[BaseModel] | None = None) -> SessionStream:
        """`send` as an async iterator of events; `.result` is available at the end."""
        output = None if output_type is None else Output(output_type)
        return SessionStream(ToolLoop(self._agent, text, output=output), self.run_id)

    @property
    def history(self) -> list[tuple[str, str | None]]:
        """Each message sent so far with its answer, None if it has none yet. Reads the store."""
        store, found = self._agent.store, list[tuple[str, str | None]]()
        run = store.find(self.run_id)
        while run is not None:
            number = len(found)
            said = Said.find(store, self.run_id, number)
            if number and said is None:
                break
            answer = store.effect(self.run_id, f"answer-{number}/q0")
            text: str = said.text if said else run.binding["questions"][0]
            found.append((text, None if answer is None else answer["answer"]))
        return found

    def __repr__(self) -> str:
        return f"<Session {self.run_id!r}>"
