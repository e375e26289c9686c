"""Leases: who is at work, who counts, and what nonsense in their place does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cachekeeper import leases
from cachekeeper.errors import Busy, StoreError
from cachekeeper.leases import Kind, Lease
from cachekeeper.records import with_checksum
from cachekeeper.stores import LocalStore, MemoryStore
from tests.gc.scripted import BEGIN, ScriptedStore

HOUR = 3600.0
DOCUMENT = {"kind": "write", "generation": 3, "who": "me@here", "when": "now", "process": ["a", "b", "1", "2"]}


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore()


def put(store: MemoryStore, data: bytes) -> Lease:
    store.create("leases/" + "a" * 32, data)
    [lease] = leases.listed(store)
    return lease


def test_a_lease_is_there_while_the_work_lasts(store: ScriptedStore):
    with leases.hold(store, Kind.WRITE, 7) as held:
        [lease] = leases.listed(store)
        assert lease == held.lease._replace(modified=BEGIN) and lease.generation == 7 and lease.kind is Kind.WRITE
        assert held.fresh and held.there and held.others() == ([], BEGIN)
        assert lease.process[2] == str(os.getpid()) and lease.is_live(BEGIN)
    assert not leases.listed(store)


def test_the_object_byte_for_byte(store: ScriptedStore):
    with leases.hold(store, Kind.SWEEP, 7):
        [key] = store.keys("leases/")
        line = store.read(key)
    document = json.loads(line)
    assert line == with_checksum({name: value for name, value in document.items() if name != "sha256"})
    assert document.keys() == {"kind", "generation", "who", "when", "process", "sha256"}
    assert (document["kind"], document["generation"], len(document["process"])) == ("sweep", 7, 4)


def test_it_ends_with_an_error_too_and_where_it_cannot_be_deleted(store: ScriptedStore):
    with pytest.raises(ZeroDivisionError), leases.hold(store, Kind.WRITE, 0):
        raise ZeroDivisionError

    def refuse() -> None:
        raise StoreError("no")

    store.before("delete", "leases/", refuse)
    with leases.hold(store, Kind.WRITE, 0):
        pass
    assert len(store.keys("leases/")) == 1


@pytest.mark.parametrize(
    ("kind", "blocks"),
    [
        (Kind.WRITE, [False, False, True]),
        (Kind.READ, [False, False, True]),
        (Kind.EXCLUSIVE, [True, True, True]),
        (Kind.UNKNOWN, [True, True, True]),
        (Kind.SWEEP, [False, False, False]),
    ],
)
def test_which_packs_a_lease_keeps(kind: Kind, blocks: list[bool]):
    lease = Lease("", kind, 5, "", "", ())
    assert [lease.blocks(generation) for generation in (4, 5, 6)] == blocks
    assert lease.may_delete == (kind in (Kind.SWEEP, Kind.UNKNOWN))


@pytest.mark.parametrize(("kind", "life"), [(Kind.SWEEP, HOUR / 2), (Kind.WRITE, 6 * HOUR), (Kind.UNKNOWN, 6 * HOUR)])
def test_how_long_a_lease_of_another_machine_counts(kind: Kind, life: float):
    lease = Lease("", kind, 5, "", "", ("another boot", "a namespace", "1", "1"), modified=BEGIN)
    assert lease.is_live(BEGIN + life - 1) and not lease.is_live(BEGIN + life)
    assert lease.is_live(BEGIN - 30 * 24 * HOUR), "one from the future counts until its time is over"


@pytest.mark.parametrize(("kind", "seconds"), [(Kind.SWEEP, 600), (Kind.WRITE, 5 * HOUR), (Kind.EXCLUSIVE, 5 * HOUR)])
def test_the_holder_gives_up_long_before_that(
    store: ScriptedStore, monkeypatch: pytest.MonkeyPatch, kind: Kind, seconds: float
):
    clock = [0.0]
    monkeypatch.setattr(leases, "_seconds_of_this_boot", lambda: clock[0])
    with leases.hold(store, kind, 0) as held:
        clock[0] = seconds - 1
        assert held.fresh
        clock[0] = seconds
        assert not held.fresh


# Processes


def test_a_process_of_this_machine_that_has_ended(tmp_path: Path):
    code = (
        "import os, sys; from pathlib import Path; from cachekeeper import leases, stores;"
        "held = leases.hold(stores.LocalStore(Path(sys.argv[1])), leases.Kind.WRITE, 0); held.__enter__();"
        "print(flush=True); sys.stdin.read(); os._exit(1)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "store")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout and child.stdout.readline() == "\n"
        [lease] = leases.listed(LocalStore(tmp_path / "store"))
        assert lease.process[2] == str(child.pid) and lease.is_live(lease.modified)
        child.communicate("")
    assert leases.listed(LocalStore(tmp_path / "store")) and not lease.is_live(lease.modified)


@pytest.mark.parametrize("changed", [{0: "another boot"}, {1: "another namespace"}, {0: ""}, {3: ""}, {2: "none"}])
def test_of_others_nobody_can_tell(changed: dict[int, str]):
    """A number that is nobody's here may be somebody's there."""
    process = list(leases._this_process())
    process[2] = str(2**22 + 1)
    assert leases._is_gone(tuple(process))
    for place, value in changed.items():
        process[place] = value
    assert not leases._is_gone(tuple(process))


def test_the_same_number_at_another_time_is_another_process():
    process = leases._this_process()
    assert not leases._is_gone(process) and leases._is_gone((*process[:3], "1"))


def test_a_process_that_the_kernel_hides_is_there(monkeypatch: pytest.MonkeyPatch):
    """/proc mounted with hidepid: nothing is shown of processes of other users."""
    process = leases._this_process()
    monkeypatch.setattr(leases, "_started", lambda pid: "")
    assert not leases._is_gone(process)

    def not_yours(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", not_yours)
    assert not leases._is_gone(process)


@pytest.mark.parametrize("number", ["9" * 30, "-1", "1.5", "", "\u0663", "0x1"])
def test_numbers_that_no_process_has(number: str):
    assert leases._is_gone((*leases._this_machine(), number, "1")) in (False, True)


# Damage


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b"[" * 100_000,
        b"null\n",
        b"[]\n",
        with_checksum(DOCUMENT)[:-3],
        with_checksum(DOCUMENT).replace(b"write", b"wrote"),
        with_checksum({**DOCUMENT, "kind": "of a later version"}),
        with_checksum({**DOCUMENT, "kind": ["write"]}),
        with_checksum({**DOCUMENT, "generation": float("inf")}),
        with_checksum({**DOCUMENT, "generation": float("nan")}),
        with_checksum({**DOCUMENT, "generation": "many"}),
        with_checksum({**DOCUMENT, "generation": None}),
        with_checksum({**DOCUMENT, "process": 5}),
        with_checksum({name: value for name, value in DOCUMENT.items() if name != "process"}),
    ],
    ids=lambda data: repr(data[:60]),
)
def test_what_cannot_be_read_keeps_everything_while_it_counts(store: ScriptedStore, data: bytes):
    lease = put(store, data)
    assert lease.kind is Kind.UNKNOWN and lease.blocks(0) and lease.may_delete
    assert lease.is_live(BEGIN + 6 * HOUR - 1) and not lease.is_live(BEGIN + 6 * HOUR)


@pytest.mark.parametrize(
    "changes",
    [{"generation": 10**30}, {"generation": -5}, {"who": {"a": [1]}}, {"when": None}, {"process": {"a": 1}}, {"x": 1}],
    ids=repr,
)
def test_what_is_odd_is_a_lease_all_the_same(store: ScriptedStore, changes: dict):
    lease = put(store, with_checksum({**DOCUMENT, **changes}))
    assert lease.kind is Kind.WRITE and lease.is_live(BEGIN)


def test_one_whose_work_ended_while_it_was_looked_at(store: ScriptedStore):
    with leases.hold(store, Kind.WRITE, 0):
        store.before("read", "leases/", lambda: MemoryStore.delete(store, store.keys("leases/")[0]))
        assert leases.listed(store) == []


# Taken away


def test_a_lease_that_somebody_took_away(store: ScriptedStore):
    with leases.hold(store, Kind.SWEEP, 0) as held:
        store.delete(held.lease.key)
        assert not held.there
        for ask in (held.others, held.bury):
            with pytest.raises(Busy, match=r"somebody took away leases/\w{32} from memory"):
                ask()


def test_the_dead_are_buried(store: ScriptedStore, monkeypatch: pytest.MonkeyPatch):
    put(store, with_checksum(DOCUMENT))
    store.now += 6 * HOUR
    with leases.hold(store, Kind.WRITE, 0), leases.hold(store, Kind.SWEEP, 0) as held:
        assert len(leases.listed(store)) == 3 and len(held.others()[0]) == 1
        held.bury()
        assert sorted(lease.kind for lease in leases.listed(store)) == [Kind.SWEEP, Kind.WRITE]


# Readers


def test_a_reader_holds_a_lease_where_it_may_write(store: ScriptedStore):
    with leases.hold_to_read(store, 4):
        assert [(lease.kind, lease.generation) for lease in leases.listed(store)] == [(Kind.READ, 4)]
    assert not store.keys("leases/")


def test_a_reader_that_may_not_write_reads_all_the_same(store: ScriptedStore):
    def refuse() -> None:
        raise StoreError("read-only")

    store.before("create", "leases/", refuse)
    with leases.hold_to_read(store, 4):
        assert store.played
