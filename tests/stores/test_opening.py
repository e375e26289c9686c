"""A store from what a person writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cachekeeper.errors import UsageError
from cachekeeper.stores import LocalStore, open_store


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


@pytest.mark.parametrize(
    "url", ["s3://bucket/x", "ftp://host/x", "memory://x", "file://host/srv", "file://", "file:///a%00b", ""]
)
def test_what_is_no_store_is_a_usage_error(url: str):
    with pytest.raises(UsageError) as caught:
        open_store(url)
    assert caught.value.exit_code == 2 and "--store" in caught.value.hint


def test_opening_makes_nothing(tmp_path: Path):
    open_store(str(tmp_path / "store"))
    assert os.listdir(tmp_path) == []
