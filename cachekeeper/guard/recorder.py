"""Writes what a process tells, a line an event, so that neither a crash nor a fork nor a full disk does harm."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sys
import threading
import time
import weakref
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ..masking import without_secrets
from ..runs import size_of
from ..telemetry import Compiled, Encoder, End, Event, Note, Process, ranks

LIMIT = 8 << 20
RUN_LIMIT = 256 << 20
# Where the room becomes scarce, hits give way first: shares of the limit up to which a line is written.
_HIT_WITH_COMPONENTS = 0.5
_HIT = 0.75
_WITH_COMPONENTS = 0.875
_ROOM_FOR_THE_END = 1024
_TEXT_LIMIT = 2000
_ARGUMENTS_LIMIT = 100


class Recorder:
    """The events of this process, in a file of its own. Nothing of this ever raises into the job.

    The file appears with the first event that tells something, and begins with the Process. A child that was forked
    has a file of its own. What is written is whole lines: after a kill, all but the last can be read.

    Args:
        directory: of the run, which is there.
        limit_bytes: of the file. Near it the components of hits are left out first, then hits, then the components of
            all; what had no room is counted in the End.
        run_limit: of all files of the run together; a process that comes later writes nothing.
    """

    def __init__(self, directory: Path, limit_bytes: int = LIMIT, run_limit: int = RUN_LIMIT) -> None:
        self._directory = directory
        self._given_limit = limit_bytes
        self._run_limit = run_limit
        self._process = this_process()
        self._begin()
        _RECORDERS.add(self)

    def _begin(self) -> None:
        # A fork may have copied a lock that another thread holds. It may come twice: from a signal handler.
        self._one_at_a_time = threading.RLock()
        self._encoder = Encoder()
        self._file = -1
        self._size = 0
        self._limit = self._given_limit
        self._dropped = 0
        self._stopped = False
        self.path: Path | None = None

    def _forked(self) -> None:
        """In a child: the file stays the parent's."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.close(self._file)
        stopped = self._stopped
        self._process = replace(self._process, pid=os.getpid(), began=time.time())
        self._begin()
        self._stopped = stopped

    @property
    def dropped(self) -> int:
        """Number of events that had no room, or none for their components."""
        return self._dropped

    def record(self, event: Event) -> None:
        """Write an event; a Process is kept until something else is told, and written again if it changed since."""
        try:
            with self._one_at_a_time:
                if not self._stopped:
                    self._record(event)
        except OSError as error:
            self._stop(error)
        except Exception:  # no event of ours; the job goes on
            self._encoder.forget()
            self._dropped += 1

    def close(self) -> None:
        """Say that the process ends in order; nothing is written any more."""
        try:
            with self._one_at_a_time:
                if self._file >= 0 and not self._stopped:
                    self._write(self._encoder.encode(End(time.time(), self._dropped)))
                self._stopped = True
                self._close_file()
        except Exception as error:
            self._stop(error)

    def _record(self, event: Event) -> None:
        if isinstance(event, Process):
            changed, self._process = event != self._process, event
            if self._file >= 0 and changed:
                self._fits(_of_now(event), 1.0)
            return
        if self._file < 0:
            self._open()
        if not self._try(_short(event)):
            if not self._dropped:
                self._write(self._encoder.encode(Note(time.time(), "", "no room: from here on, something is missing")))
            self._dropped += 1

    def _open(self) -> None:
        used = size_of(self._directory)
        self._limit = min(self._given_limit, self._run_limit - used)
        if self._limit < 2 * _ROOM_FOR_THE_END:
            raise OSError(f"{self._directory} holds {used:,} bytes, which is enough for one run")
        host = re.sub(r"[^A-Za-z0-9-]", "_", os.uname().nodename)[:64]
        self.path = self._directory / f"{host}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self.path, flags, 0o600)
        self._write(self._encoder.encode(_of_now(self._process)))
        _close_with_a_worker(self)

    def _try(self, event: Event) -> bool:
        """Write what there is room for; False where that is not all."""
        if not isinstance(event, Compiled):
            return self._fits(event, 1.0)
        hit = event.graph.state == "hit"
        if self._fits(event, _HIT_WITH_COMPONENTS if hit else _WITH_COMPONENTS):
            return True
        bare = replace(event, graph=replace(event.graph, components=()))
        self._fits(bare, _HIT if hit else 1.0)
        return False

    def _fits(self, event: Event, share: float) -> bool:
        line = self._encoder.encode(event)
        if self._size + len(line) > share * (self._limit - _ROOM_FOR_THE_END):
            self._encoder.forget()
            return False
        self._write(line)
        return True

    def _write(self, line: bytes) -> None:
        # One write a line, so that a kill tears the last at the most. Where the disk is full it takes a part.
        written = os.write(self._file, line)
        self._size += written
        if written < len(line):
            os.write(self._file, line[written:])
            raise OSError("the disk took only a part of a line")

    def _stop(self, error: Exception) -> None:
        with contextlib.suppress(Exception):
            first, self._stopped = not self._stopped, True
            self._close_file()
            if first:
                sys.stderr.write(f"cachekeeper: telemetry of process {os.getpid()} ends here: {error}\n")

    def _close_file(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def this_process(**known: Any) -> Process:
    """What can be said of this process without torch; `known` are fields of Process that the caller knows better."""
    rank, local_rank, world_size = ranks(os.environ)
    process = Process(
        pid=os.getpid(),
        host=os.uname().nodename,
        began=time.time(),
        argv=tuple(
            text[:_TEXT_LIMIT] for text in without_secrets(map(str, getattr(sys, "argv", [])[:_ARGUMENTS_LIMIT]))
        ),
        python=sys.version.partition(" ")[0],
        torch=_torch_version(),
        rank=rank,
        local_rank=local_rank,
        world_size=world_size,
    )
    return replace(process, **known)


def _of_now(process: Process) -> Process:
    """A process with what was not known yet when it was made: torch was not imported, the launcher had not begun."""
    now = this_process()
    late = {name: getattr(now, name) for name in ("argv", "torch", "rank", "local_rank", "world_size")}
    return replace(process, **{name: value for name, value in late.items() if getattr(process, name) in (None, "", ())})


def _torch_version() -> str:
    version = getattr(sys.modules.get("torch"), "__version__", "")
    return str(version)


def _short(event: Event) -> Event:
    """An event whose texts are not too long; components have a limit where they are taken."""
    if isinstance(event, Compiled):
        return replace(event, graph=_shortened(event.graph))
    return _shortened(event)  # type: ignore[no-any-return]


def _shortened(value: Any) -> Any:
    texts = {field.name: getattr(value, field.name) for field in fields(value)}
    long = {name: text for name, text in texts.items() if isinstance(text, str) and len(text) > _TEXT_LIMIT}
    return replace(value, **{name: text[: _TEXT_LIMIT - 3] + "..." for name, text in long.items()})


def _close_with_a_worker(recorder: Recorder) -> None:
    """A process of `multiprocessing` that was forked ends without `atexit`, but not without this."""
    process, util = (sys.modules.get(f"multiprocessing.{name}") for name in ("process", "util"))
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, recorder.close, exitpriority=0)


_RECORDERS: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _after_fork() -> None:
    for recorder in list(_RECORDERS):
        recorder._forked()


os.register_at_fork(after_in_child=_after_fork)
