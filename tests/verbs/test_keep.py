"""Keep some snapshots of each name and remove the others, in a store with snapshots of many days."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import trash
from cachekeeper.errors import NotFound, Pinned, ReadOnly, StoreError, UsageError
from cachekeeper.repository import Repository, manifest_key, open_repository, pack_key
from cachekeeper.stores import Store, open_store
from cachekeeper.units import short_id, timestamp_of
from cachekeeper.verbs.keep import KeepResult
from tests import samples

from .test_rm import FailingStore, names, spoil, there

pytestmark = pytest.mark.usefixtures("machine")

DAY = 86400.0


def save(store: Path | Store, name: str, days: float, proven: bool = False, moves: bool = True) -> str:
    """The id of a snapshot that was saved so many days ago."""
    repository = open_repository(store)
    repository.prepare()
    tables = samples.tables()
    for pack in tables.packs:
        repository.store.create(pack_key(pack.id), b"p" * pack.size)
    created = timestamp_of(time.time() - days * DAY)
    header = samples.header(created=created, name=name, proof=samples.proof() if proven else None)
    found = repository.commit(header, tables).id
    if name and moves:
        repository.move_name(name, found)
    return found


@pytest.fixture
def ids(store: Path) -> dict[str, str]:
    """Of drafter one a day for four days, the oldest proven; of base two; and one without a name."""
    return {
        "d4": save(store, "drafter", 4, proven=True),
        "d3": save(store, "drafter", 3),
        "d2": save(store, "drafter", 2),
        "b2": save(store, "base", 1.5),
        "d1": save(store, "drafter", 1),
        "b1": save(store, "base", 0.5),
        "u": save(store, "", 0.25),
    }


def stays(found: KeepResult, ids: dict[str, str]) -> dict[str, str]:
    known = {identifier: word for word, identifier in ids.items()}
    return {known[verdict.snapshot.id]: ", ".join(verdict.reasons) for verdict in found.verdicts}


def test_a_dry_run_says_of_each_why_it_stays(store: Path, ids: dict[str, str]):
    cachekeeper.pin(ids["d3"], store=store)
    found = cachekeeper.keep(last=1, proven=True, store=open_store(store, read_only=True))
    assert (found.store, found.applied, found.removals, found.unreadable, found.others) == (
        store.as_uri(),
        False,
        (),
        (),
        1,
    )
    assert stays(found, ids) == {
        "b1": "base points to it, last 1",
        "d1": "drafter points to it, last 1",
        "b2": "",
        "d2": "",
        "d3": "pinned",
        "d4": "proven",
    }
    assert [verdict.names for verdict in found.verdicts][:2] == [("base",), ("drafter",)]
    assert found.going == [ids["b2"], ids["d2"]] and len(there(store)) == 7


def test_applied_and_applied_again(store: Path, ids: dict[str, str]):
    found = cachekeeper.keep(last=1, daily=2, apply=True, grace=60.0, reason="monthly", store=store)
    gone = {ids["d3"], ids["d4"]}
    assert found.applied and {removal.snapshot for removal in found.removals} == gone
    removals = trash.look(open_repository(store)).removals
    assert {(each.snapshot, each.reason, each.grace) for each in removals} == {(each, "monthly", 60.0) for each in gone}
    assert gone.isdisjoint(there(store)) and len(there(store)) == 5
    again = cachekeeper.keep(last=1, daily=2, apply=True, store=store)
    assert again.going == [] and again.removals == ()
    cachekeeper.undo([*gone], store=store)
    assert names(store) == {"drafter": ids["d1"], "base": ids["b1"]} and len(there(store)) == 7


def test_some_names_alone(store: Path, ids: dict[str, str]):
    found = cachekeeper.keep("base", last=1, store=store)
    assert stays(found, ids) == {"b1": "base points to it, last 1", "b2": ""} and found.others == 5
    with pytest.raises(NotFound) as caught:
        cachekeeper.keep(["base", "draftr"], last=1, apply=True, store=store)
    assert caught.value.hint == "did you mean `drafter`?"
    with pytest.raises(NotFound, match="no snapshot has the name"):
        cachekeeper.keep(ids["d1"][:8], last=1, store=store)
    assert len(there(store)) == 7


def test_a_snapshot_of_a_name_that_was_not_asked_for_stays(store: Path, ids: dict[str, str]):
    repository = open_repository(store)
    repository.move_name("best", ids["d3"])
    repository.move_name("best", ids["d1"])
    found = stays(cachekeeper.keep("drafter", last=1, store=store), ids)
    assert found["d3"] == "also of best, which was not asked for" and found["d2"] == ""
    found = stays(cachekeeper.keep(last=1, store=store), ids)
    assert found["d3"] == "" and found["d1"] == "best points to it, drafter points to it, last 1"


def test_those_without_a_name(store: Path, ids: dict[str, str]):
    older = save(store, "", 9)
    found = cachekeeper.keep("base", last=1, unnamed=True, store=store)
    assert stays(found, {**ids, "o": older}) == {"u": "last 1", "b1": "base points to it, last 1", "b2": "", "o": ""}
    everything = stays(cachekeeper.keep(within=60.0, unnamed=True, store=store), {**ids, "o": older})
    assert (everything["u"], everything["o"], everything["b1"]) == ("", "", "base points to it")


def test_one_saved_under_a_name_that_never_moved_there_is_of_that_name(store: Path, ids: dict[str, str]):
    smaller = save(store, "drafter", 0.1, moves=False)
    other = save(store, "other", 0.1, moves=False)
    found = stays(cachekeeper.keep(within=60.0, store=store), {**ids, "s": smaller, "o": other})
    assert found["s"] == "" and found["o"] == "the last of other" and found["d1"] == "drafter points to it"


def test_what_cannot_be_read_stays(store: Path, ids: dict[str, str]):
    spoil(store, ids["d2"])
    found = cachekeeper.keep(last=1, apply=True, store=store)
    assert [line.partition(":")[0] for line in found.unreadable] == [short_id(ids["d2"])]
    assert (store / manifest_key(ids["d2"])).exists() and ids["d3"] not in there(store)


def test_where_the_last_move_of_a_name_is_damaged_the_one_before_counts(store: Path, ids: dict[str, str]):
    path = store / "names" / "drafter" / "00000004"
    path.chmod(0o644)
    path.write_bytes(b"garbage")
    found = stays(cachekeeper.keep(within=60.0, store=store), ids)
    assert found["d2"] == "drafter points to it" and found["d1"] == ""


def test_a_name_of_which_all_was_removed(store: Path, ids: dict[str, str]):
    cachekeeper.rm([ids["b1"], ids["b2"]], force=True, store=store)
    assert "b1" not in stays(cachekeeper.keep(last=1, store=store), ids)
    with pytest.raises(NotFound, match="no snapshot has the name base"):
        cachekeeper.keep("base", last=1, store=store)


def test_rules_that_make_no_sense(store: Path, ids: dict[str, str]):
    for rules in ({}, {"last": -1}, {"within": -1.0}, {"last": 1, "daily": -1}):
        with pytest.raises(UsageError):
            cachekeeper.keep(apply=True, store=store, **rules)
    with pytest.raises(NotFound):
        cachekeeper.keep(last=1, store=store / "none")
    with pytest.raises(ReadOnly):
        cachekeeper.keep(last=1, apply=True, store=open_store(store, read_only=True))
    assert len(there(store)) == 7


def test_a_crash_at_any_step_is_finished_by_a_rerun():
    for steps in range(40):
        store = FailingStore()
        first, second, third = (save(store, "drafter", days) for days in (3, 2, 1))
        store.left = steps
        crashed = True
        try:
            cachekeeper.keep(last=1, apply=True, store=store)
            crashed = False
        except StoreError:
            store.left = None
            cachekeeper.keep(last=1, apply=True, store=store)
        assert there(store) == [third] and names(store) == {"drafter": third}
        assert trash.look(Repository(store)).away == {first, second}
        if not crashed:
            break
    assert 4 <= steps < 39


def test_one_that_is_pinned_at_the_same_moment_stays():
    store = FailingStore()
    first, second, third = (save(store, "drafter", days) for days in (3, 2, 1))

    def pin(step: str) -> None:
        if step == f"delete {manifest_key(second)}":
            store.before = lambda step: None
            cachekeeper.pin(second, store=store)

    store.before = pin
    with pytest.raises(Pinned):
        cachekeeper.keep(last=1, apply=True, store=store)
    assert there(store) == [third, second] and trash.look(Repository(store)).away == {first}
    assert cachekeeper.keep(last=1, apply=True, store=store).going == []
