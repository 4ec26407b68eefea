"""Text stream -> chunks. Does no I/O: pieces go in, chunks come out.

A chunk is cut from a *window*: text that starts where the chunk starts and runs a little past its estimated end
(the estimate comes from the chunk before). Tokens after the cut are reused by the next window; only a few words
at the cut are counted again. Windows depend only on the text and the previous chunk, so a stream is cut in the same
places however it arrives and wherever it is resumed.

White space never becomes a chunk by itself. Long or final white space after a cut belongs to the previous chunk,
but isn't shown; leading white space belongs to the first chunk.
"""

from __future__ import annotations

import hashlib
from dataclasses import KW_ONLY, dataclass, replace

from memagent.chunking.cuts import MAX_GRAPHEME, Cuts, blanks, grapheme_floor
from memagent.chunking.window import Neutralise, Window
from memagent.errors import ConfigError, RunMismatch
from memagent.tokens.base import TokenCounter

CHANGED = "the document has changed: {}; pass the same text, or use another run_id= (--run-id)"
"""Why a run cannot be resumed."""
MIN_LIMIT = 16
"""The smallest chunk limit. One character must fit: up to 4 tokens (its bytes), 7 with a U+2060 after it."""
FIRST_CHARS_PER_TOKEN = 4.0
"""For sizing the first window: English prose has 4 to 4.5 characters per token in current vocabularies."""
WINDOW_SLACK = 1.11
"""Ratio of a window's length to the estimate. Measured on novels with tokenisers that must process a window
whole (`tokens.locality`): longer windows cost more than redoing the one in twenty that is too short."""
BLANK_SHARE = 1 / 6
"""White space of more characters than this share of the limit is long; less takes at most half the limit in bytes."""
BLANK_BLOCK = 4096  # characters of long white space to skip at once
MAX_CHARS_PER_TOKEN = 64
"""Bounds a chunk's length in characters: a run of white space may take one token per 128, or none at all."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive text of a document."""

    index: int
    text: str
    """The text as shown to the model: neutralised, and without long white space around it."""
    start: int
    """First character in the document (before neutralising)."""
    end: int
    """One past the last character."""
    tokens: int
    """The counter's count for `text` by itself; at most the limit."""
    last: bool
    """True if the document ends with this chunk."""
    digest: str
    """SHA-256 (hex) of the document's UTF-8 text up to `end`; binds a run to what was read."""
    neutralised: int
    """How many look-alikes were neutralised in `text`."""


@dataclass(frozen=True)
class ResumePoint:
    """What is needed from the last chunk read to continue after it."""

    index: int
    """Index of the next chunk."""
    covered: int
    """End of the last chunk."""
    digest: str
    """The last chunk's digest: what the document's first `covered` characters must hash to."""
    chars: int
    """Characters of the last chunk before neutralising; with `tokens`, sizes the next window."""
    tokens: int

    @classmethod
    def after(cls, chunk: Chunk) -> ResumePoint:
        """Returns the point right after a chunk."""
        chars = chunk.end - chunk.start
        return cls(chunk.index + 1, chunk.end, chunk.digest, chars, chunk.tokens)


