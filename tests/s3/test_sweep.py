"""Sweeps of a real bucket: beside writers in processes of their own, and where versions and locks keep things."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import sweeping, trash
from cachekeeper.errors import Busy, DamagedStore, NotFound
from cachekeeper.repository import open_repository, pack_sizes
from cachekeeper.stores import Store, open_store
from cachekeeper.testing import make_cache
from cachekeeper.verbs.rm import rm
from cachekeeper.verbs.undo import undo
from tests.faults import children
from tests.test_pins import A, B, C, needs, save
from tests.watching.guarding import wait_for

from .servers import Server
from .test_object_lock import Bucket

pytestmark = pytest.mark.usefixtures("credentials")

_SECONDS = float(os.environ.get("RACE_SECONDS", "5"))
_ENOUGH = {"saved": 3, "removed": 1, "swept": 3}


class _Crowd:
    """Processes over one bucket, each of which does one thing over and over."""

    def __init__(self, place: Path, url: str, seed: int) -> None:
        self._place, self._url, self._seed = place, url, seed

    def start(self, number: int, turn: Callable[[random.Random, int], object]) -> int:
        def work() -> None:
            dice = random.Random(self._seed * 100 + number)
            while not (self._place / "stop").exists():
                try:
                    turn(dice, number)
                except (Busy, NotFound):
                    time.sleep(0.1)
                except DamagedStore as error:  # removed and swept between a look and a lease
                    assert "vanished" in error.message, error

        return children.start(work)

    def write(self, dice: random.Random, number: int) -> None:
        cache = make_cache(self._place / f"{number}-{time.monotonic_ns()}", seed=dice.randrange(4), kernels=1, graphs=1)
        saved = cachekeeper.snapshot(f"name{number}", cache_dir=cache, store=self._url, wait=0, force=True)
        self.note("saved", saved.snapshot.id)

    def remove(self, dice: random.Random, number: int) -> None:
        ids = self.noted("saved")
        if len(ids) > 2:
            identifier = dice.choice(sorted(ids))
            self.note("removed", identifier)
            rm(identifier, store=self._url, grace=dice.choice([0, 3600]), force=True)

    def undo(self, dice: random.Random, number: int) -> None:
        undo(store=self._url)

    def sweep(self, dice: random.Random, number: int) -> None:
        """The verb refuses to do that in a bucket, for the sake of restores; of these there are none."""
        sweeping.sweep(open_repository(self._url), grace=0)
        self.note("swept", str(time.monotonic_ns()))

    def note(self, what: str, name: str) -> None:
        (self._place / what).mkdir(exist_ok=True)
        (self._place / what / name).touch()

    def noted(self, what: str) -> set[str]:
        return {path.name for path in (self._place / what).glob("*")}


def test_a_crowd_of_processes(bucket: str, tmp_path: Path):
    """Writers, rm, undo and sweeps without grace times: what was saved and not removed is there, and whole."""
    seed = int(os.environ.get("TEST_SEED", random.randrange(1 << 30)))
    url = f"s3://{bucket}/p"
    cachekeeper.snapshot("first", cache_dir=make_cache(tmp_path / "first", kernels=1, graphs=1), store=url, wait=0)
    crowd = _Crowd(tmp_path, url, seed)
    turns = [crowd.write, crowd.write, crowd.remove, crowd.undo, crowd.sweep]
    # Clients of a server do not survive a fork: each child makes its own.
    pids = [crowd.start(number, turn) for number, turn in enumerate(turns)]
    time.sleep(_SECONDS)
    with contextlib.suppress(AssertionError):  # the children are to end all the same
        wait_for(lambda: all(len(crowd.noted(what)) > number for what, number in _ENOUGH.items()))
    crowd.note("stop", "")
    assert [children.finish(pid) for pid in pids] == [0] * len(pids), f"TEST_SEED={seed}"
    result = cachekeeper.verify(every=True, store=url)
    assert result.ok, (result.damaged, seed)
    repository = open_repository(url)
    there, gone = set(result.snapshots), crowd.noted("saved") - set(result.snapshots)
    assert all(len(crowd.noted(what)) > number for what, number in _ENOUGH.items()), f"TEST_SEED={seed}"
    assert gone <= crowd.noted("removed") and gone <= trash.look(repository).away, f"TEST_SEED={seed}"
    for _ in range(2):
        sweeping.sweep(repository, grace=0)
    assert pack_sizes(repository.store).keys() == sweeping.needed_packs(repository)
    assert not list(repository.store.list("leases/"))
    cachekeeper.restore(sorted(there)[0], cache_dir=tmp_path / "back", store=url, verify=True)


# Versions and locks


@pytest.fixture
def locking(server: Server, lock_bucket: str) -> Bucket:
    return Bucket(server, lock_bucket)


@pytest.fixture
def store(locking: Bucket) -> Store:
    return open_store(locking.url)


def test_what_is_pinned_stays_and_the_rest_goes(locking: Bucket, store: Store):
    pinned, removed = save(store, "one", A, B), save(store, "two", B, C)
    repository = open_repository(store)
    cachekeeper.pin(pinned, store=store)
    trash.remove(repository, removed, grace=0)
    found = sweeping.sweep(repository, grace=0)
    assert found.deleted.keys() == {C} and [each.snapshot for each in found.dropped] == [removed]
    assert pack_sizes(repository.store).keys() == {A, B}
    assert locking.held() == {f"pins/{pinned}", *needs(pinned, A, B)}
    assert locking.versions(f"packs/{C}") and locking.versions(f"packs/{C}", "DeleteMarkers"), "a version is left"


def test_a_pack_that_is_held_without_being_needed(locking: Bucket, store: Store):
    """A hold that an unpin could not take off: a plain delete hides it all the same, and no sweep fails."""
    removed = save(store, "one", A)
    repository = open_repository(store)
    cachekeeper.pin(removed, store=store)
    store.delete(f"pins/{removed}")
    trash.remove(repository, removed, grace=0)
    assert sweeping.sweep(repository, grace=0).deleted.keys() == {A}
    assert not pack_sizes(repository.store) and locking.try_to_destroy(f"packs/{A}") == {"AccessDenied"}
    assert not sweeping.sweep(repository, grace=0).deleted


def test_what_was_hidden_comes_back_and_stays(locking: Bucket, store: Store):
    """A delete marker that is deleted brings a pack back: it is condemned anew, and no snapshot suffers."""
    kept, removed = save(store, "one", A), save(store, "two", C)
    repository = open_repository(store)
    trash.remove(repository, removed, grace=0)
    assert sweeping.sweep(repository, grace=0).deleted.keys() == {C}
    [marker] = locking.versions(f"packs/{C}", "DeleteMarkers")
    assert locking.delete(f"packs/{C}", VersionId=marker) == "done"
    assert pack_sizes(repository.store).keys() == {A, C}
    found = sweeping.sweep(repository, grace=3600)
    assert not found.deleted and not found.condemned, "it is too young"
    assert sweeping.sweep(repository, grace=0).deleted.keys() == {C}
    assert repository.has(kept) and pack_sizes(repository.store).keys() == {A}


def test_without_versions(bucket: str):
    store = open_store(f"s3://{bucket}/caches")
    kept, removed = save(store, "one", A, B), save(store, "two", B, C)
    repository = open_repository(store)
    trash.remove(repository, removed, grace=0)
    assert sweeping.plan(repository, grace=0).deleted.keys() == {C} <= pack_sizes(repository.store).keys()
    assert sweeping.sweep(repository, grace=0).deleted.keys() == {C}
    assert repository.has(kept) and pack_sizes(repository.store).keys() == {A, B}
    assert [info.key for info in store.list("gc/")] == ["gc/00000002"] and not list(store.list("leases/"))


def test_who_may_only_read_sweeps_nothing(bucket: str, request: pytest.FixtureRequest):
    url = f"s3://{bucket}/caches"
    save(open_store(url), "one", A)
    request.getfixturevalue("read_only_credentials")
    repository = open_repository(url)
    assert sweeping.plan(repository).needed == 1
    with pytest.raises(cachekeeper.errors.AccessDenied):
        sweeping.sweep(repository)
