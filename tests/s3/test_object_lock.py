"""What a pin does in a real bucket with object lock, and in one without."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

import cachekeeper
from cachekeeper.errors import NotFound
from cachekeeper.pins import pinned_ids
from cachekeeper.repository import open_repository, pack_sizes
from cachekeeper.stores import Store, open_store
from tests.cli.conftest import Command, command, machine
from tests.test_pins import A, B, C, needs, pin_key, save

from .servers import Server, kept_client

__all__ = ["command", "machine"]

pytestmark = pytest.mark.usefixtures("credentials")

PREFIX = "caches/"


class Bucket:
    """A bucket as an administrator sees it."""

    def __init__(self, server: Server, name: str) -> None:
        self._s3, self._name = kept_client(server), name
        self.url = f"s3://{name}/{PREFIX.strip('/')}"

    def versions(self, key: str, kind: str = "Versions") -> list[str]:
        """The ids of an object's versions, or of its "DeleteMarkers"."""
        found = self._s3.list_object_versions(Bucket=self._name, Prefix=PREFIX + key)
        return [item["VersionId"] for item in found.get(kind, [])]

    def delete(self, key: str, **version: str) -> str:
        """Delete with or without `VersionId`; the server's code where it refuses."""
        return self._outcome(self._s3.delete_object, Key=PREFIX + key, **version)

    def try_to_destroy(self, key: str) -> set[str]:
        """What the server says to the deletion of each version of an object."""
        return {self.delete(key, VersionId=version) for version in self.versions(key)}

    def held(self) -> set[str]:
        """The keys of all objects whose newest version has a legal hold."""
        keys = [item["Key"] for item in self._s3.list_objects_v2(Bucket=self._name)["Contents"]]
        return {key.removeprefix(PREFIX) for key in keys if self._is_held(key)}

    def _is_held(self, key: str) -> bool:
        try:
            answer = self._s3.get_object_legal_hold(Bucket=self._name, Key=key)
        except ClientError:
            return False
        return answer["LegalHold"]["Status"] == "ON"

    def _outcome(self, call: Any, **arguments: str) -> str:
        try:
            call(Bucket=self._name, **arguments)
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return "done"


@pytest.fixture
def locking(server: Server, lock_bucket: str) -> Bucket:
    return Bucket(server, lock_bucket)


@pytest.fixture
def store(locking: Bucket) -> Store:
    return open_store(locking.url)


@pytest.fixture
def two(store: Store) -> tuple[str, str]:
    """Snapshots with packs A, B and with B, C."""
    return save(store, "one", A, B), save(store, "two", B, C)


def test_nobody_deletes_what_a_pinned_snapshot_needs(locking: Bucket, store: Store, two: tuple[str, str]):
    assert cachekeeper.pin(two[0], store=store).locked
    everything = {pin_key(two[0]), *needs(two[0], A, B)}
    assert locking.held() == everything
    for key in everything:
        assert locking.try_to_destroy(key) == {"AccessDenied"}, key
    assert locking.try_to_destroy(f"packs/{C}") == {"done"}
    assert cachekeeper.unpin(two[0], store=store).unpinned == two[:1]
    assert locking.held() == set() and pinned_ids(open_repository(store)) == []
    for key in everything:
        assert locking.try_to_destroy(key) == {"done"}, key
        assert locking.versions(key) == []


def test_a_plain_delete_hides_and_deleting_the_marker_brings_it_back(locking: Bucket, store: Store, two):
    cachekeeper.pin(two[0], store=store)
    hidden = [f"packs/{A}", f"snapshots/{two[0]}.json.zst", pin_key(two[0])]
    for key in hidden:
        assert locking.delete(key) == "done"
        assert len(locking.versions(key)) == 1 and locking.try_to_destroy(key) == {"AccessDenied"}
    repository = open_repository(store)
    assert not repository.has(two[0]) and pinned_ids(repository) == [] and A not in pack_sizes(repository.store)
    for key in hidden:
        [marker] = locking.versions(key, "DeleteMarkers")
        assert locking.delete(key, VersionId=marker) == "done"
    assert repository.has(two[0]) and pinned_ids(repository) == [two[0]]
    assert store.read(f"packs/{A}") == b"p" * 1000
    assert locking.held() == {pin_key(two[0]), *needs(two[0], A, B)}


def test_what_is_hidden_is_told_by_ls_and_by_unpin(locking: Bucket, store: Store, two, machine: object):
    cachekeeper.pin(two[0], store=store)
    locking.delete(f"packs/{A}")
    locking.delete(f"snapshots/{two[0]}.json.zst")
    [line] = cachekeeper.ls(store=store).unreadable
    assert line.startswith(f"{two[0][:8]}: pinned, but its manifest is not in the store")
    found = cachekeeper.unpin(two[0], store=store)
    assert found.missing == (f"packs/{A}", f"snapshots/{two[0]}.json.zst")
    # Their versions stay locked; brought back, another unpin releases them.
    assert locking.try_to_destroy(f"packs/{A}") == {"AccessDenied"}
    for key in found.missing:
        [marker] = locking.versions(key, "DeleteMarkers")
        locking.delete(key, VersionId=marker)
    found = cachekeeper.unpin(two[0], store=store)
    assert found.already == two[:1] and found.missing == () and locking.held() == set()


def test_what_is_hidden_is_not_pinned(locking: Bucket, store: Store, two, command: Command):
    locking.delete(f"packs/{B}")
    said = command("pin", two[0], "--store", locking.url)
    assert said.code == 3 and f"packs/{B}" in said.err and locking.held() == set()


