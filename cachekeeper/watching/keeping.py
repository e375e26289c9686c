"""Notices what is gone or damaged, and has it put back, until somebody ends it."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

from ..manifest import Manifest
from ..repository import Repository
from ..restored import Restored, read_in
from ..units import count, short_id
from .looking import Look, Looker
from .noticing import Noticed, Noticer
from .repairing import SETTLE, Repairs, Totals
from .telling import Event, Tell, about, ready

_AT_MOST = 3.0
_POLL = 5.0
_ONCE_SECONDS = 15.0
_NAME_SECONDS = 900.0
# A slow disk is not looked at all the time: a look takes a twentieth of it at most.
_SHARE = 20


@dataclass(frozen=True)
class Settings:
    """How to watch.

    Attributes:
        interval: seconds between two looks at everything, whatever the kernel says.
        rate: bytes a second that are put back at most.
        poll: why not to ask the kernel, or "".
        name: that the snapshot was found by; a note says when it has moved.
        until: a descriptor that says when to end; see `Noticer`.
    """

    interval: float = 30.0
    rate: float = float(64 << 20)
    poll: str = ""
    name: str = ""
    until: int | None = None


class Keeper:
    """Keeps the files of a snapshot in a cache directory. The caller holds `held(target)`.

    Args:
        manifest: of the snapshot, as it was restored (`mending.with_one_kernel_directory`).
        kept: what the directory's marker says, or is to say where it has none: which of the files belong there.
        target: absolute path of the cache directory, there or not.
        tell: called with each event.
    """

    def __init__(
        self,
        repository: Repository,
        manifest: Manifest,
        kept: Restored,
        target: Path,
        settings: Settings,
        tell: Tell,
    ) -> None:
        self._repository, self._manifest, self._target = repository, manifest, target
        self._settings, self._tell = settings, tell
        self._looker = Looker(manifest, kept.files(manifest), target)
        self._repairs = Repairs(repository, manifest, kept, self._looker, target, settings.rate, tell)
        self._told: set[str] = set()
        self._noted: set[str] = set()
        self._unsure = False
        self._name_asked = time.monotonic()

    @property
    def totals(self) -> Totals:
        """What was done until now."""
        return self._repairs.totals

    @property
    def others(self) -> int:
        """Number of the sound files with other bytes than the snapshot's, which are left alone."""
        return len(self._looker.others)

    def once(self) -> None:
        """Look, put back what is wrong, and look again, until all is judged or nothing more can be done."""
        deadline = time.monotonic() + _ONCE_SECONDS
        while (found := self._look(None)) is not None:
            if found.wrong:
                self._repairs.repair(found)
                if self.totals.lost:
                    return
            elif found.later is None:
                return
            if time.monotonic() > deadline:
                self._repairs.lose(found.wrong)
                return
            time.sleep(0.1 if found.wrong else min(found.later or 0.0, 1.0) + 0.01)

    def run(self) -> None:
        """Watch until the process is ended, or what the settings name says so."""
        with Noticer(self._target, self._looker.files, self._settings.poll, self._settings.until) as noticer:
            noticer.arm()
            self._begin(noticer)
            everything, full, sure = True, 0.0, False
            noticed = Noticed()
            while not noticed.ended:
                wait = self._round(noticer, None if everything else noticed.paths, sure)
                full = time.monotonic() + wait if everything else min(full, time.monotonic() + wait)
                noticed = _settled(noticer, full)
                sure = bool(noticed) or self._unsure
                everything = noticed.everything or not noticer.complete
                if everything:
                    self._arm(noticer)
                everything |= time.monotonic() >= full

    def _begin(self, noticer: Noticer) -> None:
        how = f"inotify on {count(noticer.directories, 'directory')}"
        if noticer.polling:
            how = f"polling: {noticer.polling}"
        what = f"{count(len(self._looker.files), 'file')} of {short_id(self._manifest.id)} in {self._target}"
        self._tell(Event("watching", f"watching {what}, {how}"))
        ready(f"watching {what}")

    def _arm(self, noticer: Noticer) -> None:
        before = noticer.polling
        noticer.arm()
        if noticer.polling != before:
            self._tell(Event("note", f"polling from now on: {noticer.polling}"))

    def _round(self, noticer: Noticer, paths: set[str] | None, sure: bool) -> float:
        """Look, and put back what is wrong; the seconds until everything must be looked at.

        Args:
            sure: what is wrong has been so for a moment; else somebody may be in the middle of deleting, and would
                stumble over what came back.
        """
        began = time.monotonic()
        found = self._look(paths, sure)
        wanted = min(_POLL, self._settings.interval) if noticer.polling else self._settings.interval
        waits = [max(wanted, (time.monotonic() - began) * _SHARE)]
        if paths is None or (found is not None and found.wrong):
            self._note_changes()
        if found is None:
            return self._repairs.pause
        self._unsure = bool(found.wrong) and not sure
        if self._unsure:
            return SETTLE
        if found.wrong:
            waits.append(self._repairs.repair(found, noticer.ended))
            self._told -= self._repairs.mended
        if found.later is not None:
            waits.append(found.later + 0.01)
        return min(waits)

    def _look(self, paths: set[str] | None, sure: bool = True) -> Look | None:
        """What a look found; None where nothing can be seen."""
        try:
            found = self._looker.look(paths)
        except Exception as error:  # a guard outlives what it meets
            self._repairs.failed("cannot look", error)
            return None
        wrong = self._looker.entries(found.wrong)
        if paths is None:
            self._told &= wrong
            self._repairs.only_lost(wrong)
        if sure:
            self._tell_of_wrong(found)
            self._told |= wrong
        self._tell_of_left_alone(found)
        return found

    def _tell_of_wrong(self, found: Look) -> None:
        """Tell of what is wrong and was not before."""
        gone = self._looker.entries(found.gone) - self._told
        damaged = self._looker.entries(found.damaged) - self._told - gone
        if gone:
            self._tell(about("gone", f"gone {count(len(gone), 'entry')}", gone))
        if damaged:
            why = next(why for path, why in found.damaged.items() if self._looker.entry(path) in damaged)
            self._tell(about("damaged", f"damaged {count(len(damaged), 'entry')}, {why}", damaged))

    def _tell_of_left_alone(self, found: Look) -> None:
        if found.other:
            text = f"left alone {count(len(found.other), 'file')}: sound, with other bytes than the snapshot's"
            self._tell(about("left-alone", text, self._looker.entries(found.other)))

    def _note_changes(self) -> None:
        """Say what others have changed about the snapshot that this directory should have."""
        own, name = short_id(self._manifest.id), self._settings.name
        here = read_in(self._target)
        if here is not None and here.snapshot != self._manifest.id:
            self._note_of_another(here)
        if name and time.monotonic() - self._name_asked > _NAME_SECONDS:
            self._name_asked = time.monotonic()
            with contextlib.suppress(Exception):  # a store that cannot be asked is told of when it is needed
                latest = self._repository.latest(name)
                if latest != self._manifest.id:
                    self._note(f"{name} is {short_id(latest)} now: this watch keeps {own}")

    def _note_of_another(self, here: Restored) -> None:
        own, other = short_id(self._manifest.id), short_id(here.snapshot)
        if self._repairs.superseded():
            text = f"{other} was restored here: paused, {own} is not put back any more"
        else:
            text = f"{other} was {'saved from' if here.saved else 'restored'} here: this watch keeps {own}"
        self._note(f"{text}; start it again for the other")

    def _note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._tell(Event("note", text))


def _settled(noticer: Noticer, until: float) -> Noticed:
    """Wait for something to happen, and then for a moment in which nothing does: a cleaner is answered once."""
    noticed = noticer.wait(until - time.monotonic())
    latest = time.monotonic() + _AT_MOST
    while noticed and not noticed.ended and time.monotonic() < latest:
        more = noticer.wait(min(SETTLE, latest - time.monotonic()))
        noticed.add(more)
        if not more:
            break
    return noticed
