"""Real S3 servers on loopback: SeaweedFS, which keeps what it promises, and rclone, which ignores every condition.

Each server is the child of a small supervisor, this file run as a program. The supervisor watches the process that owns
the server and ends the server with it, so that nothing is left running even when the tests are killed with -9.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

PATIENCE = 30.0
_ATTEMPTS = 3
_PDEATHSIG = 1
_READY = "ready"
_WEED_PORTS = ("s3", "master", "filer", "volume", "admin")


class Server(NamedTuple):
    """Where a server is, and two identities: one may do all, the other may only read (rclone has no such identity)."""

    endpoint: str
    access_key: str
    secret_key: str
    read_only_key: str
    read_only_secret: str


class Running(NamedTuple):
    """A server and the process that watches over it."""

    server: Server
    supervisor: subprocess.Popen[bytes]

    def stop(self) -> None:
        """End the server, its whole process group, and remove its data."""
        self.supervisor.terminate()
        self.supervisor.wait()


def program(name: str) -> str:
    """The path of a program: the one beside this Python, or else the one on PATH."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which(name)
    if not found:
        raise FileNotFoundError(f"{name} is not installed, neither beside {sys.executable} nor on PATH")
    return found


def start_seaweedfs(owner: int | None = None) -> Running:
    """Start SeaweedFS; it ends with the process `owner`, by default this one."""
    return _start(_seaweedfs, owner or os.getpid())


def start_rclone(owner: int | None = None) -> Running:
    """Start `rclone serve s3`: it checks signatures, but lets every conditional write win."""
    return _start(_rclone, owner or os.getpid())


@contextlib.contextmanager
def running(started: Running) -> Iterator[Server]:
    """A server that ends with the block."""
    try:
        yield started.server
    finally:
        started.stop()


def client(server: Server, *, read_only: bool = False, connections: int = 16, **config: Any) -> Any:
    """A boto3 client that tries once and waits 20 s at most; `config` is for botocore's Config."""
    from boto3.session import Session
    from botocore.config import Config

    settings = {"retries": {"total_max_attempts": 1}, "read_timeout": 20, "s3": {"addressing_style": "path"}, **config}
    return Session().client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=server.read_only_key if read_only else server.access_key,
        aws_secret_access_key=server.read_only_secret if read_only else server.secret_key,
        config=Config(max_pool_connections=connections, **settings),
    )


@functools.cache
def kept_client(server: Server) -> Any:
    """The client for set-up and inspection: making one takes long, and it may be used from many threads."""
    return client(server, connections=64)


def make_bucket(server: Server, *, object_lock: bool = False, versioning: bool = False) -> str:
    """A fresh bucket with a random name. Object lock implies versioning."""
    name = f"test-{secrets.token_hex(8)}"
    s3 = kept_client(server)
    s3.create_bucket(Bucket=name, ObjectLockEnabledForBucket=object_lock)
    if versioning:
        s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    return name


def remove_bucket(server: Server, name: str) -> None:
    """Remove a bucket and all in it; one with locked versions stays until the server ends."""
    from botocore.exceptions import ClientError

    # SeaweedFS removes a bucket with all that is in it; rclone wants it empty, and has few enough to keep them.
    with contextlib.suppress(ClientError):
        kept_client(server).delete_bucket(Bucket=name)


def contents(server: Server, bucket: str) -> dict[str, bytes]:
    """Key -> bytes of every object in a bucket."""
    s3 = kept_client(server)
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
    return {key: s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}


# Starting


class _Plan(NamedTuple):
    """How to run a server: `leftovers` are files that it leaves outside its directory."""

    server: Server
    command: list[str]
    leftovers: list[str]


