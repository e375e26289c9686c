"""Secrets in files: tokens whose shape is known, and the values of this process's own secret variables.

A file of a cache cannot be saved without what is secret in it, since torch loads its very bytes: what is found is told
by its kind, and never shown. A snapshot that is refused for nothing costs hours, so that a shape is as narrow as its
maker says, and what looks like a placeholder is none.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from . import is_secret

_SHORTEST_VALUE = 12
_LEAST_ENTROPY = 2.8
# Of the exact value of a variable, which nothing else is taken for.
_LEAST_ENTROPY_OF_VALUES = 2.0
_BEFORE, _WINDOW = 128, 4096
# What is shorter than this, and begins in the first half of a window, is looked at in it as a whole.
LONGEST = 2048
# A name for what is shared by jobs, and paths or public keys of our own.
_NO_SECRETS = ("TORCH_COMPILE_", "CACHEKEEPER_")
_STAND_IN = r"example|xxxx|\*\*\*|your[_-]|dummy|placeholder|redacted|changeme"
_STAND_IN_VALUE = re.compile(_STAND_IN.encode(), re.IGNORECASE)
_PLACEHOLDER = re.compile(rf"{_STAND_IN}|12345678|23456789|abcdefgh|(.)\1{{5}}".encode(), re.IGNORECASE)


class _Shape(NamedTuple):
    """A kind of token.

    Attributes:
        needle: bytes that each of them has; the longer, the faster they are found.
        rare: where in them a byte is that is rare in a cache's texts, not at their beginning; or -1.
        pattern: what it looks like; `random` is the part that somebody's dice made.
    """

    kind: str
    needle: bytes
    rare: int
    pattern: re.Pattern[bytes]


def _shape(kind: str, needle: str, pattern: str, rare: str = "") -> _Shape:
    return _Shape(kind, needle.encode(), needle.index(rare) if rare else -1, re.compile(pattern.encode()))


_WORD = r"[A-Za-z0-9_-]"
_ALONE, _END = r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9])"
_SHAPES = (
    _shape("a Hugging Face token", "hf_", rf"{_ALONE}hf_(?P<random>[A-Za-z0-9]{{30,40}}){_END}"),
    _shape("a GitHub token", "ghp_", rf"{_ALONE}ghp_(?P<random>[A-Za-z0-9]{{36}}){_END}"),
    _shape(
        "a GitHub token", "github_pat_", rf"{_ALONE}github_pat_(?P<random>[A-Za-z0-9]{{22}}_[A-Za-z0-9]{{59}}){_END}"
    ),
    _shape("a GitLab token", "glpat-", rf"{_ALONE}glpat-(?P<random>{_WORD}{{20,64}})", "-"),
    _shape("an OpenAI key", "T3BlbkFJ", rf"{_ALONE}sk-(?P<random>{_WORD}{{16,128}}T3BlbkFJ{_WORD}{{16,128}})", "J"),
    _shape("an Anthropic key", "sk-ant-", rf"{_ALONE}sk-ant-[a-z]{{2,8}}\d\d-(?P<random>{_WORD}{{60,128}})", "-"),
    _shape("an AWS access key", "AKIA", rf"{_ALONE}AKIA(?P<random>[A-Z2-7]{{16}}){_END}", "I"),
    _shape("a Google API key", "AIza", rf"{_ALONE}AIza(?P<random>{_WORD}{{35}})(?!{_WORD})", "I"),
    _shape("an NVIDIA key", "nvapi-", rf"{_ALONE}nvapi-(?P<random>{_WORD}{{60,80}})", "-"),
    _shape("a Slack token", "xoxb-", rf"{_ALONE}xoxb-(?P<random>\d{{10,13}}-[A-Za-z0-9-]{{20,80}})", "-"),
    _shape("a PyPI token", "pypi-AgE", rf"{_ALONE}pypi-AgE(?P<random>{_WORD}{{60,256}})", "-"),
    _shape(
        "a JSON web token",
        "eyJ",
        rf"(?<![\w.])eyJ{_WORD}{{10,300}}\.eyJ{_WORD}{{10,1400}}\.(?P<random>{_WORD}{{20,300}})",
        "J",
    ),
    _shape(
        "a private key",
        "PRIVATE KEY-----",
        r"-----BEGIN (?:[A-Z]{2,9} )?PRIVATE KEY-----(?:\r?\n|(?:\\r)?\\n){1,2}"
        r"(?P<random>[A-Za-z0-9+/]{20})[A-Za-z0-9+/]{40}",
        "-",
    ),
)
_URL = _shape(
    "a password in a URL",
    "://",
    r"""://[^\s/"'?#@:]{0,128}:"""
    r"(?P<random>(?=[^@]{0,128}(?:\d|[a-z][A-Z]|[A-Z][a-z]))[A-Za-z0-9._~!+=-]{8,128})@[A-Za-z0-9\[]",
)
# What a URL's pattern lets be between its `://` and its `@`.
_LONGEST_LOGIN = 128 + 1 + 128
_COMMON = tuple(shape for shape in _SHAPES if shape.rare < 0)


