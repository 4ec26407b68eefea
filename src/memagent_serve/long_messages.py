"""Splits a user message into document and question, and puts notes in the document's place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from memagent_serve.refusals import OVERFLOW, Refusal

OPEN, CLOSE = "<document>", "</document>"
NOTES = "notes"
"""Name of the tag around notes."""
TEXT_PARTS = ("text", "input_text")
"""Types of text parts in chat completions and in responses."""
RULE = (
    "Send the document and the question as text parts of one message, the question last; or as one text with the "
    f"document between {OPEN} and {CLOSE}, each once"
)


@dataclass(frozen=True)
class LongMessage:
    """The document and question of a message."""

    document: str
    question: str

    @classmethod
    def read(cls, message: Mapping[str, Any], place: int) -> LongMessage:
        """Splits a message.

        Args:
            message: message in the form of chat completions.
            place: index of the message, for the error.

        Raises:
            Refusal: document and question can't be told apart.
        """
        texts = _texts(message.get("content"), place)
        if len(texts) == 1:
            before, document, after = _split_tags(texts[0], place)
            question = "\n\n".join(filter(None, (before.strip(), after.strip())))
        else:
            document, question = "\n\n".join(texts[:-1]), texts[-1].strip()
        if not document.strip() or not question:
            raise _refuse(place, f"has no {'question' if document.strip() else 'document'}")
        return cls(document, question)


def with_notes(message: Mapping[str, Any], notes: str) -> dict[str, Any]:
    """Returns the message with notes, which must not contain their tag, in place of its document."""
    noted = f"<{NOTES}>\n{notes}\n</{NOTES}>"
    content: Any = message["content"]
    if isinstance(content, list):
        parts = cast("list[dict[str, Any]]", content)
        if len(parts) > 1:
            return {**message, "content": [parts[0] | {"text": noted}, parts[-1]]}
        text = parts[0]["text"]
        return {**message, "content": [parts[0] | {"text": _replace(text, noted)}]}
    return {**message, "content": _replace(content, noted)}


def _texts(content: object, place: int) -> list[str]:
    if isinstance(content, str):
        return [content]
    texts: list[str] = []
    for part in cast("list[Any]", content) if isinstance(content, list) else [content]:
        fields = cast("dict[str, Any]", part) if isinstance(part, dict) else {}
        if fields.get("type") not in TEXT_PARTS or not isinstance(fields.get("text"), str):
            raise _refuse(place, "has parts that aren't text, which can't be read through a memory")
        texts.append(fields["text"])
    return texts


def _replace(text: str, noted: str) -> str:
    before, _, rest = text.partition(OPEN)
    return before + noted + rest.rpartition(CLOSE)[2]


def _split_tags(text: str, place: int) -> tuple[str, str, str]:
    """Returns the text before, inside and after the document's tags."""
    before, open_tag, rest = text.partition(OPEN)
    document, close_tag, after = rest.partition(CLOSE)
    if not (open_tag and close_tag) or OPEN in rest or CLOSE in after:
        raise _refuse(place, "doesn't say what of it is the document and what the question")
    return before, document, after


def _refuse(place: int, reason: str) -> Refusal:
    return Refusal(
        400,
        f"messages[{place}] exceeds the model's window and {reason}. {RULE}",
        code=OVERFLOW,
        param=f"messages[{place}].content",
    )
