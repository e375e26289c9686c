"""Many at once: writers of one name, readers of one store, ranks of one node; and what they cost in requests."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.errors import AccessDenied
from cachekeeper.repository import open_repository
from cachekeeper.stores.s3 import S3Store
from cachekeeper.testing import make_cache
from tests.verbs.conftest import unplaced

from .proxy import Proxy
from .servers import Server

WRITERS = 20
READERS = 64
RANKS = 8

Processes = Callable[[Sequence[Sequence[str]]], list[dict]]


@pytest.fixture
def store(proxied_credentials: None, proxy: Proxy, bucket: str) -> S3Store:
    return S3Store(bucket, "p", endpoint=proxy.endpoint)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return make_cache(tmp_path / "cache", kernels=4, graphs=4)


# Forks a process for each command, all before the first is waited for: what takes long is the imports, done once.
CROWD = """
import json, os, sys
import boto3, botocore.auth, botocore.client, botocore.config, botocore.httpsession
from cachekeeper.cli import main

def run(number, command):
    for name, file in (("out", 1), ("err", 2)):
        os.dup2(os.open(f"{name}-{number}", os.O_WRONLY | os.O_CREAT), file)
    sys.argv[1:] = [*command, "--json"]
    sys.exit(main())

pids = []
for number, command in enumerate(json.loads(sys.argv[1])):
    if not (pid := os.fork()):
        run(number, command)
    pids.append(pid)
print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]))
"""


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    """Runs commands at once, each in a process of its own, and returns what they print."""

    def run(commands: Sequence[Sequence[str]]) -> list[dict]:
        directory = Path(tempfile.mkdtemp(dir=tmp_path))
        crowd = [sys.executable, "-c", CROWD, json.dumps(commands)]
        done = subprocess.run(crowd, cwd=directory, stdout=subprocess.PIPE, text=True, check=True)
        said, wrong = ([(directory / f"{of}-{n}").read_text() for n in range(len(commands))] for of in ("out", "err"))
        assert json.loads(done.stdout) == [0] * len(commands), [text for text in wrong if text]
        return [json.loads(text) for text in said]

    return run


def test_writers_of_one_name(store: S3Store, tmp_path: Path, processes: Processes):
    """20 processes save 20 caches under one name: 20 snapshots, one line of history, none lost."""
    caches = [make_cache(tmp_path / f"cache-{seed}", seed=seed, kernels=1, graphs=1) for seed in range(WRITERS)]
    found = processes(
        [["snapshot", "drafter", "--cache-dir", str(path), "--wait", "0", "--store", store.url] for path in caches]
    )
    ids = {result["snapshot"]["id"] for result in found}
    repository = open_repository(store)
    history = repository.history("drafter")
    assert len(ids) == WRITERS and {move.snapshot for move in history} == ids
    assert [move.number for move in history] == list(range(1, WRITERS + 1))
    assert {item.id for item in repository.snapshots().snapshots} == ids
    assert cachekeeper.verify(every=True, store=store).ok
    assert all(result["name_moved"] for result in found)


def test_readers_of_one_store(store: S3Store, cache: Path, tmp_path: Path, processes: Processes):
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    targets = [tmp_path / f"target-{number}" for number in range(READERS)]
    processes([["restore", "drafter", "--cache-dir", str(path), "--store", store.url] for path in targets])
    right = unplaced(targets[0])
    marker = ".cachekeeper/restored.json"
    assert len(right) > 50
    for target in targets[1:]:
        assert {k: v for k, v in unplaced(target).items() if k != marker} == {
            k: v for k, v in right.items() if k != marker
        }


def test_ranks_of_one_node_download_once(
    store: S3Store, proxy: Proxy, cache: Path, tmp_path: Path, processes: Processes
):
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    asked = len(proxy.said("get", "*packs/*"))
    command = ["restore", "drafter", "--cache-dir", str(tmp_path / "target"), "--store", store.url, "--verify"]
    found = processes([command] * RANKS)
    assert len(proxy.said("get", "*packs/*")) - asked == 1
    files = found[0]["snapshot"]["header"]["counts"]
    total = sum(count["files"] for count in files.values())
    assert sorted(result["new"] for result in found) == [0] * (RANKS - 1) + [total]
    assert [result["verified"] for result in found] == [total] * RANKS


def test_ranks_with_directories_of_their_own_share_the_local_cache(
    store: S3Store, proxy: Proxy, cache: Path, tmp_path: Path, processes: Processes
):
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    asked = len(proxy.said("get", "*packs/*"))
    near = ["--local-cache", str(tmp_path / "near"), "--store", store.url]
    processes([["restore", "drafter", "--cache-dir", str(tmp_path / f"rank-{rank}"), *near] for rank in range(RANKS)])
    assert len(proxy.said("get", "*packs/*")) - asked == 1


def test_ten_thousand_files_take_less_than_a_hundred_requests(store: S3Store, proxy: Proxy, tmp_path: Path):
    cache = tmp_path / "cache"
    make_cache(cache, kernels=1, graphs=1)
    for number in range(10_000):
        place = cache / "fxgraph" / f"{number % 100:02d}" / f"f{number:051d}"
        place.mkdir(parents=True)
        (place / "0").write_bytes(b"\x80\x05" + number.to_bytes(4, "big") * (500 + number % 700))
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    assert len(proxy.requests) < 100
    before = len(proxy.requests)
    result = cachekeeper.restore("drafter", cache_dir=tmp_path / "target", store=store)
    assert result.new > 10_000 and len(proxy.requests) - before < 30


def test_only_the_frames_that_are_needed_are_read(store: S3Store, proxy: Proxy, tmp_path: Path):
    """Of a pack of many frames, one kernel is missing here."""
    cache = make_cache(tmp_path / "cache", kernels=4, graphs=4)
    for number in range(40):
        (cache / "aa").mkdir(exist_ok=True)
        (cache / "aa" / f"c{number:051d}.so").write_bytes(b"\x7fELF" + bytes([number]) * 10 + _noise(number, 600_000))
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0, allow_damaged=True)
    cachekeeper.restore("drafter", cache_dir=tmp_path / "target", store=store)
    next((tmp_path / "target" / "aa").glob("*07.so")).unlink()
    before = len(proxy.requests)
    cachekeeper.restore("drafter", cache_dir=tmp_path / "target", store=store)
    [read] = [request for request in proxy.requests[before:] if "packs/" in request.key]
    assert read.headers["range"] and read.sent < 700_000


def _noise(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


def test_read_only_credentials_restore(
    store: S3Store,
    cache: Path,
    tmp_path: Path,
    server: Server,
    processes: Processes,
    monkeypatch: pytest.MonkeyPatch,
):
    cachekeeper.snapshot("drafter", cache_dir=cache, store=store, wait=0)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.read_only_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.read_only_secret)
    target = str(tmp_path / "target")
    [restored, listed] = processes(
        [["restore", "drafter", "--verify", "--cache-dir", target, "--store", store.url], ["ls", "--store", store.url]]
    )
    assert restored["verified"] > 50 and len(listed["snapshots"]) == 1
    with pytest.raises(AccessDenied, match="s3:PutObject"):
        cachekeeper.snapshot("drafter", cache_dir=cache, store=store.url, wait=0)
