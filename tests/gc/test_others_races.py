"""Races that other tools lost data in, or were reported to, each as one schedule."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import condemned, leases, sweeping, trash, writing
from cachekeeper.errors import Busy, DamagedStore, NotFound
from cachekeeper.leases import Kind
from cachekeeper.repository import Repository, manifest_key, open_repository, pack_key, pack_sizes
from cachekeeper.stores import KeyMissing, LocalStore, MemoryStore
from cachekeeper.stores.cached import CachedStore
from cachekeeper.testing import make_cache

from . import samples
from .scripted import ScriptedStore, packs_of, put, repository, save, store

__all__ = ["repository", "store"]

HOUR, DAY = 3600.0, 86_400.0


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for a sweep gives up at once."""
    monkeypatch.setattr(Repository, "writing", lambda self: writing.at_work(self.store, patience=0))


def sweep(repository: Repository, **options: float) -> sweeping.Sweep:
    return sweeping.sweep(repository, **{"grace": 0.0, **options})


def condemn(repository: Repository, store: ScriptedStore) -> None:
    """What nothing needs is on the list, and there still."""
    store.now += 2 * HOUR
    assert not sweep(repository, grace=HOUR).deleted
    store.now += 2 * HOUR


def is_whole(repository: Repository, identifier: str) -> bool:
    return packs_of(repository, identifier) <= pack_sizes(repository.store).keys()


def begin_a_sweep(store: ScriptedStore) -> None:
    """Another machine has looked at everything, and is about to delete."""
    lease = leases.Lease("", Kind.SWEEP, 1, "somebody", "just now", ("",) * 4)
    store.create("leases/" + "a" * 32, leases._encode(lease))


class Elsewhere:
    """Processes of another machine, of which nobody here can tell whether they are gone."""

    @pytest.fixture(autouse=True)
    def elsewhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(leases, "_this_process", lambda: ("another boot", "a namespace", "1", "1"))


class TestRusticParallelPruneAndBackup:
    """rustic 0.12: a backup came to need packs that a prune at the same time was about to delete."""

    def test_a_sweep_while_a_writer_has_found_a_pack(self, repository: Repository, store: ScriptedStore):
        orphan = put(store, 1)
        store.before("create", "snapshots/", lambda: sweep(repository))
        saved = save(repository, 1)
        assert store.played and packs_of(repository, saved) == {orphan.id} <= store.packs

    @pytest.mark.parametrize("where", [("create", "gc/"), ("list", "pins/"), ("list", "packs/")])
    def test_a_writer_while_a_sweep_looks(self, repository: Repository, store: ScriptedStore, where: tuple[str, str]):
        put(store, 1)
        saved = []
        store.before(*where, lambda: saved.append(save(repository, 1)))
        sweep(repository)
        assert store.played and is_whole(repository, saved[0])

    def test_a_writer_while_a_sweep_deletes(self, repository: Repository, store: ScriptedStore):
        orphans = {put(store, content).id for content in (0, 1)}
        saved = []
        store.before("delete", "packs/", lambda: saved.append(save(repository, 0, 1)))
        assert sweep(repository).deleted.keys() == orphans
        assert is_whole(repository, saved[0]) and not packs_of(repository, saved[0]) & orphans


class TestKopiaClockSkew(Elsewhere):
    """kopia #4769 and others: machines whose clocks differ by more than the grace time."""

    @pytest.mark.parametrize("skew", [-30 * DAY, -10 * HOUR, 10 * HOUR, 30 * DAY])
    def test_the_clock_of_this_machine_decides_nothing(
        self, repository: Repository, store: ScriptedStore, monkeypatch: pytest.MonkeyPatch, skew: float
    ):
        monkeypatch.setattr(time, "time", lambda: store.now + skew)
        removed, orphan = save(repository, 0), put(store, 1)
        trash.remove(repository, removed, grace=HOUR)
        with repository.writing():
            store.now += 2 * HOUR - 1
            assert not sweep(repository, grace=2 * HOUR).condemned
            assert not trash.look(repository).removals  # its own grace time was over
            store.now += 1
            assert orphan.id in sweep(repository, grace=2 * HOUR).condemned
            store.now += 2 * HOUR - 1
            assert not sweep(repository, grace=2 * HOUR).deleted
            store.now += 1
            found = sweep(repository, grace=2 * HOUR)
            assert not found.deleted and [lease.kind for lease in found.at_work] == [Kind.WRITE]
        assert orphan.id in sweep(repository, grace=2 * HOUR).deleted


