"""One snapshot and its name over time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import NotFound
from cachekeeper.inventory.models import Coverage, Inventory
from cachekeeper.models import Fact
from cachekeeper.repository import manifest_key, open_repository
from cachekeeper.testing import make_cache
from cachekeeper.verbs import report as module
from tests import samples

from .conftest import Machine

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture
def ids(cache: Path, store: Path) -> list[str]:
    """drafter twice, the second proven."""

    def save(**options: object) -> str:
        return cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0, **options).snapshot.id

    return [save(metrics={"tok_s": 1}), save(metrics={"tok_s": 2}, tags={"a": "b"}, proof=samples.proof())]


def test_what_there_is(store: Path, ids: list[str]):
    found = cachekeeper.report("drafter", store=store)
    side = found.side
    assert (side.id, side.label, side.name, side.tags, side.metrics) == (
        ids[1],
        "drafter",
        "drafter",
        {"a": "b"},
        {"tok_s": 2},
    )
    assert (side.proof_seconds, side.shapes) == ((pytest.approx(11.8), pytest.approx(4.5)), ("512",))
    assert found.inventory.entries["fxgraph"] == 3 and found.inventory.entries["triton"] == 3
    assert found.notes == ()


def test_its_name_over_time(store: Path, ids: list[str]):
    first, second = cachekeeper.report("drafter@{1}", store=store).history
    assert (first.id, first.name, first.number, first.is_this) == (ids[0], "drafter", 1, True)
    assert (second.id, second.number, second.is_this) == (ids[1], 2, False)
    assert (first.entries, first.graphs, first.metrics) == (19, 3, {"tok_s": 1})
    assert (first.triton, first.native) == (3, 3)
    assert (first.cold_seconds, first.warm_seconds) == (None, None)
    assert (second.cold_seconds, second.warm_seconds) == (pytest.approx(11.8), pytest.approx(4.5))
    header = open_repository(store).header(ids[0]).header
    assert (first.bytes, first.stored, first.created) == (header.bytes, header.stored, header.created)


def test_by_an_id_it_is_that_of_the_name_that_it_was_saved_under(store: Path, ids: list[str]):
    by_id = cachekeeper.report(ids[0], store=store)
    assert by_id.history == cachekeeper.report("drafter@{1}", store=store).history
    assert by_id.side.label == ids[0][:8]


def test_by_another_name_it_is_that_of_the_other(store: Path, ids: list[str]):
    open_repository(store).move_name("best", ids[0])
    [point] = cachekeeper.report("best", store=store).history
    assert (point.id, point.name, point.number, point.is_this) == (ids[0], "best", 1, True)


def test_without_a_name_it_is_alone(cache: Path, store: Path):
    saved = cachekeeper.snapshot(cache_dir=cache, store=store, wait=0).snapshot
    [point] = cachekeeper.report(saved.id[:12], store=store).history
    assert (point.id, point.name, point.number, point.is_this) == (saved.id, "", 0, True)


def test_a_name_that_is_none_is_not_looked_for(store: Path, ids: list[str]):
    repository = open_repository(store)
    good = repository.manifest(ids[0])
    saved = repository.commit(replace(good.header, name="../../\x1b"), good.tables)
    [point] = cachekeeper.report(saved.id, store=store).history
    assert (point.id, point.number, point.is_this) == (saved.id, 0, True)


def test_the_newest_that_fits(store: Path, ids: list[str], machine: Machine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "fingerprint", lambda: machine.fingerprint)
    assert cachekeeper.report("latest", store=store).side.id == ids[1]


def test_what_of_the_history_cannot_be_read_is_told(store: Path, ids: list[str]):
    (store / manifest_key(ids[0])).unlink()
    found = cachekeeper.report("drafter", store=store)
    assert [point.id for point in found.history] == [ids[1]]
    assert found.notes == ("drafter@{1} is left out of the history: its manifest is not in the store",)


def test_of_a_long_history_the_last_ones(store: Path, ids: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_MOST_POINTS", 1)
    found = cachekeeper.report("drafter", store=store)
    assert [point.number for point in found.history] == [2]
    assert found.notes == ("the history of drafter is shown from move 2 on",)
    points = cachekeeper.report("drafter@{1}", store=store).history
    assert [(point.number, point.is_this) for point in points] == [(2, False), (0, True)]


def test_nothing_of_that_name(store: Path, ids: list[str]):
    with pytest.raises(NotFound) as caught:
        cachekeeper.report("draftr", store=store)
    assert caught.value.hint == "did you mean `drafter`?"


def test_a_live_directory(tmp_path: Path):
    cache = make_cache(tmp_path / "cache")
    found = cachekeeper.report(str(cache), store=tmp_path / "none")
    assert found.inventory.entries["triton"] == len(list((cache / "triton/0").iterdir()))
    assert (found.side.id, found.side.cache_dir, found.history) == ("", str(cache), ())


@pytest.mark.parametrize(
    ("coverage", "said"),
    [
        ((Coverage("cuda:0", 3),), ["no graphs for cuda:1 to cuda:7, of the 8 GPUs here"]),
        ((Coverage("cuda:0", 3), Coverage("", unknown=1)), []),
        ((Coverage("cpu", 3),), []),
    ],
)
def test_the_gpus_without_a_graph(
    store: Path, ids: list[str], monkeypatch: pytest.MonkeyPatch, coverage: tuple[Coverage, ...], said: list[str]
):
    """C34: the snapshot has graphs of one GPU, and the host has eight."""
    monkeypatch.setattr(module, "inventory", lambda *_, **__: Inventory(coverage=coverage))
    monkeypatch.setattr(module, "fingerprint", lambda: replace(samples.fingerprint(), should={"gpu_count": Fact(8)}))
    assert [note.partition(": a ")[0] for note in cachekeeper.report("drafter", store=store).notes] == said
