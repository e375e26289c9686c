"""Copies to, from and between buckets of a real server: nothing is written twice, and a killed copy goes on."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.cli import main
from cachekeeper.errors import AccessDenied
from cachekeeper.repository import open_repository
from cachekeeper.stores import Store
from cachekeeper.stores.s3 import NOT_EXCLUSIVE
from cachekeeper.verbs.copy import open_copied
from tests.faults.scene import LEFT_BY_THE_KILLED, Scene, Tree, build_scene, files_in, objects_in, tree

from . import proxy as faults
from . import servers
from .proxy import Proxy, Request
from .servers import Server, kept_client

_TOP = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shared_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the scene is."""
    return tmp_path_factory.mktemp("scene")


@pytest.fixture
def scene(own_environment: Path, shared_place: Path) -> Scene:
    """A store in a directory with three snapshots, all of them named drafter in turn; no test changes it."""
    return _built(shared_place)


@functools.cache
def _built(place: Path) -> Scene:
    return build_scene(place, generations=3)


@pytest.fixture
def second_bucket(server: Server) -> Iterator[str]:
    """Another fresh bucket in `server`."""
    name = servers.make_bucket(server)
    yield name
    servers.remove_bucket(server, name)


def opened(server: Server | Proxy, bucket: str) -> Store:
    """A store that keeps its client, since making one takes long."""
    return open_copied(url(server, bucket))


def url(server: Server | Proxy, bucket: str) -> str:
    return f"s3://{bucket}?endpoint={server.endpoint}"


def listed(server: Server, bucket: str) -> dict[str, tuple[str, object]]:
    """Key -> ETag and time of every object in a bucket."""
    found = kept_client(server).list_objects_v2(Bucket=bucket).get("Contents", [])
    return {entry["Key"]: (entry["ETag"], entry["LastModified"]) for entry in found}


def objects(server: Server, bucket: str) -> dict[str, bytes]:
    """Key -> bytes, without what the killed left behind."""
    return {
        key: data for key, data in servers.contents(server, bucket).items() if not key.startswith(LEFT_BY_THE_KILLED)
    }


def check_restores(snapshots: dict[str, Tree], store: Store | Path, place: Path) -> None:
    """Every snapshot comes back right from a copy."""
    for number, (identifier, right) in enumerate(snapshots.items()):
        target = place / f"back-{number}"
        cachekeeper.restore(identifier, cache_dir=target, store=store, verify=True)
        assert tree(target) == right


def check_part(scene: Scene, store: Store | Path) -> None:
    """What is in a half copied store is whole, and its names point to what is there."""
    repository = open_repository(store)
    if not repository.exists():
        return
    there = {snapshot.id for snapshot in repository.snapshots().snapshots}
    assert there <= set(scene.older)
    assert not there or cachekeeper.verify(every=True, store=store).ok
    assert set(repository.names().values()) <= there
    moves = repository.history("drafter")
    assert moves == open_repository(scene.store).history("drafter")[: len(moves)]


# Directions


@pytest.mark.usefixtures("credentials")
def test_from_a_directory_to_a_bucket(scene: Scene, server: Server, proxy: Proxy, bucket: str, tmp_path: Path) -> None:
    there = opened(proxy, bucket)
    result = cachekeeper.copy(scene.store, there)
    assert result.ok and result.copied == tuple(scene.older) and result.notes == ()
    assert servers.contents(server, bucket) == files_in(scene.store)
    check_restores(scene.older, there, tmp_path)
    before, asked = listed(server, bucket), len(proxy.requests)
    again = cachekeeper.copy(scene.store, there)
    assert (again.copied, set(again.there), again.bytes, again.names) == ((), set(scene.older), 0, {})
    assert listed(server, bucket) == before
    assert {request.method for request in proxy.requests[asked:]} <= {"GET", "HEAD"}


