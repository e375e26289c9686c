"""A bad network and a failing server between us and a real one: retried within bounds, nothing lost, nothing half."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import DamagedStore, StoreError, Unreachable
from cachekeeper.repository import open_repository
from cachekeeper.stores import KeyMissing, s3, s3_requests
from cachekeeper.stores.s3 import S3Store
from cachekeeper.testing import make_cache
from tests.faults import children
from tests.verbs.conftest import unplaced

from . import proxy as faults
from . import servers
from .proxy import Action, Proxy, Request, Response
from .servers import Server

DATA = random.Random(1).randbytes(3_000_000)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the pauses between two tries, which botocore and we take at random."""
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.01)
    monkeypatch.setattr(s3_requests.random, "random", lambda: 0.01)


@pytest.fixture
def store(proxied_credentials: None, proxy: Proxy, bucket: str) -> S3Store:
    return S3Store(bucket, "p", endpoint=proxy.endpoint, read_seconds=1)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return make_cache(tmp_path / "cache", kernels=6, graphs=6)


def restored(store: S3Store, target: Path, reference: str = "drafter") -> dict[str, bytes]:
    cachekeeper.restore(reference, cache_dir=target, store=store, verify=True)
    return unplaced(target)


PASSING: dict[str, Action] = {
    "reset at once": faults.reset_at_once(),
    "reset in mid-body": faults.cut_reply(1000),
    "reset at the first byte": faults.cut_reply(0),
    "truncated": faults.truncate_reply(1000),
    "slow down": faults.slow_down(),
    "internal error": faults.internal_error(),
    "silence": faults.stall_reply(1.5),
    "lost reply": faults.lose_reply(),
}


@pytest.mark.parametrize("name", PASSING)
def test_a_read_survives(store: S3Store, proxy: Proxy, name: str):
    store.create("packs/x", DATA)
    proxy.fault(PASSING[name], operation="get", times=2)
    assert store.read("packs/x") == DATA
    proxy.fault(PASSING[name], operation="get", times=2)
    assert store.read("packs/x", 1000, 2_000_000) == DATA[1000:2_001_000]
    assert len(proxy.said("get")) == 6


WRITING = {**PASSING, "cut request": faults.cut_request(100_000), "flipped request": faults.flip_request(12_345)}


@pytest.mark.parametrize("name", WRITING)
def test_a_write_survives(store: S3Store, proxy: Proxy, server: Server, bucket: str, name: str):
    proxy.fault(WRITING[name], operation="put", times=2)
    assert store.create("packs/x", DATA) is True, "it is ours, whatever the second try was told"
    assert store.create("packs/x", b"another") is False
    assert servers.contents(server, bucket) == {"p/packs/x": DATA}


@pytest.mark.parametrize("name", sorted(PASSING.keys() - {"silence"}))
def test_other_requests_survive(store: S3Store, proxy: Proxy, name: str):
    store.create("packs/x", b"data")
    for operation in ("list", "head", "delete"):
        proxy.fault(PASSING[name], operation=operation, times=2)
    assert [item.key for item in store.list("packs/")] == ["packs/x"]
    assert store.size("packs/x") == 4
    store.delete("packs/x")
    with pytest.raises(KeyMissing):
        store.size("packs/x")


@pytest.mark.parametrize("part", ["post uploads", "put", "post"])
@pytest.mark.parametrize("name", ["reset at once", "slow down", "lost reply"])
def test_parts_survive(
    store: S3Store, proxy: Proxy, server: Server, bucket: str, monkeypatch: pytest.MonkeyPatch, part: str, name: str
):
    monkeypatch.setattr(s3, "PART_BYTES", 5 << 20)
    monkeypatch.setattr(s3, "ONE_REQUEST_BYTES", 5 << 20)
    large = DATA * 4
    proxy.fault(PASSING[name], operation=part, key="*packs/x", times=2)
    assert store.create("packs/x", large) is True
    assert servers.contents(server, bucket) == {"p/packs/x": large}


def test_a_writer_that_lost_the_race_is_told_so_on_its_second_try(
    store: S3Store, proxy: Proxy, server: Server, bucket: str
):
    """412 on a second try is ours only if what is there is ours."""

    def another_comes_first(request: Request) -> None:
        servers.kept_client(server).put_object(Bucket=bucket, Key="p/names/x/00000001", Body=b"theirs")

    proxy.fault(faults.call_before(another_comes_first, faults.reset_at_once()), operation="put")
    assert store.create("names/x/00000001", b"ours") is False
    assert store.read("names/x/00000001") == b"theirs"


