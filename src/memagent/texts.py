"""Formats values, errors and counts; repairs texts before they are sent or stored; searches from a text's end."""

import difflib
import hashlib
import json
import os
import re
import reprlib
import unicodedata
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import regex
from pydantic import AfterValidator, JsonValue, ValidationError

VALUE_CHARS = 100
"""Enough characters of a wrong value to recognise it."""
MESSAGE_CHARS = 2000
"""Maximum characters of an error for a model: a long message, but little of a small window (600 tokens)."""

LINE_END = r"(?>\r\n|\r|\n)(?![a-zß-öø-ÿα-ωа-я])"
"""A line end, unless the next line begins in lower case: that is wrapped text."""

ITEM = r"\d{1,3}(?:\.\d{1,3})*+|x{0,3}(?:ix|iv|v?i{0,3})|X{0,3}(?:IX|IV|V?I{0,3})|[A-Za-z]"
"""An item's number or an initial: the full stop after it doesn't end a sentence. May match nothing."""
STOPS = ".!?…।॥؟۔"  # they end a sentence if white space follows
_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = VALUE_CHARS
_SURROGATES = re.compile("[\ud800-\udfff]")
_SIGNS = "\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
_WORD = regex.compile(rf"[{_SIGNS}]|(?!\p{{M}})[[\w\p{{N}}]--[{_SIGNS}]]+", regex.V1)
"""Chinese and Japanese don't separate words, so each character is one. The `\\w` of `re` lacks combining marks."""


def quote(value: object) -> str:
    """Quotes a value for an error message, in bounded time."""
    # Nesting is bounded only per level, so levels multiply.
    text = _repr.repr(value)
    return text if len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]}..."


def clip(text: str, chars: int = MESSAGE_CHARS) -> str:
    """Returns the text, or its beginning and how many characters were left out."""
    if len(text) <= chars:
        return text
    return f"{text[:chars]}... ({len(text) - chars} more characters)"


def message(error: BaseException) -> str:
    """Returns an error's message, clipped; empty if it has none, or producing it fails."""
    try:
        return clip(str(error).strip())
    except Exception:  # noqa: BLE001 - __str__ may be a tool author's code
        return ""


def name_error(error: BaseException) -> str:
    """Returns the class and message of an error: `ValueError: no such page`."""
    detail = message(error)
    return f"{type(error).__name__}: {detail}" if detail else type(error).__name__


def plural(number: int, word: str) -> str:
    """Formats a count with its noun: `1 chunk`, `12 chunks`, `2 summaries`, `2 retries`."""
    if number == 1:
        return f"1 {word}"
    return f"{number:,} {word[:-1]}ies" if word.endswith("y") else f"{number:,} {word}s"


def show_length(length: int) -> str:
    """Formats a token count: `8K` for 8192, `1M` for 1048576, digits for anything that isn't a multiple of 1024."""
    for name, size in (("M", 1024**2), ("K", 1024)):
        if length % size == 0 and length >= size:
            return f"{length // size}{name}"
    return str(length)


def words(text: str) -> list[str]:
    """Splits a text into words, in lower case and composed (NFC)."""
    return _WORD.findall(unicodedata.normalize("NFC", text.casefold()))


def expand(path: str | os.PathLike[str]) -> Path:
    """Expands `~` to the home folder. A `~name` of an unknown user is kept, where pathlib raises a RuntimeError."""
    try:
        return Path(os.path.expanduser(path))  # noqa: PTH111 - see above
    except ValueError:  # a NUL
        return Path(path)


def repair_surrogates(text: str) -> str:
    """Replaces each lone surrogate by U+FFFD: no request, file or tokenizer accepts one.

    The text keeps its length in characters. Lone surrogates come from escapes in JSON and from file names.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text)
    return text


def digest(text: str | bytes, size: int = 16) -> str:
    """Returns the hash of a text, of `size` bytes, in hex."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=size).hexdigest()


def last_end(pattern: re.Pattern[str], text: str, low: int, bound: int, look: int) -> int | None:
    """Finds the last end in (low, bound]; None if there is none.

    An end is the position of the pattern's last named (empty) group. The search starts `look` characters before
    `bound`; the pattern sees two more after it.
    """
    start, stop = bound, bound + 3
    while start > low:
        start, look = max(low, start - look), look * 4
        last = None
        for match in pattern.finditer(text, start, stop):
            end = match.start(match.lastgroup or 0)
            if low < end <= bound:
                last = end
        if last is not None:
            return last
    return None


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Transforms each text in plain JSON data, including member names."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [map_texts(item, change) for item in cast("list[Any]", value)]
    if value and isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {map_texts(name, change): map_texts(item, change) for name, item in items}
    return value


def read_object(
    text: str, change: Callable[[str], str] = repair_surrogates, *, strict: bool = False
) -> dict[str, JsonValue] | None:
    """Reads a JSON object from a model, its texts changed; None if invalid. `strict` rejects raw line ends."""
    try:
        value: Any = map_texts(json.loads(text, strict=strict), change)
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, JsonValue]", value) if isinstance(value, dict) else None


def nearest(name: str, known: Collection[str]) -> str | None:
    """Returns the known name that a mistyped one is closest to; None if none is close."""
    return next(iter(difflib.get_close_matches(name, known, n=1)), None)


def describe_problem(error: ValidationError, known: Collection[str] = ()) -> str:
    """Describes the first validation error: "window must be greater than 0, got 0". `known`: names of settings."""
    problem = error.errors(include_url=False)[0]
    path = re.sub(r"\.constrained-int$", "", ".".join(map(str, problem["loc"])))  # of a union
    if problem["type"] == "missing":
        return f"{path} is missing"
    if problem["type"] == "extra_forbidden":
        suggestion = nearest(path, known)
        hint = f"did you mean {suggestion!r}?" if suggestion else f"there are {', '.join(known)}"
        return f"there is no setting {path!r}; {hint}" if known else f"{path} is unknown"
    reason = problem["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    reason = re.sub(r"^\w+ should ", "must ", reason)
    reason = re.sub(", (unable to parse|got a number with) .*", "", reason)
    subject = f"{path} " if reason.startswith("must ") else f"{path}: "
    return f"{subject if path else ''}{reason}, got {reprlib.repr(problem['input'])}"


def name_extra(what: str, extra: str) -> str:
    """Says which extra of the package `what` needs."""
    return f"{what} needs the extra {extra!r}: pip install 'path/to/memagent[{extra}]', with your checkout's path"


Text = Annotated[str, AfterValidator(repair_surrogates)]
"""Text without lone surrogates, wherever it comes from."""
_repair_all = AfterValidator(partial(map_texts, change=repair_surrogates))
Extra = Annotated[dict[str, JsonValue], _repair_all]
"""Fields that memagent doesn't read, passed through unchanged."""
