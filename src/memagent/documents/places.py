"""Where a document's text comes from: pages, headings, times, files."""

from bisect import bisect_right


class Places:
    """Labels such as `p. 12`, by the character at which they begin. Those before the last one found are forgotten."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._labels: list[str] = []

    def begin(self, at: int, label: str) -> None:
        """A place begins at a character, after all others so far."""
        self._starts.append(at)
        self._labels.append(label)

    def find(self, start: int, end: int) -> str:
        """The place of the text from `start` to `end`, as `p. 3` or `p. 3 to p. 5`; empty if there is none."""
        first = max(bisect_right(self._starts, start) - 1, 0)
        del self._starts[:first], self._labels[:first]
        labels = [label for at, label in zip(self._starts, self._labels, strict=True) if at < end]
        if not labels:
            return ""
        return labels[0] if labels[0] == labels[-1] else f"{labels[0]} to {labels[-1]}"
