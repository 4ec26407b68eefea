"""The wording of tool sessions: one TOML file for frames, summary, continuation and placeholders for removed texts."""

import re
from functools import partial
from typing import ClassVar, Literal

from pydantic import Field

from memagent.errors import PromptSetError
from memagent.messages import Completion, Leaf
from memagent.prompts.loading import TagName, Wording, check_shown, compile_template
from memagent.prompts.reply import UnusableReply, visible

WIDEST = 9_999_999_999
"""Stands in for a number when lines are measured: no real one takes more tokens."""
_FIELDS = {
    "native": (),
    "text": ("tools",),
    "instruction": ("words",),
    "continuation": ("stage", "summary", "ledger"),
    "again": ("shown",),
    "said": ("said",),
    "output": ("schema",),
    "invalid": ("problem",),
}
"""Fields that a template must show exactly once. The other templates may show theirs any number of times."""


class SessionTags(Leaf):
    """The names of the tags around the fields of a session's prompts."""

    summary: TagName
    # The tags of `memagent.tools.protocol`.
    result: Literal["result"] = "result"
    call: Literal["call"] = "call"


class SessionPrompts(Wording):
    """Wording, as data. All fields except name, tags and empty texts are Jinja templates, which also see `tags`."""

    built_in: ClassVar[tuple[str, ...]] = ("session",)
    tags: SessionTags
    native: str
    """The system message for native tool calls."""
    text: str
    """The system message for calls in the text: shows `tools`, the tools' description."""
    instruction: str = Field(min_length=1)
    """Asks for a summary: shows `words`, its size limit."""
    continuation: str
    """Follows the task: shows `stage`, `summary` and `ledger`."""
    empty_summary: str = Field(min_length=1)
    empty_ledger: str = Field(min_length=1)
    again: str
    """Follows the continuation: shows `shown`, the part that was not summarised."""
    said: str = "The user has said since then, word for word:\n\n{{ said }}"
    """Follows the continuation: shows `said`, the user's messages among what was summarised."""
    output: str = (
        "Answer this message with one JSON value of this schema, and nothing else:\n\n{{ schema }}"
    )
    """Follows a message whose answer has a form: shows `schema`."""
    invalid: str = "The answer does not follow the schema:\n\n{{ problem }}\n\nWrite only the corrected JSON value."
    """Follows an answer that doesn't match the schema: shows `problem`."""
    stale: str = Field(min_length=1)
    """Replaces a superseded result. `call`: tool and arguments; `handle`, `can_read`: see `clipped`."""
    duplicate: str = Field(min_length=1)
    """Replaces a result that a later `call` returned again; otherwise like `stale`."""
    clipped: str = Field(min_length=1)
    """Replaces characters `start` to `end` of a text archived as `handle`; `can_read`: there is a tool to read it."""
    missing: str = Field(min_length=1)
    """Stands in for the result of a call that never returned."""
    stray: str = Field(min_length=1)
    """Precedes a result without a call."""
    step: str = Field(min_length=1)
    """Precedes each part of a turn that is summarised as text because it is too long to show as messages."""

    def render(self, template: str, **fields: object) -> str:
        """Renders a template of this set, given by its field name. Raises a `PromptSetError` if that fails."""
        try:
            return compile_template(getattr(self, template)).render(tags=self.tags, **fields)
        except Exception as error:  # a template can do whatever an expression can
            raise PromptSetError(f"prompt set {self.name!r}, {template}: {error}") from error

    def check(self, name: str) -> None:
        """See `Wording.check`."""
        for template, fields in _FIELDS.items():
            render = partial(self.render, template)
            check_shown(f"{name!r}: {template!r}", render, dict.fromkeys(fields, 1))
        for template in ("missing", "stray", "step"):
            self.render(template)
        for can_read in (False, True):
            line = self.render("clipped", handle="(mark)", start=1, end=2, can_read=can_read)
            if can_read and "(mark)" not in line:
                raise PromptSetError(f"{name!r}: 'clipped' does not show 'handle'")
            for template in ("stale", "duplicate"):
                line = self.render(template, call="(call)", handle="(mark)", can_read=can_read)
                for field, mark in (("call", "(call)"), ("handle", "(mark)")):
                    if mark not in line and (field == "call" or can_read):
                        raise PromptSetError(f"{name!r}: {template!r} does not show {field!r}")

    def read_summary(self, completion: Completion) -> str:
        """Reads the summary from a reply: the content of its summary tags, or all of it without tags.

        Raises:
            UnusableReply: see `memagent.prompts.reply.visible`; or it has calls instead of a summary, or is empty.
        """
        text = visible(completion) if completion.text.strip() or not completion.tool_calls else ""
        tag = re.escape(self.tags.summary)
        opening = re.search(rf"<\s*{tag}\s*>", text)
        call = rf"<\s*{re.escape(self.tags.call)}\s*>"
        if not opening and (completion.tool_calls or re.search(call, text)):
            raise UnusableReply("the reply calls a tool instead of writing the summary")
        if opening:
            text = text[opening.end() :]
        ends = [match.start() for match in re.finditer(rf"<\s*/\s*{tag}\s*>", text)]
        text = (text[: ends[-1]] if ends else text).strip()
        if not text:
            raise UnusableReply("the summary is empty")
        return text
