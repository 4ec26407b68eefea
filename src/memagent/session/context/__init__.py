"""The context of a tool session: turns, tiers, ledger, summaries."""

from memagent.session.context.archive import READ_ARCHIVED, Archive, FileArchive
from memagent.session.context.buffer import SummaryBuffer

__all__ = ["READ_ARCHIVED", "Archive", "FileArchive", "SummaryBuffer"]
