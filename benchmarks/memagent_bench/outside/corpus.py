"""Documents on disk with a BM25 index beside them, in one SQLite file that is built once."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, Field

from memagent.errors import ConfigError, StoreFull
from memagent_bench.outside.base import BadData
from memagent_bench.outside.rows import read_rows

FORMAT = 1
TOO_COMMON = 0.5
"""Share of documents above which SQLite weighs a word as 0.000001: leaving it out of a query changes no ranking
that matters, and saves reading its list."""
TABLES = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE documents (id INTEGER PRIMARY KEY, docid TEXT UNIQUE NOT NULL, text TEXT NOT NULL);
CREATE VIRTUAL TABLE found USING fts5(text, content='documents', content_rowid='id', tokenize='porter unicode61');
CREATE VIRTUAL TABLE terms USING fts5vocab('found', 'row');
CREATE TABLE common (term TEXT PRIMARY KEY) WITHOUT ROWID;
"""
WORD = re.compile(r"[^\W_]+")


class Document(BaseModel):
    """A row of the corpus."""

    docid: str = Field(coerce_numbers_to_str=True)
    text: str


class Hit(NamedTuple):
    """A document found by a search."""

    docid: str
    score: float
    """BM25 score; higher is better."""
    text: str


class Corpus:
    """The documents of some files, searched by SQLite's BM25 (k1 = 1.2, b = 0.75, Porter stems).

    Args:
        files: files with one document per row.
        folder: folder of the index. Changed files are indexed again, and their old index is removed.
    """

    def __init__(self, files: Sequence[Path], folder: Path) -> None:
        self._files = files
        stats = [
            (str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in files
        ]
        digest = hashlib.sha256(repr((FORMAT, stats)).encode()).hexdigest()[:16]
        self.path = folder.resolve() / f"bm25-{digest}.sqlite"  # SQLite opens it by an absolute URI
        self._mutex = threading.Lock()

    def search(self, query: str, most: int) -> list[Hit]:
        """Returns the best documents, best first. Blocks; the first call builds the index.

        Raises:
            BadData: a row isn't a document.
            ConfigError: this Python's SQLite has no FTS5.
        """
        with self._open() as db:
            words = _telling(db, query)
            if not words:
                return []
            match = " OR ".join(f'"{word}"' for word in words)
            rows = db.execute(
                "SELECT docid, -rank, documents.text FROM found JOIN documents ON id = found.rowid "
                "WHERE found MATCH ? ORDER BY rank, id LIMIT ?",
                (match, most),
            )
            return [Hit(*row) for row in rows]

    def document(self, docid: str) -> str | None:
        """Returns a document's text; None if there is none. Blocks.

        Raises:
            BadData, ConfigError: as `search`.
        """
        with self._open() as db:
            row = db.execute("SELECT text FROM documents WHERE docid = ?", (docid,)).fetchone()
        return None if row is None else row[0]

    @contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        with self._mutex:
            if not self.path.exists():
                self._build()
        with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True)) as db:
            yield db

    def _build(self) -> None:
        part = self.path.with_suffix(".part")
        part.unlink(missing_ok=True)
        try:
            with closing(sqlite3.connect(part)) as db:
                db.executescript(TABLES)
                db.executemany("INSERT INTO documents (docid, text) VALUES (?, ?)", self._rows())
                db.execute("INSERT INTO found (found) VALUES ('rebuild')")
                db.execute(
                    "INSERT INTO common SELECT term FROM terms "
                    "WHERE doc > ? * (SELECT count(*) FROM documents)",
                    (TOO_COMMON,),
                )
                db.commit()
            for old in self.path.parent.glob("bm25-*.sqlite"):
                old.unlink()
            part.rename(self.path)
        except sqlite3.IntegrityError as error:
            raise BadData(
                f"two documents have the same docid ({error}); remove one of them"
            ) from error
        except (OSError, sqlite3.OperationalError) as error:
            if "full" in str(error):
                raise StoreFull(f"no space left for the index {str(part)!r}") from error
            raise ConfigError(
                f"the index {str(part)!r} cannot be built ({error}); it needs a folder that may be written to, and a "
                f"Python whose SQLite has FTS5"
            ) from error
        finally:
            part.unlink(missing_ok=True)

    def _rows(self) -> Iterator[tuple[str, str]]:
        for path in self._files:
            for row in read_rows(path):
                document = row.read(Document)
                yield document.docid, document.text


def _telling(db: sqlite3.Connection, query: str) -> list[str]:
    """Returns the words of a query that distinguish documents: those in the index that aren't too common.

    The index has stems, so a query's words are stemmed the same way, each in a row of its own.
    """
    words = list(dict.fromkeys(WORD.findall(query.casefold())))
    with closing(sqlite3.connect(":memory:")) as stemmer:
        stemmer.execute("CREATE VIRTUAL TABLE asked USING fts5(word, tokenize='porter unicode61')")
        stemmer.execute("CREATE VIRTUAL TABLE stems USING fts5vocab('asked', 'instance')")
        stemmer.executemany("INSERT INTO asked (rowid, word) VALUES (?, ?)", enumerate(words, 1))
        stems = stemmer.execute("SELECT term, doc FROM stems").fetchall()
    held = json.dumps([stem for stem, _ in stems])
    rows = db.execute(
        "SELECT term FROM common WHERE term IN (SELECT value FROM json_each(?))", (held,)
    )
    common = {term for (term,) in rows}
    places = sorted({place for stem, place in stems if stem not in common})
    return [words[place - 1] for place in places]