def test_what_two_pins_need_stays_locked(locking: Bucket, store: Store, two: tuple[str, str]):
    one, other = two
    cachekeeper.pin(two, store=store)
    assert cachekeeper.unpin(one, store=store).kept == ("format.json", f"packs/{B}")
    assert locking.held() == {pin_key(other), *needs(other, B, C)}
    cachekeeper.unpin(other, store=store)
    assert locking.held() == set()


def test_pinned_and_unpinned_and_pinned(locking: Bucket, store: Store, two: tuple[str, str]):
    for _ in range(2):
        cachekeeper.pin(two[0], store=store)
        cachekeeper.pin(two[0], store=store)
        assert locking.held() == {pin_key(two[0]), *needs(two[0], A, B)}
        cachekeeper.unpin(two[0], store=store)
        cachekeeper.unpin(two[0], store=store)
        assert locking.held() == set()


def test_two_pins_at_once(locking: Bucket, two: tuple[str, str]):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: cachekeeper.pin(two[n % 2], store=locking.url), range(4)))
    assert all(each.locked for each in found)
    assert locking.held() == needs(two[0], A, B) | needs(two[1], B, C) | set(map(pin_key, two))


def test_a_real_snapshot_restores_after_everything_was_deleted(
    locking: Bucket, machine: object, tmp_path, monkeypatch: pytest.MonkeyPatch
):
    from cachekeeper.testing import make_cache
    from tests.verbs.conftest import settle, unplaced

    cache = settle(make_cache(tmp_path / "inductor", kernels=1, graphs=1))
    saved = cachekeeper.snapshot("drafter", cache_dir=cache, store=locking.url, wait=0).snapshot.id
    keys = cachekeeper.pin("drafter", store=locking.url).pins[0].objects
    assert {locking.delete(key) for key in keys} == {"done"}
    with pytest.raises(NotFound):
        cachekeeper.restore(saved, cache_dir=tmp_path / "back", store=locking.url)
    for key in keys:
        [marker] = locking.versions(key, "DeleteMarkers")
        locking.delete(key, VersionId=marker)
    cachekeeper.restore(saved, cache_dir=tmp_path / "back", store=locking.url)
    assert unplaced(tmp_path / "back") == unplaced(cache)


def test_undo_brings_back_what_a_plain_delete_hid(locking: Bucket, store: Store, tmp_path):
    from cachekeeper.testing import make_cache
    from tests.verbs.conftest import settle

    cache = settle(make_cache(tmp_path / "inductor", kernels=1, graphs=1))
    saved = cachekeeper.snapshot("drafter", cache_dir=cache, store=locking.url, wait=0).snapshot.id
    keys = cachekeeper.pin("drafter", store=locking.url).pins[0].objects
    hidden = [*keys, pin_key(saved)]
    assert {locking.delete(key) for key in hidden} == {"done"}
    cachekeeper.undo(saved, store=locking.url)
    assert all(locking.versions(key, "DeleteMarkers") == [] for key in hidden)
    assert cachekeeper.verify(every=True, store=locking.url).ok and pinned_ids(open_repository(store)) == [saved]
    assert cachekeeper.undo(saved, store=locking.url).already == (saved,)


def test_in_words(locking: Bucket, store: Store, two: tuple[str, str], command: Command):
    said = command("pin", two[0], "--store", locking.url)
    assert said.code == 0 and said.err == ""
    assert "ok  locked in the bucket: nobody can delete these versions until `unpin`\n" in said.out
    assert "note: a plain delete still hides an object; deleting its delete marker brings it back\n" in said.out
    assert command("show", two[0], "--store", locking.url).out.count("(locked in the store)") == 1
    assert command("unpin", two[0], "--store", locking.url).out.endswith("ok  unlocked and unpinned\n")


def test_a_bucket_without_lock(server: Server, bucket: str, command: Command):
    url = f"s3://{bucket}/caches"
    one = save(open_store(url), "one", A)
    said = command("pin", one, "--store", url)
    assert said.code == 0 and said.out.endswith(
        "ok  pinned\nnote: this store has no object lock: the pin holds for cachekeeper's own commands only\n"
    )
    assert command("show", one, "--store", url).out.count("(not locked in the store)") == 1
    assert Bucket(server, bucket).delete(f"packs/{A}") == "done"
    assert command("unpin", one, "--store", url).out == f"Unpinned        {one[:8]}\nok  unpinned\n"


@pytest.mark.parametrize("verb", ["pin", "unpin"])
def test_who_may_only_read(locking: Bucket, two, verb: str, command: Command, request: pytest.FixtureRequest):
    cachekeeper.pin(two[1], store=locking.url)
    held = locking.held()
    request.getfixturevalue("read_only_credentials")
    said = command(verb, two[1], "--store", locking.url, "--json")
    assert said.code == 6 and said.error["code"] == "access-denied"
    assert any("s3:GetBucketObjectLockConfiguration" in fact for fact in said.error["facts"])
    assert locking.held() == held


@pytest.mark.parametrize("verb", ["pin", "unpin"])
def test_a_store_opened_read_only(locking: Bucket, two: tuple[str, str], verb: str, command: Command):
    cachekeeper.pin(two[1], store=locking.url)
    held = locking.held()
    said = command(verb, *two, "--store", locking.url, "--read-only")
    assert said.code == 6 and said.err.startswith("error[read-only]: ")
    assert locking.held() == held


def test_with_a_local_cache(locking: Bucket, two: tuple[str, str], tmp_path, command: Command):
    options = ("--store", locking.url, "--local-cache", tmp_path / "near")
    assert command("show", two[0], *options).code == 0
    assert command("pin", two[0], *options).code == 0
    assert locking.held() == {pin_key(two[0]), *needs(two[0], A, B)}
    assert command("unpin", two[0], *options).code == 0
    assert locking.held() == set() and command("ls", *options).out.count("(pinned)") == 0
