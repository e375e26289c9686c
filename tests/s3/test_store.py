"""A store in a bucket: the contract on a real server, and what is particular to S3."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor

import pytest

from cachekeeper.errors import AccessDenied
from cachekeeper.stores import NOT_EXCLUSIVE, KeyMissing, Store, s3
from cachekeeper.stores.s3 import S3Store
from cachekeeper.testing import StoreContract

from . import proxy as faults
from . import servers
from .proxy import Proxy
from .servers import Server


def prepared(store: Store) -> Store:
    """With the race over, whose probes a listing would show."""
    store.prepare()
    assert len(store.caveats) <= 1
    return store


@pytest.mark.usefixtures("credentials")
class TestContract(StoreContract):
    @pytest.fixture
    def store(self, bucket: str, server: Server) -> Store:
        return prepared(S3Store(bucket, "a/prefix", endpoint=server.endpoint))


@pytest.mark.usefixtures("credentials")
class TestContractWithVersions(StoreContract):
    @pytest.fixture
    def store(self, server: Server) -> Store:
        return S3Store(servers.make_bucket(server, versioning=True), "p", endpoint=server.endpoint)


@pytest.mark.usefixtures("credentials")
class TestContractInParts(StoreContract):
    """Every object larger than nothing goes up in parts."""

    @pytest.fixture
    def store(self, bucket: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> Store:
        monkeypatch.setattr(s3, "ONE_REQUEST_BYTES", 0)
        return S3Store(bucket, "p", endpoint=server.endpoint)

    @pytest.mark.skip(reason="SeaweedFS 4.48 has several winners here; only packs are so large, each with its own name")
    def test_of_many_creators_one_wins(self, store: Store) -> None: ...


@pytest.mark.usefixtures("lying_credentials")
class TestContractOnAServerThatLies(StoreContract):
    """All of it but the race: nothing is overwritten by one writer after another."""

    @pytest.fixture
    def store(self, lying_server: Server) -> Store:
        return prepared(S3Store(servers.make_bucket(lying_server), "p", endpoint=lying_server.endpoint))

    @pytest.mark.skip(reason="this is what it does not keep; `caveats` says so")
    def test_of_many_creators_one_wins(self, store: Store) -> None: ...


@pytest.fixture
def store(credentials: None, bucket: str, server: Server) -> S3Store:
    return S3Store(bucket, "p", endpoint=server.endpoint)


@pytest.fixture
def through(credentials: None, bucket: str, proxy: Proxy) -> S3Store:
    """A store whose requests a proxy sees."""
    return S3Store(bucket, "p", endpoint=proxy.endpoint)


def test_objects_lie_below_the_prefix(store: S3Store, server: Server, bucket: str):
    store.create("packs/x", b"mine")
    servers.kept_client(server).put_object(Bucket=bucket, Key="other/y", Body=b"not mine")
    servers.kept_client(server).put_object(Bucket=bucket, Key="p/with space", Body=b"no key of ours")
    assert set(servers.contents(server, bucket)) == {"p/packs/x", "other/y", "p/with space"}
    assert [item.key for item in store.list("")] == ["packs/x"]


def test_a_store_can_be_a_whole_bucket(credentials: None, server: Server, bucket: str):
    store = S3Store(bucket, endpoint=server.endpoint)
    assert store.create("packs/x", b"mine") and not store.create("packs/x", b"other")
    assert set(servers.contents(server, bucket)) == {"packs/x"}
    assert [item.key for item in store.list("")] == ["packs/x"] and store.url == f"s3://{bucket}"


def test_a_listing_of_many_pages(store: S3Store):
    keys = [f"names/n/{number:08d}" for number in range(1100)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: store.create(key, b""), keys))
    assert [item.key for item in store.list("names/")] == keys
    assert len(list(store.list("names/", most=3))) == 3


def test_a_large_object_goes_up_in_parts(through: S3Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(s3, "PART_BYTES", 5 << 20)
    monkeypatch.setattr(s3, "ONE_REQUEST_BYTES", 8 << 20)
    data = random.Random(3).randbytes(12 << 20)
    assert through.create("packs/x", data[: 7 << 20], data[7 << 20 :]) is True
    assert [request.operation for request in proxy.said("put*")] == ["put"] * 3
    assert through.read("packs/x") == data and through.read("packs/x", 6 << 20, 3) == data[6 << 20 :][:3]
    assert through.create("packs/x", data) is False


def test_sha256_is_given_to_the_server(through: S3Store, server: Server, bucket: str):
    through.create("packs/x", b"data")
    head = servers.kept_client(server).head_object(Bucket=bucket, Key="p/packs/x", ChecksumMode="ENABLED")
    assert head["ChecksumSHA256"] == b64encode(hashlib.sha256(b"data").digest()).decode()


def test_a_server_that_keeps_to_it_is_raced_once_a_machine(through: S3Store, proxy: Proxy, bucket: str):
    through.prepare()
    assert through.caveats == () and through.creates_once() is True
    raced = len(proxy.said("put", "p/probes/*"))
    assert raced > 5
    again = S3Store(bucket, "other", endpoint=proxy.endpoint)
    again.prepare()
    assert again.caveats == () and len(proxy.said("put", "*probes/*")) == raced


def test_nothing_of_a_race_is_left(through: S3Store, server: Server, bucket: str):
    through.prepare()
    assert through.caveats == ()
    assert servers.contents(server, bucket) == {}


def test_a_server_that_lies_is_found_out(lying_credentials: None, lying_server: Server):
    bucket = servers.make_bucket(lying_server)
    for _ in range(2):  # the second time it is remembered
        store = S3Store(bucket, "p", endpoint=lying_server.endpoint)
        store.prepare()
        assert store.caveats == (NOT_EXCLUSIVE,)
    assert store.creates_once() is False


def test_a_server_that_knows_no_conditions_at_all_is_found_out(through: S3Store, proxy: Proxy):
    def unless_conditional(exchange: faults.Exchange) -> None:
        if exchange.request.headers.get("if-none-match"):
            faults.answer_error(501, "NotImplemented", "A header you provided implies functionality not implemented")(
                exchange
            )
        else:
            faults.pass_through(exchange)

    proxy.fault(unless_conditional, operation="put", times=None)
    through.prepare()
    assert through.caveats == (NOT_EXCLUSIVE,)
    assert through.create("k", b"first") is True and through.create("k", b"second") is False
    assert through.read("k") == b"first"


@pytest.mark.parametrize("conditions", [True, False])
def test_nothing_waits_for_the_end_of_a_race(through: S3Store, proxy: Proxy, conditions: bool):
    proxy.fault(faults.stall(8), operation="put", key="*probes/*")
    if not conditions:
        refusal = faults.answer_error(501, "NotImplemented")
        proxy.fault(refusal, operation="put", match=lambda request: "if-none-match" in request.headers, times=None)
    through.prepare()
    began = time.monotonic()
    assert through.create("names/x", b"first") and not through.create("names/x", b"second")
    assert time.monotonic() - began < 6
    assert through.read("names/x") == b"first"
    assert through.caveats == (() if conditions else (NOT_EXCLUSIVE,))


def test_read_only_credentials_read_and_cannot_write(
    store: S3Store, read_only_credentials: None, bucket: str, server: Server
):
    servers.kept_client(server).put_object(Bucket=bucket, Key="p/packs/x", Body=b"data")
    reader = S3Store(bucket, "p", endpoint=server.endpoint)
    assert reader.read("packs/x") == b"data" and [item.key for item in reader.list("packs/")] == ["packs/x"]
    with pytest.raises(AccessDenied) as caught:
        reader.create("packs/y", b"x")
    assert "s3:PutObject on packs/y" in str(caught.value)


def test_one_client_serves_many_threads(store: S3Store):
    start = threading.Barrier(8)

    def work(number: int) -> bytes:
        start.wait()
        store.create(f"k/{number}", b"%d" % number)
        return store.read(f"k/{number}")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [b"%d" % number for number in range(8)]


def test_what_is_not_there_is_missing_by_every_way(store: S3Store):
    for ask in (lambda: store.read("x"), lambda: store.read("x", 1, 2), lambda: store.read("x", 0, 0)):
        with pytest.raises(KeyMissing):
            ask()
