"""Each fault of the proxy does what it says, seen by boto3 in front of a real server."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    FlexibleChecksumError,
    ReadTimeoutError,
    ResponseStreamingError,
)

from . import proxy as faults
from . import servers
from .proxy import Proxy
from .servers import Server

DATA = bytes(range(256)) * 1000


class Client:
    """A boto3 client through the proxy, with one bucket."""

    def __init__(self, s3: Any, bucket: str) -> None:
        self.s3, self.bucket = s3, bucket

    def put(self, key: str, body: Any = DATA, **more: Any) -> Any:
        return self.s3.put_object(Bucket=self.bucket, Key=key, Body=body, **more)

    def get(self, key: str, **more: Any) -> bytes:
        body: bytes = self.s3.get_object(Bucket=self.bucket, Key=key, **more)["Body"].read()
        return body

    def keys(self) -> list[str]:
        return [entry["Key"] for entry in self.s3.list_objects_v2(Bucket=self.bucket).get("Contents", [])]


@pytest.fixture
def through(server: Server, proxy: Proxy, bucket: str) -> Iterator[Client]:
    """A client of the server through the proxy."""
    with closing(servers.client(server._replace(endpoint=proxy.endpoint), connections=64)) as s3:
        yield Client(s3, bucket)


@pytest.fixture
def stored(server: Server, bucket: str) -> Callable[[], dict[str, bytes]]:
    """What the server holds, without the proxy."""
    return lambda: servers.contents(server, bucket)


Stored = Callable[[], dict[str, bytes]]


def test_without_faults_all_passes_as_it_is(proxy: Proxy, through: Client, stored: Stored) -> None:
    through.put("a b/ü+c", DATA, IfNoneMatch="*")
    through.put("stream", io.BytesIO(DATA))
    through.put("empty", b"")
    assert through.get("a b/ü+c") == DATA == stored()["stream"]
    assert through.get("a b/ü+c", Range="bytes=10-19") == DATA[10:20]
    assert through.get("empty") == b""
    assert through.s3.head_object(Bucket=through.bucket, Key="stream")["ContentLength"] == len(DATA)
    assert sorted(through.keys()) == ["a b/ü+c", "empty", "stream"]
    through.s3.delete_objects(Bucket=through.bucket, Delete={"Objects": [{"Key": "empty"}, {"Key": "stream"}]})
    through.s3.delete_object(Bucket=through.bucket, Key="a b/ü+c")
    assert stored() == {}


def test_requests_are_recorded(proxy: Proxy, through: Client) -> None:
    through.put("a/b", io.BytesIO(DATA))
    through.get("a/b", Range="bytes=0-9")
    with pytest.raises(ClientError):
        through.get("none")
    through.keys()
    put, get, none, listing = proxy.requests
    assert [each.number for each in proxy.requests] == [1, 2, 3, 4]
    assert [each.operation for each in proxy.requests] == ["put", "get", "get", "list"]
    assert (put.bucket, put.key, put.status, put.received, put.sent) == (through.bucket, "a/b", 200, len(DATA), 0)
    assert put.headers["expect"] == "100-continue" and put.headers["host"] == proxy.endpoint.removeprefix("http://")
    assert (get.status, get.forwarded, get.sent, get.headers["range"]) == (206, 206, 10, "bytes=0-9")
    assert (none.status, none.key, none.fault) == (404, "none", None)
    assert listing.query["list-type"] == "2" and listing.key == ""
    assert put.seconds is not None and put.began < get.began
    assert proxy.said("get", "a/*") == [get]


def test_a_connection_serves_many_requests(proxy: Proxy, server: Server, bucket: str) -> None:
    accepted = []
    accept = proxy._listener.process_request
    proxy._listener.process_request = lambda *one: (accepted.append(one), accept(*one))  # type: ignore[method-assign]
    with closing(servers.client(server._replace(endpoint=proxy.endpoint))) as s3:
        for number in range(5):
            s3.put_object(Bucket=bucket, Key=f"k{number}", Body=b"1")
    assert len(proxy.requests) == 5 and len(accepted) == 1


def test_sixty_four_connections_at_once(proxy: Proxy, through: Client, stored: Stored) -> None:
    through.put("seed", b"1")
    together, met = threading.Barrier(64), []
    proxy.fault(faults.call_before(lambda _: met.append(together.wait(20))), operation="put", times=None)
    with ThreadPoolExecutor(64) as pool:
        list(pool.map(lambda number: through.put(f"k{number}", b"%d" % number), range(64)))
    assert sorted(met) == list(range(64))
    assert stored() == {"seed": b"1"} | {f"k{number}": b"%d" % number for number in range(64)}


def test_rules_say_which_requests_and_how_often(proxy: Proxy, through: Client) -> None:
    rule = proxy.fault(faults.slow_down(), operation="put", key="x/*", skip=1, times=2)
    proxy.fault(faults.internal_error(), match=lambda request: request.number == 7)
    outcomes = []
    for key in ("x/1", "y/1", "x/2", "x/3", "x/4", "y/2", "y/3"):
        try:
            through.put(key, b"1")
            outcomes.append("done")
        except ClientError as error:
            outcomes.append(error.response["Error"]["Code"])
    assert outcomes == ["done", "done", "SlowDown", "SlowDown", "done", "done", "InternalError"]
    assert (rule.seen, rule.hits) == (4, 2)


# Faults before the server knows


@pytest.mark.parametrize("body", [DATA, io.BytesIO(DATA)], ids=["at-once", "expecting-100"])
def test_an_error_answered_without_asking_the_server(
    proxy: Proxy, through: Client, stored: Stored, body: bytes | io.BytesIO
) -> None:
    proxy.fault(faults.answer_error(409, "ConditionalRequestConflict", "Try <again>", [("Retry-After", "1")]))
    with pytest.raises(ClientError) as caught:
        through.put("k", body)
    said = caught.value.response
    assert said["Error"] | {"Code": "ConditionalRequestConflict", "Message": "Try <again>"} == said["Error"]
    assert said["ResponseMetadata"]["HTTPStatusCode"] == 409
    assert said["ResponseMetadata"]["HTTPHeaders"]["retry-after"] == "1"
    assert stored() == {} and proxy.requests[0].forwarded is None and proxy.requests[0].fault == "answer_error"
    through.put("k", b"1")


def test_an_error_to_a_head_has_no_body(proxy: Proxy, through: Client) -> None:
    proxy.fault(faults.slow_down())
    with pytest.raises(ClientError) as caught:
        through.s3.head_object(Bucket=through.bucket, Key="k")
    assert caught.value.response["Error"]["Code"] == "503"


def test_a_reset_before_the_server_is_asked(proxy: Proxy, through: Client, stored: Stored) -> None:
    proxy.fault(faults.reset_at_once())
    with pytest.raises((ConnectionClosedError, EndpointConnectionError)):
        through.put("k")
    assert stored() == {} and proxy.requests[0].status is None


def test_a_request_cut_in_its_body(proxy: Proxy, through: Client, stored: Stored) -> None:
    proxy.fault(faults.cut_request(1000), operation="put")
    with pytest.raises((ConnectionClosedError, EndpointConnectionError)):
        through.put("k", io.BytesIO(DATA))
    assert proxy.requests[0].received == 1000
    time.sleep(0.1)
    assert stored() == {}


def test_a_changed_request_is_refused_by_the_server(proxy: Proxy, through: Client, stored: Stored) -> None:
    proxy.fault(faults.flip_request(500))
    with pytest.raises(ClientError) as caught:
        through.put("k")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] in (400, 403)
    assert stored() == {} and proxy.requests[0].forwarded == proxy.requests[0].status


# Faults after it


def test_a_lost_reply_of_something_done(proxy: Proxy, through: Client, stored: Stored) -> None:
    proxy.fault(faults.lose_reply(), operation="put")
    with pytest.raises(ConnectionClosedError):
        through.put("k", IfNoneMatch="*")
    assert stored() == {"k": DATA}
    assert (proxy.requests[0].forwarded, proxy.requests[0].status) == (200, None)
    with pytest.raises(ClientError, match="PreconditionFailed"):
        through.put("k", IfNoneMatch="*")


def test_a_reply_reset_in_its_body(proxy: Proxy, through: Client) -> None:
    through.put("k")
    proxy.fault(faults.cut_reply(1000), operation="get")
    with pytest.raises((ResponseStreamingError, ConnectionClosedError)) as caught:
        through.get("k")
    assert "reset" in str(caught.value).lower()
    assert through.get("k") == DATA
    assert proxy.said("get")[0].sent == 1000


def test_a_reply_that_ends_too_soon(proxy: Proxy, through: Client) -> None:
    through.put("k")
    proxy.fault(faults.truncate_reply(1000), operation="get")
    with pytest.raises(ResponseStreamingError) as caught:
        through.get("k")
    assert f"1000 bytes read, {len(DATA) - 1000} more expected" in str(caught.value)
    assert through.get("k") == DATA


def test_a_changed_reply(proxy: Proxy, through: Client) -> None:
    through.put("k")
    proxy.fault(faults.flip_reply(-1), operation="get", times=2)
    changed = DATA[:-1] + bytes([DATA[-1] ^ 1])
    with pytest.raises(FlexibleChecksumError):
        through.get("k")
    # There is no checksum of a part, so that only a reader's own would find it.
    assert through.get("k", Range="bytes=1-") == changed[1:]
    assert through.get("k") == DATA


def test_a_slow_reply(proxy: Proxy, through: Client) -> None:
    through.put("k", DATA[:1000])
    proxy.fault(faults.slow_reply(250, 0.1), operation="get")
    began = time.monotonic()
    assert through.get("k") == DATA[:1000]
    assert 0.3 <= time.monotonic() - began < 3


@pytest.mark.parametrize(("fault", "done"), [(faults.stall(60), False), (faults.stall_reply(60), True)])
def test_a_stall_outlasts_the_clients_patience(
    server: Server, proxy: Proxy, bucket: str, stored: Stored, fault: faults.Action, done: bool
) -> None:
    proxy.fault(fault, operation="put")
    with (
        closing(servers.client(server._replace(endpoint=proxy.endpoint), read_timeout=0.5)) as s3,
        pytest.raises(ReadTimeoutError),
    ):
        s3.put_object(Bucket=bucket, Key="k", Body=b"1")
    assert stored() == ({"k": b"1"} if done else {})


def test_a_stall_ends_with_the_proxy(server: Server, bucket: str) -> None:
    began = time.monotonic()
    with Proxy(server.endpoint) as proxy, closing(servers.client(server._replace(endpoint=proxy.endpoint))) as s3:
        proxy.fault(faults.stall(60))
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(s3.list_objects_v2, Bucket=bucket)
            while not proxy.requests:
                time.sleep(0.01)
            proxy.__exit__(None)
            assert isinstance(waiting.exception(), ConnectionClosedError)
    assert time.monotonic() - began < 10


# Listings


def test_a_listing_that_lags_behind_the_writes(proxy: Proxy, through: Client) -> None:
    through.put("old", b"1")
    time.sleep(0.6)
    proxy.fault(faults.lag_listing(0.5), operation="list", times=None)
    through.put("new & ü", b"1")
    answer = through.s3.list_objects_v2(Bucket=through.bucket)
    assert [entry["Key"] for entry in answer["Contents"]] == ["old"] and answer["KeyCount"] == 1
    assert through.get("new & ü") == b"1"
    time.sleep(0.6)
    assert sorted(through.keys()) == ["new & ü", "old"]


def test_a_listing_that_leaves_keys_out(proxy: Proxy, through: Client) -> None:
    for key in ("packs/1", "packs/2", "snapshots/a b+c"):
        through.put(key, b"1")
    proxy.fault(faults.lag_listing(hidden=lambda key: key == "snapshots/a b+c"), operation="list")
    assert through.keys() == ["packs/1", "packs/2"]
    assert through.keys() == ["packs/1", "packs/2", "snapshots/a b+c"]


# Callbacks


def test_functions_are_called_before_and_after_the_server(proxy: Proxy, through: Client, stored: Stored) -> None:
    seen = []
    proxy.fault(faults.call_before(lambda request: seen.append((request.key, stored()))), operation="put")
    proxy.fault(faults.call_after(lambda request: seen.append((request.key, stored()))), operation="put")
    through.put("a", b"1")
    through.put("b", b"2")
    assert seen == [("a", {}), ("b", {"a": b"1", "b": b"2"})]


_WRITER = """
import sys
from tests.s3 import servers
server, bucket = servers.Server(*sys.argv[1:6]), sys.argv[6]
for number in range(100):
    servers.kept_client(server).put_object(Bucket=bucket, Key=f"k{number}", Body=b"1")
