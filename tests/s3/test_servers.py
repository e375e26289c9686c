"""The servers that the other tests here rely on are what they are taken for."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from . import servers
from .servers import Server, client, kept_client

_DONE = "done"


def outcome(call: Callable[..., Any], **arguments: Any) -> str:
    """The error code of a call, or `done`."""
    try:
        call(**arguments)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return _DONE


def race(server: Server, bucket: str, key: str, number: int) -> tuple[Counter[str], list[bytes]]:
    """Write one key `number` times at once with If-None-Match: the outcomes, and the bodies of those that won."""
    s3 = kept_client(server)
    bodies = [b"%d" % writer for writer in range(number)]

    def write(body: bytes) -> str:
        return outcome(s3.put_object, Bucket=bucket, Key=key, Body=body, IfNoneMatch="*")

    with ThreadPoolExecutor(number) as pool:
        outcomes = list(pool.map(write, bodies))
    return Counter(outcomes), [body for body, said in zip(bodies, outcomes, strict=True) if said == _DONE]


def test_a_wrong_secret_is_refused(server: Server, bucket: str) -> None:
    other = client(server._replace(secret_key="wrong"))
    assert outcome(other.list_objects_v2, Bucket=bucket) == "SignatureDoesNotMatch"
    assert outcome(other.put_object, Bucket=bucket, Key="k", Body=b"1") == "SignatureDoesNotMatch"
    assert outcome(other.head_object, Bucket=bucket, Key="k") == "403"


def test_an_unknown_key_is_refused(server: Server, bucket: str) -> None:
    other = client(server._replace(access_key="nobody"))
    assert outcome(other.list_objects_v2, Bucket=bucket) == "InvalidAccessKeyId"


def test_a_bucket_that_does_not_exist_is_not_made_by_a_write(server: Server) -> None:
    s3 = kept_client(server)
    assert outcome(s3.put_object, Bucket="no-such-bucket", Key="k", Body=b"1") == "NoSuchBucket"
    assert outcome(s3.list_objects_v2, Bucket="no-such-bucket") == "NoSuchBucket"


def test_of_eight_conditional_writes_at_once_one_wins(server: Server, bucket: str) -> None:
    for number in range(2):
        outcomes, winners = race(server, bucket, f"race-{number}", 8)
        assert outcomes == {_DONE: 1, "PreconditionFailed": 7}
        assert servers.contents(server, bucket)[f"race-{number}"] == winners[0]


def test_a_write_on_condition_of_an_etag(server: Server, bucket: str) -> None:
    s3 = kept_client(server)
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"1")["ETag"]
    assert outcome(s3.put_object, Bucket=bucket, Key="k", Body=b"2", IfMatch=etag) == _DONE
    assert outcome(s3.put_object, Bucket=bucket, Key="k", Body=b"3", IfMatch=etag) == "PreconditionFailed"
    assert servers.contents(server, bucket) == {"k": b"2"}


def test_a_wrong_checksum_is_refused(server: Server, bucket: str) -> None:
    s3 = kept_client(server)
    right, wrong = (base64.b64encode(hashlib.sha256(data).digest()).decode() for data in (b"data", b"other"))
    assert outcome(s3.put_object, Bucket=bucket, Key="k", Body=b"data", ChecksumSHA256=wrong) == "BadDigest"
    assert servers.contents(server, bucket) == {}
    assert outcome(s3.put_object, Bucket=bucket, Key="k", Body=b"data", ChecksumSHA256=right) == _DONE


def test_the_read_only_identity_reads_and_does_not_write(server: Server, bucket: str) -> None:
    kept_client(server).put_object(Bucket=bucket, Key="k", Body=b"1")
    reader = client(server, read_only=True)
    assert reader.get_object(Bucket=bucket, Key="k")["Body"].read() == b"1"
    assert outcome(reader.list_objects_v2, Bucket=bucket) == _DONE
    assert outcome(reader.put_object, Bucket=bucket, Key="new", Body=b"1") == "AccessDenied"
    assert outcome(reader.delete_object, Bucket=bucket, Key="k") == "AccessDenied"
    assert servers.contents(server, bucket) == {"k": b"1"}


def test_a_held_version_stays(server: Server, lock_bucket: str) -> None:
    s3 = kept_client(server)
    version = s3.put_object(Bucket=lock_bucket, Key="k", Body=b"1", ObjectLockLegalHoldStatus="ON")["VersionId"]
    this = {"Bucket": lock_bucket, "Key": "k", "VersionId": version}
    assert outcome(s3.delete_object, **this) == "AccessDenied"
    assert outcome(s3.delete_object, Bucket=lock_bucket, Key="k") == _DONE
    assert s3.get_object(**this)["Body"].read() == b"1"
    s3.put_object_legal_hold(**this, LegalHold={"Status": "OFF"})
    assert outcome(s3.delete_object, **this) == _DONE
    assert outcome(s3.get_object, **this) != _DONE


def test_a_bucket_with_versions_keeps_what_is_overwritten(server: Server) -> None:
    s3, bucket = kept_client(server), servers.make_bucket(server, versioning=True)
    first = s3.put_object(Bucket=bucket, Key="k", Body=b"1")["VersionId"]
    s3.put_object(Bucket=bucket, Key="k", Body=b"2")
    assert s3.get_object(Bucket=bucket, Key="k", VersionId=first)["Body"].read() == b"1"
    servers.remove_bucket(server, bucket)


def test_the_lying_server_checks_secrets_and_lets_several_writers_win(lying_server: Server) -> None:
    bucket = servers.make_bucket(lying_server)
    outcomes, winners = race(lying_server, bucket, "k", 8)
    # Now and then its writers get into each other's way, and one is told InternalError.
    assert len(winners) > 1 and "PreconditionFailed" not in outcomes
    other = client(lying_server._replace(secret_key="wrong"))
    assert outcome(other.put_object, Bucket=bucket, Key="k", Body=b"1") == "SignatureDoesNotMatch"


def test_the_environment_names_the_server(credentials: None, server: Server, bucket: str) -> None:
    from boto3.session import Session

    s3 = Session().client("s3", endpoint_url=os.environ["CACHEKEEPER_S3_ENDPOINT"])
    assert outcome(s3.put_object, Bucket=bucket, Key="k", Body=b"1") == _DONE
    assert servers.contents(server, bucket) == {"k": b"1"}


def test_the_environment_names_the_read_only_identity(read_only_credentials: None, bucket: str) -> None:
    from boto3.session import Session

    s3 = Session().client("s3", endpoint_url=os.environ["CACHEKEEPER_S3_ENDPOINT"])
    assert outcome(s3.list_objects_v2, Bucket=bucket) == _DONE
    assert outcome(s3.put_object, Bucket=bucket, Key="k", Body=b"1") == "AccessDenied"


# Nothing is left running

_OWNER = """
import json, sys, time
from tests.s3 import servers
started = servers.start_rclone()
print(json.dumps([started.server.endpoint, started.supervisor.pid]), flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("victim", ["owner", "supervisor"])
def test_a_server_ends_with_a_killed_owner_or_supervisor(victim: str, tmp_path: Path) -> None:
    where = {"cwd": Path(__file__).parents[2], "env": os.environ | {"TMPDIR": str(tmp_path)}}
    with subprocess.Popen([sys.executable, "-c", _OWNER], **where, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        endpoint, supervisor = json.loads(owner.stdout.readline())
        assert _listens(endpoint)
        os.kill(owner.pid if victim == "owner" else supervisor, signal.SIGKILL)
        until = time.monotonic() + 10
        while _listens(endpoint):
            assert time.monotonic() < until, f"{endpoint} outlived its {victim}"
            time.sleep(0.02)
        owner.kill()


def test_stopping_leaves_no_file_and_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(servers.tempfile, "tempdir", str(tmp_path))
    sockets_before = set(Path("/tmp").glob("seaweedfs-*.sock"))
    with servers.running(servers.start_seaweedfs()) as server:
        assert list(tmp_path.iterdir())
        mine = [path for path in Path("/tmp").glob("seaweedfs-*.sock") if path not in sockets_before]
        assert mine
    assert not _listens(server.endpoint)
    assert not list(tmp_path.iterdir())
    assert not [path for path in mine if path.exists()]


def test_programs_beside_python_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for place in ("here", "elsewhere"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "weed").write_text("#!/bin/sh\n")
        (tmp_path / place / "weed").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "here" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "elsewhere"))
    assert servers.program("weed") == str(tmp_path / "here" / "weed")
    (tmp_path / "here" / "weed").unlink()
    assert servers.program("weed") == str(tmp_path / "elsewhere" / "weed")
    with pytest.raises(FileNotFoundError, match="rclone is not installed"):
        servers.program("rclone")


def _listens(endpoint: str) -> bool:
    host, _, port = endpoint.removeprefix("http://").partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0
