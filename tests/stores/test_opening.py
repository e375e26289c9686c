"""A store from what a person writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cachekeeper.errors import UsageError
from cachekeeper.stores import LocalStore, open_store
from cachekeeper.stores.cached import CachedStore
from cachekeeper.stores.readonly import ReadOnlyStore
from cachekeeper.stores.s3 import S3Store


def root(url: str) -> str:
    store = open_store(url)
    assert isinstance(store, LocalStore)
    return str(store.root)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("/srv/caches", "/srv/caches"),
        ("/srv/./a/../caches/", "/srv/caches"),
        ("file:///srv/caches", "/srv/caches"),
        ("file://localhost/srv/caches", "/srv/caches"),
        ("FILE:///srv/caches", "/srv/caches"),
        ("file:///srv/my%20caches/gr%C3%B6%C3%9Fe", "/srv/my caches/größe"),
        ("file:///srv/100%25", "/srv/100%"),
        ("/srv/100%25", "/srv/100%25"),
        ("/srv/a:b", "/srv/a:b"),
        ("file:///srv/a?b#c", "/srv/a?b#c"),
        ("file:///~/x", "/~/x"),
    ],
)
def test_places(url: str, path: str):
    assert root(url) == path


def test_a_relative_path_is_made_absolute_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    store = open_store("caches/one")
    monkeypatch.chdir("/")
    assert store.url == (tmp_path / "caches/one").as_uri()


def test_home_is_expanded(own_environment: Path):
    assert root("~/caches") == f"{own_environment}/caches"


def test_a_urls_own_form_opens_the_same_store(tmp_path: Path):
    for name in ("plain", "with space", "größe", "100%", "a#b?c"):
        store = LocalStore(tmp_path / name)
        assert root(store.url) == str(store.root)


@pytest.mark.parametrize("url", ["ftp://host/x", "memory://x", "file://host/srv", "file://", "file:///a%00b", ""])
def test_what_is_no_store_is_a_usage_error(url: str):
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert caught.value.exit_code == 2 and "--store" in caught.value.hint


def test_opening_makes_nothing(tmp_path: Path):
    open_store(str(tmp_path / "store"))
    assert os.listdir(tmp_path) == []


def s3(url: str, **options: str) -> S3Store:
    store = open_store(url, **options)
    assert isinstance(store, S3Store)
    return store


@pytest.mark.parametrize(
    "url", ["s3://bucket", "s3://bucket/", "s3://bucket/a", "S3://bucket//a/b//", "s3://my.bucket-1/x_y"]
)
def test_buckets(url: str):
    assert s3(url).url == "s3://" + url.partition("://")[2].rstrip("/").replace("//", "/")


def test_a_bucket_can_say_all_that_it_takes_to_open_it():
    url = "s3://bucket/x?endpoint=https://minio.example:9000&profile=lab&region=eu-west-1"
    assert s3(url).url == url


def test_the_endpoint_of_a_server(monkeypatch: pytest.MonkeyPatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x" * 20)
    assert s3("s3://b1", s3_endpoint="http://one:1").endpoint == "http://one:1"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://aws:3")
    assert s3("s3://b1").endpoint == "http://aws:3"
    monkeypatch.setenv("CACHEKEEPER_S3_ENDPOINT", "http://two:2")
    assert s3("s3://b1").endpoint == "http://two:2"
    assert s3("s3://b1?endpoint=http://four:4", s3_endpoint="http://one:1").endpoint == "http://four:4"


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:///x",
        "s3://x",
        "s3://bucket/a/../b",
        "s3://bucket/a b",
        "s3://bucket/.hidden",
        "s3://bucket/x#y",
        "s3://bucket?secret=1",
        "s3://bucket?endpoint=minio:9000",
        "s3://bucket?endpoint=ftp://minio",
        "s3://bucket?endpoint=http://minio:99999",
        "s3://bucket?endpoint=",
        "s3://bucket:80/x",
        "s3:/bucket/x",
        "s3:bucket/x",
        "S3//bucket/x",
    ],
)
def test_what_is_no_bucket_is_a_usage_error(url: str):
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert "--s" in caught.value.hint or "prefix" in caught.value.message


@pytest.mark.parametrize("url", ["s3://AKIA123:Xs3cr3tX@bucket/x", "s3://bucket?endpoint=http://AKIA123:Xs3cr3tX@host"])
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str):
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert "Xs3cr3tX" not in str(caught.value) and "AKIA" not in str(caught.value)


def test_what_follows_the_question_mark_is_not_repeated():
    with pytest.raises(UsageError) as caught:
        open_store("s3://bucket/x?endpoint=http://h&aws_secret_access_key=Xs3cr3tX")
    assert "'aws_secret_access_key'" in str(caught.value) and "Xs3cr3tX" not in str(caught.value)


def test_a_local_cache_that_looks_like_a_bucket_is_none():
    with pytest.raises(UsageError, match="looks like a bucket"):
        open_store("s3://bucket", local_cache="s3://bucket/near")


def test_opening_a_bucket_imports_no_boto3():
    code = "import sys; from cachekeeper.stores import open_store; open_store('s3://bucket/x').url"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'boto3' not in sys.modules"], check=True)


def test_a_local_cache_is_only_for_buckets(tmp_path: Path):
    assert isinstance(open_store("s3://bucket", local_cache=tmp_path), CachedStore)
    assert isinstance(open_store(tmp_path / "store", local_cache=tmp_path), LocalStore)


def test_the_settings_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CACHEKEEPER_LOCAL_CACHE", str(tmp_path / "near"))
    monkeypatch.setenv("CACHEKEEPER_STORE", "s3://bucket")
    assert open_store().directories == (tmp_path / "near",)
    monkeypatch.setenv("CACHEKEEPER_READ_ONLY", "1")
    assert isinstance(open_store(), ReadOnlyStore)
    monkeypatch.setenv("CACHEKEEPER_READ_ONLY", "0")
    assert isinstance(open_store(), CachedStore)
