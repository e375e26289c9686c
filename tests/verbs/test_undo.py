"""Bring removed snapshots back: which, and where their names go."""

from __future__ import annotations

from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import trash
from cachekeeper.errors import DamagedStore, NotFound, ReadOnly, StoreError, UsageError
from cachekeeper.records import checked, with_checksum
from cachekeeper.repository import Repository, manifest_key, open_repository
from cachekeeper.stores import open_store
from cachekeeper.verbs.ls import ls_trash
from cachekeeper.verbs.undo import UndoResult

from .conftest import unplaced
from .test_rm import history_of_two, names, save, there

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def three(cache: Path, store: Path) -> list[str]:
    """Ids of three snapshots that were drafter; they share their packs."""
    return [save(store, cache, "drafter", message) for message in ("first", "second", "third")]


def in_trash(store: Path) -> list[str]:
    return [removal.snapshot for removal in trash.look(open_repository(store)).removals]


def test_the_last_that_was_removed(store: Path, cache: Path, tmp_path: Path, three: list[str]):
    cachekeeper.rm(three[0], store=store)
    cachekeeper.rm("drafter", reason="wrong", store=store)
    assert names(store) == {"drafter": three[1]}
    found = cachekeeper.undo(store=store)
    assert [(each.snapshot, each.reason) for each in found.removals] == [(three[2], "wrong")]
    assert found.names == {"drafter": three[2]} and found.elsewhere == {} and found.left == (three[0],)
    assert there(store) == [three[2], three[1]] and names(store) == {"drafter": three[2]}
    assert cachekeeper.undo(store=store).left == ()
    cachekeeper.restore("drafter", cache_dir=tmp_path / "back", store=store)
    assert unplaced(tmp_path / "back") == unplaced(cache)
    with pytest.raises(NotFound, match="nothing is in the trash of"):
        cachekeeper.undo(store=store)


def test_by_the_beginning_of_an_id_or_the_name_that_it_had(store: Path, three: list[str]):
    cachekeeper.rm(three, force=True, store=store)
    found = cachekeeper.undo([three[0][:6], "drafter", three[2]], store=store)
    assert [each.snapshot for each in found.removals] == [three[0], three[2]] and found.left == (three[1],)
    assert names(store) == found.names == {"drafter": three[2]}


def test_a_name_that_was_moved_on_stays(store: Path, cache: Path, three: list[str]):
    cachekeeper.rm("drafter", store=store)
    latest = save(store, cache, "drafter", "fourth")
    found = cachekeeper.undo(store=store)
    assert (found.names, found.elsewhere) == ({}, {"drafter": latest}) and names(store) == {"drafter": latest}
    assert three[2] in there(store)


def test_what_is_removed_again_and_again(store: Path, three: list[str]):
    for _ in range(3):
        cachekeeper.rm("drafter", store=store)
        assert names(store) == {"drafter": three[1]}
        assert cachekeeper.undo("drafter", store=store).names == {"drafter": three[2]}
    assert in_trash(store) == [] and there(store) == three[::-1]


def test_all_or_nothing(store: Path, three: list[str]):
    cachekeeper.rm(three[0], store=store)
    for wrong, error in (("draftr", NotFound), ("abcd0123", NotFound), ("ab", NotFound), ("../x", NotFound)):
        with pytest.raises(error):
            cachekeeper.undo([three[0], wrong], store=store)
    with pytest.raises(ReadOnly):
        cachekeeper.undo(store=open_store(store, read_only=True))
    assert in_trash(store) == [three[0]]
    with pytest.raises(NotFound, match="is not in the trash"):
        cachekeeper.undo("ab" * 32, store=store)
    with pytest.raises(NotFound, match="no snapshots in"):
        cachekeeper.undo(store=store / "none")


def test_one_that_is_there(store: Path, three: list[str]):
    cachekeeper.rm(three[0], store=store)
    found = cachekeeper.undo([three[0], three[1]], store=store)
    assert [each.snapshot for each in found.removals] == [three[0]] and found.already == (three[1],)
    assert cachekeeper.undo("drafter", store=store) == UndoResult(
        store.as_uri(), already=(three[2],), names={"drafter": three[2]}
    )
    assert len(open_repository(store).history("drafter")) == 3