class TestResticUnlock:
    """restic: `unlock` in scripts took the locks of those at work away. Nothing here may rest on a lease alone."""

    def delete_leases(self, store: ScriptedStore) -> None:
        for key in store.keys("leases/"):
            MemoryStore.delete(store, key)

    def test_a_writer_without_its_lease_leaves_nothing_that_lacks_packs(
        self, repository: Repository, store: ScriptedStore
    ):
        orphan = put(store, 1)

        def unlock_and_sweep() -> None:
            self.delete_leases(store)
            assert sweep(repository).deleted.keys() == {orphan.id}

        store.before("create", "snapshots/", unlock_and_sweep)
        with pytest.raises(DamagedStore, match="1 pack vanished"):
            save(repository, 1)
        assert not store.keys("snapshots/") and not store.keys("leases/")
        assert is_whole(repository, save(repository, 1))

    def test_a_writer_without_its_lease_succeeds_where_all_is_there(self, repository: Repository, store: ScriptedStore):
        put(store, 1)
        store.before("create", "snapshots/", lambda: self.delete_leases(store))
        assert is_whole(repository, save(repository, 1))

    @pytest.mark.usefixtures("impatient")
    def test_a_writer_without_its_lease_does_not_trust_what_a_sweep_is_about_to_delete(
        self, repository: Repository, store: ScriptedStore
    ):
        put(store, 1)

        def unlock_and_begin_a_sweep() -> None:
            self.delete_leases(store)
            begin_a_sweep(store)

        store.before("create", "snapshots/", unlock_and_begin_a_sweep)
        with pytest.raises(DamagedStore, match="a sweep is deleting"):
            save(repository, 1)
        assert not store.keys("snapshots/")

    def test_a_sweep_without_its_lease_deletes_nothing(self, repository: Repository, store: ScriptedStore):
        orphan = put(store, 1)
        store.before("create", "gc/", lambda: self.delete_leases(store))
        with pytest.raises(Busy, match="somebody took away leases/"):
            sweep(repository)
        assert store.packs == {orphan.id}


class TestBorgStaleCache:
    """borg: after an interrupted compact, a cache of this machine claimed packs that were gone."""

    def test_a_snapshot_after_a_sweep_needs_nothing_that_was_deleted(self, tmp_path: Path):
        cache = make_cache(tmp_path / "inductor", kernels=2, graphs=2)
        far, near = LocalStore(tmp_path / "far"), LocalStore(tmp_path / "near")
        first = cachekeeper.snapshot("drafter", cache_dir=cache, store=CachedStore(far, near), wait=0)
        gone = packs_of(open_repository(far), first.snapshot.id)
        trash.remove(open_repository(far), first.snapshot.id, grace=0)
        assert sweep(open_repository(far)).deleted.keys() == gone
        assert gone <= pack_sizes(open_repository(near).store).keys(), "this machine remembers them"
        again = cachekeeper.snapshot("drafter", cache_dir=cache, store=CachedStore(far, near), wait=0)
        assert again.new_files and not packs_of(open_repository(far), again.snapshot.id) & gone
        assert cachekeeper.verify(every=True, store=far).ok
        cachekeeper.restore(again.snapshot.id, cache_dir=tmp_path / "back", store=far, verify=True)

    def test_a_compact_that_was_interrupted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """Half of the packs are gone, and the list of condemned packs still names them all."""
        cache = make_cache(tmp_path / "inductor", kernels=2, graphs=2)
        store = LocalStore(tmp_path / "store")
        ids = []
        for seed in range(3):
            make_cache(cache, seed=seed, kernels=1, graphs=1)
            ids.append(cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0).snapshot.id)
        repository = open_repository(store)
        for identifier in ids:
            trash.remove(repository, identifier, grace=0)
        real = LocalStore.delete

        def dies(store: LocalStore, key: str) -> None:
            if key.startswith("packs/") and len(pack_sizes(repository.store)) == 2:
                raise KeyboardInterrupt
            real(store, key)

        with monkeypatch.context() as patch:
            patch.setattr(LocalStore, "delete", dies)
            with pytest.raises(KeyboardInterrupt):
                sweep(repository)
        assert len(pack_sizes(repository.store)) == 2
        again = cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0).snapshot.id
        assert is_whole(repository, again)
        sweep(repository)
        assert pack_sizes(repository.store).keys() == packs_of(repository, again)
        assert cachekeeper.verify(every=True, store=store).ok


