"""Each way in which a server says no has its own error, with what to do next, and none of them tells a secret."""

from __future__ import annotations

import functools
import http.server
import json
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.cli import main
from cachekeeper.errors import (
    AccessDenied,
    BadCredentials,
    ClockSkew,
    CredentialsExpired,
    ForeignServer,
    NoCredentials,
    NoSuchBucket,
    StoreError,
    TlsFailed,
    Unreachable,
    WrongRegion,
)
from cachekeeper.stores.s3 import S3Store
from cachekeeper.testing import make_cache
from cachekeeper.verbs.doctor import doctor

from . import servers
from .proxy import Proxy, answer_error
from .servers import Server


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")


@pytest.fixture
def store(proxied_credentials: None, proxy: Proxy, bucket: str) -> S3Store:
    return S3Store(bucket, "p", endpoint=proxy.endpoint)


def error_of(ask: Callable[[], object], kind: type[StoreError]) -> str:
    with pytest.raises(StoreError) as caught:
        ask()
    assert type(caught.value) is kind, caught.value
    assert caught.value.exit_code == 6 and caught.value.hint
    return str(caught.value)


@pytest.mark.parametrize(
    ("status", "code", "kind", "word"),
    [
        (403, "AccessDenied", AccessDenied, "s3:GetObject on format.json"),
        (403, "AllAccessDisabled", AccessDenied, "s3:ListBucket"),
        (403, "InvalidAccessKeyId", BadCredentials, "AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", BadCredentials, "AWS_SECRET_ACCESS_KEY"),
        (400, "ExpiredToken", CredentialsExpired, "aws sso login"),
        (400, "TokenRefreshRequired", CredentialsExpired, "renew"),
        (403, "RequestTimeTooSkewed", ClockSkew, "clock"),
        (404, "NoSuchBucket", NoSuchBucket, "aws s3 mb"),
        (400, "IllegalLocationConstraintException", WrongRegion, "AWS_REGION"),
        (503, "ServiceUnavailable", Unreachable, "tried 2 times"),
        (500, "InternalError", Unreachable, "InternalError"),
        (418, "SomethingElse", StoreError, "SomethingElse"),
    ],
)
def test_what_a_server_can_say(store: S3Store, proxy: Proxy, status: int, code: str, kind: type[StoreError], word: str):
    proxy.fault(answer_error(status, code, "because"), times=None)
    if kind is StoreError:
        with pytest.raises(StoreError) as caught:
            store.read("format.json")
        assert type(caught.value) is StoreError and code in str(caught.value)
        return
    text = error_of(lambda: store.read("format.json"), kind)
    assert word in text and f"{code}: because" in text and proxy.endpoint in text


@pytest.mark.parametrize(
    ("act", "action"),
    [
        (lambda store: store.create("packs/x", b""), "s3:PutObject"),
        (lambda store: store.delete("packs/x"), "s3:DeleteObject"),
        (lambda store: store.list("packs/"), "s3:ListBucket"),
        (lambda store: store.size("packs/x"), "s3:GetObject"),
    ],
)
def test_what_is_denied_is_named(store: S3Store, proxy: Proxy, act: Callable[[S3Store], object], action: str):
    proxy.fault(answer_error(403, "AccessDenied"), times=None)
    assert action in error_of(lambda: act(store), AccessDenied)


def test_an_unknown_bucket(credentials: None, server: Server):
    store = S3Store("no-such-bucket-here", endpoint=server.endpoint)
    error_of(lambda: store.read("format.json"), NoSuchBucket)
    error_of(lambda: store.list(""), NoSuchBucket)


