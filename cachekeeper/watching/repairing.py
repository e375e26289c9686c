"""Puts back what is gone or damaged: at a bounded rate, and with patience where it is of no use."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path

from .. import preflight, restored
from ..disk import locked
from ..errors import Busy, CachekeeperError
from ..evidence import evidence, in_the_way, moving
from ..inductor import Place
from ..livecache import LiveCache, command_of, users_of
from ..manifest import FileRow, Manifest
from ..mending import Mending, put_back, torn_kernels, unit_of_row
from ..repository import Repository
from ..restored import Restored
from ..staging import ASIDE, QUARANTINE, rank
from ..stores import KeyMissing
from ..units import count, format_bytes, format_duration, short_id
from .looking import Look, Looker
from .rate import Bucket, Patience, Pause
from .telling import Event, Tell, about, of_error

SETTLE = 0.5
_BUSY_SECONDS = 1.0
_SUPERSEDED_SECONDS = 5.0
_PORTION_BYTES = 16 << 20
_MOST_USERS = 5
_TEMPORARY = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))


@dataclass(frozen=True)
class Totals:
    """What a watch has done so far.

    Attributes:
        entries, files, bytes: what was put back, each time anew.
        lost: entries that are wrong and could not be put back.
    """

    entries: int = 0
    files: int = 0
    bytes: int = 0
    lost: tuple[str, ...] = ()


class Repairs:
    """What is put back into a directory, and when.

    Args:
        kept: what the directory's marker says, or is to say where it has none.
        rate: bytes a second at most.
        tell: called with each event.

    Attributes:
        mended: the entries that the last `repair` put back.
    """

    def __init__(
        self,
        repository: Repository,
        manifest: Manifest,
        kept: Restored,
        looker: Looker,
        target: Path,
        rate: float,
        tell: Tell,
    ) -> None:
        self._repository, self._manifest, self._looker, self._target = repository, manifest, looker, target
        self._kept, self._before = kept, restored.read_in(target)
        self._tell = tell
        self._bucket = Bucket(rate)
        self._portion = min(_PORTION_BYTES, rate)
        self._restless = Patience()
        self._hopeless = Patience(most=1, first=30.0)
        self._pause = Pause(first=1.0)
        self._lost: set[str] = set()
        self._done = Totals()
        self.mended: frozenset[str] = frozenset()

    @property
    def totals(self) -> Totals:
        """What was done until now."""
        return replace(self._done, lost=tuple(sorted(self._lost)))

    @property
    def pause(self) -> float:
        """Seconds to leave everything alone, since it failed."""
        return self._pause.left

    def only_lost(self, entries: Set[str]) -> None:
        """Hear which entries are wrong at all: others came back by themselves."""
        self._lost &= entries

    def superseded(self) -> bool:
        """True where another snapshot was restored there since: what it took away is not put back."""
        here = restored.read_in(self._target)
        return here is not None and here != self._before and here.snapshot != self._kept.snapshot and not here.saved

    def lose(self, paths: Iterable[str]) -> None:
        """Give some files up for now."""
        self._lost |= {self._looker.entry(path) for path in paths}

    def repair(self, found: Look, ended: Callable[[], bool] = lambda: False) -> float:
        """Put back what may be put back now; the seconds until there is more to do.

        Args:
            ended: asked between portions; True leaves the rest.
        """
        self.mended = frozenset()
        if self._pause.left:
            return self._pause.left
        if self.superseded():
            return _SUPERSEDED_SECONDS
        wrong = found.wrong
        waits = {entry: self._wait_for(entry) for entry in self._looker.entries(wrong)}
        wanted = [path for path in wrong if not waits[self._looker.entry(path)]]
        done, began = Mending(), time.monotonic()
        try:
            if wanted:
                self._repository.require()  # a store that is not there looks as if all of it were damaged
            for portion in self._portions(wanted):
                time.sleep(self._bucket.take(sum(file.size for file in portion)))
                if ended():
                    break
                done = _together(done, self._put_back(wrong.intersection(file.path for file in portion), found))
            if self._pause.worked():
                self._tell(Event("note", "it works again"))
        except Busy:  # a restore is at work: what it does not put back is found again
            waits[""] = _BUSY_SECONDS
        except Exception as error:  # a guard outlives what it meets
            self.lose(wanted)
            waits[""] = self.failed("cannot put back", error, self._looker.entries(wanted))
        self._account(done, time.monotonic() - began)
        later = [wait for wait in waits.values() if wait] + [self._wait_for(entry) for entry in done.left_out]
        return min(later, default=SETTLE)

    def _wait_for(self, entry: str) -> float:
        return max(self._restless.wait(entry), self._hopeless.wait(entry))

    def _portions(self, paths: Iterable[str]) -> Iterator[list[FileRow]]:
        """The files in portions, what others refer to before them, and the files of an entry together."""
        entries = self._manifest.tables.entries
        files = self._looker.whole(paths)
        first: dict[int, int] = {}  # each frame is fetched once, where the order of the ranks allows it
        for file in files:
            first[file.entry] = min(file.frame, first.get(file.entry, file.frame))
        files.sort(key=lambda file: (rank(entries[file.entry].kind), first[file.entry], file.entry, file.path))
        portion: list[FileRow] = []
        size = 0
        for file in files:
            if size >= self._portion and file.entry != portion[-1].entry:
                yield portion
                portion, size = [], 0
            portion.append(file)
            size += file.size
        if portion:
            yield portion

    def _put_back(self, paths: Collection[str], found: Look) -> Mending:
        preflight.make_target(self._target)
        with locked(self._target, wait=False), self._repository.reading():
            wrong = self._looker.still_wrong(paths)
            if not wrong or self.superseded():
                return Mending()
            damaged = {path: found.damaged[path] for path in sorted(wrong) if path in found.damaged}
            torn = torn_kernels(self._manifest, wrong - damaged.keys(), damaged)
            return put_back(
                self._repository,
                self._manifest,
                self._target,
                wrong,
                torn=torn,
                place=QUARANTINE if damaged else ASIDE,
                allow_damaged=True,
                drop_damaged=bool(damaged),  # what torch would load broken is better gone, so that it builds it again
                mark=None if restored.read_in(self._target) else self._mark,
                evidence=self._evidence(wrong, damaged, torn) if damaged else None,
            )

    def _mark(self, _: tuple[Place, ...]) -> Restored:
        return restored.now(self._kept.snapshot, self._repository.store.url, self._kept.only, self._kept.left_out)

    def _evidence(self, wrong: Collection[str], damaged: Mapping[str, str], torn: Collection[str]) -> bytes | None:
        """What `verify --repair` writes down, too."""
        units = {unit_of_row(self._manifest, self._looker.files[path]) for path in wrong}.difference(torn)
        with LiveCache(self._target) as live:
            scan = live.scan(with_headers=True)
            return evidence(
                self._target,
                moving(scan.files, units, wrong),
                in_the_way(scan.skipped, wrong),
                damaged,
                self._looker.files,
                self._manifest.id,
                self._repository.store.url,
            )

    def _account(self, done: Mending, seconds: float) -> None:
        """Tell what was put back and what was not, and remember it."""
        self._lost = (self._lost - set(done.entries)) | set(done.left_out)
        self.mended = frozenset(done.entries)
        before = self._done
        entries, files = before.entries + len(done.entries), before.files + done.files
        self._done = Totals(entries, files, before.bytes + done.bytes)
        if done.entries:
            text = f"put back {count(len(done.entries), 'entry')}, {format_bytes(done.bytes)}, {seconds:.2f} s"
            figures = {"files": done.files, "bytes": done.bytes, "seconds": round(seconds, 3)}
            self._tell(about("put-back", text, done.entries, **figures))
            self._restless.put_back(done.entries)
            self._tell_of_restless(done.entries)
        if done.left_out:
            self._hopeless.put_back(done.left_out)
            wait = format_duration(max(map(self._hopeless.wait, done.left_out)))
            code, why = self._why_left_out()
            text = f"cannot put back {count(len(done.left_out), 'entry')}: {why}; again in {wait}"
            self._tell(about("trouble", text, done.left_out, code=code))

    def _why_left_out(self) -> tuple[str, str]:
        """The code and the words: packs are missing where the snapshot was removed and swept, else it is damage."""
        with contextlib.suppress(CachekeeperError, KeyMissing):
            if not self._repository.has(self._manifest.id):
                own = f"snapshot {short_id(self._manifest.id)}"
                return "not-found", f"{own} was removed from {self._repository.store.url}"
        return "damaged-store", f"damaged in {self._repository.store.url}"

    def _tell_of_restless(self, entries: Iterable[str]) -> None:
        waits = {entry: wait for entry in entries if (wait := self._restless.wait(entry))}
        if not waits:
            return
        text = (
            f"something keeps deleting or damaging {count(len(waits), 'entry')}, put back {self._restless.most} times "
            f"of late: not again for {format_duration(max(waits.values()))}; {_suspects(self._target)}"
        )
        self._tell(about("restless", text, waits))

    def failed(self, what: str, error: Exception, entries: Iterable[str] = ()) -> float:
        """Tell of a failure; the seconds to leave everything alone."""
        wait = self._pause.failed()
        listed = tuple(sorted(entries))
        subject = f" {count(len(listed), 'entry')}" if listed else ""
        code, reason = of_error(error)
        text = f"{what}{subject}: {reason}; again in {format_duration(wait)}"
        self._tell(about("trouble", text, listed, code=code))
        return wait


def _together(one: Mending, other: Mending) -> Mending:
    return Mending(
        one.files + other.files,
        one.bytes + other.bytes,
        tuple(dict.fromkeys((*one.entries, *other.entries))),
        tuple(dict.fromkeys((*one.left_out, *other.left_out))),
    )


def _suspects(target: Path) -> str:
    """What can be known of who deletes there: the kernel does not tell."""
    words = [f"cleaners of temporary files empty {place}" for place in _TEMPORARY if place in target.parents]
    users = [f"{pid} ({command_of(pid) or 'ended'})" for pid in itertools.islice(users_of(target), _MOST_USERS)]
    words.append("these processes have files of it open: " + ", ".join(users) if users else "no process has it open")
    return "; ".join(words)
