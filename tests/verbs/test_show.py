"""One snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import DamagedStore, NotFound
from tests import samples

from .conftest import Machine

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def saved(cache: Path, store: Path) -> str:
    """The id of a snapshot with two names."""
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, metrics={"tok_s": 1})
    from cachekeeper.repository import open_repository

    [identifier] = set(open_repository(store).names().values())
    open_repository(store).move_name("best", identifier)
    return identifier


@pytest.mark.parametrize("reference", ["drafter", "best", "latest", "drafter@{0}"])
def test_by_any_name(store: Path, saved: str, reference: str):
    found = cachekeeper.show(reference, store=store)
    assert found.snapshot.id == saved
    assert found.names == ("best", "drafter")
    assert found.snapshot.header.metrics == {"tok_s": 1.0}
    assert found.here.fits


def test_by_id(store: Path, saved: str):
    assert cachekeeper.show(saved[:6], store=store) == cachekeeper.show(saved, store=store)


def test_a_name_that_moved_on_is_not_its_name(cache: Path, store: Path, saved: str):
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, message="other")
    assert cachekeeper.show(saved, store=store).names == ("best",)


def test_why_it_does_not_fit(store: Path, saved: str, machine: Machine):
    machine.fingerprint = samples.fingerprint(torch="2.12.0")
    found = cachekeeper.show("drafter", store=store)
    assert [(item.name, item.theirs, item.ours) for item in found.here.must] == [("torch", "2.11.0", "2.12.0")]


def test_nothing_of_that_name(store: Path, saved: str):
    with pytest.raises(NotFound) as caught:
        cachekeeper.show("bst", store=store)
    assert caught.value.hint == "did you mean `best`?"


def test_a_damaged_one(store: Path, saved: str):
    path = store / "snapshots" / f"{saved}.json.zst"
    path.chmod(0o644)
    path.write_bytes(b"garbage")
    with pytest.raises(DamagedStore):
        cachekeeper.show("drafter", store=store)
