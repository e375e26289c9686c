"""A watch on a cache whose snapshot is in a bucket of a real server."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper.testing import make_cache
from tests.s3.conftest import bucket, credentials, server

from .guarding import Guard, is_whole, wait_for

__all__ = ["bucket", "credentials", "server"]


@pytest.mark.parametrize("local_cache", [False, True])
def test_what_vanishes_comes_back_from_the_bucket(
    credentials: None, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, local_cache: bool
):
    if local_cache:
        monkeypatch.setenv("CACHEKEEPER_LOCAL_CACHE", str(tmp_path / "near"))
    monkeypatch.setenv("CACHEKEEPER_STORE", f"s3://{bucket}/caches")
    cache, live = make_cache(tmp_path / "cache"), tmp_path / "live"
    cachekeeper.snapshot("drafter", cache_dir=cache, wait=0)
    cachekeeper.restore("drafter", cache_dir=live)
    with Guard(cache_dir=live) as guard:
        for number in range(2):
            shutil.rmtree(live)
            wait_for(lambda: is_whole(live, cache))
            guard.wait_for("put-back", times=number + 1)
        assert not guard.told("trouble")