def test_bazel_remote_a_manifest_whose_pack_was_evicted(repository: Repository, store: ScriptedStore):
    """Somebody deleted a pack: nothing builds on it, a sweep keeps the rest, and a copy mends it."""
    other = MemoryStore("other")
    saved = save(repository, 0, 1)
    cachekeeper.copy(store, other)
    evicted = sorted(packs_of(repository, saved))[0]
    MemoryStore.delete(store, pack_key(evicted))
    assert not sweep(repository).deleted
    assert len(store.packs) == 1
    again = save(repository, 0, 1)
    assert is_whole(repository, again) and not is_whole(repository, saved)
    cachekeeper.copy(other, store)
    assert is_whole(repository, saved)


def test_hugging_face_one_temporary_file_for_two(tmp_path: Path):
    """HF #4306: two writers of one object went on in one temporary file. Here each has its own, and one wins."""
    store = LocalStore(tmp_path / "store")
    store.prepare()
    (tmp_path / "store" / "packs").mkdir()
    (tmp_path / "store" / "packs" / ".tmp-0000000000000000").write_bytes(b"half of anoth")
    assert store.create("packs/x", b"first") is True and store.create("packs/x", b"another") is False
    assert store.read("packs/x") == b"first"
    assert [info.key for info in store.list("packs/")] == ["packs/x"]


class TestKopiaOverlappingMaintenance(Elsewhere):
    """kopia: two machines did the maintenance at once."""

    def test_the_second_is_refused(self, repository: Repository, store: ScriptedStore):
        orphan = put(store, 1)

        def second() -> None:
            with pytest.raises(Busy, match="another sweep is at work"):
                sweep(repository)

        store.before("create", "gc/", second)
        assert sweep(repository).deleted.keys() == {orphan.id}

    def test_one_that_was_held_up_deletes_nothing(
        self, repository: Repository, store: ScriptedStore, monkeypatch: pytest.MonkeyPatch
    ):
        """It stands still for an hour; another sweep, and a writer that adopts what is condemned, go on without it."""
        pack = put(store, 1)
        clock = [0.0]
        monkeypatch.setattr(leases, "_seconds_of_this_boot", lambda: clock[0])
        condemn(repository, store)
        source = Repository(MemoryStore("source"))
        source.prepare()
        put(source.store, 1)
        saved = save(source, 1)

        def meanwhile() -> None:
            clock[0] += HOUR
            store.now += HOUR
            sweep(repository, grace=DAY)
            cachekeeper.copy(source.store, store)

        def second_look() -> None:
            store.before("list", "pins/", meanwhile)

        store.before("list", "snapshots/", lambda: store.before("list", "snapshots/", second_look))
        found = sweep(repository)
        assert store.played and not found.deleted and found.unfinished
        assert packs_of(repository, saved) == {pack.id} <= store.packs

    def test_a_list_that_was_overtaken_does_not_count(self, store: ScriptedStore):
        condemned.write(store, condemned.Condemned(1, {}))

        def two_more() -> None:
            assert condemned.write(store, condemned.Condemned(2, {}))
            assert condemned.write(store, condemned.Condemned(3, {}))

        store.before("create", "gc/00000002", two_more)
        assert condemned.write(store, condemned.Condemned(2, {"ab" * 32: condemned.Doom(2, 0.0)})) is False
        assert store.keys("gc/") == ["gc/00000003"] and condemned.read(store).packs == {}