def _start(plan_for: Callable[[Path], _Plan], owner: int) -> Running:
    for _ in range(_ATTEMPTS):
        directory = Path(tempfile.mkdtemp(prefix="cachekeeper-s3-"))
        plan = plan_for(directory)
        job = {"owner": owner, "directory": str(directory), "command": plan.command, "leftovers": plan.leftovers}
        supervisor = subprocess.Popen(
            [sys.executable, __file__, json.dumps(job)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        started = Running(plan.server, supervisor)
        if _is_ready(started):
            return started
        started.stop()
    raise TimeoutError(f"{plan.command[0]} did not answer in {PATIENCE:.0f} s")


def _is_ready(started: Running) -> bool:
    """Wait until a bucket can be created; False where the server ended, as when another took one of its ports."""
    from botocore.exceptions import BotoCoreError, ClientError

    s3, until = client(started.server), time.monotonic() + PATIENCE
    while started.supervisor.poll() is None and time.monotonic() < until:
        with contextlib.suppress(BotoCoreError, ClientError):
            s3.create_bucket(Bucket=_READY)
            s3.put_object(Bucket=_READY, Key=_READY, Body=b"")
            return True
        time.sleep(0.05)
    return False


def _server(port: int) -> Server:
    return Server(f"http://127.0.0.1:{port}", *(secrets.token_hex(16) for _ in range(4)))


def _seaweedfs(directory: Path) -> _Plan:
    free = _free_ports(2 * len(_WEED_PORTS))
    ports = {name: (free.pop(), free.pop()) for name in _WEED_PORTS}
    server = _server(ports["s3"][0])
    identities = directory / "identities.json"
    identities.write_text(json.dumps({"identities": [_identity(server, "ci"), _identity(server, "ro")]}))
    options = {
        "dir": directory / "data",
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "master.telemetry": "false",
        "admin.ui": "false",
        "webdav": "false",
        "s3.config": identities,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.iam": "false",
        # As Amazon's: a PUT to a bucket that does not exist fails.
        "s3.autoCreateBucket": "false",
        # Every bucket takes a volume of its own, and the default stops at some 70.
        "volume.max": 2000,
    }
    for name, (port, grpc) in ports.items():
        options |= {f"{name}.port": port, f"{name}.port.grpc": grpc}
    (directory / "data").mkdir()
    command = [program("weed"), "-logtostderr=true", "-v=0", "mini", *(f"-{name}={v}" for name, v in options.items())]
    sockets = [f"/tmp/seaweedfs-{name}{kind}" for name, pair in ports.items() for kind in _socket_names(*pair)]
    return _Plan(server, command, sockets)


def _socket_names(port: int, grpc: int) -> tuple[str, str]:
    return f"-{port}.sock", f"-grpc-{grpc}.sock"


def _identity(server: Server, name: str) -> dict[str, Any]:
    if name == "ci":
        key, secret, actions = server.access_key, server.secret_key, ["Admin", "Read", "List", "Tagging", "Write"]
    else:
        key, secret, actions = server.read_only_key, server.read_only_secret, ["Read", "List"]
    return {"name": name, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}


def _rclone(directory: Path) -> _Plan:
    (port,) = _free_ports(1)
    server = _server(port)
    (directory / "data").mkdir()
    command = [program("rclone"), "--config", "/dev/null", "--cache-dir", str(directory / "cache"), "serve", "s3"]
    command += ["--addr", f"127.0.0.1:{port}", "--auth-key", f"{server.access_key},{server.secret_key}"]
    return _Plan(server, [*command, str(directory / "data")], [])


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(number)]
        return [each.getsockname()[1] for each in sockets]


# The supervisor


def _supervise(owner: int, directory: str, command: Sequence[str], leftovers: Sequence[str]) -> None:
    """Run a command until it, or the process `owner`, ends, or until SIGTERM; then remove what it left."""
    asked, asking = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(asking, b"."))
    try:
        _run_while_owned(owner, directory, command, asked)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        for path in leftovers:
            Path(path).unlink(missing_ok=True)


def _run_while_owned(owner: int, directory: str, command: Sequence[str], asked: int) -> None:
    with contextlib.suppress(ProcessLookupError), open(Path(directory, "log"), "wb") as log:
        watched = select.poll()
        watched.register(os.pidfd_open(owner), select.POLLIN)
        watched.register(asked, select.POLLIN)
        child = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=_end_with_parent, start_new_session=True)
        watched.register(os.pidfd_open(child.pid), select.POLLIN)
        watched.poll()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _end_with_parent() -> None:
    """For a supervisor that is itself killed with -9."""
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    _supervise(**json.loads(sys.argv[1]))
