"""Mail messages: the headers that people read, and the text."""

from collections.abc import Generator
from email import policy
from email.parser import BytesParser
from pathlib import Path

from memagent.documents.converters import Passage, html
from memagent.errors import BinaryDocument

HEADERS = ("From", "To", "Cc", "Date", "Subject")
MAX_BYTES = 100_000_000
"""The parser holds a message in memory."""


def read(path: Path, name: str) -> Generator[Passage]:
    """Headers, then the plain text, or the HTML's text if there is none. Attachments are named, not read.

    Raises:
        BinaryDocument: it is larger than `MAX_BYTES`, or has no text.
    """
    if path.stat().st_size > MAX_BYTES:
        raise BinaryDocument(f"{name!r} has more than {MAX_BYTES:,} bytes: save its parts as files")
    with path.open("rb") as file:
        message = BytesParser(policy=policy.default).parse(file)
    yield from (Passage(f"{header}: {message[header]}\n") for header in HEADERS if message[header])
    yield Passage("\n")
    body = message.get_body(("plain", "html"))
    if body is None:
        raise BinaryDocument(
            f"{name!r} has no text: it isn't a mail message, or has only attachments"
        )
    text = str(body.get_content())
    plain = body.get_content_type() == "text/plain"
    yield from [Passage(text)] if plain else html.read(iter([text]), name)
    names = [part.get_filename() or part.get_content_type() for part in message.iter_attachments()]
    if names:
        yield Passage(f"\nAttachments (not read): {', '.join(names)}\n")
