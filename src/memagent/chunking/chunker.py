"""Text stream -> chunks. Without input or output of its own: pieces go in, chunks come out.

A chunk is cut from a *window*: the text from the chunk's start on, a little longer than the chunk will
be, estimated from the chunk before it. What was tokenised behind the cut serves the next window; only some
words at the cut are counted again. Windows depend on the text and on the chunk before them alone, never on
how the pieces were fed, so a stream is cut in the same places however it arrives, and from wherever it is
resumed.

White space never makes a chunk of its own. What is left of it behind a cut belongs to the chunk before, unseen,
where it is long or ends the document; so does it to the first chunk where the document begins with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memagent.chunking.buffer import Buffer
from memagent.chunking.cuts import MAX_GRAPHEME, Cuts, grapheme_floor, start_near
from memagent.chunking.window import Neutralise, Window, end_within
from memagent.errors import ConfigError, RunMismatch
from memagent.tokens.base import TokenCounter

MIN_LIMIT = 16
"""The least chunk limit: one character may take 4 tokens (its bytes), with U+2060 behind it 7, and has to fit."""
FIRST_CHARS_PER_TOKEN = 4.0
"""The guess for the first window: English prose has 4 to 4.5 characters a token in current vocabularies."""
WINDOW_SLACK = 1.11
"""How much longer than estimated a window is: measured on novels, where longer windows cost more than the one
window in twenty that turns out too short, with tokenisers that have to take it whole (`tokens.locality`)."""
BLANK_SHARE = 1 / 6
"""White space over this share of the limit, in characters, is long: shorter takes at most half the limit in bytes."""
BLANK_BLOCK = 4096  # characters of long white space that are passed over at once
MAX_CHARS_PER_TOKEN = 64
"""Bounds a chunk's length in characters: runs of white space take as little as a token per 128, or none at all."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive text of a document."""

    index: int
    text: str
    """The text as shown to the model: neutralised, and without long white space around it."""
    start: int
    """First character in the document (before neutralising)."""
    end: int
    """One past the last."""
    tokens: int
    """Exactly what the counter counts for `text` by itself, at most the limit."""
    last: bool
    """True when the document ends with this chunk."""
    next_start: int
    """Where the next chunk starts: `end` without overlap, before it with."""
    digest: str
    """SHA-256 (hex) of the document's UTF-8 text up to `end`: binds a run to what was read."""
    neutralised: int
    """How many look-alikes were made harmless in `text`."""


@dataclass(frozen=True)
class ResumePoint:
    """What has to be known of the last chunk that was read, to go on behind it."""

    index: int
    """Of the chunk that comes next."""
    covered: int
    """End of the last chunk."""
    next_start: int
    """Where the next chunk starts."""
    digest: str
    """Of the last chunk: what the document's first `covered` characters must hash to."""
    chars: int
    """Length of the last chunk before neutralising; with `tokens` it sizes the next window."""
    tokens: int

    @classmethod
    def after(cls, chunk: Chunk) -> ResumePoint:
        """The point behind a chunk."""
        return cls(
            index=chunk.index + 1,
            covered=chunk.end,
            next_start=chunk.next_start,
            digest=chunk.digest,
            chars=chunk.end - chunk.start,
            tokens=chunk.tokens,
        )


