"""A small object of a store: a line of JSON with its own checksum, as nothing else says what its bytes must be."""

from __future__ import annotations

import getpass
import hashlib
import json
import socket
from collections.abc import Mapping
from typing import Any


def with_checksum(document: Mapping[str, Any]) -> bytes:
    """A line of JSON with sorted keys, and the SHA-256 of the same JSON without that."""
    check = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    return json.dumps({**document, "sha256": check}, sort_keys=True).encode() + b"\n"


def checked(data: bytes) -> dict[str, Any]:
    """The document of such a line, without its checksum.

    Raises:
        ValueError: the bytes are not those that were written.
    """
    try:
        document = json.loads(data)
        del document["sha256"]
        right = data == with_checksum(document)
    except (ValueError, KeyError, TypeError, RecursionError):
        right = False
    if not right:
        raise ValueError("the bytes do not match their checksum")
    assert isinstance(document, dict)
    return document


def writer() -> str:
    """Who writes: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
