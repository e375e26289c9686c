"""What a process tells of its compiles: events, a line of JSON each."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from .models import Graph
from .units import without_addresses


@dataclass(frozen=True)
class Process:
    """Who tells.

    Attributes:
        began: UTC, in seconds since the epoch.
        torch: its version.
        rank, local_rank, world_size: what the launcher says; None without one.
        measures: the guard's, as "on", "not needed", or why it cannot be taken.
    """

    pid: int
    host: str
    began: float
    argv: tuple[str, ...] = ()
    python: str = ""
    torch: str = ""
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    measures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Compiled:
    """What one of torch's caches said of one graph; `seconds` where torch tells."""

    at: float
    thread: str
    graph: Graph
    seconds: float | None = None


@dataclass(frozen=True)
class Frame:
    """A function was compiled, or its backward; `failed` says why torch gave it up."""

    at: float
    thread: str
    function: str
    seconds: float
    failed: str = ""
    backward: bool = False


@dataclass(frozen=True)
class Fallback:
    """Something ran uncompiled though it was to be compiled."""

    at: float
    thread: str
    function: str
    reason: str


@dataclass(frozen=True)
class Note:
    """What a person should know of a thread."""

    at: float
    thread: str
    text: str


@dataclass(frozen=True)
class End:
    """The process ended in order; `dropped` events had no room in the file, or none for their components."""

    at: float
    dropped: int = 0


Event = Process | Compiled | Frame | Fallback | Note | End


@dataclass(frozen=True)
class Log:
    """What a process told, each kind in its order.

    Attributes:
        end: None while it runs, and after a crash.
        torn: the last line is not whole: the process was killed while it wrote.
    """

    process: Process
    compiled: tuple[Compiled, ...] = ()
    frames: tuple[Frame, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    notes: tuple[Note, ...] = ()
    end: End | None = None
    torn: bool = False


_KINDS: Mapping[str, type[Event]] = {
    kind.__name__.lower(): kind for kind in (Process, Compiled, Frame, Fallback, Note, End)
}
# What no process that means well writes; a graph has about 650 components.
LOG_LIMIT = 64 << 20
_LINE_LIMIT = 16 << 20
_COMPONENTS_OF_ONE = 50_000
_COMPONENTS_OF_ALL = 5_000_000
_TABLE_LIMIT = 1_000_000
_NUMBER_LIMIT = 1 << 53
_NO = ("0", "false", "no", "off")
_LAUNCHERS = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
)


def is_wanted(environ: Mapping[str, str]) -> bool:
    """False where the variable CACHEKEEPER_TELEMETRY switches telemetry off."""
    return environ.get("CACHEKEEPER_TELEMETRY", "").strip().lower() not in _NO


def ranks(environ: Mapping[str, str]) -> tuple[int | None, int | None, int | None]:
    """Rank, rank on this host and number of processes, as the first launcher says that says a rank.

    Source: the variables of torchrun, Slurm, Open MPI, and MPICH with its kin.
    """
    for names in _LAUNCHERS:
        rank, local, size = (_digits(environ.get(name, "")) for name in names)
        if rank is not None:
            return rank, local, size
    return None, None, None


