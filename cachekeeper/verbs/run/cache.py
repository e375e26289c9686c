"""The cache of a job: where it is, what is brought back into it before the job, and what it holds."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

from ... import preflight
from ...config import setting
from ...environment import cache_directory
from ...errors import CachekeeperError
from ...inductor import Place, job_environment
from ...instead import in_words
from ...livecache import LiveCache, chosen_cache_dir
from ...manifest import Snapshot
from ...progress import Progress
from ...repository import check_name, open_repository
from ...stores import Store
from ...targets import for_people
from ...units import short_id
from ...warming import places
from ..restore import RestoreResult
from ..restore import restore as bring_back
from ..warmup import WarmupResult
from ..warmup import warmup as warm_up
from .troubles import Troubles

GivenStore = str | os.PathLike[str] | Store | Callable[[], Store] | None


class JobCache:
    """A job's cache directory, and the name that its snapshots have.

    Args:
        name, directory, store: as given, or None for what is configured.

    Attributes:
        name: "" for none.
        given_store: as it was given.
        usable: False where the settings make no sense: nothing is restored, and nothing saved.
        restored, warmed: None where nothing was.
        unsaved: nothing is saved under the name yet.
        variables: by which the job finds the cache.
        before: what it held before the warmup; None where that is not known.
        failed: id of the snapshot on which the job failed, before it was started cold; "" where nothing was restored
            then, None where it was not.
    """

    def __init__(
        self,
        name: str | None,
        directory: str | os.PathLike[str] | None,
        store: GivenStore,
        troubles: Troubles,
        progress: Progress,
    ) -> None:
        self.given_store = store
        self.restored: RestoreResult | None = None
        self.warmed: WarmupResult | None = None
        self.unsaved = False
        self.failed: str | None = None
        self.before: frozenset[Place] | None = None
        self._troubles = troubles
        self._progress = progress
        self._store = store
        self._watched: dict[str, str] = {}

        def look() -> tuple[str, Path, bool]:
            found = setting("name", name)
            if found is not None:
                check_name(found.partition("@")[0])
            return found or "", chosen_cache_dir(directory), setting("cache_dir", directory) is not None

        settings = troubles.attempt("nothing restored and nothing saved", look)
        self.usable = settings is not None
        own = Path(directory) if directory else cache_directory().path
        self.name, self.directory, self._chosen = settings or ("", own, False)

    @property
    def snapshot(self) -> Snapshot | None:
        """What was restored."""
        return self.restored.snapshot if self.restored else None

    def store(self) -> str | os.PathLike[str] | Store | None:
        """The store as a verb takes it; opened once, where that is to be done by a function."""
        if callable(self._store):
            self._store = self._store()
        return self._store

    def restore(self, wanted: bool | None, saves: bool, next_step: str) -> None:
        """Bring the snapshot back, and set the variables by which the job finds its cache.

        Args:
            wanted: None: where there is a name.
            saves: the job's cache is saved: a name that has no snapshot yet is no failure.
            next_step: what comes next where there is none to bring back, in words.
        """
        number = len(self._troubles.found)
        if self.usable and self._chosen:
            self._troubles.attempt("the cache directory cannot be used", self._check_directory)
        usable = self.usable and len(self._troubles.found) == number
        if usable and (self.name if wanted is None else wanted):
            what = f"nothing restored, {next_step}"
            self.restored = self._troubles.attempt(what, lambda: self._bring_back(saves, next_step))
        elif usable and wanted is None:
            self._troubles.note("nothing restored: there is no name (--name, or CACHEKEEPER_NAME)")
        if self.restored and self.restored.environment:
            variables, self._watched = dict(self.restored.environment), {"": str(self.directory)}
        else:
            found = self._troubles.attempt("the cache is not looked at", lambda: places(self.directory))
            variables, self._watched = found or (job_environment(self.directory, {}, ()), {})
        self.variables = variables
        os.environ.update(variables)  # the warmup and the snapshot see what the job sees
        self.before = self.entries()

    def _check_directory(self) -> None:
        preflight.make_target(self.directory)
        preflight.check(self.directory, (), native=False)

    def _bring_back(self, saves: bool, next_step: str) -> RestoreResult | None:
        """What was restored; None for a name that this run is the first to save."""
        self.unsaved = True  # unless it is there
        try:
            result = bring_back(
                self.name or None, cache_dir=self.directory, store=self.store(), progress=self._progress
            )
        except CachekeeperError as error:
            self.unsaved = error.code == "not-found"
            if not self.unsaved or not saves or not self.name or "@" in self.name:
                raise
            meant = f" ({error.hint})" if error.hint.startswith("did you mean") else ""
            self._troubles.note(
                f"nothing restored yet: {error.message}{meant}; {next_step}; its cache is saved after exit code 0"
            )
            if self._troubles.strict:
                open_repository(self.store()).prepare()  # what is wrong with it is said before the job
            return None
        self.unsaved = False
        if result.passed_over and result.snapshot:
            self._troubles.note(in_words(result.passed_over, result.snapshot.id))
        return result

    def warm(self, target: str) -> None:
        """Run a warmup on it, unless what was restored is proven for the same target."""
        self.warmed = self._troubles.attempt("the warmup proves nothing", lambda: self._warm_up(target))

    def _warm_up(self, target: str) -> WarmupResult | None:
        snapshot = self.snapshot
        proof = snapshot.header.proof if snapshot else None
        if snapshot and proof and proof.target == for_people(target):
            name = self.name or short_id(snapshot.id)
            self._troubles.note(f"the warmup is left out: {name} is proven for {proof.target}")
            return None
        result = warm_up(target, cache_dir=self.directory, listener=self._troubles.listener.warmup())
        if not result.ok:
            doubts = [f"{step}: {why}" for step, lines in result.doubts.items() for why in lines[:1]]
            facts = doubts + [f"{report}: {report.error_line}" for report in result.failed]
            hint = f"see more with `cachekeeper warmup {shlex.quote(target)}`"
            raise CachekeeperError("a step raised, or would not be warm", facts=facts, hint=hint)
        return result

    def start_anew(self) -> None:
        """It is empty now: the job failed on what was there."""
        self.failed = self.snapshot.id if self.snapshot else ""
        self.restored = self.warmed = None
        self.before = self.entries()

    def entries(self) -> frozenset[Place] | None:
        """What it holds; None where that cannot be said."""

        def look() -> frozenset[Place]:
            there = {label: Path(path) for label, path in self._watched.items() if os.path.isdir(path)}
            root = there.pop("", None)
            if root is None:
                return frozenset()
            with LiveCache(root, there) as live:
                return frozenset(source.place for source in live.scan().files)

        return self._troubles.attempt("the cache is not looked at", look)
