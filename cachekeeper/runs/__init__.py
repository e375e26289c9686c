"""The directory of runs: what jobs of this user told, the newest of them. Standard library only: jobs import this.

totals    what a run, a process, a thread or a function comes to
merging   the processes of a run as one log, which a snapshot keeps
stopping  what a process said that `--assert-warm` ended
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from .. import telemetry
from ..errors import LocalDiskError, NotFound, UsageError
from ..masking import without_secrets
from ..telemetry import Log
from ..units import few
from ..variables import RUN

KEEP = 50
KEEP_BYTES = 512 << 20
VARIABLE = RUN
LAST = "last"
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")
_INFO = "run.json"
_KNOWN = "known.jsonl"
_YEAR_10000 = 253_402_300_800
_INFO_LIMIT = 1 << 20
_MOST_NAMED = 10
# A run of another host that says nothing for so long is over.
_SILENT = 7 * 86400.0
# A process that began so much later than the run is another one with its number.
_LATER = 60.0


@dataclass(frozen=True)
class RunInfo:
    """A run of a command, as the process knows it that began the run.

    Attributes:
        id: "20260131-081500-7c1e04", in UTC.
        directory: where it is, with what its processes told.
        command: without its secrets.
        began, ended: UTC, in seconds since the epoch; `ended` is None while it runs, and where nobody saw its end.
        exit_code: 128 + the number of the signal for a process that a signal ended.
        name: of the snapshot that it works with, or "".
        restored, saved: ids of the snapshot that it began with and of the one that it led to, or "".
        new_entries: number of cache entries that appeared; None where nobody looked.
        notes: what a person should know, a sentence each.
        guarded: the guard was asked for.
        telemetry: its processes were to tell of their compiles: nobody had switched that off.
        pid, host: the process that began it.
    """

    id: str
    directory: Path
    command: tuple[str, ...]
    began: float
    ended: float | None = None
    exit_code: int | None = None
    name: str = ""
    restored: str = ""
    saved: str = ""
    cache_dir: str = ""
    new_entries: int | None = None
    notes: tuple[str, ...] = ()
    guarded: bool = True
    telemetry: bool = True
    pid: int = 0
    host: str = ""


def home() -> Path:
    """Where runs are kept: CACHEKEEPER_RUNS, or a directory of this user's state."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(os.environ.get("CACHEKEEPER_RUNS") or os.path.join(state, "cachekeeper", "runs")).absolute()


def begin(command: Sequence[str], **facts: Any) -> RunInfo:
    """Make the directory of a new run, and remove those of old ones.

    Args:
        facts: other fields of RunInfo.

    Raises:
        LocalDiskError: there can be none.
    """
    now = time.time()
    identifier = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{secrets.token_hex(3)}"
    own: dict[str, Any] = {"pid": os.getpid(), "host": os.uname().nodename, "began": now, **facts}
    run = RunInfo(identifier, home() / identifier, without_secrets(command), **own)
    try:
        run.directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        prune()
        run.directory.mkdir(mode=0o700)
        _write(run)
    except OSError as error:
        raise _no_room(run.directory, error) from None
    return run


def update(run: RunInfo, **facts: Any) -> RunInfo:
    """The run with what became known since, written down as one piece.

    Raises:
        LocalDiskError: it cannot be written.
    """
    run = replace(run, **facts)
    try:
        _write(run)
    except OSError as error:
        raise _no_room(run.directory, error) from None
    return run


def _no_room(directory: Path, error: OSError) -> LocalDiskError:
    return LocalDiskError(
        f"cannot write {directory}: {error.strerror or error}",
        hint="name another directory with CACHEKEEPER_RUNS, or do without with CACHEKEEPER_TELEMETRY=0",
    )


def _write(run: RunInfo) -> None:
    document = asdict(run)
    del document["id"], document["directory"]
    write_whole(run.directory / _INFO, json.dumps(document).encode() + b"\n")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there as a whole or not at all, for its owner alone.

    Raises:
        OSError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def runs() -> list[RunInfo]:
    """Every run that is kept, newest first.

    Raises:
        LocalDiskError: where they are kept cannot be looked at.
    """
    found = [run for identifier in _ids() if (run := _read(home() / identifier))]
    return sorted(found, key=lambda run: (run.began, run.id), reverse=True)


