"""The context of a tool session: turns, tiers, ledger, summaries."""

from memagent.sessions.archive import READ_ARCHIVED, Archive, FileArchive
from memagent.sessions.buffer import SummaryBuffer

__all__ = ["READ_ARCHIVED", "Archive", "FileArchive", "SummaryBuffer"]