class Chunker:
    """Cuts a stream into chunks: `feed` pieces, `pop` chunks, `close` at the end, `pop` the rest.

    Args:
        counter: counts tokens.
        limit: most tokens of a chunk, counted on the neutralised text; at least `MIN_LIMIT`.
        cuts: see `Cuts`.
        overlap: most tokens of a chunk that are repeated at the start of the next, below half the limit.
        neutralise: makes a chunk's text safe before it is shown; None shows it as it is.
        resume: go on behind this point. The document is fed from its first character all the same: what
            was covered is hashed and compared, and not tokenised.

    Raises:
        ConfigError: limit, overlap or cuts are out of range.
    """

    def __init__(
        self,
        counter: TokenCounter,
        limit: int,
        *,
        cuts: Cuts = "sentence",
        overlap: int = 0,
        neutralise: Neutralise | None = None,
        resume: ResumePoint | None = None,
    ) -> None:
        if limit < MIN_LIMIT:
            raise ConfigError(
                f"a chunk limit of {limit!r} tokens is too small; use at least {MIN_LIMIT}"
            )
        if not 0 <= 2 * overlap < limit:
            raise ConfigError(
                f"overlap={overlap!r} is out of range: use 0 to {(limit - 1) // 2}, less than half the "
                f"chunk limit of {limit} tokens"
            )
        if cuts not in ("sentence", "exact"):
            raise ConfigError(f"cuts={cuts!r} is unknown; use 'sentence' or 'exact'")
        self._counter = counter
        self._limit = limit
        self._cuts: Cuts = cuts
        self._overlap = overlap
        self._neutralise = neutralise or _as_it_is
        self._resume = resume if resume is not None and resume.covered else None
        self._index = 0 if resume is None else resume.index
        self._covered = 0 if resume is None else resume.covered
        self._start = 0 if resume is None else resume.next_start
        self._hash = hashlib.sha256()
        self._buffer = Buffer()
        self._blank = max(3, int(limit * BLANK_SHARE))
        # Of what was cut and waits for the white space behind it; at first, of what lies before the first chunk.
        self._joins = self._start == self._covered
        self._held: Chunk | None = None
        self._end = self._keep = self._hidden = self._lead = 0
        self._before: Window | None = None
        self._behind = 0  # where in it the next window starts
        self._skipped = 0
        self._closed = False
        if self._resume is None:
            self._window = self._window_size(FIRST_CHARS_PER_TOKEN, 1)
        else:
            self._window = self._window_size(self._resume.chars, self._resume.tokens)

    @property
    def ready(self) -> bool:
        """False while `pop` would return None without doing anything, for want of text."""
        size = self._buffer.size
        if self._closed:
            return size > 0 or self._held is not None
        return size >= (self._end + self._blank if self._end or self._hidden else self._window)

    def feed(self, piece: str) -> None:
        """Takes the next text of the document.

        Raises:
            RunMismatch: what a resumed run had covered is not what the document says now.
        """
        if self._closed:
            raise RuntimeError("feed() after close()")
        if self._resume is not None:
            piece = self._verify(piece, self._resume)
        if piece:
            self._buffer.append(piece)

    def close(self) -> None:
        """Says that the document has ended.

        Raises:
            RunMismatch: it ended before what a resumed run had covered.
        """
        if self._resume is not None:
            raise RunMismatch(
                f"the document has {self._skipped} characters, but this run had already read "
                f"{self._resume.covered}: it is another document, or was changed; start a new run"
            )
        self._closed = True

    def pop(self) -> Chunk | None:
        """Cuts the next chunk. Tokenises, so async code calls it in a thread.

        Returns:
            The chunk; None when more text is needed or, after `close`, when there is no more.

        Raises:
            ConfigError: a single character takes more tokens than the limit.
        """
        while self.ready:
            if self._joins:
                self._join()
                if not self._joins and self._held is not None:
                    chunk, self._held = self._held, None
                    return chunk
                continue
            raw = self._buffer.peek(self._window)
            whole = self._closed and len(raw) == self._buffer.size
            window = Window(raw, self._counter, self._neutralise, self._before, self._behind)
            cap = self._limit * MAX_CHARS_PER_TOKEN
            if whole and window.tokens <= self._limit and len(raw) <= cap:
                self._hold(window, len(raw))
                continue
            bound = window.chars_within(self._limit)
            if bound < len(raw) or whole or len(raw) > cap:
                floor = self._covered - self._start
                floor += _blank_at(raw[floor:])
                end = end_within(window, min(bound, cap), self._limit, self._cuts, floor)
                if end is not None:
                    self._hold(window, end)
                else:
                    self._drop_overlap()
            else:
                wanted = self._window_size(len(raw), window.tokens)
                self._before, self._behind = window, 0
                self._window = min(max(wanted, len(raw) * 5 // 4), cap + MAX_GRAPHEME)
        return None

    def _hold(self, window: Window, end: int) -> None:
        """Cuts a chunk, which waits for the white space behind it."""
        text, inserted, tokens = window.prefix(end)
        raw = window.raw[:end]
        last = self._closed and end == self._buffer.size
        # Counted before anything changes: a counter that asks a server may fail, and the cut is tried again.
        self._keep = 0 if last or not self._overlap else self._repeated(raw, tokens)
        self._hash.update(raw[self._covered - self._start :].encode("utf-8", "surrogatepass"))
        self._held = Chunk(
            index=self._index,
            text=text,
            start=self._start - self._lead,
            end=self._start + end,
            tokens=tokens,
            last=last,
            next_start=self._start,
            digest="",
            neutralised=inserted,
        )
        self._joins, self._end, self._hidden, self._lead = True, end, 0, 0
        self._before = window

    def _join(self) -> None:
        """Looks at what follows a cut: long white space, and what ends the document, belongs to the chunk before it."""
        size = BLANK_BLOCK if self._hidden else self._blank
        following = self._buffer.peek(self._end + size)[self._end :]
        blank = _blank_at(following)
        self._joins = blank == len(following)
        if self._joins or self._hidden:
            if not self._joins:
                # One character more, since how much there is depends on how the text is fed.
                blank = grapheme_floor(following[: blank + 1], blank)
            elif self._closed and self._buffer.size == self._end + blank:
                self._joins = False
            else:
                blank -= 2  # a mark may follow, or half of a line end
            self._hash.update(following[:blank].encode())
            self._hidden += blank
            self._end, self._keep = self._end + blank, 0
        self._buffer.drop(self._end - self._keep)
        if self._joins:
            self._end = 0
        else:
            self._release()

    def _release(self) -> None:
        """Says where the chunk ends that was held, and the next one begins."""
        held = self._held
        self._covered = self._hidden + (self._covered if held is None else held.end)
        self._start = self._covered - self._keep
        if held is None:
            self._lead = self._hidden
        else:
            self._held = replace(
                held,
                end=self._covered,
                last=self._closed and not self._buffer.size,
                next_start=self._start,
                digest=self._hash.copy().hexdigest(),
            )
            self._behind = held.end - held.next_start - self._keep
            self._index += 1
            self._window = self._window_size(self._covered - held.start, held.tokens)
        if self._hidden:
            self._before = None
        self._end = self._keep = self._hidden = 0

    def _window_size(self, chars: float, tokens: int) -> int:
        """Characters to look at for a chunk, where `chars` took `tokens`."""
        expected = self._limit * chars / max(tokens, 1)
        # The fewer tokens, the more their lengths vary around the mean.
        size = int(expected * (WINDOW_SLACK + 0.5 * self._limit**-0.5)) + 16
        return min(size, self._limit * MAX_CHARS_PER_TOKEN + MAX_GRAPHEME)

    def _repeated(self, raw: str, tokens: int) -> int:
        """Characters at the end of a chunk that the next one starts with."""
        start = max(1, len(raw) - int(len(raw) * self._overlap / max(tokens, 1)))
        for _ in range(16):  # each round shortens the repetition by at least a twentieth
            start = start_near(raw, start)
            if start >= len(raw):
                break
            found = self._counter.count(self._neutralise(raw[start:])[0])
            if found <= self._overlap:
                return len(raw) - start
            room = int((len(raw) - start) * 0.95 * self._overlap / found)
            start = max(start + 1, len(raw) - room)
        return 0

    def _drop_overlap(self) -> None:
        """Starts the chunk behind what was repeated, which left no room for anything new."""
        repeated = self._covered - self._start
        if not repeated:
            char = self._buffer.peek(self._blank).lstrip()[:1]
            raise ConfigError(
                f"the character {char!r} takes more than the {self._limit} tokens that "
                f"a chunk may have; use a larger window or chunk limit"
            )
        self._buffer.drop(repeated)
        self._before = None
        self._start = self._covered

    def _verify(self, piece: str, resume: ResumePoint) -> str:
        """Hashes the part of `piece` that was covered; returns the rest."""
        head = piece[: resume.covered - self._skipped]
        self._hash.update(head.encode("utf-8", "surrogatepass"))
        repeated = head[max(0, resume.next_start - self._skipped) :]
        self._skipped += len(head)
        if repeated:
            self._buffer.append(repeated)
        if self._skipped == resume.covered:
            self._resume = None
            if self._hash.hexdigest() != resume.digest:
                raise RunMismatch(
                    f"the document's first {resume.covered} characters are not those that this run has "
                    f"read: it is another document, or was changed; start a new run"
                )
        return piece[len(head) :]


def _blank_at(text: str) -> int:
    """Characters of white space that a text begins with."""
    return len(text) - len(text.lstrip())


def _as_it_is(text: str) -> tuple[str, Sequence[int]]:
    return text, ()