def test_retries_have_an_end(store: S3Store, proxy: Proxy):
    for operation, ask in (("get", lambda: store.read("x")), ("put", lambda: store.create("x", b""))):
        proxy.fault(faults.slow_down(), operation=operation, times=None)
        before = len(proxy.requests)
        with pytest.raises(Unreachable, match="tried 5 times"):
            ask()
        assert len(proxy.requests) - before == 5


def test_a_body_that_always_breaks_off_has_an_end(store: S3Store, proxy: Proxy):
    store.create("packs/x", DATA)
    proxy.fault(faults.cut_reply(10), operation="get", times=None)
    with pytest.raises(Unreachable):
        store.read("packs/x")
    assert len(proxy.said("get")) == 5


def test_slow_bytes_arrive(store: S3Store, proxy: Proxy):
    store.create("packs/x", DATA[:100_000])
    proxy.fault(faults.slow_reply(5_000, 0.05), operation="get")
    assert store.read("packs/x") == DATA[:100_000]


def test_a_server_that_passes_over_ranges(store: S3Store, proxy: Proxy):
    def whole(exchange: faults.Exchange) -> None:
        exchange.reply(Response(200, [], DATA))

    proxy.fault(whole, operation="get", times=None)
    assert store.read("packs/x", 1000, 10) == DATA[1000:1010]
    assert store.read("packs/x", len(DATA) - 5, 10) == store.read("packs/x", len(DATA) - 5) == DATA[-5:]
    assert store.read("packs/x", 1000, 10_000_000) == DATA[1000:]


# The verbs


@pytest.mark.parametrize("kind", ["packs", "snapshots", "names", "format.json"])
@pytest.mark.parametrize("offset", [5, 40, 100])
def test_one_byte_flipped_on_the_way_back(
    store: S3Store, proxy: Proxy, cache: Path, tmp_path: Path, kind: str, offset: int
):
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    right = restored(store, tmp_path / "right")
    flip = faults.flip_reply(offset % 15 if kind == "format.json" else offset)
    rule = proxy.fault(flip, operation="get", key=f"*{kind}*")
    assert restored(store, tmp_path / "target") == right
    assert rule.hits == 1


def test_a_byte_that_is_always_flipped_is_damage(store: S3Store, proxy: Proxy, cache: Path, tmp_path: Path):
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    proxy.fault(faults.flip_reply(200), operation="get", key="*packs*", times=None)
    with pytest.raises(DamagedStore):
        cachekeeper.restore("drafter", cache_dir=tmp_path / "target", store=store)
    assert not list((tmp_path / "target").glob("[!.]*"))


def often(dice: random.Random, share: float) -> Callable[[Request], bool]:
    """So many requests, but none of the same kind five times in turn, which is when a client gives up."""
    refused: Counter[str] = Counter()

    def match(request: Request) -> bool:
        kind = f"{request.operation} {request.path}"
        refused[kind] = refused[kind] + 1 if dice.random() < share and refused[kind] < 4 else 0
        return refused[kind] > 0

    return match


def test_a_burst_of_slow_down_over_a_whole_snapshot_and_restore(
    store: S3Store, proxy: Proxy, cache: Path, tmp_path: Path
):
    proxy.fault(faults.slow_down(), match=often(random.Random(7), 0.3), times=None)
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    found = restored(store, tmp_path / "target")
    proxy.faults.clear()
    assert found == restored(store, tmp_path / "right") and len(found) > 50


@pytest.mark.parametrize("seed", range(6))
def test_every_fault_in_turn_at_random(store: S3Store, proxy: Proxy, cache: Path, tmp_path: Path, seed: int):
    """A snapshot and a restore through a storm succeed, or say why and leave nothing half; a rerun then succeeds."""
    dice = random.Random(seed)
    storm = [action for name, action in PASSING.items() if name != "silence"]
    for action in storm:
        proxy.fault(action, match=lambda _: dice.random() < 0.06, times=None)
    for _ in range(2):
        with contextlib.suppress(StoreError):
            cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    proxy.faults.clear()
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    assert cachekeeper.verify(every=True, store=store).ok
    assert len(restored(store, tmp_path / "target")) > 50


def test_a_list_that_lags(store: S3Store, proxy: Proxy, cache: Path, tmp_path: Path):
    """Nothing that we wrote is in any listing: everything works all the same."""
    proxy.fault(faults.lag_listing(hidden=lambda key: not key.endswith("format.json")), operation="list", times=None)
    saved = [cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0) for _ in range(3)]
    ids = [item.snapshot.id for item in saved]
    repository = open_repository(store)
    assert [move.snapshot for move in repository.history("drafter")] == ids
    assert repository.resolve("drafter") == ids[-1] and repository.resolve("drafter@{2}") == ids[0]
    assert repository.resolve(ids[1]) == ids[1]
    assert saved[-1].name_moved and saved[-1].snapshot.header.parent == ids[1]
    assert len(restored(store, tmp_path / "target")) > 50


