"""The wording of tool sessions: one TOML file for frames, summary, continuation and what stands for texts that left."""

from __future__ import annotations

import re
from os import PathLike, fspath
from typing import Any, Literal

from pydantic import Field

from memagent.errors import PromptSetError
from memagent.messages import Completion, Leaf
from memagent.prompts.loading import Wording, compiled, parsed, raw_bytes, toml_string
from memagent.prompts.reply import UnusableReply, visible

BUILT_IN = ("session",)
WIDEST = 9_999_999_999
"""Stands for a number when lines are measured: no real one takes more tokens."""
_MARK = " \ue000{}\ue001 \u2060<b class='x'>\"{{{{ 1 }}}}\" &amp; \\\\  ÉtÉ\r\n\n\tx "
"""A text that each change to a text would change."""
_FIELDS = {
    "native": (),
    "text": ("tools",),
    "instruction": ("words",),
    "continuation": ("stage", "summary", "ledger"),
    "again": ("shown",),
}
"""What each template shows exactly once. The others may show what they are given as often as they want."""


class SessionTags(Leaf):
    """The names of the tags around the fields of a session's prompts."""

    summary: str = Field(pattern=r"^[A-Za-z][\w-]*$")
    # What `memagent.tools.protocol` reads and writes.
    result: Literal["result"] = "result"
    call: Literal["call"] = "call"

    @property
    def names(self) -> tuple[str, ...]:
        """All of them: what tool output and summaries must not hold."""
        return self.summary, self.result, self.call


class SessionPrompts(Wording):
    """Wording, as data. All but the name, the tags and the empty texts are Jinja templates, which also see `tags`."""

    tags: SessionTags
    native: str
    """The system message where calls travel in fields of their own."""
    text: str
    """The system message where they travel in the text: shows `tools`, the tools' description."""
    instruction: str = Field(min_length=1)
    """Asks for a summary: shows `words`, how many it may take."""
    continuation: str
    """Stands behind the task: shows `stage`, `summary` and `ledger`."""
    empty_summary: str = Field(min_length=1)
    empty_ledger: str = Field(min_length=1)
    again: str
    """Stands behind the continuation: shows `shown`, what was not summarised."""
    stale: str = Field(min_length=1)
    """For a result that a later call has replaced. `call`: tool and arguments; `handle`, `can_read`: see `clipped`."""
    duplicate: str = Field(min_length=1)
    """For a result whose text a later `call` gave as well; otherwise as `stale`."""
    clipped: str = Field(min_length=1)
    """For the characters `start` to `end` of a text that is kept as `handle`; `can_read`: there is a tool for that."""
    missing: str = Field(min_length=1)
    """For the result of a call that never had one."""
    stray: str = Field(min_length=1)
    """Stands before a result without a call."""
    step: str = Field(min_length=1)
    """Stands before a turn that is summarised as one text, since it is too long to be shown as messages."""

    @classmethod
    def load(cls, spec: str | PathLike[str] | SessionPrompts | None = None) -> SessionPrompts:
        """Loads the shipped set (None, `session`) or any set by path. A set is checked, like a file.

        Raises:
            PromptSetError: no such set, broken TOML, missing fields, or a template that does not show
                each field exactly once.
        """
        if isinstance(spec, SessionPrompts):
            return cls.parse(spec.source.encode(), name=spec.name)
        spec = "session" if spec is None else spec
        return cls.parse(raw_bytes(spec, BUILT_IN), name=fspath(spec))

    @classmethod
    def parse(cls, raw: bytes, *, name: str = "prompt set") -> SessionPrompts:
        """Reads a set from TOML bytes (UTF-8; a BOM and CRLF are normalised away).

        Raises:
            PromptSetError: as `load`.
        """
        prompts, text = parsed(cls, raw, name)
        prompts._read = text
        prompts._check(name)
        return prompts

    def render(self, template: str, **fields: object) -> str:
        """Fills a template of this set, named by its field.

        Raises:
            PromptSetError: it fails.
        """
        try:
            return compiled(getattr(self, template)).render(tags=self.tags, **fields)
        except Exception as error:  # a template can do whatever an expression can
            raise PromptSetError(f"prompt set {self.name!r}, {template}: {error}") from error

    @staticmethod
    def _toml(fields: dict[str, Any]) -> str:
        tags = fields.pop("tags")
        lines = [f"{key} = {toml_string(value)}\n" for key, value in fields.items()]
        named = [f"{key} = {toml_string(value)}\n" for key, value in tags.items()]
        return "".join([*lines, "\n[tags]\n", *named])

    def _check(self, name: str) -> None:
        # Budgets add the fields to a frame that is rendered with empty ones, so a template that shows one
        # twice, changes it, or says more because of it would overflow.
        for template, fields in _FIELDS.items():
            marks = {field: _MARK.format(field) for field in fields}
            shown = self.render(template, **marks)
            for field, mark in marks.items():
                if (found := shown.count(mark)) != 1:
                    raise PromptSetError(
                        f"{name!r}: {template!r} shows {field!r} {found} times, not 1 "
                        f"(as it is: a filter or slice that changes it does not count)"
                    )
                shown = shown.replace(mark, "")
            if shown != self.render(template, **dict.fromkeys(fields, "")):
                raise PromptSetError(
                    f"{name!r}: {template!r} says something else because of what a field holds; "
                    f"show each field once, and let nothing else depend on it"
                )
        for template in ("missing", "stray", "step"):
            self.render(template)
        for can_read in (False, True):
            line = self.render("clipped", handle="(mark)", start=1, end=2, can_read=can_read)
            if "(mark)" not in line:
                raise PromptSetError(f"{name!r}: 'clipped' does not show 'handle'")
            for template in ("stale", "duplicate"):
                line = self.render(template, call="(call)", handle="(mark)", can_read=can_read)
                for field, mark in (("call", "(call)"), ("handle", "(mark)")):
                    if mark not in line and (field == "call" or can_read):
                        raise PromptSetError(f"{name!r}: {template!r} does not show {field!r}")

    def read_summary(self, completion: Completion) -> str:
        """The summary that a reply holds: what stands in its summary tags, all of it without tags.

        Raises:
            UnusableReply: see `memagent.prompts.reply.visible`; or there are calls in its place, or nothing.
        """
        text = visible(completion) if completion.text.strip() or not completion.tool_calls else ""
        tag = re.escape(self.tags.summary)
        opened = re.search(rf"<\s*{tag}\s*>", text)
        if completion.tool_calls and not opened:
            raise UnusableReply("the reply calls a tool instead of writing the summary")
        if opened:
            text = text[opened.end() :]
        ends = [match.start() for match in re.finditer(rf"<\s*/\s*{tag}\s*>", text)]
        text = (text[: ends[-1]] if ends else text).strip()
        if not opened and re.search(rf"<\s*{re.escape(self.tags.call)}\s*>", text):
            raise UnusableReply("the reply calls a tool instead of writing the summary")
        if not text:
            raise UnusableReply("the summary is empty")
        return text
