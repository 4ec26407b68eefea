"""Sources of text, read as streams: `open_document` turns any supported source into a `Document`."""

from memagent.documents.base import PIECE_CHARS, Document
from memagent.documents.sources import Source, open_document

__all__ = ["PIECE_CHARS", "Document", "Source", "open_document"]
