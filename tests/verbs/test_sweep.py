"""Free what nothing needs; what is needed is `sweeping`'s to say."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import leases, trash
from cachekeeper.errors import Busy, DamagedStore, NotFound, ReadOnly, StoreError, UsageError
from cachekeeper.leases import Kind
from cachekeeper.repository import Repository, manifest_key, open_repository, pack_sizes
from cachekeeper.stores import open_store
from cachekeeper.testing import make_cache
from tests.faults.children import dies_at

from .conftest import settle
from .test_rm import FailingStore, names, save, there

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def two(tmp_path: Path, store: Path) -> list[str]:
    """Ids of two snapshots that were drafter: one that is removed, with a pack of its own, and the one before."""
    found = [save(store, settle(make_cache(tmp_path / f"c{n}", seed=n)), "drafter", str(n)) for n in (1, 2)]
    cachekeeper.rm("drafter", store=store)
    return found[::-1]


def files(store: Path) -> set[str]:
    return {path.relative_to(store).as_posix() for path in store.rglob("*") if path.is_file()}


def packs(store: Path) -> int:
    return len(list((store / "packs").iterdir()))


def test_a_dry_run_says_what_would_be_and_changes_nothing(store: Path, two: list[str]):
    before = files(store)
    found = cachekeeper.sweep(store=open_store(store, read_only=True))
    assert (found.store, found.applied) == (store.as_uri(), False)
    assert [removal.snapshot for removal in found.found.kept] == two[:1] and found.found.dropped == ()
    found = cachekeeper.sweep(empty_trash=True, grace=0.0, store=store)
    assert [removal.snapshot for removal in found.found.dropped] == two[:1]
    assert len(found.found.condemned) == len(found.found.deleted) == 1 and found.found.needed == packs(store) - 1
    assert files(store) == before


def test_it_takes_two_sweeps_a_grace_time_apart(store: Path, two: list[str]):
    assert cachekeeper.sweep(apply=True, empty_trash=True, store=store).found.condemned == {}  # packs are too young
    first = cachekeeper.sweep(apply=True, grace=0.0, store=store)
    assert len(first.found.condemned) == len(first.found.deleted) == 1 and packs(store) == first.found.needed
    assert cachekeeper.verify("drafter", store=store).ok
    with pytest.raises(NotFound):
        cachekeeper.undo(two[0], store=store)


def test_who_is_at_work_keeps_what_they_may_use(store: Path, two: list[str]):
    with leases.hold(open_store(store), Kind.READ, 0):
        found = cachekeeper.sweep(apply=True, empty_trash=True, grace=0.0, store=store).found
        assert (
            found.deleted == {} and len(found.condemned) == 1 and [each.kind for each in found.at_work] == [Kind.READ]
        )
    assert len(cachekeeper.sweep(apply=True, grace=0.0, store=store).found.deleted) == 1


def test_another_sweep(store: Path, two: list[str]):
    with leases.hold(open_store(store), Kind.SWEEP, 0), pytest.raises(Busy, match="another sweep is at work"):
        cachekeeper.sweep(apply=True, store=store)


def test_progress_and_who_may(store: Path, two: list[str]):
    with pytest.raises(ReadOnly):
        cachekeeper.sweep(apply=True, store=open_store(store, read_only=True))
    with pytest.raises(NotFound):
        cachekeeper.sweep(store=store / "none")
    steps: list[tuple[str, int, int]] = []
    found = cachekeeper.sweep(
        apply=True, empty_trash=True, grace=0.0, store=store, progress=lambda *step: steps.append(step)
    )
    assert steps == [("Deleting", *found.found.deleted.values(), *found.found.deleted.values())]


def test_a_short_grace_time_in_a_bucket(cache: Path):
    store = FailingStore()
    store.far = True
    save(store, cache, "drafter", "")
    for apply in (False, True):
        with pytest.raises(UsageError, match="less than an hour is too short"):
            cachekeeper.sweep(apply=apply, grace=3599.0, store=store)
    assert cachekeeper.sweep(apply=True, grace=3600.0, store=store).applied


@pytest.mark.parametrize("apply", [False, True])
def test_what_cannot_be_read_stops_it_until_it_is_given_up(store: Path, two: list[str], apply: bool):
    path = store / manifest_key(two[1])
    path.chmod(0o644)
    path.write_bytes(b"garbage")
    before = packs(store)
    with pytest.raises(DamagedStore, match=f"cannot tell what snapshot {two[1][:8]} needs") as caught:
        cachekeeper.sweep(apply=apply, empty_trash=True, grace=0.0, store=store)
    assert f"`cachekeeper rm {two[1][:8]}`" in caught.value.hint and packs(store) == before
    cachekeeper.rm(two[1][:8], force=True, store=store)
    cachekeeper.sweep(apply=True, empty_trash=True, grace=0.0, store=store)
    assert packs(store) == 0 and there(store) == []


def test_a_crash_at_any_step_is_finished_by_the_next(tmp_path: Path):
    caches = [settle(make_cache(tmp_path / f"c{n}", seed=n, kernels=1, graphs=1)) for n in (1, 2)]
    for steps in range(40):
        store = FailingStore()
        stays, _ = [save(store, each, "drafter", str(n)) for n, each in enumerate(caches)]
        cachekeeper.rm("drafter", store=store)
        store.left = steps
        crashed = True
        try:
            cachekeeper.sweep(apply=True, empty_trash=True, grace=0.0, store=store)
            crashed = False
        except StoreError:
            store.left = None
            assert cachekeeper.verify("drafter", store=store).ok
            # Its lease is that of this very process, which lives on.
            for lease in leases.listed(store):
                store.delete(lease.key)
            cachekeeper.sweep(apply=True, empty_trash=True, grace=0.0, store=store)
        store.left = None
        assert there(store) == [stays] and names(store) == {"drafter": stays}
        assert trash.look(Repository(store)).removals == ()
        left = pack_sizes(open_repository(store).store)
        assert left.keys() == {pack.id for pack in Repository(store).manifest(stays).tables.packs}
        assert cachekeeper.verify("drafter", store=store).ok
        if not crashed:
            break
    assert 6 <= steps < 39


# Processes that die, on a real disk


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("what", ["rm", "undo", "keep", "sweep"])
def test_dead_at_any_step_and_repeated(store: Path, two: list[str], what: str, tmp_path: Path):
    removed, stays = two
    if what in ("rm", "keep"):
        cachekeeper.undo(store=store)
    if what == "keep":
        open_repository(store).move_name("drafter", stays)
    for step in range(1, 200):
        here = tmp_path / f"{what}{step}"
        shutil.copytree(store, here)
        work: Callable[[], object] = {
            "rm": lambda here=here: cachekeeper.rm(removed, store=here),
            "undo": lambda here=here: cachekeeper.undo(removed, store=here),
            "keep": lambda here=here: cachekeeper.keep(proven=True, apply=True, store=here),
            "sweep": lambda here=here: cachekeeper.sweep(apply=True, empty_trash=True, grace=0.0, store=here),
        }[what]
        died = dies_at(step, work)
        assert cachekeeper.verify("drafter", store=here).ok
        assert what == "sweep" or removed in {*there(here), *trash.look(open_repository(here)).away}
        work()
        assert there(here) == ([removed, stays] if what == "undo" else [stays])
        assert names(here) == {"drafter": removed if what == "undo" else stays}
        assert what != "sweep" or packs(here) == packs(store) - 1
        assert leases.listed(open_store(here)) == [] or what != "sweep"
        if not died:
            break
    assert 6 <= step < 199
