"""The bytes that an encoding is written down as: a header, a JSON text that says what it is, and the payload."""

import json
import struct
from typing import Any

from xxhash import xxh3_128_digest

from forebay.errors import EncodingError

MAGIC = b"FBAY"
HEADER = struct.Struct("<4sHHQ16s")
"""Magic, version, bytes of the JSON text and of the payload that follow, and XXH3-128 over both."""
VERSION = 2
"""2: the checksum is XXH3; of version 1 it was another."""


def pack(about: dict[str, Any], payload: bytes) -> bytes:
    """Put a payload into a container, with what is to be known about it."""
    text = json.dumps(about).encode()
    body = text + payload
    return HEADER.pack(MAGIC, VERSION, len(text), len(payload), xxh3_128_digest(body)) + body


def unpack(data: bytes) -> tuple[dict[str, Any], memoryview]:
    """Return what a container says about its payload, and the payload, refusing damaged bytes."""
    if len(data) < HEADER.size or bytes(data[:4]) != MAGIC:
        raise EncodingError("these bytes are not an encoding of Forebay")
    _, version, text_bytes, payload_bytes, checksum = HEADER.unpack_from(data)
    if version != VERSION:
        raise EncodingError(
            f"an encoding of format {version}, written by another version of Forebay: this one reads format {VERSION}"
        )
    body = memoryview(data)[HEADER.size :]
    if len(body) != text_bytes + payload_bytes or xxh3_128_digest(body) != checksum:
        raise EncodingError("the encoding is damaged or cut short: its checksum does not match")
    try:
        about = json.loads(bytes(body[:text_bytes]))
    except (ValueError, RecursionError) as error:
        raise EncodingError(f"the encoding is damaged: what it says about itself cannot be read ({error})") from error
    if not isinstance(about, dict):
        raise EncodingError("the encoding is damaged: it says nothing about itself")
    return about, body[text_bytes:]
