"""Bytes -> text: detects the encoding from the start of the stream, then decodes it piece by piece."""

import codecs
import logging
import re
from collections.abc import Generator, Iterator
from contextlib import suppress
from itertools import chain

from memagent.documents.alphabets import encoding_by_letters
from memagent.documents.formats import CONTROLS, control_share, recognise
from memagent.errors import BinaryDocument, ConfigError, DecodingError

SAMPLE_BYTES = 65536
"""Bytes at the start that decide the encoding: one block, enough for hundreds of distinctive letters."""
BINARY_SHARE = 0.05
"""Above this share of control characters a sample without NUL is not text; text encodings use none."""
LANE_SHARE = 0.3
"""UTF-16 without a byte order mark is assumed if at least this share of NULs is in one byte lane: Latin text has
nearly all of its NULs there, binary files mix the lanes."""

_BOMS: tuple[tuple[bytes, str], ...] = (
    # UTF-32 comes first: its little-endian mark begins with UTF-16's.
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF8, "utf-8"),
)
_DECLARED = re.compile(
    rb"\s*(?=<).*?<(?:meta\b[^>]*?\bcharset|\?xml\b[^>]*?\bencoding)\s*=\s*[\"']?\s*(?!utf-?(?:16|32))([a-z0-9_.:-]+)",
    re.IGNORECASE | re.DOTALL,
)
"""Matches the encoding that HTML or XML declares."""
_SHIFT = re.compile(rb"\x1b\$(?:[@B]|\)C)")
"""Matches where ISO-2022 switches to Japanese or Korean. All its bytes are ASCII."""
_WIDER = {"iso-8859-1": "cp1252", "gb2312": "gb18030", "shift_jis": "cp932", "euc-kr": "cp949"}
"""Declared encodings, and what browsers read them as."""
_log = logging.getLogger(__name__)