@pytest.mark.usefixtures("credentials")
def test_from_a_bucket_to_a_directory(scene: Scene, server: Server, bucket: str, tmp_path: Path) -> None:
    there, other = opened(server, bucket), tmp_path / "other"
    cachekeeper.copy(scene.store, there)
    before = listed(server, bucket)
    result = cachekeeper.copy(there, other)
    assert result.ok and result.copied == tuple(scene.older) and result.names == {"drafter": result.copied[-1]}
    assert files_in(other) == files_in(scene.store) and listed(server, bucket) == before
    check_restores(scene.older, other, tmp_path)
    written = {path: path.stat().st_mtime_ns for path in other.rglob("*")}
    assert cachekeeper.copy(there, other).bytes == 0
    assert {path: path.stat().st_mtime_ns for path in other.rglob("*")} == written


@pytest.mark.usefixtures("credentials")
def test_from_bucket_to_bucket_and_back(
    scene: Scene, server: Server, bucket: str, second_bucket: str, tmp_path: Path
) -> None:
    """A snapshot that was saved in the second comes back to the first, under its id."""
    one, two = opened(server, bucket), opened(server, second_bucket)
    cachekeeper.copy(scene.store, one)
    assert cachekeeper.copy(one, two).copied == tuple(scene.older)
    assert servers.contents(server, second_bucket) == servers.contents(server, bucket)
    before = listed(server, bucket), listed(server, second_bucket)
    assert cachekeeper.copy(one, two).bytes == cachekeeper.copy(two, one).bytes == 0
    assert (listed(server, bucket), listed(server, second_bucket)) == before
    new = cachekeeper.snapshot("drafter", cache_dir=scene.cache, store=two, wait=0).snapshot.id
    back = cachekeeper.copy(two, one)
    assert (back.copied, back.packs, back.names) == ((new,), 1, {"drafter": new})
    check_restores({new: scene.now}, one, tmp_path)
    assert open_repository(one).history("drafter") == open_repository(two).history("drafter")


@pytest.mark.usefixtures("credentials")
def test_between_prefixes_of_one_bucket(scene: Scene, server: Server, bucket: str) -> None:
    one, two = open_copied(f"s3://{bucket}/one"), open_copied(f"s3://{bucket}/two/deep")
    cachekeeper.copy(scene.store, one)
    assert cachekeeper.copy(one, two, ["drafter@{1}"]).copied == (list(scene.older)[1],)
    cachekeeper.copy(one, two)
    right = files_in(scene.store)
    prefixed = {f"{prefix}/{key}": data for prefix in ("one", "two/deep") for key, data in right.items()}
    assert servers.contents(server, bucket) == prefixed


