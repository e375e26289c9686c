"""What a watch tells: one event a line; and systemd, that it is ready."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ..errors import CachekeeperError
from ..units import now_utc

_MOST_NAMES = 3
_WIDTH = 24


@dataclass(frozen=True)
class Event:
    """Something that a watch noticed or did.

    Attributes:
        event: "watching", "gone", "damaged", "left-alone", "put-back", "restless", "trouble", "note", "right" or
            "ended".
        text: the same in words.
        entries: what it is about.
        files, bytes, seconds: of what was put back.
        code: of the error behind "trouble", as "unreachable".
        when: UTC, to the second.
    """

    event: str
    text: str
    entries: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    code: str = ""
    when: str = field(default_factory=now_utc)

    def __str__(self) -> str:
        return f"{self.when} {self.text}"


Tell = Callable[[Event], None]


def about(event: str, text: str, entries: Iterable[str], **figures: Any) -> Event:
    """The event with the first of its entries in its text, as "gone 2 entries (triton/0/2QJOL6YPFKFN..., ab/cx)"."""
    listed = tuple(sorted(entries))
    shown = [name if len(name) <= _WIDTH else f"{name[:_WIDTH]}..." for name in listed[:_MOST_NAMES]]
    shown += ["..."] * (len(listed) > _MOST_NAMES)
    return Event(event, f"{text} ({', '.join(shown)})" if listed else text, listed, **figures)


def of_error(error: Exception) -> tuple[str, str]:
    """The code of an error, and the error in a sentence."""
    if isinstance(error, CachekeeperError):
        return error.code, "; ".join((error.message, *error.facts[:2]))
    return "unexpected", repr(error)


def ready(status: str) -> None:
    """Tell systemd that a service of Type=notify has started; where nobody wants to know, nothing happens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    if address[0] == "@":
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.sendto(f"READY=1\nSTATUS={status}".encode(), address)
