"""Take snapshots away: what is refused, where names go, and that a crash at any step is finished by a rerun."""

from __future__ import annotations

from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import signatures, signing, trash
from cachekeeper.errors import CheckFailed, NotFound, Pinned, ReadOnly, StoreError, UsageError
from cachekeeper.repository import Repository, manifest_key, open_repository
from cachekeeper.stores import KeyMissing, Store, open_store
from cachekeeper.verbs.rm import RmResult
from tests.test_pins import LockingStore

pytestmark = pytest.mark.usefixtures("machine")


def save(store: Path | Store, cache: Path, name: str | None, message: str) -> str:
    return cachekeeper.snapshot(name, cache_dir=cache, store=store, message=message).snapshot.id


@pytest.fixture
def three(cache: Path, store: Path) -> list[str]:
    """Ids of three snapshots that were drafter, the last of which is best too; they share their packs."""
    found = [save(store, cache, "drafter", message) for message in ("first", "second", "third")]
    open_repository(store).move_name("best", found[2])
    return found


def names(store: Path | Store) -> dict[str, str]:
    return open_repository(store).names()


def there(store: Path | Store) -> list[str]:
    return [snapshot.id for snapshot in open_repository(store).snapshots().snapshots]


def spoil(store: Path, identifier: str) -> None:
    path = store / manifest_key(identifier)
    path.chmod(0o644)
    path.write_bytes(b"garbage")


def test_a_name_goes_back_to_what_is_left_of_its_history(store: Path, three: list[str]):
    found = cachekeeper.rm("drafter", reason="wrong", grace=60.0, force=True, store=store)
    assert (found.store, found.snapshots, found.dry_run) == (store.as_uri(), (three[2],), False)
    assert found.names == {"best": "", "drafter": three[1]} and found.unsigned == ()
    assert there(store) == [three[1], three[0]]
    assert names(store) == {"best": three[2], "drafter": three[1]}
    [removal] = trash.look(open_repository(store)).removals
    assert (removal.snapshot, removal.reason, removal.grace) == (three[2], "wrong", 60.0)
    assert removal.names == {"drafter": 4, "best": 1}
    assert removal._replace(modified=0.0, size=0) == found.removals[0]
    assert len(list((store / "packs").iterdir())) == 1


def test_an_id_to_which_nothing_points(store: Path, three: list[str]):
    found = cachekeeper.rm([three[0][:8], "drafter@{1}", three[0]], store=store)
    assert found.snapshots == (three[0], three[1]) and found.names == {}
    assert there(store) == [three[2]] and len(open_repository(store).history("drafter")) == 3


def test_it_goes_back_beyond_what_is_removed_damaged_or_gone(cache: Path, store: Path, three: list[str]):
    last = save(store, cache, "drafter", "fourth")
    spoil(store, three[2])
    cachekeeper.rm(three[1], store=store)
    assert cachekeeper.rm(last, store=store).names == {"drafter": three[0]}
    assert cachekeeper.restore("drafter", cache_dir=cache, store=store).snapshot.id == three[0]


def test_a_damaged_manifest_by_its_id(store: Path, three: list[str]):
    spoil(store, three[2])
    with pytest.raises(CheckFailed):
        cachekeeper.rm(three[2][:8], store=store)
    cachekeeper.rm(three[2][:8], force=True, store=store)
    assert (store / manifest_key(three[2])).exists() is False
    [removal] = trash.look(open_repository(store)).removals
    assert (store / removal.key).read_bytes().endswith(b"\ngarbage")


def test_the_last_of_a_name(store: Path, three: list[str]):
    before = names(store)
    for references in (three, ["best"]):
        with pytest.raises(CheckFailed, match=r"^nothing else is left of best") as caught:
            cachekeeper.rm(references, store=store)
        assert type(caught.value) is CheckFailed and "--force" in caught.value.hint
    assert names(store) == before and len(there(store)) == 3
    assert cachekeeper.rm(three, force=True, store=store).names == {"best": "", "drafter": ""}
    assert there(store) == []
    with pytest.raises(NotFound, match=f"snapshot {three[2][:8]} was removed") as removed:
        cachekeeper.show("drafter", store=store)
    assert removed.value.hint == f"bring it back with `cachekeeper undo {three[2][:8]}`"


def test_a_name_that_points_to_nothing_takes_the_next_snapshot(cache: Path, store: Path, three: list[str]):
    cachekeeper.rm(three, force=True, store=store)
    assert cachekeeper.restore("drafter", cache_dir=cache, store=store, missing_ok=True).snapshot is None
    again = save(store, cache, "drafter", "fourth")
    assert names(store)["drafter"] == again
    assert cachekeeper.rm(again, force=True, store=store).names == {"drafter": ""}