def _ids() -> list[str]:
    try:
        return sorted(filter(_ID.fullmatch, os.listdir(home())), reverse=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise LocalDiskError(
            f"cannot look at {home()}: {error.strerror or error}",
            hint="runs are kept in a directory: name one with CACHEKEEPER_RUNS",
        ) from None


def _read(directory: Path) -> RunInfo | None:
    """The run in a directory; None where it is none (any more)."""
    try:
        with open(directory / _INFO, "rb") as file:
            document = json.loads(file.read(_INFO_LIMIT))
        known = {field.name for field in fields(RunInfo)} - {"id", "directory"}
        facts = {name: value for name, value in document.items() if name in known}
        for name in ("command", "notes"):
            facts[name] = tuple(map(str, facts.get(name, ())))
        facts["command"] = without_secrets(facts["command"])  # an earlier version kept more
        run = RunInfo(directory.name, directory, **facts)
        return run if _is_sane(run) else None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return None


def _is_sane(run: RunInfo) -> bool:
    numbers = (run.began, run.ended, run.exit_code, run.new_entries, run.pid)
    texts = (run.name, run.restored, run.saved, run.cache_dir, run.host)
    switches = (run.guarded, run.telemetry)
    sane = all(number is None or (isinstance(number, (int, float)) and 0 <= number < _YEAR_10000) for number in numbers)
    sane = sane and all(isinstance(text, str) for text in texts) and all(isinstance(on, bool) for on in switches)
    return sane and run.began is not None


def find(text: str | None = None) -> RunInfo:
    """A run by its id, its last six digits, or the beginning of either; "last" or None: the last one.

    Raises:
        NotFound: there is none.
        UsageError: several begin so; there is no text.
        LocalDiskError: where they are kept cannot be looked at.
    """
    if text is not None and not text.strip():
        raise UsageError("no run is named", hint=f"give an id, or `{LAST}`; see what there is with `cachekeeper stats`")
    known = runs()
    if not known:
        raise NotFound(
            f"no run in {home()}",
            hint="run the job with `cachekeeper run -- COMMAND`, or call `cachekeeper.guard.install()` in it",
        )
    if text is None or text == LAST:
        return known[0]
    found = [run for run in known if text in (run.id, short(run.id))]
    found = found or [run for run in known if run.id.startswith(text) or short(run.id).startswith(text)]
    if len(found) == 1:
        return found[0]
    if found:
        raise _ambiguous(text, found)
    raise NotFound(f"no run {text!r} in {home()}", hint="see what there is with `cachekeeper stats`")


def _ambiguous(text: str, found: Sequence[RunInfo]) -> UsageError:
    facts = few([run.id for run in found], _MOST_NAMED)
    return UsageError(f"{len(found):,} runs begin with {text!r}", facts=facts, hint="give more of the id")


def short(identifier: str) -> str:
    """The last digits of a run's id, enough for a person."""
    return identifier.rpartition("-")[2]


def logs(run: RunInfo, components: bool = True) -> list[Log]:
    """What the processes of a run told, in the order in which they began; what is no log is passed over.

    Args:
        components: False: without those of the graphs, which is ten times as fast.
    """
    paths = [path for path in _files(run.directory) if path.suffix == ".jsonl" and path.name != _KNOWN]
    found = (_log(path, components) for path in sorted(paths))
    return sorted(filter(None, found), key=lambda log: (log.process.began, log.process.pid))


def known(run: RunInfo) -> Log | None:
    """What the snapshot that the run began with tells of its graphs; None where it tells nothing."""
    return known_in(run.directory)


def known_in(directory: Path) -> Log | None:
    """The same, by the directory of the run."""
    return _log(directory / _KNOWN)


def keep_known(run: RunInfo, log: Log) -> None:
    """Keep that with the run.

    Raises:
        LocalDiskError: it cannot be written.
    """
    try:
        write_whole(run.directory / _KNOWN, telemetry.encode(log))
    except OSError as error:
        raise _no_room(run.directory, error) from None


def _log(path: Path, components: bool = True) -> Log | None:
    try:
        return telemetry.read(path, components)
    except (OSError, ValueError):
        return None


def _files(directory: Path) -> list[Path]:
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        return [Path(entry.path) for entry in entries if entry.is_file(follow_symlinks=False)]
    return []


def is_going(run: RunInfo) -> bool:
    """True while the process that began it is there; for one of another host, while something is written."""
    if run.ended is not None:
        return False
    if run.host == os.uname().nodename:
        return is_alive(run.pid, run.began)
    return time.time() - _last_written(run) < _SILENT


def is_alive(pid: int, began: float) -> bool:
    """True where this host has a process of that number that began no later than then, in seconds since the epoch."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        pass
    except (OSError, OverflowError):
        return False
    started = _start_of(pid)
    return started is None or started < began + _LATER


def _start_of(pid: int) -> float | None:
    """When a process began; None where the kernel does not say. Source: proc(5), field 22 of stat, btime."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        [boot] = re.findall(r"^btime (\d+)$", Path("/proc/stat").read_text(), re.MULTILINE)
        return int(boot) + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def _last_written(run: RunInfo) -> float:
    times = [run.began]
    for path in _files(run.directory):
        with contextlib.suppress(OSError):
            times.append(path.stat().st_mtime)
    return max(times)


def prune(keep: int = KEEP, keep_bytes: int = KEEP_BYTES) -> None:
    """Remove all but the newest runs; those that are going stay. What cannot be removed stays, too."""
    import shutil

    identifiers: list[str] = []
    with contextlib.suppress(LocalDiskError):
        identifiers = _ids()
    number, total = 0, 0
    for identifier in identifiers:
        directory = home() / identifier
        if directory.is_symlink():
            continue
        number, total = number + 1, total + size_of(directory)
        if number < keep and total <= keep_bytes:
            continue
        if not _is_needed(directory):
            shutil.rmtree(directory, ignore_errors=True)


def _is_needed(directory: Path) -> bool:
    """True for a run that is going, and for one that is about to say so."""
    run = _read(directory)
    if run is not None:
        return is_going(run)
    try:
        return time.time() - directory.stat().st_mtime < _LATER
    except OSError:
        return False


def size_of(directory: Path) -> int:
    total = 0
    for path in _files(directory):
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total


def current(environ: Mapping[str, str] | None = None) -> Path | None:
    """The directory of the run that this process belongs to, as CACHEKEEPER_RUN says; None without one."""
    text = (os.environ if environ is None else environ).get(VARIABLE, "")
    return Path(text) if text and os.path.isdir(text) else None
