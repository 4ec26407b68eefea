"""`llm read`: a command for the `llm` tool that reads a long document with one of its models (extra `llm`)."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click
import llm
from llm.default_plugins.openai_models import Chat

from memagent.errors import MemagentError, ModelError, ServerFailed
from memagent.memory.agent import MemoryAgent
from memagent.messages import ChatRequest, Completion, FinishReason, Usage
from memagent.models.base import SimpleModel
from memagent.models.limit import complete_usage
from memagent.models.openai_reply import BROKEN_OFF, FINISH
from memagent.threads import in_own_thread
from memagent.tokens.byte_bound import ByteBound


class LlmModel(SimpleModel):
    """A model of `llm`, with its keys and options. Tokens are counted as bytes; the temperature is the model's own.

    Args:
        model: from `llm.get_model`.
        window: maximum tokens of prompt plus output, which `llm` doesn't know.
    """

    def __init__(self, model: Any, window: int = 8192) -> None:
        super().__init__(ByteBound(), window)
        self.name, self._model = f"llm:{model.model_id}", model

    async def complete(self, request: ChatRequest) -> Completion:
        """Prompts the model. Raises a `ModelError` if that fails."""
        self.count_prompt(request)
        return await in_own_thread(partial(self._prompt, request))

    def _prompt(self, request: ChatRequest) -> Completion:
        *system, last = (message.content for message in request.messages)
        has_limit = "max_tokens" in self._model.Options.model_fields
        options = {"max_tokens": request.max_tokens} if has_limit else {}
        # Of replies without usage, llm's client of chat completions takes only streams. That of responses doesn't
        # keep why a stream ended.
        streams = isinstance(self._model, Chat) and self._model.can_stream
        try:
            reply = self._model.prompt(
                last, system="\n\n".join(system) or None, stream=streams, **options
            )
            text, counts, reason = reply.text(), reply.usage(), _read_reason(reply.response_json)
        except Exception as error:
            raise ModelError(f"the model {self.name!r} failed: {error}") from error
        usage = Usage(
            calls=1, prompt_tokens=counts.input or 0, completion_tokens=counts.output or 0
        )
        if reason in BROKEN_OFF:
            raise ServerFailed(
                f"the model {self.name!r} broke off its reply (finish_reason {reason!r})"
            )
        # Models of other plugins don't say why.
        if not reason and has_limit and usage.completion_tokens >= request.max_tokens:
            reason = "length"
        finish = FINISH.get(reason, FinishReason.STOP)
        completion = Completion(text=text, finish_reason=finish, usage=usage)
        return complete_usage(request, completion, self._counter)


def _read_reason(body: Any) -> str:
    """Returns why a reply ended, from OpenAI's bodies; empty if it isn't there, as in those of other plugins."""
    match body:
        case {"choices": [{"finish_reason": str(reason)}, *_]} | {"finish_reason": str(reason)}:
            return reason.lower()  # the latter is a stream, which llm puts together
        case {"incomplete_details": {"reason": str(reason)}}:
            return "length" if reason == "max_output_tokens" else reason
        case _:
            return ""


@llm.hookimpl
def register_commands(cli: click.Group) -> None:
    """Adds the command to `llm`."""
    cli.add_command(read)


@click.command()
@click.argument("document")
@click.argument("question")
@click.option("-m", "--model", help="Model to use, as in `llm prompt`.")
@click.option("--window", default=8192, show_default=True, help="The model's context, in tokens.")
def read(document: str, question: str, model: str | None, window: int) -> None:
    """Answer a QUESTION about a DOCUMENT of any length (a file, a folder, or - for standard input).

    The same command again resumes an interrupted reading.
    """
    source = sys.stdin.buffer.read() if document == "-" else Path(document)
    try:
        reader = LlmModel(llm.get_model(model), window)
        with MemoryAgent(reader) as agent:
            (reading,) = agent.map([source], question, run_id=f"llm-{window}")
    except llm.UnknownModelError as error:
        raise click.ClickException(error.args[0]) from None
    except MemagentError as error:
        raise click.ClickException(str(error)) from error
    if reading.result is None or reading.result.answer is None:
        raise click.ClickException(reading.result.detail if reading.result else str(reading.error))
    click.echo(reading.result.answer)
    if reading.result.truncated:
        click.echo(f"{reading.result.detail}: use a larger --window", err=True)
