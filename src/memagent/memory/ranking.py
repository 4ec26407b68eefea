"""Ranks texts by how well they match a question: BM25, by SQLite's FTS5."""

import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from itertools import pairwise

from memagent.errors import ConfigError

_SOLID = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff"
"""Scripts without spaces between words, and Korean: indexed by character, searched by pairs."""
_CHAR = re.compile(f"[{_SOLID}]")
_WORD = re.compile(rf"[{_SOLID}]+|[^\W_{_SOLID}]+")
_INDEX = "CREATE VIRTUAL TABLE s USING fts5(t, content='', tokenize='porter unicode61')"
_FOUND = "SELECT rowid FROM s WHERE s MATCH ? ORDER BY rank, rowid LIMIT ?"


def rank(texts: Iterable[str], question: str, most: int) -> list[int]:
    """Returns the indexes of the (at most `most`) texts that share words with a question, best first. Blocks.

    By SQLite's BM25 (k1 = 1.2, b = 0.75, Porter stems). The index is in a temporary file: memory stays flat. Raises a
    `ConfigError` if this Python's SQLite has no FTS5.
    """
    parts = (part for word in _WORD.findall(question.lower()) for part in _parts(word))
    query = " OR ".join(f'"{part}"' for part in dict.fromkeys(parts))
    with closing(sqlite3.connect("")) as db:
        try:
            db.execute(_INDEX)
        except sqlite3.OperationalError as error:
            raise ConfigError(
                f"this Python's SQLite has no FTS5 ({error}), which reread= (--reread) and bm25 need: leave them out"
            ) from error
        if not query:
            return []
        rows = ((number, _CHAR.sub(r" \g<0> ", text)) for number, text in enumerate(texts))
        db.executemany("INSERT INTO s (rowid, t) VALUES (?, ?)", rows)
        return [number for (number,) in db.execute(_FOUND, (query, most))]


def _parts(word: str) -> list[str]:
    """Returns what to search for a word: the word itself, or the pairs of its characters."""
    pairs = [" ".join(pair) for pair in pairwise(word)] if _CHAR.match(word) else []
    return pairs or [word]
