"""Keep a live cache whole while jobs use it."""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import dataclass, replace
from pathlib import Path

from .. import ownership, restored, trust
from ..config import model_files, setting
from ..environment import fingerprint
from ..errors import EmptyCache, NotFound, UsageError
from ..fitting import fit, mismatch_error
from ..livecache import chosen_cache_dir
from ..manifest import Manifest, Snapshot
from ..mending import with_one_kernel_directory
from ..repository import Repository, open_repository
from ..restored import Restored
from ..stores import Store
from ..units import count, format_bytes, format_duration, short_id
from ..watching import Event, Keeper, Settings, Tell, held, interrupted
from .doctor.place import Place, mount_of

RATE = float(64 << 20)
INTERVAL = 30.0


@dataclass(frozen=True)
class WatchResult:
    """What a watch did until it ended.

    Attributes:
        entries, files, bytes: what was put back; an entry that vanished twice counts twice.
        lost: entries that are wrong and could not be put back.
        seconds: from its beginning to its end.
    """

    snapshot: Snapshot
    cache_dir: Path
    entries: int
    files: int
    bytes: int
    lost: tuple[str, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """True where nothing is wrong now, as far as the last look tells."""
        return not self.lost


def watch(
    reference: str | None = None,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
    store: str | os.PathLike[str] | Store | None = None,
    once: bool = False,
    interval: float = INTERVAL,
    rate: float = RATE,
    poll: bool = False,
    until: int | None = None,
    before: Restored | None = None,
    tell: Tell = lambda event: None,
) -> WatchResult:
    """Notice when files of a snapshot vanish from a cache directory or break, and put exactly these back.

    What the snapshot does not have is never touched, nor is a sound file whose bytes are other ones: torch wrote it.
    A link, or what else is no file, in the place of a file goes to quarantine, and is never followed. When another
    snapshot is restored into the directory meanwhile, nothing is put back any more.
    What is wrong with the store or the disk is told and tried again, less and less often.

    Args:
        reference: id, name, `name@{1}` or "latest"; by default what was restored into the directory or saved from it
            last, as its marker says, else the configured name, else what a watch kept there until it was killed. It is
            looked up once: a name that moves changes nothing.
        cache_dir: default: the directory that torch would use here. It is made where it is not there.
        once: look, put back what is wrong, and return.
        interval: seconds between two looks at everything; the kernel tells of changes at once, where it can.
        rate: bytes a second that are put back at most.
        poll: ask by the clock alone.
        until: a descriptor; the watch ends when it can be read, or its other end is closed. Else it ends when it is
            interrupted.
        before: what was restored there, where the caller knows it; by default the directory's marker is asked.
        tell: called with each event.

    Raises:
        NotFound: no such snapshot, or nothing says which.
        EnvironmentMismatch: it was not restored here, and torch would not use it here.
        Untrusted: signatures are asked for by a setting, and no trusted key vouches for it.
        Busy: another watch keeps the directory.
        UnsafePath: somebody else owns the store or the directory, or every user may change it.
        LocalDiskError: the lock of the watch cannot be made.
    """
    if reference == "":
        raise UsageError("the name of the snapshot is empty", hint="give a name or an id; is a variable unset?")
    if not (rate > 0 and interval > 0):
        raise UsageError("the rate and the interval of a watch are numbers above 0")
    target = chosen_cache_dir(cache_dir)
    repository = open_repository(store)
    repository.refuse_inside(target)
    if os.path.lexists(target):
        ownership.check(target, ownership.CACHE)
    before = before or restored.read_in(target)
    name = _wanted(reference, before, target)
    manifest = _manifest(repository, name, before)
    kept = before if before and before.snapshot == manifest.id else restored.now(manifest.id, repository.store.url)
    moves = name != "latest" and "@" not in name and not manifest.id.startswith(name)
    settings = Settings(interval, rate, _why_to_poll(target, poll), name if moves else "", until)
    with held(target, manifest.id):
        keeper = Keeper(repository, manifest, kept, target, settings, tell)
        return _Watch(keeper, manifest, target, tell).run(once)


def _wanted(reference: str | None, before: Restored | None, target: Path) -> str:
    """The snapshot that a directory should have, in somebody's words."""
    if reference is not None:
        return reference
    if before is not None:
        return before.snapshot
    named = setting("name") or interrupted(target)
    if not named:
        raise NotFound(
            f"nothing says which snapshot {target} should have",
            hint="name one, as `cachekeeper watch drafter`; where `cachekeeper restore` was at work it is known",
        )
    return str(named)


def _manifest(repository: Repository, name: str, before: Restored | None) -> Manifest:
    """The snapshot as it is restored; one that was not restored here has to fit this machine."""
    known = before.snapshot if before else ""
    try:
        repository.require()
        identifier = _vouched(repository, name)
        manifest = repository.manifest(identifier)
    except NotFound as error:
        if before and name == known and before.store != repository.store.url:
            hint = f"it was restored from {before.store}: name that with --store"
            raise NotFound(error.message, facts=error.facts, hint=hint) from None
        raise
    if not manifest.tables.files:
        raise EmptyCache(f"snapshot {short_id(identifier)} holds nothing", hint="see the others with `cachekeeper ls`")
    if identifier != known:
        here = fingerprint(**model_files())
        comparison = fit(manifest.header, here)
        if not comparison.fits:
            raise mismatch_error(repository, manifest, comparison, here)
    return with_one_kernel_directory(manifest)


def _vouched(repository: Repository, name: str) -> str:
    """The full id behind a name; where signatures are asked for, of what a trusted key vouches for."""
    trusted = trust.required(None)
    if trusted is None:  # a signature vouches for a snapshot, whoever owns what it lies in
        ownership.check_store(repository.store.directories)
    return trust.identified(repository, name, fingerprint, trusted)


def _why_to_poll(target: Path, asked: bool) -> str:
    if asked:
        return "as asked"
    mount = mount_of(Place.at(target).nearest)
    if mount is not None and mount.network:
        return f"it is on {mount.type}, where this machine is not told of what others do"
    return ""


class _Watch:
    """One watch at work."""

    def __init__(self, keeper: Keeper, manifest: Manifest, target: Path, tell: Tell) -> None:
        self._keeper, self._manifest, self._target, self._tell = keeper, manifest, target, tell
        self._began = time.monotonic()

    def run(self, once: bool) -> WatchResult:
        """Watch, and tell at the end what was done, whatever ends it."""
        try:
            if once:
                self._keeper.once()
            else:
                self._keeper.run()
        finally:
            self._tell(self._end(once))
        return self._result()

    def _result(self) -> WatchResult:
        done = self._keeper.totals
        snapshot = Snapshot(self._manifest.id, self._manifest.header)
        seconds = time.monotonic() - self._began
        return WatchResult(snapshot, self._target, done.entries, done.files, done.bytes, done.lost, seconds)

    def _how_kept(self) -> str:
        own = short_id(self._manifest.id)
        if not self._keeper.others:
            return f"kept as {own}"
        command = f"cachekeeper verify {own} --live {shlex.quote(str(self._target))} --repair"
        return (
            f"not as {own}: {count(self._keeper.others, 'file')} with other bytes, sound (`{command}` puts them right)"
        )

    def _end(self, once: bool) -> Event:
        result = self._result()
        after = "" if once else f"ended after {format_duration(result.seconds)}: "
        done = "nothing to put back"
        if result.entries:
            done = f"put back {count(result.entries, 'entry')}, {format_bytes(result.bytes)} in all"
        if result.lost:
            done += f"; NOT whole: {count(len(result.lost), 'entry')} could not be put back"
        figures = replace(Event("ended", ""), files=result.files, bytes=result.bytes, seconds=round(result.seconds, 3))
        what = f"{self._target} is {self._how_kept()}: " if once else ""
        return replace(figures, text=f"{after}{what}{done}", entries=result.lost)