def check_options(encoding: str | None, errors: str) -> None:
    """Refuses encodings and error modes that do not exist.

    Raises:
        ConfigError: the encoding is unknown or not a text encoding; the mode is unknown.
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


def decode(blocks: Iterator[bytes], name: str, encoding: str | None, errors: str) -> Generator[str]:
    """Decodes a stream of bytes. For an empty block it yields the text available so far, then an empty one."""
    sample = bytearray()
    for block in blocks:
        sample += block
        if len(sample) >= SAMPLE_BYTES:
            break
        if not block:
            yield ""
    start, offset = bytes(sample), 0
    how = "read as" if encoding else "detected as"
    encoding = encoding or detect(start, len(start) < SAMPLE_BYTES, name)
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    at_start = True
    for block in chain([start], blocks, [None]):
        data = block or b""
        try:
            text = decoder.decode(data, block is None)
        except UnicodeDecodeError as error:
            # The codec prepends what it kept of earlier blocks to `data`; its position counts from there.
            offset += len(data) - len(error.object) + error.start
            raise DecodingError(
                f"byte 0x{error.object[error.start]:02x} at offset {offset} of {name!r} does not decode ({how} "
                f"{encoding!r}: {error.reason}); name its encoding (encoding=..., --encoding), or "
                f"replace bad bytes by U+FFFD (errors='replace', --errors replace)",
                offset,
            ) from error
        except UnicodeError as error:  # UTF-16 without its mark, punycode: no position is given
            raise DecodingError(
                f"{name!r} does not decode as {encoding!r} ({error}); name its encoding "
                f"(encoding=..., --encoding), or leave it out to have it detected"
            ) from error
        offset += len(data)
        if text and at_start:
            at_start, text = False, text.removeprefix("\ufeff")
        if text or not data:
            yield text


def detect(sample: bytes, complete: bool, name: str) -> str:
    """Detects a document's encoding from its first bytes, or from all of them (`complete`).

    Raises:
        BinaryDocument: it is not text.
        DecodingError: the encoding can't be determined; `.offset` is the first byte that is not UTF-8.
    """
    for mark, encoding in _BOMS:
        if sample.startswith(mark):
            return encoding
    if sample.isascii() and (shift := _SHIFT.search(sample)):
        return "iso2022_kr" if shift[0].endswith(b"C") else "iso2022_jp_ext"
    if (kind := recognise(sample[:1024])) is not None:
        advice = "convert it to plain text first"
        if "PDF" in kind:
            advice = "save it to a file, unpacked, and pass its path"
        elif "docx" in kind:
            advice = f"if it is a .docx or .epub file, save it under that suffix and pass its path; else {advice}"
        raise BinaryDocument(f"{name!r} is {kind}: {advice}")
    if b"\0" in sample:
        guess = _wide(sample, name)
    elif control_share(sample) > BINARY_SHARE:
        raise _binary(name, "it is full of control characters")
    elif (match := _DECLARED.match(sample[:1024])) and (
        declared_encoding := fitting(match[1].decode().lower(), sample)
    ):
        return declared_encoding
    else:
        try:
            codecs.getincrementaldecoder("utf-8")("strict").decode(sample, complete)
        except UnicodeDecodeError as error:
            # If valid multi-byte characters outnumber bad bytes two to one. In other encodings a byte above 127
            # is followed by the right bytes only by chance: hardly ever in Latin ones, at most one time in five
            # in the double-byte ones of East Asia.
            text = sample.decode("utf-8", "replace")
            bad_count = text.count("\ufffd") - sample.count("\ufffd".encode())
            if sum(not char.isascii() for char in text) >= 3 * bad_count:
                return "utf-8"  # decoding it will name the bad byte, or replace it
            guess = encoding_by_letters(sample) or _guess(sample, complete, name, error)
        else:
            return "utf-8"
    _log.warning(
        "%r is not UTF-8 and has no byte order mark; guessing %r: "
        "name the encoding (encoding=..., --encoding) if the text looks wrong",
        name,
        guess,
    )
    return guess


def fitting(declared: str, sample: bytes) -> str | None:
    """Returns what to read a declared encoding (in lower case) as; None if it doesn't exist or the text doesn't fit."""
    with suppress(ConfigError, UnicodeError):
        encoding = _WIDER.get(declared, declared)
        check_options(encoding, "strict")
        codecs.getincrementaldecoder(encoding)("strict").decode(sample)
        return encoding
    return None


def _binary(name: str, reason: str) -> BinaryDocument:
    return BinaryDocument(
        f"{name!r} is not plain text: {reason}. Convert it to text first; if it is text after all, "
        f"name its encoding (encoding=..., --encoding)"
    )


def _wide(sample: bytes, name: str) -> str:
    """Distinguishes UTF-16 and UTF-32 without a mark from binary data, by the positions of NUL bytes."""
    for encoding, width in (("utf-32-le", 4), ("utf-32-be", 4), ("utf-16-le", 2), ("utf-16-be", 2)):
        lane = width - 1 if encoding.endswith("le") else 0  # the byte that is 0 in ASCII
        lane_bytes = sample[lane::width]
        if lane_bytes.count(0) < LANE_SHARE * len(lane_bytes):
            continue
        with suppress(UnicodeDecodeError):
            text = codecs.getincrementaldecoder(encoding)("strict").decode(sample, False)
            if text and set(CONTROLS).isdisjoint(text):
                return encoding
    raise _binary(name, f"it has a NUL byte at offset {sample.index(0)}")


def _guess(sample: bytes, complete: bool, name: str, error: UnicodeDecodeError) -> str:
    import charset_normalizer  # costs 50 ms, and only documents that are not UTF-8 need it

    if not complete:  # whole lines, so that no character is cut off
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    match = charset_normalizer.from_bytes(sample).best()
    if match is None:
        raise DecodingError(
            f"the encoding of {name!r} cannot be determined: byte 0x{error.object[error.start]:02x} at offset "
            f"{error.start} is not UTF-8, and nothing else fits; name it (encoding=..., --encoding), or "
            f"read it as UTF-8 with U+FFFD in place of bad bytes (encoding='utf-8', errors='replace')",
            error.start,
        ) from error
    return match.encoding
