"""Makes `store-v1`, once. The store is committed and must restore for ever; this says what is in it.

python -m tests.golden.make_store DIR
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path
from unittest import mock

import cachekeeper
from cachekeeper.models import Fact, Fingerprint
from cachekeeper.testing import make_cache

# Paths below are in the store: the same on whatever machine makes it.
CACHE = Path("/tmp/cachekeeper-golden/cache")
ALSO = Path("/tmp/cachekeeper-golden/kernels")
FINGERPRINT = Fingerprint(
    "0123456789ab",
    {"torch": Fact("2.13.0"), "gpu": Fact(None)},
    {"driver": Fact(unknown="no driver")},
    {"user": Fact("me")},
)


def fill() -> None:
    """Every kind, a file over several frames, an empty one, a long and a non-ASCII name, and a directory beside it."""
    make_cache(CACHE, seed=1, kernels=2, graphs=2, devices=2)
    (CACHE / "other").mkdir()
    (CACHE / "other" / "large.bin").write_bytes(bytes(range(256)) * (9 << 12))
    (CACHE / "other" / "empty").write_bytes(b"")
    (CACHE / "other" / f"{'n' * 200}.txt").write_text("long\n")
    (CACHE / "other" / "größe.txt").write_text("ü\n")
    make_cache(ALSO, seed=2, kernels=1, graphs=0)


def tree(root: Path) -> dict[str, str]:
    """Path -> SHA-256 of every file, but for scratch."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".cachekeeper" not in path.parts
    }


def make(directory: Path) -> None:
    """The store, and beside it what its two snapshots must restore to."""
    shutil.rmtree(CACHE.parent, ignore_errors=True)
    fill()
    with (
        mock.patch("cachekeeper.verbs.snapshot.fingerprint", lambda **_: FINGERPRINT),
        mock.patch("cachekeeper.repository.snapshots.writer", lambda: "me@here"),
    ):
        store = directory / "store-v1"
        cachekeeper.snapshot("team/first", cache_dir=CACHE, store=store, also=[ALSO], metrics={"tok_s": 21500}, wait=2)
        (CACHE / "other" / "größe.txt").write_text("grösser\n")
        cachekeeper.snapshot("team/first", cache_dir=CACHE, store=store, also=[ALSO], message="second", wait=2)
    expected = {}
    for reference in ("team/first@{1}", "team/first"):
        target = CACHE.parent / "restored"
        shutil.rmtree(target, ignore_errors=True)
        cachekeeper.restore(reference, cache_dir=target, store=store, allow_mismatch=True)
        expected[reference] = tree(target)
    text = json.dumps({"restored_to": str(target), "trees": expected}, indent=1, ensure_ascii=False)
    (directory / "store-v1.json").write_text(text + "\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