def test_a_list_that_forgets_some(store: S3Store, proxy: Proxy, cache: Path):
    """A lagging listing that lacks one move in the middle or at the end does not hide the moves after it."""
    saved = [cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0) for _ in range(4)]
    for hidden in ("00000002", "00000004"):
        lag = faults.lag_listing(hidden=lambda key, hidden=hidden: key.endswith(hidden))
        rule = proxy.fault(lag, operation="list", times=None)
        assert open_repository(store).resolve("drafter") == saved[-1].snapshot.id
        assert [move.snapshot for move in open_repository(store).history("drafter")] == [
            item.snapshot.id for item in saved
        ]
        proxy.faults.remove(rule)


# A killed writer


@pytest.mark.parametrize("when", [faults.call_before, faults.call_after], ids=["before", "after"])
def test_a_writer_that_is_killed_at_each_request(
    store: S3Store, proxy: Proxy, server: Server, bucket: str, cache: Path, tmp_path: Path, when: Callable[..., Action]
):
    """At every moment the older snapshot restores, the new one is whole or absent, and a rerun completes it."""
    first = cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0).snapshot.id
    older = restored(store, tmp_path / "older")
    make_cache(cache, seed=5, kernels=1, graphs=1)

    def save() -> None:
        mine = S3Store(bucket, "p", endpoint=proxy.endpoint)
        cachekeeper.snapshot("drafter", cache_dir=cache, store=mine, wait=0, full=True)

    repository = open_repository(S3Store(bucket, "p", endpoint=server.endpoint))
    known, deaths = {first}, 0
    while _dies_at(proxy, deaths, when, save):
        deaths += 1
        listing = repository.snapshots()
        new = {item.id for item in listing.snapshots} - known
        assert not listing.unreadable and known <= {item.id for item in listing.snapshots}
        assert all(cachekeeper.verify(item, store=repository.store).ok for item in new)
        known |= new
    assert deaths > 8 and len(known) > 1
    assert restored(store, tmp_path / "again", first) == older
    history = repository.history("drafter")
    assert [move.number for move in history] == list(range(1, len(history) + 1))
    assert len(restored(store, tmp_path / "newest")) > len(older)


def _dies_at(proxy: Proxy, request: int, when: Callable[..., Action], work: Callable[[], object]) -> bool:
    """Run `work` in a child that is killed at one of its requests; False where it was done before."""
    pids: list[int] = []
    rule = proxy.fault(when(lambda _: children.kill(pids[0])), skip=request)
    pids.append(children.start(work))
    code = children.finish(pids[0])
    proxy.faults.remove(rule)
    assert code in (0, -signal.SIGKILL)
    return code != 0


def test_an_upload_that_is_killed_leaves_nothing_to_be_seen(
    store: S3Store, proxy: Proxy, server: Server, bucket: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(s3, "PART_BYTES", 5 << 20)
    monkeypatch.setattr(s3, "ONE_REQUEST_BYTES", 5 << 20)
    pid = children.start(lambda: S3Store(bucket, "p", endpoint=proxy.endpoint).create("packs/x", DATA * 5))
    proxy.fault(faults.call_after(lambda _: children.kill(pid)), operation="put", skip=1)
    assert children.finish(pid) != 0
    assert servers.contents(server, bucket) == {}
    assert store.create("packs/x", DATA * 5) and store.read("packs/x") == DATA * 5


def test_a_snapshot_that_fails_on_the_way_goes_on_with_what_is_there(
    store: S3Store, proxy: Proxy, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    """The packs of a failed try are not sent again."""
    rule = proxy.fault(faults.answer_error(403, "AccessDenied"), operation="put", key="*snapshots/*", times=None)
    with pytest.raises(StoreError):
        cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    sent = len(proxy.said("put", "*packs/*"))
    proxy.faults.remove(rule)
    saved = cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    assert sent > 0 and len(proxy.said("put", "*packs/*")) == sent and saved.stored == 0


def test_no_thread_is_left_after_an_error(store: S3Store, proxy: Proxy, cache: Path):
    def ours() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]

    proxy.fault(faults.answer_error(403, "AccessDenied"), operation="put", times=None)
    with pytest.raises(StoreError):
        cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    until = time.monotonic() + 10
    while ours() and time.monotonic() < until:
        time.sleep(0.05)
    assert ours() == []
