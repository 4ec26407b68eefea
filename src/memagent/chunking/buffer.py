"""Text that was fed and not yet cut."""

from __future__ import annotations


class Buffer:
    """Text that was fed and not yet consumed. Appending and dropping cost no copy of the rest."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._parts: list[str] = []
        self.size = 0

    def append(self, piece: str) -> None:
        """Takes text at the end."""
        self._parts.append(piece)
        self.size += len(piece)

    def peek(self, chars: int) -> str:
        """Shows the first `chars` characters (fewer where there are not so many)."""
        if len(self._text) - self._at < chars and self._parts:
            self._text = self._text[self._at :] + "".join(self._parts)
            self._parts.clear()
            self._at = 0
        return self._text[self._at : self._at + chars]

    def drop(self, chars: int) -> None:
        """Forgets characters that `peek` has shown."""
        self._at += chars
        self.size -= chars
