"""Identifies files that aren't text by their first bytes, so that the message can name their format."""

import re

PDF = re.compile(rb"\A%PDF-|%PDF-\d\.\d\s+(?:%[^\r\n]*[\r\n]\s*)*\d+ \d+ obj")
"""A PDF's start, within 1,024 bytes. After other bytes an object must follow it: texts only quote the first line."""
# From the formats' specifications. Two-byte signatures that ordinary text may
# begin with (`MZ`, `BM`, `PK`) are left out or lengthened: those files have NUL bytes anyway.
_SIGNATURES = {
    rb"PK\x03\x04": "a zip archive (docx, xlsx, epub and jar are zip archives too)",
    rb"PK\x05\x06": "an empty zip archive",
    rb"\x89PNG\r\n\x1a\n": "a PNG image",
    rb"\xff\xd8\xff": "a JPEG image",
    rb"GIF8[79]a": "a GIF image",
    rb"II\*\0|MM\0\*": "a TIFF image",
    rb"\x7fELF": "an ELF program or library",
    rb"\xcf\xfa\xed\xfe": "a Mach-O program",
    rb"\xca\xfe\xba\xbe": "a Java class or a Mach-O program",
    rb"\0asm": "a WebAssembly module",
    rb"BZh": "bzip2 data",
    rb"\xfd7zXZ\0": "xz data",
    rb"\x28\xb5\x2f\xfd": "zstandard data",
    rb"7z\xbc\xaf\x27\x1c": "a 7-Zip archive",
    rb"Rar!\x1a\x07": "a RAR archive",
    rb"SQLite format 3\0": "an SQLite database",
    rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "an old or encrypted Microsoft Office file",
    rb"\{\\rtf": "an RTF file",
    rb"PAR1": "a Parquet file",
    rb"\x89HDF\r\n\x1a\n": "an HDF5 file",
    rb"OggS": "an Ogg file",
    rb"fLaC": "a FLAC file",
    rb"ID3": "an MP3 file",
    rb"\x1f\x8b": "gzip data inside gzip data",
    rb"RIFF(?s:.{4})(?:WAVE|AVI |WEBP)": "a RIFF file (WAV, AVI or WebP)",
    rb"(?s:.{4})ftyp": "an MP4 or QuickTime file",
}
# Text may begin with `BZh` or `ID3` too; these also need a byte that no text has near its start.
_PLAUSIBLE_AS_TEXT = (b"BZh", b"ID3", b"PAR1", b"OggS", b"fLaC")
CONTROLS = "".join(chr(i) for i in range(32) if chr(i) not in "\t\n\v\f\r\x1b")
"""C0 minus what texts use: escape occurs in terminal logs."""


def recognise(start: bytes) -> str | None:
    """Names the format of a file that is not plain text by its first bytes, worded to follow "it is"."""
    if PDF.search(start):
        return "a PDF file"
    if start.startswith(_PLAUSIBLE_AS_TEXT) and not control_share(start[:64]):
        return None
    return next((name for form, name in _SIGNATURES.items() if re.match(form, start)), None)


def control_share(sample: bytes) -> float:
    """Returns the share (0 to 1) of bytes that are control characters never used in text."""
    controls = CONTROLS.encode() + b"\x7f"
    return (len(sample) - len(sample.translate(None, controls))) / max(len(sample), 1)