@dataclass(eq=False)
class Chunker:
    """Cuts a stream into chunks: `feed` pieces, `pop` chunks, `close` at the end, `pop` the rest.

    Raises:
        ConfigError: limit or cuts are out of range.
    """

    counter: TokenCounter
    limit: int
    """Maximum tokens of a chunk, counted on the neutralised text; at least `MIN_LIMIT`."""
    _: KW_ONLY
    cuts: Cuts = "sentence"
    neutralise: Neutralise | None = None
    """Makes a chunk's text safe before it is shown; None shows it unchanged."""
    resume: ResumePoint | None = None
    """Point to continue after. The text that it covers must be fed too, to be hashed and compared; None after that."""

    def __post_init__(self) -> None:
        if self.limit < MIN_LIMIT:
            raise ConfigError(f"the limit must be at least {MIN_LIMIT} tokens, got {self.limit!r}")
        if self.cuts not in ("sentence", "exact"):
            raise ConfigError(f"cuts={self.cuts!r} is unknown; use 'sentence' or 'exact'")
        self._neutralise: Neutralise = self.neutralise or (lambda raw: (raw, ()))
        point = self.resume or ResumePoint(0, 0, "", round(FIRST_CHARS_PER_TOKEN), 1)
        self._index = point.index
        self._start: int = point.covered
        self._window = self._window_size(point.chars, point.tokens)
        self._hash = hashlib.sha256()
        self._fed = 0
        # Uncut text begins at `_start`, in `_text` and then in `_parts`, which are joined to it when needed.
        self._text, self._text_start = "", self._start
        self._parts: list[str] = []
        self._closed = False
        self._before: Window | None = None
        self._behind: int = 0  # where the next window starts in `_before`
        self._long = max(3, int(self.limit * BLANK_SHARE))
        self._fresh = True  # there may be long white space before the text
        self._blank = False  # inside long white space, which belongs to the held chunk
        self._held: Chunk | None = None
        self._lead = 0  # length of leading long white space, which belongs to the first chunk

    @property
    def ready(self) -> bool:
        """False while `pop` would return None at once for lack of text."""
        chars = self._fed - self._start
        if self._closed:
            return chars > 0 or self._held is not None
        return chars >= self._long + (0 if self._blank else self._window)

    def feed(self, piece: str) -> None:
        """Takes the document's next text. Raises a `RunMismatch` if what a resumed run had covered has changed."""
        if self._closed:
            raise RuntimeError("feed() after close()")
        self._parts.append(piece if self.resume is None else self._verify(piece, self.resume))
        self._fed += len(piece)

    def close(self) -> None:
        """Marks the document's end. Raises a `RunMismatch` if it is shorter than what a resumed run had covered."""
        if self.resume is not None:
            problem = f"it has {self._fed:,} characters, but the run read {self.resume.covered:,}"
            raise RunMismatch(CHANGED.format(problem))
        self._closed = True

    def pop(self) -> Chunk | None:
        """Cuts the next chunk; None if more text is needed or, after `close`, none is left. Blocks: it tokenises.

        Raises:
            ConfigError: a single character takes more tokens than the limit.
        """
        while self.ready:
            chunk = self._pass_blanks() if self._blank else self._cut()
            if chunk is not None:
                self._index += 1
                self._window = self._window_size(chunk.end - chunk.start, chunk.tokens)
                return chunk
        return None

    def _cut(self) -> Chunk | None:
        """Cuts a chunk; None if the caller must look again, at more text or at the white space after it."""
        lookahead = self._peek(self._window + self._long)
        if self._fresh:
            self._fresh, self._blank = False, lookahead[: self._long].isspace()
            return None
        raw = lookahead[: self._window]
        window = Window(raw, self.counter, self._neutralise, self._before, self._behind)
        bound, cap = window.chars_within(self.limit), self.limit * MAX_CHARS_PER_TOKEN
        if bound == len(raw) <= cap and not (self._closed and self._start + bound == self._fed):
            size = self._window_size(bound, window.prefix(bound)[2])
            self._before, self._behind = window, 0
            self._window = min(max(size, bound * 5 // 4), cap + MAX_GRAPHEME)
            return None
        fit = window.fit(min(bound, cap), self.limit, self.cuts, blanks(raw))
        if fit is None:
            raise ConfigError(
                f"the character {raw.lstrip()[:1]!r} takes more than a chunk's limit of {self.limit} tokens; "
                f"use a larger window or chunk limit"
            )
        end, text, inserted, tokens = fit
        next_text = lookahead[end : end + self._long]
        self._hash.update(raw[:end].encode("utf-8", "surrogatepass"))
        start, self._start = self._start - self._lead, self._start + end
        self._before, self._behind, self._lead = window, end, 0
        chunk = Chunk(
            index=self._index,
            text=text,
            start=start,
            end=self._start,
            tokens=tokens,
            last=not next_text,
            digest=self._hash.hexdigest(),
            neutralised=inserted,
        )
        if next_text.isspace():
            self._held, self._blank = chunk, True
            return None
        return chunk

    def _pass_blanks(self) -> Chunk | None:
        """Skips long white space; returns the chunk that it belongs to once all of it is skipped."""
        lookahead = self._peek(BLANK_BLOCK)
        blank = blanks(lookahead)
        last = self._closed and self._start + blank == self._fed
        self._blank = blank == len(lookahead) and not last
        if self._blank:
            blank -= 2  # a combining mark or half of a line end may follow
        elif not last:
            # One extra character, since how much is there depends on how the text is fed.
            blank = grapheme_floor(lookahead[: blank + 1], blank)
        self._hash.update(lookahead[:blank].encode())
        self._start += blank
        self._before = None
        if self._held is None:
            self._lead += blank
        elif not self._blank:
            digest = self._hash.hexdigest()
            chunk, self._held = self._held, None
            return replace(chunk, end=self._start, last=last, digest=digest)
        return None

    def _peek(self, chars: int) -> str:
        """Returns the next `chars` characters, or as many as there are."""
        at = self._start - self._text_start
        if len(self._text) - at < chars and self._parts:
            self._text, self._text_start = self._text[at:] + "".join(self._parts), self._start
            self._parts.clear()
            at = 0
        return self._text[at : at + chars]

    def _window_size(self, chars: float, tokens: int) -> int:
        """Returns how many characters to look at for a chunk, given that `chars` took `tokens`."""
        expected = self.limit * chars / max(tokens, 1)
        # The fewer tokens, the more their lengths vary around the mean.
        size = int(expected * (WINDOW_SLACK + 0.5 * self.limit**-0.5)) + 16
        return min(size, self.limit * MAX_CHARS_PER_TOKEN + MAX_GRAPHEME)

    def _verify(self, piece: str, resume: ResumePoint) -> str:
        """Hashes the covered part of `piece`; returns the part to cut."""
        head = piece[: resume.covered - self._fed]
        self._hash.update(head.encode("utf-8", "surrogatepass"))
        if self._fed + len(head) == resume.covered:
            self.resume = None
            if self._hash.hexdigest() != resume.digest:
                raise RunMismatch(CHANGED.format(f"its first {resume.covered:,} characters differ"))
        return piece[max(0, resume.covered - self._fed) :]
