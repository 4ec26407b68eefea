"""Request bodies: read within limits of size and time, and unpacked to look inside."""

import asyncio
import json
import re
import zlib
from itertools import islice
from typing import Any, cast

from starlette.requests import ClientDisconnect, Request

from memagent_serve.refusals import ClientLeft, Refusal

BODY_SECONDS = 120.0
"""Seconds for a whole body: the largest allowed by default arrives at 4 Mbit/s."""
QUICK = 2**16
"""Bytes that parse in about a millisecond, and so need no thread."""
PACKED = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Encodings that can be unpacked to look inside, with the window bits of zlib."""
BYTES_PER_VALUE = 64
"""A body may have one JSON value for this many bytes of the maximum size: each value can take 200 bytes of RAM."""
_VALUES = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[,\[{]', re.DOTALL)
"""Matches texts, and the commas and brackets outside of them: at least once for each value."""


async def take_body(request: Request, most: int) -> tuple[bytes, dict[str, Any]]:
    """Reads the body of a request; returns it as received, and the JSON object in it.

    Args:
        request: a request whose body hasn't been read.
        most: maximum bytes, both packed and unpacked.

    Raises:
        Refusal: the body is too large or too slow, or not a JSON object.
        ClientLeft: the client hung up.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # This also keeps web pages out: browsers ask the endpoint before sending this type to another site.
        raise Refusal(415, f"the body's Content-Type is {kind!r:.80}: send application/json")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", *PACKED):
        raise Refusal(415, f"the Content-Encoding {encoding!r:.80} is not supported: use gzip")
    raw = await _receive(request, most)
    if len(raw) > QUICK or encoding in PACKED:
        return raw, await asyncio.to_thread(_look_inside, raw, encoding, most)
    return raw, _look_inside(raw, encoding, most)


async def _receive(request: Request, limit: int) -> bytes:
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > limit:
        raise _too_large(limit)
    pieces, size = list[bytes](), 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                size += len(piece)
                if size > limit:
                    raise _too_large(limit)
                pieces.append(piece)
    except TimeoutError:
        raise Refusal(
            408,
            f"the body did not arrive within {BODY_SECONDS:g} s",
            headers={"Connection": "close"},
        ) from None
    except ClientDisconnect:
        raise ClientLeft from None
    return b"".join(pieces)


def _look_inside(raw: bytes, encoding: str, limit: int) -> dict[str, Any]:
    if encoding in PACKED:
        raw = unpack(raw, PACKED[encoding], limit)
    fields = parse(raw, limit)
    if not isinstance(fields, dict):
        raise Refusal(400, f"the body is a JSON {type(fields).__name__}, not an object")
    return cast("dict[str, Any]", fields)


def parse(raw: bytes, limit: int) -> object:
    """Parses JSON of a body that may have `limit` bytes. Raises a `Refusal` for too many values, or invalid JSON."""
    values = limit // BYTES_PER_VALUE
    if len(raw) > values and next(islice(_VALUES.finditer(raw), values, None), None):
        raise Refusal(
            413,
            f"the body has more than {values:,} JSON values, the most that this endpoint allows",
        )
    try:
        # Not UTF-16, which RFC 8259 forbids: it could hide the marks above.
        return json.loads(raw.decode("utf-8-sig", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Refusal(400, f"the body is not JSON ({problem:.200})") from None


def unpack(raw: bytes, bits: int, limit: int) -> bytes:
    """Unpacks at most `limit` bytes; `bits` are the window bits of zlib. Raises a `Refusal` if there are more."""
    unpacker = zlib.decompressobj(bits)
    try:
        content = unpacker.decompress(raw, limit + 1)
    except zlib.error as error:
        raise Refusal(400, f"the body cannot be unpacked ({error})") from None
    if len(content) > limit:
        raise _too_large(limit)
    if not unpacker.eof or unpacker.unused_data:
        raise Refusal(400, "the packed body is incomplete, or something follows it")
    return content


def _too_large(limit: int) -> Refusal:
    return Refusal(
        413,
        f"the body has more than {limit:,} bytes (unpacked, if it is packed), which this endpoint allows",
        headers={"Connection": "close"},
    )
