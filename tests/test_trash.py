"""The trash: what it keeps of a snapshot, how that comes back, and what damage does."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from cachekeeper import leases, pins, sweeping, trash
from cachekeeper.errors import DamagedStore, NotFound, Pinned
from cachekeeper.records import with_checksum
from cachekeeper.repository import GRACE_SECONDS, Repository, manifest_key, removed
from cachekeeper.stores import MemoryStore
from tests.gc.scripted import BEGIN, ScriptedStore, packs_of, repository, save, store

__all__ = ["repository", "store"]

HOUR, DAY = 3600.0, 86_400.0


@pytest.fixture
def saved(repository: Repository) -> str:
    return save(repository, 0, 1)


def change(store: ScriptedStore, key: str, edit: Callable[[bytes, bytes], bytes]) -> None:
    """Replace an object in the trash by what `edit` makes of its line and its manifest."""
    line, newline, manifest = store.read(key).partition(b"\n")
    MemoryStore.delete(store, key)
    MemoryStore.create(store, key, edit(line + newline, manifest))


def test_there_and_back(repository: Repository, store: ScriptedStore, saved: str):
    data = store.read(manifest_key(saved))
    removal = trash.remove(repository, saved, reason="too old", names={"drafter": 7}, grace=DAY)
    assert not repository.has(saved) and store.keys("leases/") == []
    [found] = trash.look(repository).removals
    assert found == removal._replace(modified=BEGIN, size=len(store.read(removal.key)))
    assert (found.reason, found.names, found.until, found.gone) == ("too old", {"drafter": 7}, BEGIN + DAY, False)
    assert trash.manifest_in(repository, found).id == saved and removed.ids(repository.store) == {saved}
    assert trash.bring_back(repository, saved) == found
    assert store.read(manifest_key(saved)) == data and not store.keys("trash/") and not store.keys("leases/")


def test_the_object_byte_for_byte(repository: Repository, store: ScriptedStore, saved: str):
    data = store.read(manifest_key(saved))
    removal = trash.remove(repository, saved, grace=60.0)
    line, newline, manifest = store.read(removal.key).partition(b"\n")
    document = json.loads(line)
    assert manifest == data
    assert line + newline == with_checksum({name: value for name, value in document.items() if name != "sha256"})
    assert document.keys() == {"snapshot", "when", "who", "reason", "grace", "names", "sha256"}
    assert removal.key.startswith(f"trash/{saved}/") and len(removal.key) == len(f"trash/{saved}/") + 32


def test_what_is_not_there(repository: Repository, saved: str):
    with pytest.raises(NotFound, match="no snapshot abababab"):
        trash.remove(repository, "ab" * 32)
    with pytest.raises(NotFound, match="is not in the trash: it is there"):
        trash.bring_back(repository, saved)
    with pytest.raises(NotFound, match="is not in the trash"):
        trash.bring_back(repository, "ab" * 32)


def test_what_is_gone_says_so(repository: Repository, store: ScriptedStore, saved: str):
    trash.remove(repository, saved, grace=0)
    sweeping.sweep(repository)
    assert trash.look(repository).gone.keys() == {saved} and not trash.look(repository).removals
    with pytest.raises(NotFound, match=r"is gone: removed \S+Z by .*, and its grace time is over"):
        trash.bring_back(repository, saved)


def test_what_came_back_by_another_way_is_not_in_the_trash(repository: Repository, store: ScriptedStore, saved: str):
    """As by a copy from another store: neither the note nor what is left in the trash says otherwise."""
    data = store.read(manifest_key(saved))
    trash.remove(repository, saved, grace=0)
    sweeping.sweep(repository, grace=DAY)
    store.create(manifest_key(saved), data)
    assert trash.look(repository) == trash.Trash()
    trash.remove(repository, saved)
    assert [each.snapshot for each in trash.look(repository).removals] == [saved]
    assert not trash.look(repository).gone, "it can come back"


# Pins


def test_what_is_pinned_stays(repository: Repository, store: ScriptedStore, saved: str):
    pins.put(repository, [saved], "paper")
    with pytest.raises(Pinned, match="is pinned: paper"):
        trash.remove(repository, saved)
    assert repository.has(saved) and not store.keys("trash/")


@pytest.mark.parametrize("where", [("read", "snapshots/"), ("create", "trash/")])
def test_what_is_pinned_meanwhile_is_put_back(repository: Repository, store: ScriptedStore, saved: str, where):
    store.before(*where, lambda: pins.put(repository, [saved], "paper"))
    with pytest.raises(Pinned):
        trash.remove(repository, saved)
    assert store.played and repository.has(saved) and not store.keys("trash/")


def test_put_back_with_its_packs_though_a_sweep_dropped_it(repository: Repository, store: ScriptedStore, saved: str):
    """Pinned at the last moment, when the trash is empty already."""
    data = store.read(manifest_key(saved))

    def drop_and_pin() -> None:
        assert sweeping.sweep(repository, grace=0).dropped
        MemoryStore.create(store, manifest_key(saved), data)
        pins.put(repository, [saved])
        MemoryStore.delete(store, manifest_key(saved))

    store.before("delete", "snapshots/", lambda: store.before("read", "pins/", drop_and_pin))
    with pytest.raises(Pinned):
        trash.remove(repository, saved, grace=0)
    assert store.played and packs_of(repository, saved) <= store.packs


# Killed, and at once with others


def test_a_removal_that_was_killed_is_finished_by_the_next(repository: Repository, store: ScriptedStore, saved: str):
    def die() -> None:
        raise KeyboardInterrupt

    store.before("delete", "snapshots/", die)
    with pytest.raises(KeyboardInterrupt):
        trash.remove(repository, saved)
    found = trash.look(repository)
    assert repository.has(saved) and not found.removals and len(found.left) == 1
    assert not sweeping.plan(repository, empty_trash=True).dropped
    trash.remove(repository, saved)
    assert not repository.has(saved) and len(trash.look(repository).removals) == 2
    trash.bring_back(repository, saved)
    assert repository.has(saved) and not trash.look(repository).removals
    assert len(trash.look(repository).left) == 2, "nobody can tell that the killed one is not about to delete"


def test_an_undo_that_was_killed_is_finished_by_the_next(repository: Repository, store: ScriptedStore, saved: str):
    def die() -> None:
        raise KeyboardInterrupt

    removal = trash.remove(repository, saved, names={"drafter": 3})
    store.before("delete", "trash/", die)
    with pytest.raises(KeyboardInterrupt):
        trash.bring_back(repository, saved)
    assert repository.has(saved)
    assert trash.bring_back(repository, saved).names == removal.names
    assert repository.has(saved) and not trash.look(repository).removals


def test_an_undo_in_the_middle_of_a_removal_loses_nothing(repository: Repository, store: ScriptedStore, saved: str):
    """The removal is in the trash, and the manifest is still in its place."""
    store.before("delete", "snapshots/", lambda: trash.bring_back(repository, saved))
    trash.remove(repository, saved)
    assert store.played and [each.snapshot for each in trash.look(repository).removals] == [saved]
    trash.bring_back(repository, saved)
    assert repository.has(saved)


def test_two_removals_and_an_undo(repository: Repository, store: ScriptedStore, saved: str):
    """The undo finds two in the trash; the first of them is still about to delete."""

    def remove_and_undo() -> None:
        trash.remove(repository, saved)
        trash.bring_back(repository, saved)

    store.before("delete", "snapshots/", remove_and_undo)
    trash.remove(repository, saved)
    assert store.played and not repository.has(saved) and trash.look(repository).removals


def test_a_sweep_in_the_middle_of_a_removal_keeps_it(repository: Repository, store: ScriptedStore, saved: str):
    store.before("delete", "snapshots/", lambda: sweeping.sweep(repository, grace=0, empty_trash=True))
    trash.remove(repository, saved, grace=0)
    assert store.played and len(trash.look(repository).removals) == 1
    trash.bring_back(repository, saved)
    assert packs_of(repository, saved) <= store.packs


# Damage


@pytest.mark.parametrize(
    "line",
    [
        b"garbage\n",
        b"[" * 100_000 + b"\n",
        with_checksum({}),
        with_checksum({"names": [], "when": "", "who": "", "reason": "", "grace": 1}),
        with_checksum({"names": {"a": "many"}, "when": "", "who": "", "reason": "", "grace": 1}),
        with_checksum({"names": {"a": float("inf")}, "when": "", "who": "", "reason": "", "grace": 1}),
        with_checksum({"names": {}, "when": "", "who": "", "reason": "", "grace": 10**400}),
        with_checksum({"names": {}, "when": "", "who": "", "reason": "", "grace": "long"}),
    ],
    ids=lambda line: repr(line[:60]),
)
def test_a_record_that_is_damaged(repository: Repository, store: ScriptedStore, saved: str, line: bytes):
    """The manifest behind it is whole: it is kept for the usual time, and comes back."""
    removal = trash.remove(repository, saved, grace=0)
    change(store, removal.key, lambda _, manifest: line + manifest)
    [found] = trash.look(repository).removals
    assert found.damage and found.until == BEGIN + GRACE_SECONDS
    assert not sweeping.sweep(repository, grace=0).dropped
    assert trash.bring_back(repository, saved).damage and repository.has(saved)


@pytest.mark.parametrize("grace", [float("nan"), float("inf"), 1e308])
def test_a_grace_time_without_end(repository: Repository, store: ScriptedStore, saved: str, grace: float):
    trash.remove(repository, saved, grace=grace)
    store.now += 1000 * DAY
    assert not sweeping.sweep(repository, grace=0).dropped
    assert sweeping.sweep(repository, grace=0, empty_trash=True).dropped


@pytest.mark.parametrize("edit", [lambda line, manifest: line, lambda line, manifest: manifest, lambda *_: b""])
def test_a_manifest_that_is_damaged(repository: Repository, store: ScriptedStore, saved: str, edit):
    """Nothing is swept, until it is given up or another removal has it whole."""
    removal = trash.remove(repository, saved)
    change(store, removal.key, edit)
    with pytest.raises(DamagedStore):
        trash.bring_back(repository, saved)
    with pytest.raises(DamagedStore, match="nothing is swept"):
        sweeping.sweep(repository, grace=0)
    assert store.keys("trash/") and len(store.packs) == 2 and not store.keys("leases/")
    assert len(sweeping.sweep(repository, grace=0, empty_trash=True).deleted) == 2


def test_of_two_removals_the_whole_one_comes_back(repository: Repository, store: ScriptedStore, saved: str):
    data = store.read(manifest_key(saved))
    first = trash.remove(repository, saved)
    store.now += HOUR
    store.create(manifest_key(saved), data)
    second = trash.remove(repository, saved)
    change(store, second.key, lambda line, _: line + b"garbage")
    assert trash.bring_back(repository, saved).key == first.key
    assert store.read(manifest_key(saved)) == data


def test_a_manifest_of_another_snapshot_is_damage(repository: Repository, store: ScriptedStore, saved: str):
    other = store.read(manifest_key(save(repository, 2)))
    removal = trash.remove(repository, saved)
    change(store, removal.key, lambda line, _: line + other)
    with pytest.raises(DamagedStore):
        trash.bring_back(repository, saved)


def test_packs_that_are_missing_are_told(repository: Repository, store: ScriptedStore, saved: str):
    trash.remove(repository, saved)
    MemoryStore.delete(store, store.keys("packs/")[0])
    with pytest.raises(DamagedStore, match="1 pack vanished"):
        trash.bring_back(repository, saved)
    assert len(trash.look(repository).removals) == 1


def test_other_objects_in_the_trash_are_passed_over(repository: Repository, store: ScriptedStore):
    for key in ("trash/x", f"trash/{'ab' * 32}/short", f"trash/{'ab' * 32}/{'0' * 32}/more"):
        store.create(key, b"x")
    assert trash.look(repository) == trash.Trash() and not removed.ids(repository.store)
    sweeping.sweep(repository, grace=0, empty_trash=True)
    assert len(store.keys("trash/")) == 3


def test_a_removal_that_lasted_too_long_puts_back_only_what_is_whole(
    repository: Repository, store: ScriptedStore, saved: str, monkeypatch: pytest.MonkeyPatch
):
    clock = [0.0]
    monkeypatch.setattr(leases, "_seconds_of_this_boot", lambda: clock[0])
    monkeypatch.setattr(leases, "_this_process", lambda: ("another boot", "a namespace", "1", "1"))
    data = store.read(manifest_key(saved))

    def late() -> None:
        store.now += 7 * HOUR
        clock[0] += 7 * HOUR
        assert len(sweeping.sweep(repository, grace=0).deleted) == 2
        MemoryStore.create(store, f"pins/{saved}", pins._encode(pins.Pin(saved, "2026-01-31T08:15:00Z")))

    store.before("delete", "snapshots/", lambda: store.before("read", "pins/", late))
    with pytest.raises(Pinned):
        trash.remove(repository, saved, grace=0)
    assert store.played and data and not repository.has(saved)
