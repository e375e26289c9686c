"""Sweeps: what they drop, condemn and delete, in which order, and what stops them."""

from __future__ import annotations

import pytest

from cachekeeper import condemned, leases, pins, sweeping, trash
from cachekeeper.errors import Busy, DamagedStore
from cachekeeper.leases import Kind
from cachekeeper.repository import Repository, manifest_key, pack_key
from cachekeeper.stores import MemoryStore
from tests.gc.scripted import ScriptedStore, packs_of, put, repository, save, store

__all__ = ["repository", "store"]

HOUR, DAY = 3600.0, 86_400.0


def test_two_looks_a_grace_time_apart(repository: Repository, store: ScriptedStore):
    saved, orphan = save(repository, 0), put(store, 1)
    [needed] = packs_of(repository, saved)
    assert not sweeping.sweep(repository).condemned, "it is too young: somebody may be at work on it"
    store.now += DAY
    first = sweeping.sweep(repository)
    assert first.condemned == {orphan.id: len(orphan.data)} and not first.deleted
    assert first.waiting[orphan.id].until == store.now + DAY and (first.needed, first.needed_bytes > 0) == (1, True)
    store.now += DAY - 1
    assert not sweeping.sweep(repository).deleted and condemned.generation(store) == 1
    store.now += 1
    last = sweeping.sweep(repository)
    assert last.deleted == {orphan.id: len(orphan.data)} and not last.waiting and not last.condemned
    assert store.packs == {needed} and condemned.read(store) == condemned.Condemned(2, {})
    again = sweeping.sweep(repository)
    assert not (again.deleted or again.condemned) and store.keys("gc/") == ["gc/00000002"]


def test_the_plan_says_what_a_sweep_does_and_writes_nothing(
    repository: Repository, store: ScriptedStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sweeping.time, "time", lambda: store.now)
    removed = save(repository, 0)
    trash.remove(repository, removed, grace=HOUR)
    put(store, 1)
    for grace in (DAY, HOUR, 0):
        store.now += DAY
        before = store.keys("")
        planned = sweeping.plan(repository, grace=grace)
        assert store.keys("") == before
        done = sweeping.sweep(repository, grace=grace)
        for field in ("condemned", "deleted", "needed", "needed_bytes", "at_work", "now"):
            assert getattr(planned, field) == getattr(done, field), field
        assert [each.key for each in planned.dropped] == [each.key for each in done.dropped]
    assert not store.packs


def test_what_is_needed_again_is_not_condemned_any_more(repository: Repository, store: ScriptedStore):
    orphan = put(store, 1)
    sweeping.sweep(repository, grace=HOUR)
    store.now += HOUR
    sweeping.sweep(repository, grace=HOUR)
    assert orphan.id in condemned.read(store).packs
    other = MemoryStore("other")
    source = Repository(other)
    source.prepare()
    put(other, 1)
    identifier = save(source, 1)
    store.create(manifest_key(identifier), other.read(manifest_key(identifier)))
    assert not sweeping.sweep(repository, grace=0).deleted and not condemned.read(store).packs


def test_what_a_pin_alone_needs_stays(repository: Repository, store: ScriptedStore):
    """Somebody deleted the manifest of a pinned snapshot by hand."""
    saved = save(repository, 0, 1)
    pins.put(repository, [saved])
    store.delete(manifest_key(saved))
    store.now += DAY
    assert not sweeping.sweep(repository, grace=0, empty_trash=True).deleted and len(store.packs) == 2


def test_what_is_pinned_stays_in_the_trash(repository: Repository, store: ScriptedStore):
    saved = save(repository, 0)
    data = store.read(manifest_key(saved))
    trash.remove(repository, saved, grace=0)
    store.create(manifest_key(saved), data)
    pins.put(repository, [saved])
    MemoryStore.delete(store, manifest_key(saved))
    found = sweeping.sweep(repository, grace=0, empty_trash=True)
    assert not found.dropped and [each.snapshot for each in found.kept] == [saved]


def test_it_goes_on_where_the_last_one_was_killed(repository: Repository, store: ScriptedStore):
    packs = {put(store, content, number).id for content in (0, 1) for number in (1, 2)}

    def die() -> None:
        raise KeyboardInterrupt

    store.before("delete", "packs/", lambda: store.before("delete", "packs/", die))
    with pytest.raises(KeyboardInterrupt):
        sweeping.sweep(repository, grace=0)
    assert len(store.packs) == 3 and condemned.read(store).packs.keys() == packs
    assert len(sweeping.sweep(repository, grace=0).deleted) == 3
    assert not store.packs and not condemned.read(store).packs


def test_its_time_is_over_before_all_is_deleted(
    repository: Repository, store: ScriptedStore, monkeypatch: pytest.MonkeyPatch
):
    for content in (0, 1):
        put(store, content)
    clock = [0.0]
    monkeypatch.setattr(leases, "_seconds_of_this_boot", lambda: clock[0])
    store.before("delete", "packs/", lambda: clock.append(clock.pop() + 600))
    found = sweeping.sweep(repository, grace=0)
    assert found.unfinished and len(found.deleted) == 1 and len(found.waiting) == 1
    assert not sweeping.sweep(repository, grace=0).unfinished and not store.packs


