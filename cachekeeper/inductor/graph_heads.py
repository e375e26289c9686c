"""What an entry of Inductor's cache says at its beginning, found without walking the pickle.

Walking takes 20 ms an entry, most of it for kernels that are in Triton's cache as well. Here a field is found by its
name, and a string by the length that pickle writes before it. What is neither is not found; nothing is executed.
"""

from __future__ import annotations

import re

from .graphs import AutogradEntry, GraphEntry
from .keys.components import is_of_graph

_CODE_LIMIT = 16 << 20
_NEAR = 4096
_MOST_SETTINGS = 8
_AFTER = 16
_BUNDLE = b"\x8c\x0e_triton_bundle"
_LINES = b"_fx_graph_cache_debug_lines\x94"
_COMPONENT = re.compile(rb"\[[a-z2-7]{51}\] [^:\n]{1,200}: ")
_MODULE = re.compile(rb"\x8c\x09cache_key\x94\x8c\x34(c[a-z2-7]{51})")
_NANOSECONDS = re.compile(rb"\x8c\x0e_time_taken_ns\x94\x8a([\x01-\x08])")
_KEY = re.compile(rb"\x8c\x34(f[a-z2-7]{51})")
_SOURCE, _CODE = b"source_code\x94", b"inductor_post_grad_graph_str\x94"


class Settings:
    """Lines of keys that are settings, 600 a graph and mostly those of the graph before: kept with their bytes."""

    def __init__(self) -> None:
        self._known: list[tuple[bytes, tuple[str, ...]]] = []

    def lines(self, data: bytes, start: int) -> tuple[str, ...]:
        """The components whose first one is found from `start` on, and is the first of the settings."""
        for known, lines in self._known:
            if data.startswith(known, start):
                return lines
        places = [match.start() for match in _COMPONENT.finditer(data, start)]
        lines = tuple(filter(None, (_string(data, place) for place in places)))
        if places and len(self._known) < _MOST_SETTINGS:
            # As far as the beginning of what follows, so that no longer list begins with the same bytes.
            end = places[-1] + len(lines[-1].encode()) if lines else start
            self._known.append((data[start : end + _AFTER], lines))
        return lines


def wrapper_named(data: bytes) -> str:
    """The module that launches a graph's kernels; "" where it is not found."""
    match = _MODULE.search(data, 0, _NEAR)
    return match[1].decode() if match else ""


def graph_head(data: bytes, with_source: bool = False, settings: Settings | None = None) -> GraphEntry | None:
    """A graph's entry without its kernels; None where it is not as torch 2.11 writes it, and is to be walked.

    Args:
        with_source: take the wrapper's source too, for which its module need not be read.
        settings: what is known of those of other graphs of the cache.
    """
    end = data.find(_BUNDLE)
    head = data[:end] if end >= 0 else data
    module = _MODULE.search(head)
    components = _components(head, settings or Settings())
    if module is None or not components or data[-1:] != b".":
        return None
    source = _after(head, _SOURCE) if with_source else ""
    code = _after(head, _CODE)
    if (with_source and not source) or "def forward" not in code:
        return None
    return GraphEntry(module[1].decode(), source, components, code, {}, "", seconds=_seconds(head))


def _components(head: bytes, settings: Settings) -> tuple[str, ...]:
    own: list[str] = []
    for match in _COMPONENT.finditer(head, max(head.find(_LINES), 0)):
        line = _string(head, match.start())
        if line and not is_of_graph(line):
            return (*own, *settings.lines(head, match.start()))
        own.append(line)
    return tuple(filter(None, own))


def _after(head: bytes, name: bytes) -> str:
    """The string that follows a field's name."""
    at = head.find(name)
    start = at + len(name)
    return _string(head, start + (2 if head[start : start + 1] == b"\x8c" else 5)) if at >= 0 else ""


def _string(data: bytes, start: int) -> str:
    """The string whose characters begin here; "" where the bytes before do not say its length."""
    if data[start - 5 : start - 4] == b"X":
        length = int.from_bytes(data[start - 4 : start], "little")
    elif data[start - 2 : start - 1] == b"\x8c":
        length = data[start - 1]
    else:
        return ""
    whole = length <= _CODE_LIMIT and start + length <= len(data)
    return data[start : start + length].decode("utf-8", "replace") if whole else ""


def _seconds(head: bytes) -> float | None:
    match = _NANOSECONDS.search(head)
    if match is None:
        return None
    return int.from_bytes(head[match.end() : match.end() + match[1][0]], "little", signed=True) / 1e9


def autograd_head(data: bytes) -> AutogradEntry | None:
    """The graphs that an entry of AOTAutograd's cache names: the first as its forward, the second as its backward."""
    keys = list(dict.fromkeys(match[1].decode() for match in _KEY.finditer(data)))
    return AutogradEntry(keys[0], keys[1] if len(keys) > 1 else "", "") if keys else None
