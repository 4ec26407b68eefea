"""What a tool session resolves before its first call: settings, the prompt, the working context."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Self

from pydantic import Field

from memagent.events import SessionStarted
from memagent.messages import Message
from memagent.models.base import ChatModel
from memagent.models.policy import Protocol, WorkingSettings
from memagent.prompts import Neutraliser
from memagent.prompts.session import SessionPrompts
from memagent.run.log import Log
from memagent.run.plan import Plan, Settings, check_text, choose_window
from memagent.session.context.archive import READ_ARCHIVED
from memagent.session.context.buffer import SummaryBuffer
from memagent.tokens import TokenCounter
from memagent.tools import Toolset
from memagent.tools.protocol import describe


class ToolSettings(Settings, WorkingSettings):
    """A tool agent's settings."""

    protocol: Protocol = "native"
    early: float | None = Field(default=None, gt=0, lt=1)


@dataclass(frozen=True)
class ToolPlan(Plan):
    """Everything a session needs to know, resolved before the first call."""

    settings: ToolSettings
    task: str
    output: dict[str, Any] | None
    """JSON schema of the task's answer, if it has an output type."""
    prompts: SessionPrompts
    tools: Toolset
    neutraliser: Neutraliser
    """Neutralises the task and tool results."""
    most: int
    """Tokens of the model's window, or of the working context if the model doesn't report its window."""

    @classmethod
    def make(
        cls,
        task: str,
        settings: ToolSettings,
        prompts: SessionPrompts,
        tools: Toolset,
        output: dict[str, Any] | None = None,
        *,
        model: ChatModel,
        counter: TokenCounter,
        window: int | None,
    ) -> Self:
        """Determines the working context; `window` is the one that the model reports.

        Raises:
            ConfigError: the task is not text, or empty.
            WindowUnknown: neither the model nor the settings give the window.
        """
        check_text("the task", task)
        size = choose_window(model.name, settings.working_context, window, "working_context")
        return cls(
            task=task,
            output=output,
            settings=settings,
            prompts=prompts,
            tools=tools,
            model=model,
            counter=counter,
            window=size,
            neutraliser=Neutraliser(dict(prompts.tags).values(), counter.control_tokens),
            most=window or size,
        )

    def start(self, run_id: str) -> SessionStarted:
        """Returns the first event of a run."""
        return SessionStarted(
            run_id=run_id,
            model=self.model.name,
            task=self.task,
            tools=tuple(self.tools),
            counter=self.counter.name,
            working_context=self.window,
        )

    @property
    def prompt(self) -> tuple[Message, ...]:
        """The messages that start every request."""
        native = self.settings.protocol == "native"
        fields = {} if native else {"tools": describe([*self.tools.specs, READ_ARCHIVED])}
        frame = self.prompts.render(self.settings.protocol, **fields).strip()
        content = "\n\n".join(filter(None, (frame, self.settings.instructions)))
        return Message(role="system", content=content), self.message(self.task, self.output)

    def message(self, text: str, output: dict[str, Any] | None) -> Message:
        """Returns a user message, with the request for the answer's output type if it has one."""
        if output is not None:
            schema = json.dumps(output, ensure_ascii=False)
            text = f"{text}\n\n{self.prompts.render('output', schema=schema)}"
        return Message(role="user", content=self.neutraliser.safe(text))

    def buffer(self, model: ChatModel, log: Log) -> SummaryBuffer:
        """Returns an empty working context, whose summaries are committed to the log."""
        settings = self.settings
        return SummaryBuffer(
            model,
            working_context=self.window,
            window=self.most,
            max_summaries=settings.max_summaries,
            summary_tokens=settings.summary_tokens,
            **self.offer,
            native=settings.protocol == "native",
            prompts=self.prompts,
            sampling=settings.sampling,
            seed=settings.seed,
            early=settings.early,
            log=log,
        )

    @property
    def offer(self) -> dict[str, Any]:
        """What a buffer needs to know about the tools."""
        tools = self.tools.values()
        return {
            "tools": [*self.tools.specs, READ_ARCHIVED],
            "idempotent": {READ_ARCHIVED.name, *(t.name for t in tools if t.idempotent)},
            "writes": {t.name for t in tools if t.idempotent and not t.read_only},
        }

    def binding(self) -> dict[str, Any]:
        """See `Plan.binding`."""
        # A resumed run may raise these; the window is in the budget.
        free = {"working_context", "max_summaries", "max_steps"}
        return {
            "questions": [self.task],
            "model": self.model.name,
            "prompts": f"{self.prompts.name}:{self.prompts.hash}",
            "counter": self.counter.name,
            "tools": bind_tools(self.tools),
            "budget": {"window": self.window},
            **self.settings.model_dump(mode="json", exclude=free),
        }


def bind_tools(tools: Toolset) -> dict[str, Any]:
    """Returns the part of a run's binding that identifies its tools."""
    specs = [[t.spec.model_dump(mode="json"), t.idempotent, t.final] for t in tools.values()]
    digest = hashlib.sha256(json.dumps(specs, sort_keys=True).encode()).hexdigest()[:16]
    return {"names": list(tools), "digest": digest}