def test_one_that_is_there_and_in_the_trash(store: Path, three: list[str]):
    cachekeeper.rm(three[0], store=store)
    manifest = trash.manifest_in(open_repository(store), trash.look(open_repository(store)).removals[0])
    [path] = (store / "trash" / three[0]).iterdir()
    (store / manifest_key(manifest.id)).write_bytes(path.read_bytes().partition(b"\n")[2])
    assert cachekeeper.undo(three[0], store=store).already == (three[0],)
    assert cachekeeper.ls("drafter", store=store).removed == ()
    assert cachekeeper.rm(three[0], store=store).snapshots == (three[0],)
    assert [each.snapshot for each in cachekeeper.undo(three[0], store=store).removals] == [three[0]]


def test_the_beginning_of_two_ids(store: Path, three: list[str]):
    cachekeeper.rm(three[0], store=store)
    [removal] = (store / "trash" / three[0]).iterdir()
    other = three[0][:8] + "0" * 56
    (store / "trash" / other).mkdir()
    (store / "trash" / other / removal.name).write_bytes(removal.read_bytes())
    with pytest.raises(UsageError, match="the beginning of 2 ids"):
        cachekeeper.undo(three[0][:8], store=store)
    assert cachekeeper.undo(three[0], store=store).removals[0].snapshot == three[0]


def test_what_is_damaged_stays_in_the_trash(store: Path, three: list[str]):
    path = store / manifest_key(three[0])
    path.chmod(0o644)
    path.write_bytes(b"garbage")
    cachekeeper.rm(three[0], store=store)
    with pytest.raises(DamagedStore):
        cachekeeper.undo(store=store)
    assert in_trash(store) == [three[0]]


def test_a_removal_whose_line_is_damaged_comes_back(store: Path, three: list[str]):
    cachekeeper.rm(three[2], store=store)
    [path] = (store / "trash" / three[2]).iterdir()
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b'"reason": ""', b'"reason": "x"', 1))
    found = cachekeeper.undo(store=store)
    assert found.removals[0].damage and found.names == {"drafter": three[2]} and there(store) == three[::-1]


def test_a_removal_that_somebody_made_up(store: Path, three: list[str]):
    cachekeeper.rm(three[0], store=store)
    [path] = (store / "trash" / three[0]).iterdir()
    line, _, manifest = path.read_bytes().partition(b"\n")
    made_up = {
        **checked(line + b"\n"),
        "names": {"../../x": 1, "@{1}": 2, "drafter": 2},
        "grace": 1e308,
        "who": "\x1b[",
    }
    path.chmod(0o644)
    path.write_bytes(with_checksum(made_up) + manifest)
    assert [row.removal.grace for row in ls_trash(store=store).rows] == [1e308]
    found = cachekeeper.undo(three[0], store=store)
    assert found.names == {} and found.elsewhere == {"drafter": three[2]} and names(store) == {"drafter": three[2]}


def test_what_is_gone_for_good(store: Path, three: list[str]):
    cachekeeper.rm(three[0], store=store)
    cachekeeper.sweep(apply=True, empty_trash=True, store=store)
    with pytest.raises(NotFound, match=f"snapshot {three[0][:8]} is gone: removed "):
        cachekeeper.undo(three[0][:8], store=store)


def test_its_packs_are_kept_until_then(store: Path, cache: Path, tmp_path: Path):
    only = save(store, cache, "drafter", "only")
    cachekeeper.rm("drafter", force=True, store=store)
    for _ in range(2):
        assert cachekeeper.sweep(apply=True, grace=0.0, store=store).found.deleted == {}
    cachekeeper.undo(only[:8], store=store)
    assert cachekeeper.verify("drafter", store=store).ok


def test_a_crash_at_any_step_is_finished_by_a_rerun(cache: Path):
    for steps in range(20):
        store, older, newer = history_of_two(cache)
        cachekeeper.rm("drafter", store=store)
        store.left = steps
        crashed = True
        try:
            cachekeeper.undo(newer[:8], store=store)
            crashed = False
        except StoreError:
            store.left = None
            assert Repository(store).has(newer) or trash.look(Repository(store)).removals
            cachekeeper.undo(newer[:8], store=store)
        store.left = None
        assert there(store) == [newer, older] and names(store) == {"drafter": newer}
        assert trash.look(Repository(store)).removals == ()
        if not crashed:
            break
    assert 3 <= steps < 19