def test_a_pack_with_the_same_content_is_another_pack(repository: Repository, store: ScriptedStore):
    """Stored anew beside a sweep, it has a new name: the deletion of the old one cannot hit it."""
    old = put(store, 1)
    condemn(repository, store)
    saved = []
    store.before("delete", "packs/", lambda: saved.append(save(repository, 1)))
    assert sweep(repository).deleted.keys() == {old.id}
    assert is_whole(repository, saved[0]) and old.id not in packs_of(repository, saved[0])
    with_nonces = {samples.pack(1, number).id for number in range(5)}
    assert len(with_nonces) == 5


class TestSixHourWriter(Elsewhere):
    """A writer at work for longer than its lease counts."""

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        clock = [0.0]
        monkeypatch.setattr(leases, "_seconds_of_this_boot", lambda: clock[0])
        return clock

    def pass_time(self, store: ScriptedStore, clock: list[float], seconds: float) -> None:
        store.now += seconds
        clock[0] += seconds

    def test_it_gives_up(self, repository: Repository, store: ScriptedStore, clock: list[float]):
        put(store, 1)
        store.before("create", "packs/", lambda: self.pass_time(store, clock, 5 * HOUR))
        with pytest.raises(Busy, match="took so long"):
            save(repository, 0, 1)
        assert not store.keys("snapshots/") and not store.keys("leases/")

    def test_until_then_nothing_is_deleted(self, repository: Repository, store: ScriptedStore, clock: list[float]):
        put(store, 1)

        def nearly() -> None:
            self.pass_time(store, clock, 5 * HOUR - 1)
            assert not sweep(repository).deleted

        store.before("create", "packs/", nearly)
        assert is_whole(repository, save(repository, 0, 1))

    @pytest.mark.parametrize("clock_goes_on", [True, False])
    def test_held_up_at_the_last_moment_it_takes_its_manifest_back(
        self, repository: Repository, store: ScriptedStore, clock: list[float], clock_goes_on: bool
    ):
        """Also where the machine was halted, and its own clock with it."""
        orphan = put(store, 1)

        def held_up() -> None:
            store.now += 7 * HOUR
            clock[0] += 7 * HOUR * clock_goes_on
            assert sweep(repository).deleted.keys() == {orphan.id}

        store.before("create", "snapshots/", held_up)
        with pytest.raises(DamagedStore, match="vanished"):
            save(repository, 1)
        assert not store.keys("snapshots/")

    @pytest.mark.usefixtures("impatient")
    def test_a_look_at_what_is_there_is_not_enough(
        self, repository: Repository, store: ScriptedStore, clock: list[float]
    ):
        """The sweep has looked at the manifests already, and is about to delete."""
        put(store, 1)

        def held_up() -> None:
            self.pass_time(store, clock, 7 * HOUR)
            begin_a_sweep(store)

        store.before("create", "snapshots/", held_up)
        with pytest.raises(DamagedStore, match="a sweep is deleting"):
            save(repository, 1)
        assert not store.keys("snapshots/")