def test_a_wrong_secret(credentials: None, server: Server, bucket: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong" * 8)
    error_of(lambda: S3Store(bucket, endpoint=server.endpoint).read("k"), BadCredentials)


def test_an_unknown_key(credentials: None, server: Server, bucket: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody" * 3)
    error_of(lambda: S3Store(bucket, endpoint=server.endpoint).read("k"), BadCredentials)


def test_no_credentials(credentials: None, server: Server, bucket: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    error_of(lambda: S3Store(bucket, endpoint=server.endpoint).read("k"), NoCredentials)


def test_half_of_the_credentials(credentials: None, server: Server, bucket: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    error_of(lambda: S3Store(bucket, endpoint=server.endpoint).read("k"), NoCredentials)


def test_no_such_profile(credentials: None, bucket: str):
    assert "nobodys" in error_of(lambda: S3Store(bucket, profile="nobodys").read("k"), NoCredentials)


def test_credentials_of_a_profile(server: Server, bucket: str, own_environment: Path, monkeypatch: pytest.MonkeyPatch):
    (own_environment / ".aws").mkdir()
    (own_environment / ".aws/credentials").write_text(
        f"[lab]\naws_access_key_id = {server.access_key}\naws_secret_access_key = {server.secret_key}\n"
    )
    (own_environment / ".aws/config").write_text(
        f"[profile lab]\nregion = us-east-1\nendpoint_url = {server.endpoint}\n"
    )
    assert S3Store(bucket, profile="lab").create("k", b"x")
    monkeypatch.setenv("AWS_PROFILE", "lab")
    assert S3Store(bucket).read("k") == b"x"


def test_the_endpoint_of_the_aws_environment(
    credentials: None, server: Server, bucket: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.endpoint)
    assert S3Store(bucket).create("k", b"x") and S3Store(bucket, endpoint=server.endpoint).read("k") == b"x"


def test_an_endpoint_where_nobody_listens(credentials: None, bucket: str):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    error_of(lambda: S3Store(bucket, endpoint=f"http://127.0.0.1:{port}").read("k"), Unreachable)


def test_an_endpoint_without_an_address(credentials: None, bucket: str):
    error_of(lambda: S3Store(bucket, endpoint="http://no-such-host.invalid").read("k"), Unreachable)


def test_an_endpoint_that_says_nothing(credentials: None, bucket: str):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        error_of(lambda: S3Store(bucket, endpoint=endpoint, read_seconds=0.3).read("k"), Unreachable)


@pytest.fixture
def untrusted(tmp_path: Path) -> Iterator[str]:
    """An https endpoint with a certificate that nobody signed."""
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), cwd=tmp_path, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            try:
                context.wrap_socket(connection, server_side=True).close()
            except OSError:
                connection.close()

    threading.Thread(target=serve, daemon=True).start()
    yield f"https://localhost:{listener.getsockname()[1]}"
    listener.close()


def test_a_certificate_that_is_not_trusted(credentials: None, bucket: str, untrusted: str):
    assert "AWS_CA_BUNDLE" in error_of(lambda: S3Store(bucket, endpoint=untrusted).read("k"), TlsFailed)


@pytest.fixture
def web_server(tmp_path: Path) -> Iterator[str]:
    """A web server that knows nothing of S3."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


def test_a_web_server_is_no_empty_store(credentials: None, web_server: str, tmp_path: Path):
    store = S3Store("bucket", "p", endpoint=web_server)
    for ask in (lambda: store.read("format.json"), lambda: store.create("k", b"x"), lambda: store.list("")):
        error_of(ask, ForeignServer)
    with pytest.raises(ForeignServer):
        cachekeeper.restore("x", cache_dir=tmp_path / "t", store=store, missing_ok=True)
    [error] = [item for item in doctor(store=store).findings if item.level == "error"]
    assert error.check == "store" and "does not speak S3" in error.message


def test_https_where_http_is_spoken(credentials: None, server: Server, bucket: str):
    endpoint = server.endpoint.replace("http:", "https:")
    error_of(lambda: S3Store(bucket, endpoint=endpoint).read("k"), TlsFailed)


def test_the_region_that_the_server_names_is_in_the_hint(store: S3Store, proxy: Proxy):
    def wrong_region(exchange) -> None:
        body = (
            b"<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region 'us-east-1' is wrong; expecting "
            b"'eu-west-1'</Message><Region>eu-west-1</Region></Error>"
        )
        from .proxy import Response

        exchange.refuse(Response(400, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))], body))

    proxy.fault(wrong_region, times=None)
    assert "AWS_REGION=eu-west-1" in error_of(lambda: store.read("k"), WrongRegion)


# Secrets


SECRET, TOKEN = "Xs3cr3tSECRETs3cr3tX", "Xt0k3nTOKENt0k3nX"


def test_no_secret_is_ever_told_or_kept(
    credentials: None,
    server: Server,
    bucket: str,
    proxy: Proxy,
    tmp_path: Path,
    own_environment: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    """Every command, on a server that works and on one that fails in every way; then everything that was written."""
    cache = make_cache(tmp_path / "cache")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    arguments = ["--store", f"s3://{bucket}/p", "--local-cache", str(tmp_path / "near")]
    commands = [
        ["snapshot", "x", "--cache-dir", str(cache), "--wait", "0", "-m", "hello", *arguments],
        ["restore", "x", "--cache-dir", str(tmp_path / "target"), *arguments],
        ["ls", *arguments],
        ["show", "x", "--json", *arguments],
        ["verify", "x", *arguments],
        ["doctor", *arguments],
        ["fingerprint", "--json"],
    ]
    said = ""
    for command in commands:
        main(command)
    objects = servers.contents(server, bucket)
    monkeypatch.setenv("CACHEKEEPER_S3_ENDPOINT", proxy.endpoint)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    for fault in (
        None,
        (403, "SignatureDoesNotMatch"),
        (400, "ExpiredToken"),
        (500, "InternalError"),
        (403, "AccessDenied"),
    ):
        proxy.faults.clear()
        if fault:
            proxy.fault(answer_error(*fault), times=None)
        for command in commands:
            for mode in ([], ["--json"]):
                main([*command, *mode])
    out, err = capfd.readouterr()
    said = out + err
    written = [path.read_bytes() for path in (*tmp_path.rglob("*"), *own_environment.rglob("*")) if path.is_file()]
    everything = [said.encode(), *written, *objects.values(), *map(str.encode, objects)]
    for secret in (server.secret_key, SECRET, TOKEN):
        assert not any(secret.encode() in data for data in everything)
    assert "error[bad-credentials]" in said and os.environ["AWS_ACCESS_KEY_ID"] not in said


def test_an_error_as_json(
    credentials: None, server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    assert main(["ls", "--store", "s3://no-such-bucket-here", "--json"]) == 6
    document = json.loads(capsys.readouterr().err)
    assert document["code"] == "no-such-bucket" and document["exit_code"] == 6


def test_the_library_raises_the_same(credentials: None):
    error_of(lambda: cachekeeper.ls(store="s3://no-such-bucket-here"), NoSuchBucket)
