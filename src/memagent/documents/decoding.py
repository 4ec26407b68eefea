"""Bytes -> text: finds out the encoding from the start of the stream, then decodes it piece by piece."""

from __future__ import annotations

import codecs
import logging
from collections.abc import Iterator
from contextlib import suppress

from memagent.documents.alphabets import encoding_by_letters
from memagent.documents.formats import control_share, recognise
from memagent.errors import BinaryDocument, ConfigError, DecodingError

SAMPLE_BYTES = 65536
"""How much of the start decides the encoding: one block, enough for hundreds of the letters that tell."""
BINARY_SHARE = 0.05
"""Above this share of control characters a sample without NUL is not text; text encodings use none."""
LANE_SHARE = 0.3
"""UTF-16 without a byte order mark is believed from this share of NUL in one byte lane on: Latin text has nearly
all of its NUL there, binary files mix the lanes."""

_BOMS: tuple[tuple[bytes, str], ...] = (
    # UTF-32 stands first: its little-endian mark begins with UTF-16's.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)
_log = logging.getLogger(__name__)


def check_options(encoding: str | None, errors: str) -> None:
    """Refuses encodings and error modes that do not exist.

    Raises:
        ConfigError: the encoding is unknown or no text encoding; the mode is not one of three.
    """
    if errors not in ("strict", "replace", "ignore"):
        raise ConfigError(f"errors={errors!r} is unknown; use 'strict', 'replace' or 'ignore'")
    if encoding is None:
        return
    try:
        codecs.getincrementaldecoder(encoding)(errors)
        with suppress(UnicodeDecodeError):  # half a UTF-16 character: the codec exists
            b"a".decode(encoding)
    except (LookupError, UnicodeError, ValueError) as error:
        raise ConfigError(
            f"encoding={encoding!r} is not a text encoding that Python knows; "
            f"use a name such as 'utf-8', 'cp1252' or 'gb18030', or leave it out to have it detected"
        ) from error


class Decoder:
    """Decodes one stream of bytes. Feed blocks, then close.

    Args:
        name: what the document is called, for messages.
        encoding: the encoding, or None to find it out.
        errors: "strict", "replace" (U+FFFD) or "ignore".
    """

    def __init__(self, name: str, encoding: str | None, errors: str) -> None:
        self._name = name
        self._encoding = encoding
        self._errors = errors
        self._detected = encoding is None
        self._sample: bytearray | None = bytearray()
        self._decoder: codecs.IncrementalDecoder | None = None
        self._fed = 0
        self._first = True

    def feed(self, data: bytes) -> Iterator[str]:
        """Yields the text of `data`, as far as its characters are complete.

        Raises:
            DecodingError: a byte does not decode (`errors="strict"`).
            BinaryDocument: the start of the stream is not text.
        """
        if self._sample is None:
            yield from self._decode(data)
            return
        self._sample += data
        if len(self._sample) >= SAMPLE_BYTES:
            yield from self._begin(complete=False)

    def close(self) -> Iterator[str]:
        """Yields what is left; raises as `feed` does, also for a character that is cut off."""
        if self._sample is not None:
            yield from self._begin(complete=True)
        yield from self._decode(b"", final=True)

    def _begin(self, *, complete: bool) -> Iterator[str]:
        data = bytes(self._sample or b"")
        self._sample = None
        encoding = self._encoding or detect(data, complete, self._name)
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder(encoding)(self._errors)
        yield from self._decode(data)

    def _decode(self, data: bytes, *, final: bool = False) -> Iterator[str]:
        assert self._decoder is not None
        try:
            text = self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            # The codec joins what it kept of earlier blocks with `data`; its position counts from there.
            kept = len(error.object) - len(data)
            raise self._failure(self._fed - kept + error.start, error) from error
        except UnicodeError as error:  # UTF-16 without its mark, punycode: no position is given
            raise DecodingError(
                f"{self._name!r} does not decode as {self._encoding!r} ({error}); name its encoding "
                f"(encoding=..., --encoding), or none to have it found out"
            ) from error
        self._fed += len(data)
        if self._first and text:
            self._first = False
            text = text.removeprefix("\ufeff")
        if text:
            yield text

    def _failure(self, offset: int, error: UnicodeDecodeError) -> DecodingError:
        how = "detected as" if self._detected else "read as"
        bad = error.object[error.start : error.start + 1].hex()
        return DecodingError(
            f"byte 0x{bad} at offset {offset} of {self._name!r} does not decode ({how} "
            f"{self._encoding!r}: {error.reason}); name its encoding (encoding=..., --encoding), or "
            f"read on with U+FFFD in its place (errors='replace', --errors replace)",
            offset,
        )


def detect(sample: bytes, complete: bool, name: str) -> str:
    """Names the encoding of a document from its first bytes.

    Args:
        sample: the start of the document.
        complete: whether that is all of it.
        name: what the document is called, for messages.

    Raises:
        BinaryDocument: it is not text.
        DecodingError: it is no encoding that can be told, `.offset` is the first byte that is not UTF-8.
    """
    for mark, encoding in _BOMS:
        if sample.startswith(mark):
            return encoding
    _refuse_formats(sample, name)
    if b"\0" in sample:
        return _wide(sample, name)
    if control_share(sample) > BINARY_SHARE:
        raise _binary(name, "it is full of control characters")
    try:
        codecs.getincrementaldecoder("utf-8")("strict").decode(sample, complete)
    except UnicodeDecodeError as error:
        if _mostly_utf8(sample):
            return "utf-8"  # decoding it will name the bad byte, or replace it
        return _guess(sample, complete, name, error)
    return "utf-8"


def _refuse_formats(sample: bytes, name: str) -> None:
    found = recognise(sample[:64])
    if found is not None:
        raise _binary(name, f"it is {found}")


def _binary(name: str, why: str) -> BinaryDocument:
    return BinaryDocument(
        f"{name!r} is not plain text: {why}. Convert it to text first; if it is text after all, "
        f"name its encoding (encoding=..., --encoding)"
    )


def _wide(sample: bytes, name: str) -> str:
    """Tells UTF-16 and UTF-32 without a mark from binary data, by where the NUL bytes stand."""
    for encoding, width in (("utf-32-le", 4), ("utf-32-be", 4), ("utf-16-le", 2), ("utf-16-be", 2)):
        lane = width - 1 if encoding.endswith("le") else 0  # the byte that is 0 in ASCII
        lane_bytes = sample[lane::width]
        if not lane_bytes or lane_bytes.count(0) < LANE_SHARE * len(lane_bytes):
            continue
        try:
            text = codecs.getincrementaldecoder(encoding)("strict").decode(sample, False)
        except UnicodeDecodeError:
            continue
        controls = sum(text.count(chr(c)) for c in range(32) if chr(c) not in "\t\n\x0b\x0c\r\x1b")
        if text and not controls:
            _warn(name, encoding)
            return encoding
    raise _binary(name, f"it has a NUL byte at offset {sample.index(0)}")


def _mostly_utf8(sample: bytes) -> bool:
    """Whether valid multi-byte characters outnumber bad bytes two to one.

    In other encodings a byte above 127 is followed by just the right bytes only by chance: hardly ever
    in Latin ones, one time in five or less in the double-byte ones of East Asia.
    """
    text = sample.decode("utf-8", "replace")
    bad = text.count("\ufffd") - sample.count("\ufffd".encode())
    wide = sum(not c.isascii() for c in text) - bad
    return wide >= 2 * bad


def _guess(sample: bytes, complete: bool, name: str, error: UnicodeDecodeError) -> str:
    if (encoding := encoding_by_letters(sample)) is not None:
        _warn(name, encoding)
        return encoding
    import charset_normalizer  # costs 50 ms, and only documents that are not UTF-8 need it

    if not complete:  # whole lines, so that no character is cut off
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    best = charset_normalizer.from_bytes(sample).best()
    if best is None:
        raise DecodingError(
            f"the encoding of {name!r} cannot be told: byte 0x{error.object[error.start]:02x} at offset "
            f"{error.start} is not UTF-8, and nothing else fits; name it (encoding=..., --encoding), or "
            f"read it as UTF-8 with U+FFFD in place of bad bytes (encoding='utf-8', errors='replace')",
            error.start,
        ) from error
    _warn(name, best.encoding)
    return best.encoding


def _warn(name: str, encoding: str) -> None:
    _log.warning(
        "%r is not UTF-8 and has no byte order mark; it is read as %r, which is a guess: "
        "name the encoding (encoding=..., --encoding) if the text looks wrong",
        name,
        encoding,
    )