def _digits(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


# Lines out


class Encoder:
    """Events -> the lines of one file. Components of keys, which are long and much the same, are written once a file.

    All distinct components of a file are numbered in the order in which they come: a line has the new ones, the number
    of the first of them, and its graph's components as ranges of numbers.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._newest: list[str] = []

    def encode(self, event: Event) -> bytes:
        """The line of an event: JSON of ASCII characters alone, and a newline."""
        self._newest = []
        fields: dict[str, Any] = {"kind": type(event).__name__.lower(), **_shallow(event)}
        if isinstance(event, Compiled):
            del fields["graph"]
            fields.update(_shallow(event.graph))
            fields.update(self._components(event.graph.components))
        return json.dumps(fields, separators=(",", ":"), default=dict).encode("ascii") + b"\n"

    def forget(self) -> None:
        """The line that was made last will not be written: what is new in it is still to come."""
        for line in self._newest:
            del self._numbers[line]
        self._newest = []

    def _components(self, lines: Sequence[str]) -> dict[str, Any]:
        first = len(self._numbers)
        numbers = [self._numbers.setdefault(line, len(self._numbers)) for line in lines]
        self._newest = list(dict.fromkeys(line for line, number in zip(lines, numbers, strict=True) if number >= first))
        found: dict[str, Any] = {"components": _ranges(numbers)}
        return {"from": first, "new": self._newest, **found} if self._newest else found


def _shallow(value: object) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}  # type: ignore[arg-type]


def _ranges(numbers: Sequence[int]) -> list[list[int]]:
    """[4, 5, 6, 2] -> [[4, 6], [2, 2]]."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def encode(log: Log) -> bytes:
    """The lines of a whole log."""
    encoder = Encoder()
    end = (log.end,) if log.end else ()
    events: tuple[Event, ...] = (log.process, *log.compiled, *log.frames, *log.fallbacks, *log.notes, *end)
    return b"".join(map(encoder.encode, events))


# Lines in


def read(path: str | os.PathLike[str], components: bool = True) -> Log:
    """The log in a file, of which no more than 64 MiB are looked at; see `decode`.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no log.
    """
    with open(path, "rb") as file:
        return decode(io.BytesIO(file.read(LOG_LIMIT)), components)


def decode(lines: Iterable[bytes], components: bool = True) -> Log:
    """The log of lines, each with its newline. Lines that nobody of ours has written are passed over.

    Args:
        components: False: without those of the graphs, which are nearly all there is.

    Raises:
        ValueError: no line says which process it was.
    """
    decoder = _Decoder()
    line = b"\n"
    for line in lines:
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            decoder.take(line if components else _without_components(line))
    return decoder.log(torn=not line.endswith(b"\n"))


def _without_components(line: bytes) -> bytes:
    # They are the last of a line. In a string there would be a backslash before the quotation mark.
    ends = [end for mark in (b',"from":', b',"components":') if (end := line.find(mark)) >= 0]
    return line[: min(ends)] + b"}\n" if ends and line.endswith(b"\n") else line


class _Decoder:
    """Lines -> a log, whatever they are."""

    def __init__(self) -> None:
        self._table: list[str | None] = []
        self._left = _COMPONENTS_OF_ALL
        self._process: Process | None = None
        self._end: End | None = None
        self._events: dict[type[Event], list[Any]] = {kind: [] for kind in _KINDS.values()}

    def log(self, torn: bool) -> Log:
        """What was taken."""
        if self._process is None:
            raise ValueError("no process")
        compiled, frames, fallbacks, notes = (tuple(self._events[kind]) for kind in (Compiled, Frame, Fallback, Note))
        return Log(self._process, compiled, frames, fallbacks, notes, self._end, torn)

    def take(self, line: bytes) -> None:
        """Take a line.

        Raises:
            ValueError, TypeError, RecursionError: it is none of ours.
        """
        if len(line) > _LINE_LIMIT or not line.endswith(b"\n"):
            raise ValueError("no whole line")
        document = json.loads(line, parse_constant=_refuse)
        if not isinstance(document, dict):
            raise ValueError("no object")
        kind = _KINDS.get(document["kind"]) if "kind" in document else None
        if kind is Compiled:
            self._events[Compiled].append(self._compiled(document))
        elif kind is Process:
            self._process = Process(**_checked(Process, document))
        elif kind is End:
            self._end = End(**_checked(End, document))
        elif kind is not None:
            self._events[kind].append(kind(**_checked(kind, document)))

    def _compiled(self, document: Mapping[str, Any]) -> Compiled:
        # The table first: later lines count on it, whatever else is wrong with this one.
        self._learn(document.get("from", 0), document.get("new", []))
        graph = Graph(**_checked(Graph, document), components=self._find(document.get("components", [])))
        return Compiled(graph=graph, **_checked(Compiled, document))

    def _learn(self, first: object, new: object) -> None:
        if not isinstance(first, int) or not isinstance(new, list) or not 0 <= first <= _TABLE_LIMIT - len(new):
            raise ValueError(first)
        self._table += [None] * (first - len(self._table))
        self._table[first : first + len(new)] = [_text(line) for line in new]

    def _find(self, ranges: list[list[int]]) -> tuple[str, ...]:
        found: list[str | None] = []
        for first, last in ranges:
            if not 0 <= first <= last < len(self._table):
                raise ValueError(first, last)
            if len(found) + last - first >= min(_COMPONENTS_OF_ONE, self._left):
                return ()
            found += self._table[first : last + 1]
        self._left -= len(found)
        return tuple(line for line in found if line is not None)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    # Half a surrogate pair is no text for the terminal, nor for the next file.
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _reason(value: object) -> str:
    """Of a log of an older version too: what has one reason is told as one, in whatever process it was."""
    return without_addresses(_text(value))


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError(value)
    return tuple(map(_text, value))


def _mapping(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(value)
    return {_text(key): _text(item) for key, item in value.items()}


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= _NUMBER_LIMIT:
        raise ValueError(value)
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise ValueError(value)
    return int(_number(value))


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def _or_none(read: Callable[[object], Any]) -> Callable[[object], Any]:
    return lambda value: None if value is None else read(value)


_REASONS = ("reason", "failed")
_READERS: Mapping[str, Callable[[object], Any]] = {
    "str": _text,
    "int": _whole,
    "float": _number,
    "bool": _flag,
    "int | None": _or_none(_whole),
    "float | None": _or_none(_number),
    "tuple[str, ...]": _texts,
    "Mapping[str, str]": _mapping,
}


def _fields_of(kind: type[Any]) -> tuple[tuple[str, Callable[[object], Any]], ...]:
    """Names of the fields that a line has, and what reads each."""
    given = [field for field in fields(kind) if field.name not in ("graph", "components")]
    return tuple((field.name, _reason if field.name in _REASONS else _READERS[str(field.type)]) for field in given)


_FIELDS = {kind: _fields_of(kind) for kind in (*_KINDS.values(), Graph)}


def _checked(kind: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a document has, each of its type; a TypeError of the constructor tells of the others."""
    return {name: read(document[name]) for name, read in _FIELDS[kind] if name in document}