"""


@pytest.mark.parametrize("forwarded", [False, True])
def test_a_writer_killed_at_a_chosen_request(
    server: Server, proxy: Proxy, bucket: str, stored: Stored, forwarded: bool
) -> None:
    def kill(_: faults.Request) -> None:
        writer.send_signal(signal.SIGKILL)

    action = faults.call_after(kill) if forwarded else faults.call_before(kill, then=faults.reset_at_once())
    proxy.fault(action, match=lambda request: request.number == 3)
    arguments = [*server._replace(endpoint=proxy.endpoint), bucket]
    with subprocess.Popen([sys.executable, "-c", _WRITER, *arguments], env=os.environ | {"PYTHONPATH": "."}) as writer:
        assert writer.wait() == -signal.SIGKILL
    assert list(stored()) == ["k0", "k1", *["k2"] * forwarded]


def test_an_error_in_a_callback_fails_the_test(server: Server, bucket: str) -> None:
    def wrong(_: faults.Request) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"), Proxy(server.endpoint) as proxy:
        proxy.fault(faults.call_before(wrong))
        with closing(servers.client(server._replace(endpoint=proxy.endpoint))) as s3, pytest.raises(Exception):  # noqa: B017
            s3.list_objects_v2(Bucket=bucket)


def test_a_server_that_is_gone_resets_the_client(bucket: str, server: Server) -> None:
    with Proxy("http://127.0.0.1:1") as proxy, closing(servers.client(server._replace(endpoint=proxy.endpoint))) as s3:
        with pytest.raises(ConnectionClosedError):
            s3.list_objects_v2(Bucket=bucket)
        assert proxy.requests[0].forwarded is None
