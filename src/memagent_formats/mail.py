"""Mail messages: the usual headers, and the text."""

import logging
import re
from collections.abc import Generator
from email import message_from_binary_file, message_from_bytes, policy
from email.message import Message
from pathlib import Path
from typing import Any, cast

from memagent.documents.decoding import decode, fitting
from memagent.errors import BinaryDocument, DecodingError
from memagent.texts import words
from memagent_formats import Passage, html

_log = logging.getLogger(__name__)
HEADERS = ("From", "To", "Cc", "Date", "Subject")
MAX_BYTES = 100_000_000
"""Maximum size, since the parser holds a message in memory."""
MAX_HEADER = 100_000
"""Maximum characters of a header that is parsed or decoded: about what Postfix passes on. The standard library takes
quadratic time."""
LEVELS = 20
"""Maximum depth of forwarded messages that were encoded, since each takes a pass over all that is in it."""
ENOUGH = 0.9
"""Share of an HTML part's words that its plain text must have to replace it: the rest are labels and notices."""
_PLAIN = ("text/plain", "text/markdown")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/ \t]*+(?:\r?\n|\Z))*+(?:[A-Za-z0-9+/ \t]*+==?)?")
"""Matches lines of base64 up to the padding. Mailing lists append plain lines to it."""
_CODINGS = ("base64", "quoted-printable")
_NOT_QUOTED = re.compile(r"=(?![0-9A-Fa-f]{2}|[ \t]*(?:\r?\n|\Z))")
"""Finds a sign that quoted-printable text has only as `=3D`."""


class _Mail(Message):
    """A message or part. A forwarded message that was encoded isn't parsed.

    Headers over `MAX_HEADER` are cut, but for those that are shown.
    """

    def set_raw(self, name: str, value: str) -> None:
        """Adds a header; the parser calls it."""
        size = None if name.title() in HEADERS else MAX_HEADER
        super().set_raw(name, value[:size].rstrip())

    def get_content_maintype(self) -> str:
        """Keeps the parser from taking base64 for a forwarded message."""
        return "application" if self.is_encoded_message else super().get_content_maintype()

    @property
    def is_encoded_message(self) -> bool:
        """Whether this is a forwarded message in base64 or quoted-printable, which the standard forbids."""
        return self.get_content_type() == "message/rfc822" and _coding(self) in _CODINGS


def read(path: Path, name: str, encoding: str | None, errors: str) -> Generator[Passage]:
    """Yields headers and text, also of forwarded messages; names attachments. Uses HTML if plain text lacks its words.

    Raises:
        BinaryDocument: the message is larger than `MAX_BYTES`, has no text, or is broken.
        DecodingError: a part is neither in the encoding that it declares nor in the given one.
    """
    if path.stat().st_size > MAX_BYTES:
        raise BinaryDocument(f"{name!r} has more than {MAX_BYTES:,} bytes: save its parts as files")
    with path.open("rb") as file:
        message = message_from_binary_file(file, _Mail)
    _decode_messages(message, LEVELS)
    for part in filter(_is_text, message.walk()):
        after = ""
        if _coding(part) == "base64":
            after = _BASE64.sub("", payload := str(part.get_payload()), count=1)
            part.set_payload(payload.removesuffix(after))
        text = _decode(part, name, encoding, errors)
        part.set_payload(f"{text}\n{after}" if after and isinstance(text, str) else text)
    if not any(map(_is_text, message.walk())):
        raise BinaryDocument(f"{name!r} has no text: it isn't mail, or has only attachments")
    yield from _passages(message, name)


