"""Text stream -> chunks: a `Chunker`, which does no I/O, and `chunks`, which drives it."""

from memagent.chunking.chunker import Chunk, Chunker, ResumePoint
from memagent.chunking.cuts import Cuts
from memagent.chunking.stream import chunk_text, chunks

__all__ = ["Chunk", "Chunker", "Cuts", "ResumePoint", "chunk_text", "chunks"]
