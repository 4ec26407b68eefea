"""Hugging Face tokenizers' chat templates, rendered in a sandbox."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn, cast

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from memagent.errors import TokenizerError
from memagent.messages import Message, ToolSpec

TEXT_PROTOCOL = "show the model its tools as text (the text protocol: protocol='text', or native=False for a buffer)"
"""The remedy if a model's template doesn't support tools."""


class ChatTemplate:
    """Renders messages to the text that a server would tokenise.

    Args:
        source: the Jinja template.
        special_tokens: the names that templates use (`bos_token`, ...) and their texts.
        tool_source: a separate template for requests with tools, if there is one.

    Raises:
        TokenizerError: the template does not parse.
    """

    def __init__(
        self, source: str, special_tokens: Mapping[str, str], tool_source: str | None = None
    ) -> None:
        self.source = source
        self.tool_source = tool_source
        self.special_tokens = dict(special_tokens)
        try:
            self._template = _ENVIRONMENT.from_string(source)
            self._tool_template = _ENVIRONMENT.from_string(tool_source or source)
        except (jinja2.TemplateError, RecursionError, ValueError) as error:
            raise TokenizerError(f"the chat template does not parse: {error}") from error
        self._shows_tools = False

    def render(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> str:
        """Renders the prompt, up to where the model's turn begins.

        Raises:
            TokenizerError: the template rejects the messages (some have no system role, say), or renders the same
                with the tools as without.
        """
        text = self._text(messages, thinking, tools)
        if tools and not self._shows_tools:
            if text == self._text(messages, thinking, ()):
                raise TokenizerError(describe_unseen(tools))
            self._shows_tools = True
        return text

    def _text(
        self, messages: Sequence[Message], thinking: bool | None, tools: Sequence[ToolSpec]
    ) -> str:
        # Left out if unset: templates check whether it is defined.
        switch = {} if thinking is None else {"enable_thinking": thinking}
        try:
            return (self._tool_template if tools else self._template).render(
                messages=[to_template(message) for message in messages],
                tools=[tool.to_openai() for tool in tools] or None,
                documents=None,
                add_generation_prompt=True,
                **switch,
                **self.special_tokens,
            )
        except Exception as error:  # a template is code, which may raise anything
            roles = [message.role for message in messages]
            plain = not tools and not any(m.role == "tool" or m.tool_calls for m in messages)
            remedy = "use a prompt set whose roles the model supports" if plain else TEXT_PROTOCOL
            raise TokenizerError(
                f"the chat template cannot render messages of the roles {roles!r}: {error}; {remedy}"
            ) from error


def to_template(message: Message) -> dict[str, Any]:
    """Converts a message to what servers pass to chat templates: the arguments of its calls are objects."""
    fields: dict[str, Any] = {**message.extra, "role": message.role, "content": message.content}
    if message.tool_calls:
        calls = [(call.to_openai(), call.values()) for call in message.tool_calls]
        fields["tool_calls"] = [
            form | {"function": form["function"] | {"arguments": values}} for form, values in calls
        ]
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    return fields


def describe_unseen(tools: Sequence[ToolSpec]) -> str:
    """Makes the error message for a template that leaves tools out."""
    names = [tool.name for tool in tools]
    return f"the chat template does not show the model the tools {names!r}; {TEXT_PROTOCOL}"


def find_template(folder: Path) -> ChatTemplate | None:
    """Reads the chat template next to a tokenizer, if there is one.

    `chat_template.jinja` takes precedence over `chat_template` in `tokenizer_config.json`; of several named
    templates there, `default` is used. One called `tool_use`, there or in the folder
    `additional_chat_templates`, is for requests with tools.

    Raises:
        TokenizerError: one of the files can't be read or parsed.
    """
    config_path, template_path = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    tool_path = folder / "additional_chat_templates" / "tool_use.jinja"
    try:
        config: Any = json.loads(config_path.read_bytes()) if config_path.is_file() else {}
        source: Any = template_path.read_text("utf-8") if template_path.is_file() else None
        tool_source: Any = tool_path.read_text("utf-8") if source and tool_path.is_file() else None
    except (OSError, ValueError, RecursionError) as error:
        raise TokenizerError(f"the settings in {str(folder)!r} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise TokenizerError(f"{str(config_path)!r} is not a JSON object")
    settings = cast("dict[str, Any]", config)
    source = source or settings.get("chat_template")
    if isinstance(source, list):
        try:
            templates = {t["name"]: t["template"] for t in cast("list[dict[str, Any]]", source)}
        except (KeyError, TypeError) as error:
            raise TokenizerError(f"{str(config_path)!r} has a malformed chat_template") from error
        source, tool_source = templates.get("default"), templates.get("tool_use")
    if not isinstance(source, str) or not source:
        return None
    tool_source = tool_source if isinstance(tool_source, str) and tool_source else None
    special_tokens: dict[str, str] = {}
    for key, value in settings.items():  # each written as a text or as an object with a `content`
        text = cast("dict[str, Any]", value).get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(text, str):
            special_tokens[key] = text
    return ChatTemplate(source, special_tokens, tool_source)


class _Generation(Extension):
    """`{% generation %}` marks the assistant's text for training; rendering passes it through."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(
    value: object, indent: int | None = None, ensure_ascii: bool = False, **options: Any
) -> str:
    # jinja2's own filter escapes <, > and & for HTML, which is wrong in prompts.
    return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii, **options)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


# The settings that templates on the hub expect.
_ENVIRONMENT: Any = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
)
_ENVIRONMENT.filters["tojson"] = _tojson
_ENVIRONMENT.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
