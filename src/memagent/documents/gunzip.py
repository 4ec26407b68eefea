"""gzip as a push filter: compressed blocks go in, bounded decompressed blocks come out."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from memagent.errors import DocumentError

MAGIC = b"\x1f\x8b"
BLOCK_BYTES = 65536
"""Most bytes handed out at once: a block that expands a thousandfold must not fill the memory."""
_GZIP_WINDOW = 16 + zlib.MAX_WBITS  # zlib's code for "expect a gzip header and check its CRC"


class Gunzip:
    """Decompresses gzip data of one or more members, as `gzip -d` would.

    Zero bytes after the last member are padding (tapes and some tools write them); anything else
    there is an error, because it means text that would silently be lost.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._member = zlib.decompressobj(_GZIP_WINDOW)
        self._fresh = False  # a member ended: the next non-zero byte has to begin another one
        self._carry = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yields what `data` decompresses to, in blocks of at most `BLOCK_BYTES`.

        Raises:
            DocumentError: the data is corrupt.
        """
        data = self._carry + data
        self._carry = b""
        while data:
            if self._fresh:
                data = data.lstrip(b"\0")
                if len(data) < len(MAGIC):
                    self._carry = data
                    return
                if not data.startswith(MAGIC):
                    raise DocumentError(
                        f"{self._name!r} has something after its gzip data that is not gzip: "
                        f"the file is damaged, or two files were joined"
                    )
                self._member = zlib.decompressobj(_GZIP_WINDOW)
                self._fresh = False
            try:
                block = self._member.decompress(data, BLOCK_BYTES)
            except zlib.error as error:
                raise DocumentError(
                    f"{self._name!r} is corrupt gzip data ({error}); fetch or compress it again"
                ) from error
            if block:
                yield block
            self._fresh = self._member.eof
            data = self._member.unused_data if self._fresh else self._member.unconsumed_tail
            if not data and not self._fresh and len(block) == BLOCK_BYTES:
                yield from self._drain()

    def close(self) -> None:
        """Checks that the last member was complete.

        Raises:
            DocumentError: the data ends too early.
        """
        if not self._fresh or self._carry:
            raise DocumentError(
                f"{self._name!r} is truncated gzip data: it ends before its last member does; "
                f"fetch or compress it again"
            )

    def _drain(self) -> Iterator[bytes]:
        """Yields output that zlib still holds although it has taken all the input."""
        while block := self._member.decompress(b"", BLOCK_BYTES):
            yield block
        self._fresh = self._member.eof
