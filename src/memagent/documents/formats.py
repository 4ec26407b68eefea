"""Identifies files that aren't text by their first bytes, so that the message can name their format."""

import re

PDF = re.compile(rb"\A%PDF-|%PDF-\d\.\d\s+(?:%[^\r\n]*[\r\n]\s*)*\d+ \d+ obj")
"""Readers allow other bytes before it, within the first 1,024. An object follows; texts only quote the first line."""
# Signatures from the formats' specifications. Two-byte ones that ordinary text may
# begin with (`MZ`, `BM`, `PK`) are left out or lengthened: those files have NUL bytes anyway.
_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a zip archive (docx, xlsx, epub and jar are zip archives too)"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF87a", "a GIF image"),
    (b"GIF89a", "a GIF image"),
    (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"),
    (b"\x7fELF", "an ELF program or library"),
    (b"\xcf\xfa\xed\xfe", "a Mach-O program"),
    (b"\xca\xfe\xba\xbe", "a Java class or a Mach-O program"),
    (b"\x00asm", "a WebAssembly module"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\x00", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstandard data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old or encrypted Microsoft Office file"),
    (b"{\\rtf", "an RTF file"),
    (b"PAR1", "a Parquet file"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"OggS", "an Ogg file"),
    (b"fLaC", "a FLAC file"),
    (b"ID3", "an MP3 file"),
    (b"\x1f\x8b", "gzip data inside gzip data"),
)
# Text may begin with `BZh` or `ID3` too; these also need a byte that no text has near its start.
_PLAUSIBLE_AS_TEXT = (b"BZh", b"ID3", b"PAR1", b"OggS", b"fLaC")
CONTROLS = "".join(chr(i) for i in range(32) if chr(i) not in "\t\n\v\f\r\x1b")
"""C0 minus what texts use: escape occurs in terminal logs."""


def recognise(start: bytes) -> str | None:
    """Names the format of a file that is not plain text by its first bytes, worded to follow "it is"."""
    if PDF.search(start):
        return "a PDF file"
    for signature, name in _SIGNATURES:
        if start.startswith(signature):
            if signature in _PLAUSIBLE_AS_TEXT and not control_share(start[:64]):
                return None
            return name
    if start[:4] == b"RIFF" and start[8:12] in (b"WAVE", b"AVI ", b"WEBP"):
        return "a RIFF file (WAV, AVI or WebP)"
    if start[4:8] == b"ftyp":
        return "an MP4 or QuickTime file"
    return None


def control_share(sample: bytes) -> float:
    """Share (0 to 1) of bytes that are control characters never used in text."""
    controls = CONTROLS.encode() + b"\x7f"
    return (len(sample) - len(sample.translate(None, controls))) / max(len(sample), 1)