def test_between_servers_and_accounts(
    scene: Scene, server: Server, lying_server: Server, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each URL says how its store is reached; what a server does not keep is told."""
    keys = {"good": server, "lying": lying_server}
    (tmp_path / "keys").write_text(
        "".join(
            f"[{name}]\naws_access_key_id = {each.access_key}\naws_secret_access_key = {each.secret_key}\n"
            for name, each in keys.items()
        )
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    other = servers.make_bucket(lying_server)
    one, two = f"{url(server, bucket)}&profile=good", f"{url(lying_server, other)}&profile=lying"
    cachekeeper.copy(scene.store, one)
    result = cachekeeper.copy(one, two)
    assert result.copied == tuple(scene.older) and result.notes == (NOT_EXCLUSIVE,)
    assert servers.contents(lying_server, other) == servers.contents(server, bucket)
    before = listed(lying_server, other)
    assert cachekeeper.copy(one, two).bytes == 0 and listed(lying_server, other) == before


def test_the_command_with_an_endpoint(
    scene: Scene, server: Server, bucket: str, credentials: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CACHEKEEPER_S3_ENDPOINT")
    options = ["--s3-endpoint", server.endpoint, "--quiet"]
    assert main(["copy", str(scene.store), f"s3://{bucket}", *options]) == 0
    assert servers.contents(server, bucket) == files_in(scene.store)


# Rights


def test_a_bucket_that_may_only_be_read(
    scene: Scene, server: Server, bucket: str, tmp_path: Path, read_only_credentials: None
) -> None:
    """It can be a source. As a destination it stays as it is."""
    for key, data in files_in(scene.store).items():
        if not key.startswith("packs/"):
            kept_client(server).put_object(Bucket=bucket, Key=key, Body=data)
    before = listed(server, bucket)
    with pytest.raises(AccessDenied):
        cachekeeper.copy(scene.store, f"s3://{bucket}")
    assert listed(server, bucket) == before
    for key, data in files_in(scene.store).items():
        kept_client(server).put_object(Bucket=bucket, Key=key, Body=data)
    assert cachekeeper.copy(f"s3://{bucket}", tmp_path / "other").copied == tuple(scene.older)
    assert files_in(tmp_path / "other") == files_in(scene.store)


# At once, and killed


@pytest.mark.usefixtures("credentials")
def test_copies_at_once(scene: Scene, server: Server, bucket: str) -> None:
    """Every object is written by one of them."""
    stores = [opened(server, bucket) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        copies = [pool.submit(cachekeeper.copy, scene.store, store) for store in stores]
        results = [each.result() for each in copies]
    assert all(result.ok for result in results)
    assert sum(result.packs for result in results) == sum(len(result.copied) for result in results) == 3
    assert objects(server, bucket) == files_in(scene.store)


def kill_at(proxy: Proxy, source: str | Path, destination: str | Path, when: str, operation: str, key: str) -> None:
    """Kill -9 a process that copies before or after the server does its second such request."""
    arguments = [sys.executable, "-m", "cachekeeper", "copy", str(source), str(destination), "--quiet"]

    def kill(_: Request) -> None:
        copying.send_signal(signal.SIGKILL)

    action = faults.call_after(kill) if when == "after" else faults.call_before(kill, then=faults.reset_at_once())
    proxy.fault(action, operation=operation, key=key, skip=1)
    with subprocess.Popen(arguments, cwd=_TOP, env=dict(os.environ)) as copying:
        assert copying.wait() == -signal.SIGKILL
    proxy.faults.clear()


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize(
    ("when", "key"), [("after", "probes/*"), ("before", "packs/*"), ("after", "snapshots/*"), ("after", "names/*")]
)
def test_a_copy_to_a_bucket_is_killed(
    scene: Scene, server: Server, proxy: Proxy, bucket: str, when: str, key: str
) -> None:
    kill_at(proxy, scene.store, url(proxy, bucket), when, "put", key)
    there = opened(server, bucket)
    check_part(scene, there)
    before = listed(server, bucket)
    done = cachekeeper.copy(scene.store, there)
    assert done.packs == 3 - sum(key.startswith("packs/") for key in before)
    assert len(done.copied) == 3 - sum(key.startswith("snapshots/") for key in before)
    assert objects(server, bucket) == files_in(scene.store)
    after = listed(server, bucket)
    assert before.items() <= after.items()
    assert cachekeeper.copy(scene.store, there).bytes == 0 and listed(server, bucket) == after


@pytest.mark.usefixtures("credentials")
def test_a_copy_from_a_bucket_is_killed(
    scene: Scene, server: Server, proxy: Proxy, bucket: str, tmp_path: Path
) -> None:
    there = opened(server, bucket)
    cachekeeper.copy(scene.store, there)
    kill_at(proxy, url(proxy, bucket), tmp_path / "other", "after", "get", "packs/*")
    check_part(scene, tmp_path / "other")
    cachekeeper.copy(there, tmp_path / "other")
    right = files_in(scene.store)
    assert objects_in(tmp_path / "other") == right
    assert cachekeeper.copy(there, tmp_path / "other").bytes == 0