def test_a_pinned_one_is_refused_and_nothing_is_removed(store: Path, three: list[str]):
    cachekeeper.pin(three[1], reason="release", store=store)
    for force in (False, True):
        with pytest.raises(Pinned, match="1 snapshot to be removed is pinned") as caught:
            cachekeeper.rm([three[0], three[1], "drafter"], force=force, store=store)
        assert caught.value.facts[0].startswith(three[1][:8]) and caught.value.facts[0].endswith(": release")
    assert len(there(store)) == 3 and names(store)["drafter"] == three[2]
    pin = store / "pins" / three[1]
    pin.chmod(0o644)
    pin.write_text("garbage")
    with pytest.raises(Pinned, match="pinned"):
        cachekeeper.rm(three[1], force=True, store=store)
    cachekeeper.unpin(three[1], store=store)
    assert cachekeeper.rm(three[1], store=store).snapshots == (three[1],)


def test_a_dry_run_changes_nothing(store: Path, three: list[str]):
    before = sorted(store.rglob("*"))
    found = cachekeeper.rm(["drafter", three[0]], force=True, dry_run=True, store=open_store(store, read_only=True))
    assert found == RmResult(store.as_uri(), (three[2], three[0]), (), {"best": "", "drafter": three[1]}, dry_run=True)
    assert sorted(store.rglob("*")) == before


def test_all_or_nothing(store: Path, three: list[str]):
    with pytest.raises(NotFound) as caught:
        cachekeeper.rm([three[0], "draftr"], store=store)
    assert caught.value.hint == "did you mean `drafter`?"
    with pytest.raises(UsageError, match="another snapshot on another machine"):
        cachekeeper.rm([three[0], "latest"], store=store)
    with pytest.raises(UsageError):
        cachekeeper.rm([], store=store)
    with pytest.raises(ReadOnly):
        cachekeeper.rm(three[0], store=open_store(store, read_only=True))
    with pytest.raises(NotFound):
        cachekeeper.rm(three[0], store=store / "none")
    assert len(there(store)) == 3 and not (store / "trash").exists()


def test_one_that_was_removed_already(store: Path, three: list[str]):
    cachekeeper.rm(three[0], store=store)
    for reference in (three[0], three[0][:8], "drafter@{2}"):
        assert cachekeeper.rm(reference, store=store) == RmResult(store.as_uri(), (), (three[0],))
    found = cachekeeper.rm([three[0], three[1]], store=store)
    assert (found.snapshots, found.already) == ((three[1],), (three[0],)) and there(store) == [three[2]]
    cachekeeper.sweep(apply=True, empty_trash=True, store=store)
    assert cachekeeper.rm(three[0][:8], store=store).already == (three[0],)
    (store / manifest_key(three[2])).unlink()
    with pytest.raises(NotFound):
        cachekeeper.rm("drafter", store=store)


def test_a_move_that_was_signed_is_told(store: Path, three: list[str]):
    repository = open_repository(store)
    repository.move_name("best", three[0])
    assert cachekeeper.rm("drafter", dry_run=True, store=store).unsigned == ()
    for claim in signatures.claims_of(repository, "drafter"):
        signatures.sign(repository, signing.new_private_key(), claim)
    assert cachekeeper.rm("drafter", store=store).unsigned == ("drafter",)
    assert cachekeeper.undo(store=store).unsigned == ("drafter",)


# What others say of a removed snapshot


def test_every_reader_says_what_happened(cache: Path, store: Path, tmp_path: Path, three: list[str]):
    cachekeeper.rm(three[1], reason="wrong dataset", store=store)
    told = rf"^snapshot {three[1][:8]} was removed \S+Z by \S+: wrong dataset\n"
    for reference in (three[1], three[1][:6], "drafter@{1}"):
        for read in (
            lambda reference: cachekeeper.restore(reference, cache_dir=tmp_path / "new", store=store),
            lambda reference: cachekeeper.show(reference, store=store),
            lambda reference: cachekeeper.verify(reference, store=store),
            lambda reference: cachekeeper.diff(reference, "drafter", store=store),
            lambda reference: cachekeeper.pin(reference, store=store),
        ):
            with pytest.raises(NotFound, match=told) as caught:
                read(reference)
            assert caught.value.code == "not-found"
    with pytest.raises(NotFound, match=told):
        cachekeeper.copy(store, tmp_path / "other", [three[1][:8]])
    assert cachekeeper.copy(store, tmp_path / "other").ok
    with pytest.raises(KeyMissing, match=told):
        open_repository(store).manifest(three[1])


def test_a_removal_that_cannot_be_read_is_one(store: Path, three: list[str]):
    cachekeeper.rm(three[1], store=store)
    [path] = (store / "trash" / three[1]).iterdir()
    path.chmod(0o644)
    path.write_bytes(b"\xff" * 100_000)
    with pytest.raises(NotFound, match=f"^snapshot {three[1][:8]} was removed\n"):
        cachekeeper.show(three[1], store=store)