def _decode_messages(message: _Mail, levels: int) -> None:
    """Decodes and parses encoded forwarded messages, and those in them; leaves other base64, and what is too deep."""
    encoded_parts = [part for part in message.walk() if part.is_encoded_message and levels]
    for part in encoded_parts:
        coding, after = _coding(part), ""
        part.replace_header("Content-Transfer-Encoding", "8bit")
        sent = cast("bytes", part.get_payload(decode=True)).decode("ascii", "surrogateescape")
        # Some senders name a coding that they didn't use.
        if coding == "base64":
            after = _BASE64.sub("", sent, count=1)
        elif _NOT_QUOTED.search(sent):
            coding = "8bit"
        forwarded = _parse(sent.removesuffix(after), coding)
        if coding == "base64" and not forwarded.keys():
            if not after.strip():
                continue
            forwarded, after = _parse(sent, "8bit"), ""
        part.set_payload([forwarded])
        _decode_messages(forwarded, levels - 1)
        if after.strip():
            footer = _Mail()
            footer.set_payload(after)
            part.attach(footer)


def _parse(sent: str, coding: str) -> _Mail:
    part = _Mail()
    part["Content-Transfer-Encoding"] = coding
    part.set_payload(sent)
    return message_from_bytes(cast("bytes", part.get_payload(decode=True)), _Mail)


def _coding(part: Message) -> str:
    return str(part.get("Content-Transfer-Encoding", "")).strip().lower()


def _passages(message: Message, name: str) -> Generator[Passage]:
    for header in HEADERS:
        values = (raw for key, raw in message.raw_items() if key.title() == header and raw)
        yield from (Passage(f"{header}: {_decode_header(raw)}\n") for raw in values)
    unread: list[str] = []
    for part in _parts(message, name):
        kind = part.get_content_type()
        if _is_text(part):
            yield Passage("\n")
            text = str(part.get_payload())
            yield from html.read(iter([text]), name) if kind == "text/html" else [Passage(text)]
        elif kind == "message/rfc822" and part.is_multipart():
            for child in cast("Any", part.get_payload()):  # the message, and lines after its base64
                yield Passage("\n")
                yield from _passages(child, name)
        else:
            unread.append(_decode_header(part.get_filename() or kind))
    if unread:
        yield Passage(f"\nAttachments (not read): {', '.join(unread)}\n")


def _parts(message: Message, name: str) -> list[Message]:
    """Returns the innermost parts. Of alternatives, drops the HTML if the plain text says the same."""
    if message.get_content_maintype() != "multipart" or not message.is_multipart():
        return [message]
    parts = [part for child in cast("Any", message.get_payload()) for part in _parts(child, name)]
    if message.get_content_subtype() != "alternative":
        return parts
    plain = set(words("\n".join(str(p.get_payload()) for p in parts if _is_text(p, *_PLAIN))))

    def adds(part: Message) -> bool:
        if not _is_text(part, "text/html"):
            return bool(plain) or not _is_text(part, *_PLAIN)
        html_words = {
            w for p in html.read(iter([str(part.get_payload())]), name) for w in words(p.text)
        }
        return len(html_words & plain) < ENOUGH * len(html_words)

    return list(filter(adds, parts))


def _is_text(part: Message, *kinds: str) -> bool:
    if part.is_multipart() or part.get_content_disposition() == "attachment":
        return False
    return part.get_content_type() in (kinds or (*_PLAIN, "text/html"))


def _decode(part: Message, name: str, encoding: str | None, errors: str) -> str | list[Any]:
    """Decodes a part: in the declared or the given encoding, or a guess with U+FFFD; an empty list if it isn't text."""
    content = cast("bytes", part.get_payload(decode=True))
    declared = part.get_content_charset("" if encoding else "utf-8")
    if (charset := fitting(declared, content)) is None:
        if encoding:
            return "".join(decode(iter([content]), name, encoding, errors))
        _log.warning("%r isn't in its charset %r: name its encoding if it is wrong", name, declared)
    for raw in (content, content.replace(b"\0", b"")):  # a NUL alone doesn't make a text binary
        try:
            return "".join(decode(iter([raw]), name, charset, "replace"))
        except DecodingError:
            return raw.decode(errors="replace")
        except BinaryDocument:
            continue
    return []


def _decode_header(raw: str) -> str:
    """Decodes a header for display. Doesn't parse addresses: many don't conform to the standard."""
    text = raw if len(raw) > MAX_HEADER else policy.default.header_fetch_parse("Subject", raw)
    return " ".join(str(text).split())
