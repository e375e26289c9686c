"""One SeaweedFS and one rclone for the whole run, however many workers there are, and the settings that reach them."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from . import servers
from .proxy import Proxy
from .servers import Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    """A SeaweedFS, shared by all tests of the run."""
    return _shared(tmp_path_factory, "seaweedfs", servers.start_seaweedfs)


@pytest.fixture(scope="session")
def lying_server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    """An rclone, shared by all tests of the run: it ignores If-None-Match and If-Match."""
    return _shared(tmp_path_factory, "rclone", servers.start_rclone)


def _shared(factory: pytest.TempPathFactory, name: str, start: Callable[[int], servers.Running]) -> Server:
    """The server that the first worker to ask has started; it ends with the run."""
    worker = "PYTEST_XDIST_WORKER" in os.environ
    base = factory.getbasetemp().parent if worker else factory.getbasetemp()
    # Workers end before the run does, as when one crashes and is replaced: the server belongs to their parent.
    owner = os.getppid() if worker else os.getpid()
    with open(base / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _read_or_start(base / f"{name}.json", lambda: start(owner))


def _read_or_start(note: Path, start: Callable[[], servers.Running]) -> Server:
    if not note.exists():
        started = start()
        # Not waited for by this process, which may end before the supervisor does.
        started.supervisor.returncode = 0
        note.write_text(json.dumps(started.server))
    return Server(*json.loads(note.read_text()))


@pytest.fixture
def bucket(server: Server) -> Iterator[str]:
    """The name of a fresh bucket in `server`."""
    name = servers.make_bucket(server)
    yield name
    servers.remove_bucket(server, name)


@pytest.fixture
def lock_bucket(server: Server) -> Iterator[str]:
    """The name of a fresh bucket in `server` with object lock, hence with versions."""
    name = servers.make_bucket(server, object_lock=True)
    yield name
    servers.remove_bucket(server, name)


@pytest.fixture
def credentials(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names `server` and the identity that may do all."""
    _use(monkeypatch, server.endpoint, server.access_key, server.secret_key)


@pytest.fixture
def read_only_credentials(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names `server` and the identity that may only read."""
    _use(monkeypatch, server.endpoint, server.read_only_key, server.read_only_secret)


@pytest.fixture
def lying_credentials(lying_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names `lying_server`."""
    _use(monkeypatch, lying_server.endpoint, lying_server.access_key, lying_server.secret_key)


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """A proxy before `server`; it does nothing until a test installs a fault."""
    with Proxy(server.endpoint) as between:
        yield between


@pytest.fixture
def proxied_credentials(credentials: None, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `credentials`, through `proxy`."""
    monkeypatch.setenv("CACHEKEEPER_S3_ENDPOINT", proxy.endpoint)


def _use(monkeypatch: pytest.MonkeyPatch, endpoint: str, key: str, secret: str) -> None:
    monkeypatch.setenv("CACHEKEEPER_S3_ENDPOINT", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