class _Rare(NamedTuple):
    """A rare byte, and the shapes that have it, by the byte before it."""

    byte: bytes
    shapes: Mapping[int, Sequence[_Shape]]


def _rare(byte: bytes) -> _Rare:
    shapes: dict[int, list[_Shape]] = {}
    for shape in _SHAPES:
        if shape.rare >= 0 and shape.needle[shape.rare] == byte[0]:
            shapes.setdefault(shape.needle[shape.rare - 1], []).append(shape)
    return _Rare(byte, shapes)


_RARE = tuple(map(_rare, (b"-", b"I", b"J")))


class Search:
    """Looks for secrets.

    Args:
        environ: the variables of this process; the values of those that are secrets are looked for.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._values = tuple(
            (f"the value of {name}", os.fsencode(value))
            for name, value in sorted(environ.items())
            if _sought(name, value)
        )

    def kinds(self, data: bytearray, spans: Sequence[tuple[int, int]]) -> dict[int, list[str]]:
        """What kinds of secrets are in texts.

        Args:
            data: a buffer that holds the texts one after the other.
            spans: where each begins and ends.

        Returns:
            Number of the text -> kinds of secrets, for those that have any.
        """
        found: dict[int, list[str]] = {}
        if spans and data:
            for number, kind in self._found(data, spans):
                kinds = found.setdefault(number, [])
                if kind not in kinds:
                    kinds.append(kind)
        return {number: sorted(kinds) for number, kinds in found.items()}

    def _found(self, data: bytearray, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, str]]:
        starts = [start for start, _ in spans]
        for kind, value in self._values:
            for place in _places(data, spans[0][0], spans[-1][1], value):
                number = bisect_right(starts, place) - 1
                if place + len(value) <= spans[number][1]:
                    yield number, kind
        done: dict[_Shape, int] = {}
        for shape, place in _tokens(data, spans[0][0], spans[-1][1]):
            number = bisect_right(starts, place) - 1
            start, stop = spans[number]
            if not done.get(shape, 0) <= place < stop:
                continue
            end = min(stop, place + _WINDOW)
            window = bytes(memoryview(data)[max(start, place - _BEFORE) : end])
            if any(_is_random(match["random"]) for match in shape.pattern.finditer(window)):
                yield number, shape.kind
                done[shape] = stop
            else:
                done[shape] = end if end == stop else end - LONGEST


def _sought(name: str, value: str) -> bool:
    """True for a variable whose value is a secret that can be told from other text."""
    return (
        len(value) >= _SHORTEST_VALUE
        and not name.startswith(_NO_SECRETS)
        and is_secret(name, value)
        and not _STAND_IN_VALUE.search(os.fsencode(value))
        and _entropy(os.fsencode(value)) >= _LEAST_ENTROPY_OF_VALUES
        and not os.path.lexists(value)
    )


def _is_random(text: bytes) -> bool:
    """False for what somebody wrote as an example, or to be replaced."""
    return _entropy(text) >= _LEAST_ENTROPY and not _PLACEHOLDER.search(text)


def _entropy(text: bytes) -> float:
    """Of its bytes, in bits each."""
    counts = Counter(text).values()
    return -sum(number / len(text) * math.log2(number / len(text)) for number in counts)


# bytearray.find takes twice as long, and lets no other thread run meanwhile.
_memmem = ctypes.CDLL(None).memmem
_memmem.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
_memmem.restype = ctypes.c_void_p


def _places(data: bytearray, start: int, stop: int, needle: bytes) -> Iterator[int]:
    """Where a needle is."""
    held = ctypes.c_char.from_buffer(data)
    address = ctypes.addressof(held)
    while place := _memmem(address + start, stop - start, needle, len(needle)):
        start = place - address + 1
        yield start - 1


def _tokens(data: bytearray, start: int, stop: int) -> Iterator[tuple[_Shape, int]]:
    """What may be a token, and where."""
    for shape in _COMMON:
        for place in _places(data, start, stop, shape.needle):
            yield shape, place
    for rare in _RARE:
        yield from _around(data, start, stop, rare)
    yield from _logins(data, start, stop)


def _around(data: bytearray, start: int, stop: int, rare: _Rare) -> Iterator[tuple[_Shape, int]]:
    """What may be a token with a rare byte: most of what is none is told by the byte before it."""
    at = data.find(rare.byte, start + 1, stop)
    while at >= 0:
        for shape in rare.shapes.get(data[at - 1], ()):
            place = at - shape.rare
            if place >= start and data.startswith(shape.needle, place, stop):
                yield shape, place
        at = data.find(rare.byte, at + 1, stop)


def _logins(data: bytearray, start: int, stop: int) -> Iterator[tuple[_Shape, int]]:
    """What may be a URL with a password: `@` is rarer than `://`."""
    at = data.find(b"@", start, stop)
    while at >= 0:
        place = data.rfind(_URL.needle, max(start, at - _LONGEST_LOGIN - len(_URL.needle)), at)
        if place >= 0:
            yield _URL, place
        at = data.find(b"@", at + 1, stop)