class TestUndoWhileItsTrashIsDropped:
    @pytest.mark.parametrize(
        "where", [("list", "trash/"), ("read", "trash/"), ("create", "snapshots/"), ("size", "leases/")]
    )
    def test_a_sweep_in_the_middle_of_an_undo(
        self, repository: Repository, store: ScriptedStore, where: tuple[str, str]
    ):
        saved = save(repository, 0, 1)
        trash.remove(repository, saved, grace=0)
        store.before(*where, lambda: sweep(repository))
        try:
            trash.bring_back(repository, saved)
        except NotFound:
            assert trash.look(repository).gone.keys() == {saved} and not repository.has(saved)
        else:
            assert is_whole(repository, saved) and not trash.look(repository).gone
        assert store.played

    @pytest.mark.parametrize("where", [("list", "pins/"), ("delete", "trash/"), ("list", "packs/"), ("create", "gc/")])
    def test_an_undo_in_the_middle_of_a_sweep(
        self, repository: Repository, store: ScriptedStore, where: tuple[str, str]
    ):
        saved = save(repository, 0, 1)
        trash.remove(repository, saved, grace=0)
        came_back = []

        def undo() -> None:
            with contextlib.suppress(NotFound):
                came_back.append(trash.bring_back(repository, saved))

        store.before(*where, undo)
        sweep(repository)
        assert store.played and repository.has(saved) == bool(came_back)
        assert not came_back or is_whole(repository, saved)


class TestRemovingWhileARestoreRuns:
    def read(self, repository: Repository, identifier: str) -> None:
        """As a restore does."""
        with repository.reading():
            for pack in sorted(packs_of(repository, identifier)):
                repository.store.read(pack_key(pack))

    def test_what_it_reads_stays(self, repository: Repository, store: ScriptedStore):
        saved = save(repository, 0, 1)

        def remove_and_sweep() -> None:
            trash.remove(repository, saved, grace=0)
            assert not sweep(repository).deleted

        store.before("read", "packs/", remove_and_sweep)
        self.read(repository, saved)
        assert store.played and len(sweep(repository).deleted) == 2

    def test_also_what_had_been_condemned_before(self, repository: Repository, store: ScriptedStore):
        """Adopted by a copy, and needed since, though the list that the reader knows names it."""
        pack = put(store, 1)
        condemn(repository, store)
        source = Repository(MemoryStore("source"))
        source.prepare()
        put(source.store, 1)
        saved = save(source, 1)
        cachekeeper.copy(source.store, store)
        assert pack.id in condemned.read(store).packs

        def remove_and_sweep() -> None:
            trash.remove(repository, saved, grace=0)
            assert not sweep(repository).deleted

        store.before("read", "packs/", remove_and_sweep)
        self.read(repository, saved)
        assert store.played

    def test_a_bucket_keeps_it_for_the_grace_time(self, repository: Repository, store: ScriptedStore):
        """There, a restore has no lease: from the moment that it is dropped, its packs are condemned anew."""
        store.far = True
        pack = put(store, 1)
        condemn(repository, store)
        source = Repository(MemoryStore("source"))
        source.prepare()
        put(source.store, 1)
        saved = save(source, 1)
        cachekeeper.copy(source.store, store)
        store.now += 30 * DAY

        def remove_and_sweep() -> None:
            trash.remove(repository, saved, grace=0)
            assert not sweep(repository, grace=HOUR).deleted
            store.now += HOUR - 1
            assert not sweep(repository, grace=HOUR).deleted

        store.before("read", "packs/", remove_and_sweep)
        self.read(repository, saved)
        store.now += 1
        assert sweep(repository, grace=HOUR).deleted.keys() == {pack.id}

    def test_the_real_restore(self, tmp_path: Path):
        cache = make_cache(tmp_path / "inductor", kernels=2, graphs=2)
        store = ScriptedStore()
        saved = cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0).snapshot.id
        repository = Repository(store)

        def remove_and_sweep() -> None:
            trash.remove(repository, saved, grace=0)
            sweep(repository)

        store.before("read", "packs/", remove_and_sweep)
        restored = cachekeeper.restore(saved, cache_dir=tmp_path / "back", store=store, verify=True)
        assert store.played and restored.new and not repository.has(saved)


