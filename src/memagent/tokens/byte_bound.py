"""Upper bounds for when there is no tokenizer or chat template: UTF-8 bytes, and allowances for the template."""

import json
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, cast

from memagent.messages import Message, ToolSpec
from memagent.texts import repair_surrogates
from memagent.tokens import base
from memagent.tokens.base import TokenCounter

MEDIA = re.compile("image|audio|video|file|document|screenshot|media")
"""Matches the type of a media part, in the forms of OpenAI, Anthropic and LangChain."""
_write_json = partial(json.dumps, ensure_ascii=False)


def byte_count(text: str) -> int:
    """Counts UTF-8 bytes of the text or of its NFC form, whichever is more; three (U+FFFD's) for a lone surrogate."""
    if text.isascii():
        return len(text)
    text = repair_surrogates(text)
    size = len(text.encode())
    if unicodedata.is_normalized("NFC", text):
        return size
    return max(size, len(unicodedata.normalize("NFC", text).encode()))


def prompt_bound(
    counter: TokenCounter,
    messages: Sequence[Message],
    *,
    thinking: bool | None = None,
    tools: Sequence[ToolSpec] = (),
) -> int:
    """Bounds the tokens of a rendered prompt from above: `TokenCounter.count_messages` without a chat template.

    Tools and calls are counted as compact JSON plus two tokens for each line end, with its indentation, of indented
    JSON, the widest form in which templates write them.
    """
    bound = base.REQUEST_ALLOWANCE
    for message in messages:
        bound += message_bound(counter.count, message)
    if tools:
        tool_fields = [tool.to_openai() for tool in tools]
        text, lines = _write_json(tool_fields), line_ends(tool_fields)
        bound += base.TOOLS_ALLOWANCE + min(counter.count(text) + 2 * lines, byte_count(text))
    return bound


def message_bound(count: Callable[[str], int], message: Message) -> int:
    """Bounds the tokens of one message in a rendered prompt from above: all of its texts are counted at once."""
    bound = base.MESSAGE_ALLOWANCE + byte_count(message.tool_call_id or "")
    if not message.tool_calls and not message.extra:
        return bound + count(message.content)
    extra, media = split_media(message.extra)
    bound += len(media) * base.MEDIA_ALLOWANCE
    texts, lines = [] if "content" in extra else [message.content], 0
    for call in message.tool_calls:
        values = call.values()
        # The arguments as sent too: a server may treat them as text.
        forms = (_write_json({call.name: form}) for form in (values, call.arguments))
        texts.append(max(forms, key=byte_count))
        lines += line_ends({call.name: values})
        bound += base.CALL_ALLOWANCE + base.ARGUMENT_ALLOWANCE * len(values) + byte_count(call.id)
    for fields in filter(None, (extra, *(call.extra for call in message.tool_calls))):
        texts.append(_write_json(fields))
        lines += line_ends(fields)
    text = "\n".join(texts)
    # The bytes make up for the white space: three or four of them are a token.
    return bound + min(count(text) + 2 * lines, byte_count(text))


def split_media(extra: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Any]]:
    """Splits a message's other fields into those without media parts (images, sounds, files), and these parts."""
    if not isinstance(extra.get("content"), list):
        return extra, []
    parts = cast("list[Any]", extra["content"])
    other_parts = [part for part in parts if not _is_media(part)]
    return {**extra, "content": other_parts}, list(filter(_is_media, parts))


def _is_media(part: object) -> bool:
    if not isinstance(part, dict):
        return False
    return MEDIA.search(str(cast("dict[str, Any]", part).get("type"))) is not None


def line_ends(value: Any) -> int:
    """Counts the line ends of a value's indented JSON without writing it, which takes long."""
    if not value or isinstance(value, str | int | float):
        return 0
    items = value.values() if hasattr(value, "values") else value
    return len(items) + 1 + sum(map(line_ends, items))


class BytesMeasured:
    """A text whose tokens are its UTF-8 bytes."""

    def __init__(self, text: str, counter: TokenCounter) -> None:
        self._text = repair_surrogates(text)
        self._counter = counter
        self.tokens = counter.count(text)

    def chars_within(self, limit: int) -> int:
        """Returns the characters of the longest prefix of at most `limit` bytes.

        If the text is not in NFC, its characters are counted one by one: the prefix may then have
        fewer bytes, and hardly ever more.
        """
        if limit >= self.tokens:
            return len(self._text)
        limit = max(limit, 0)
        if unicodedata.is_normalized("NFC", self._text):
            return len(self._text[:limit].encode()[:limit].decode(errors="ignore"))
        sizes = {char: self._counter.count(char) for char in set(self._text)}
        return bisect_right(list(accumulate(map(sizes.__getitem__, self._text))), limit)

    def tokens_of_prefix(self, chars: int) -> int:
        """Returns exactly `count(text[:chars])`."""
        return self._counter.count(self._text[: max(chars, 0)])


class ByteBound:
    """Counts UTF-8 bytes: those of the text or those of its NFC form, whichever is more.

    No tokenizer whose units are bytes or larger takes more tokens than that, whether it
    normalises to NFC first (as Qwen does; a few characters then grow threefold) or not at all. For those
    that normalise to NFKC or NFD it is not a bound. It overstates tokens about fourfold for English, so
    runs that use it make about four times the calls; code that selects it must tell the user.
    """

    name = "utf8-bytes"
    exact = False
    control_tokens: frozenset[str] = frozenset()

    count = staticmethod(byte_count)
    count_messages = prompt_bound

    def measure(self, text: str) -> BytesMeasured:
        """Measures the text's bytes, for cutting."""
        return BytesMeasured(text, self)


def note_bytes(counter: TokenCounter) -> str:
    """Returns what an error about sizes adds if tokens are counted in bytes."""
    if counter.name != ByteBound.name:
        return ""
    return f"; tokens are counted by {ByteBound.name}, which overstates them about fourfold: give the model a tokenizer"
