"""The tables of a run store."""

APPLICATION_ID = 0x6D656D61
"""`mema` in ASCII: marks the SQLite file as a run store."""
VERSION = 3
"""The first version that a release wrote: only checkouts wrote 1 and 2."""
EFFECTS = """
CREATE TABLE IF NOT EXISTS effects (
  place INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, kind TEXT NOT NULL,
  number INTEGER NOT NULL, sent INTEGER NOT NULL, wasted INTEGER NOT NULL DEFAULT 0, committed REAL, usage TEXT,
  body TEXT,
  UNIQUE (run, kind, number)
) STRICT
"""
"""What runs got from outside. `place` is the order in which they were begun."""
SCHEMA = (
    """
    CREATE TABLE IF NOT EXISTS runs (
      id TEXT PRIMARY KEY, created REAL NOT NULL, updated REAL NOT NULL, status TEXT NOT NULL,
      binding TEXT NOT NULL, settings TEXT NOT NULL, source TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE IF NOT EXISTS events (
      run TEXT NOT NULL REFERENCES runs ON DELETE CASCADE, seq INTEGER NOT NULL, body TEXT NOT NULL,
      PRIMARY KEY (run, seq)
    ) STRICT, WITHOUT ROWID
    """,
    EFFECTS,
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
)
"""Statements that make a new store; another process may just have created the same tables."""