class TestCopyingWhatIsCondemned:
    @pytest.fixture
    def source(self) -> Repository:
        source = Repository(MemoryStore("source"))
        source.prepare()
        for content in (0, 1):
            put(source.store, content)
        return source

    def test_it_is_adopted(self, repository: Repository, store: ScriptedStore, source: Repository):
        pack = put(store, 1)
        condemn(repository, store)
        saved = save(source, 0, 1)
        store.before("create", "snapshots/", lambda: sweep(repository))
        assert cachekeeper.copy(source.store, store).packs == 1, "the other one is there"
        assert store.played and pack.id in packs_of(repository, saved) <= store.packs
        assert sweep(repository).deleted == {}

    def test_what_is_being_deleted_is_waited_for_and_copied_again(
        self, repository: Repository, store: ScriptedStore, source: Repository, monkeypatch: pytest.MonkeyPatch
    ):
        pack = put(store, 1)
        condemn(repository, store)
        saved = save(source, 0, 1)
        ended = []

        def the_sweep_ends(_: float) -> None:
            for key in [lease.key for lease in leases.listed(store) if lease.kind is Kind.SWEEP]:
                store.delete(pack_key(pack.id))
                store.delete(key)
                ended.append(key)

        monkeypatch.setattr(writing.time, "sleep", the_sweep_ends)
        begin_a_sweep(store)
        assert cachekeeper.copy(source.store, store).packs == 2
        assert ended and is_whole(repository, saved)

    @pytest.mark.usefixtures("impatient")
    def test_a_sweep_that_does_not_end_is_told(self, repository: Repository, store: ScriptedStore, source: Repository):
        put(store, 1)
        condemn(repository, store)
        save(source, 0, 1)

        def copying() -> None:
            with pytest.raises(Busy, match="a sweep is deleting from memory://memory"):
                cachekeeper.copy(source.store, store)

        store.before("delete", "packs/", copying)
        sweep(repository)
        assert not store.keys("snapshots/")


def test_merging_what_is_removed_meanwhile(tmp_path: Path):
    """The merge says that it came too late, or is whole."""
    store = ScriptedStore()
    repository = Repository(store)
    ids = []
    for seed in range(2):
        cache = make_cache(tmp_path / f"inductor-{seed}", seed=seed, kernels=1, graphs=1)
        ids.append(cachekeeper.snapshot(f"rank{seed}", cache_dir=cache, store=store, wait=0).snapshot.id)

    def remove_and_sweep() -> None:
        for identifier in ids:
            trash.remove(repository, identifier, grace=0)
        assert sweep(repository).deleted

    store.before("create", "leases/", remove_and_sweep)
    with pytest.raises(DamagedStore, match="vanished"):
        cachekeeper.merge(ids, name="job", store=store, prefer="first")
    assert store.played and not store.keys("snapshots/") and not store.keys("leases/")


def test_merging_what_is_removed_under_its_lease(tmp_path: Path):
    store = ScriptedStore()
    repository = Repository(store)
    ids = []
    for seed in range(2):
        cache = make_cache(tmp_path / f"inductor-{seed}", seed=seed, kernels=1, graphs=1)
        ids.append(cachekeeper.snapshot(f"rank{seed}", cache_dir=cache, store=store, wait=0).snapshot.id)

    def remove_and_sweep() -> None:
        for identifier in ids:
            trash.remove(repository, identifier, grace=0)
        assert not sweep(repository).deleted

    store.before("create", "snapshots/", remove_and_sweep)
    merged = cachekeeper.merge(ids, name="job", store=store, prefer="first").snapshot
    assert merged is not None and is_whole(repository, merged.id) and not sweep(repository).deleted


def test_manifests_are_where_they_belong(repository: Repository, store: ScriptedStore):
    """What these tests look at is what there is."""
    saved = save(repository, 0)
    assert store.keys("snapshots/") == [manifest_key(saved)]
    with pytest.raises(KeyMissing):
        store.read("snapshots/none")