def test_who_is_at_work_is_told(repository: Repository, store: ScriptedStore):
    orphan = put(store, 1)
    with repository.writing():
        found = sweeping.sweep(repository, grace=0)
        assert [lease.kind for lease in found.at_work] == [Kind.WRITE] and orphan.id in found.waiting
    with repository.writing():
        assert sweeping.sweep(repository, grace=0).deleted.keys() == {orphan.id}, "it knew that list"


def test_a_damaged_lease_keeps_everything_while_it_counts(repository: Repository, store: ScriptedStore):
    put(store, 1)
    store.create("leases/" + "a" * 32, b"garbage")
    assert not sweeping.sweep(repository, grace=0).deleted
    store.now += 6 * HOUR
    assert len(sweeping.sweep(repository, grace=0).deleted) == 1 and not store.keys("leases/")


def test_a_damaged_list_is_made_anew(repository: Repository, store: ScriptedStore):
    """Since when a pack is condemned is not known any more: its time begins again."""
    orphan = put(store, 1)
    store.now += 2 * DAY
    sweeping.sweep(repository)
    store.now += 2 * DAY
    MemoryStore.delete(store, "gc/00000001")
    MemoryStore.create(store, "gc/00000001", b"garbage")
    found = sweeping.sweep(repository)
    assert not found.deleted and found.condemned.keys() == {orphan.id} and condemned.generation(store) == 2
    store.now += DAY
    assert sweeping.sweep(repository).deleted


@pytest.mark.parametrize("data", [b"", b"garbage"])
def test_a_damaged_manifest_stops_it(repository: Repository, store: ScriptedStore, data: bytes):
    saved = save(repository, 0)
    put(store, 1)
    MemoryStore.delete(store, manifest_key(saved))
    MemoryStore.create(store, manifest_key(saved), data)
    with pytest.raises(DamagedStore, match="so nothing is swept") as refused:
        sweeping.sweep(repository, grace=0)
    assert "cachekeeper rm" in (refused.value.hint or "") and len(store.packs) == 2
    assert not store.keys("gc/") and not store.keys("leases/")
    trash.remove(repository, saved)
    assert len(sweeping.sweep(repository, grace=0, empty_trash=True).deleted) == 2


def test_a_damaged_pin_of_a_snapshot_that_is_there(repository: Repository, store: ScriptedStore):
    saved = save(repository, 0)
    store.create(f"pins/{saved}", b"garbage")
    assert not sweeping.sweep(repository, grace=0).deleted
    MemoryStore.delete(store, manifest_key(saved))
    with pytest.raises(DamagedStore, match="cannot tell what the pinned snapshot"):
        sweeping.sweep(repository, grace=0)


def test_snapshots_that_come_and_go_all_the_time(repository: Repository, store: ScriptedStore):
    """It looks again where one went to the trash meanwhile, and gives up where that does not end."""
    saved = save(repository, 0)
    data = store.read(manifest_key(saved))
    store.before("read", "snapshots/", lambda: trash.remove(repository, saved))
    assert sweeping.needed_packs(repository) == store.packs
    MemoryStore.create(store, manifest_key(saved), data)

    def go() -> None:
        MemoryStore.delete(store, manifest_key(saved))
        store.before("list", "snapshots/", lambda: MemoryStore.create(store, manifest_key(saved), data))
        store.before("read", "snapshots/", go)

    store.before("read", "snapshots/", go)
    with pytest.raises(Busy, match="snapshots come and go"):
        sweeping.needed_packs(repository)


def test_what_is_no_pack_stays(repository: Repository, store: ScriptedStore):
    store.create(pack_key("somebody-elses"), b"x")
    store.create("snapshots/readme", b"x")
    store.now += DAY
    assert not sweeping.sweep(repository, grace=0).deleted and len(store.packs) == 1


def test_times_from_the_future(repository: Repository, store: ScriptedStore):
    """A store whose clock was ahead for a while: what it wrote then waits, and nothing goes too early."""
    store.now += 400 * DAY
    young = put(store, 1)
    store.now -= 400 * DAY
    old = put(store, 0)
    store.now += DAY
    assert sweeping.sweep(repository).condemned.keys() == {old.id}
    store.now += 400 * DAY
    assert sweeping.sweep(repository).condemned.keys() == {young.id}


def test_signatures_go_with_what_is_dropped(repository: Repository, store: ScriptedStore):
    removed, kept = save(repository, 0), save(repository, 1)
    for identifier in (removed, kept):
        store.create(f"signatures/{identifier}/{'ab' * 8}", b"x")
    trash.remove(repository, removed, grace=0)
    sweeping.sweep(repository)
    assert store.keys("signatures/") == [f"signatures/{kept}/{'ab' * 8}"]


def test_progress_is_told(repository: Repository, store: ScriptedStore):
    sizes = [len(put(store, content).data) for content in (0, 1)]
    told: list[tuple[str, int, int]] = []
    sweeping.sweep(repository, grace=0, progress=lambda *step: told.append(step))
    assert told[-1] == ("Deleting", sum(sizes), sum(sizes)) and len(told) == 2


def test_it_looks_past_a_cache_of_this_machine(repository: Repository, store: ScriptedStore):
    """Through a store that is kept near, what was deleted elsewhere would seem to be there."""

    class Near(MemoryStore):
        @property
        def original(self) -> ScriptedStore:
            return store

    orphan = put(store, 1)
    assert sweeping.sweep(Repository(Near()), grace=0).deleted.keys() == {orphan.id} and not store.packs