def test_one_that_is_gone_for_good(store: Path, three: list[str]):
    cachekeeper.rm(three[1], store=store)
    cachekeeper.sweep(apply=True, empty_trash=True, store=store)
    with pytest.raises(NotFound, match="was removed") as caught:
        cachekeeper.show("drafter@{1}", store=store)
    assert caught.value.facts == ("its grace time is over: nothing is left of it",)
    assert caught.value.hint == "see what there is with `cachekeeper ls`"


# Crashes, and others at the same time


class FailingStore(LockingStore):
    """One without locks."""

    def hold(self, key: str) -> bool:
        return False


def history_of_two(cache: Path) -> tuple[FailingStore, str, str]:
    store = FailingStore()
    return store, save(store, cache, "drafter", "first"), save(store, cache, "drafter", "second")


def test_a_crash_at_any_step_is_finished_by_a_rerun_and_undone(cache: Path):
    for steps in range(20):
        store, older, newer = history_of_two(cache)
        store.left = steps
        crashed = True
        try:
            cachekeeper.rm("drafter", store=store)
            crashed = False
        except StoreError:
            repository = Repository(store)
            assert repository.has(newer) or trash.look(repository).away == {newer}
            assert repository.has(repository.resolve("drafter")), "a name never points to nothing"
        store.left = None
        if crashed:
            _finish(store, newer)
        assert there(store) == [older] and names(store) == {"drafter": older}
        cachekeeper.undo(store=store)
        assert there(store) == [newer, older] and names(store) == {"drafter": newer}
        if not crashed:
            break
    assert 3 <= steps < 19


def _finish(store: FailingStore, identifier: str) -> None:
    """As a person does: what the same again says, or by the id."""
    if Repository(store).has(identifier) and names(store)["drafter"] != identifier:
        with pytest.raises(UsageError) as caught:
            cachekeeper.rm("drafter", store=store)
        assert caught.value.hint.startswith(f"finish that with `cachekeeper rm {identifier[:8]}`")
    cachekeeper.rm(identifier[:8], store=store)


def test_an_interrupted_one_can_be_taken_back(cache: Path):
    store, _, newer = history_of_two(cache)
    store.left = 1  # the name is moved, and nothing else
    with pytest.raises(StoreError):
        cachekeeper.rm("drafter", store=store)
    store.left = None
    assert cachekeeper.undo(newer[:8], store=store).names == {"drafter": newer}
    assert names(store) == {"drafter": newer}
    assert cachekeeper.undo(newer[:8], store=store).already == (newer,)
    assert len(Repository(store).history("drafter")) == 4


def test_one_that_is_pinned_at_the_same_moment_stays_with_its_names(cache: Path):
    store, older, newer = history_of_two(cache)

    def pin(step: str) -> None:
        if step == f"delete {manifest_key(newer)}":
            store.before = lambda step: None
            cachekeeper.pin(newer, store=store)

    store.before = pin
    with pytest.raises(Pinned):
        cachekeeper.rm("drafter", store=store)
    assert there(store) == [newer, older] and names(store) == {"drafter": newer}


@pytest.mark.parametrize("step", ["create names/drafter", "create trash", "delete snapshots"])
def test_two_at_once_leave_no_name_that_points_to_nothing(cache: Path, step: str):
    store = FailingStore()
    first, second, third = (save(store, cache, "drafter", message) for message in ("first", "second", "third"))

    def remove_the_other(moment: str) -> None:
        if moment.startswith(step):
            store.before = lambda step: None
            cachekeeper.rm(second, store=store)

    store.before = remove_the_other
    cachekeeper.rm(third, store=store)
    assert there(store) == [first] and names(store) == {"drafter": first}


def test_a_name_that_moves_on_meanwhile_stays_there(cache: Path):
    store, older, newer = history_of_two(cache)

    def move_on(moment: str) -> None:
        if moment.startswith("create names/drafter"):
            store.before = lambda step: None
            Repository(store).move_name("drafter", older)
            Repository(store).move_name("drafter", latest)

    latest = save(store, cache, None, "third")
    store.before = move_on
    assert cachekeeper.rm(newer, store=store).names == {}
    assert names(store) == {"drafter": latest}


def test_names_that_no_snapshot_can_have_are_passed_over(store: Path, three: list[str]):
    repository = open_repository(store)
    repository.store.create("names/%40%7B/00000001", repository.store.read("names/drafter/00000003"))
    assert cachekeeper.rm(three[2], force=True, store=store).names == {"best": "", "drafter": three[1]}
    assert there(store) == [three[1], three[0]]
