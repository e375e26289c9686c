"""Snapshots, names and their history in a store."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from cachekeeper import leases
from cachekeeper.errors import DamagedStore, NotFound, StoreError, UsageError
from cachekeeper.manifest import Snapshot
from cachekeeper.packs import Content, PackWriter, compress, pack_id
from cachekeeper.repository import Repository, check_name, locations, open_repository, pack_key, pack_sizes
from cachekeeper.repository.packs import pack_indexes
from cachekeeper.stores import LocalStore, MemoryStore
from tests import samples

ONE, TWO, THREE = ("1" * 64, "2" * 64, "3" * 64)


@pytest.fixture(params=["memory", "local"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Repository:
    """An empty one, prepared."""
    found = Repository(MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "store"))
    found.prepare()
    return found


def commit(repository: Repository, **changes: object) -> Snapshot:
    return repository.commit(samples.header(**changes), samples.tables())


# The store as a whole


def test_a_store_that_is_not_there(tmp_path: Path):
    repository = open_repository(tmp_path / "store")
    assert not repository.exists()
    with pytest.raises(NotFound) as caught:
        repository.require()
    assert "cachekeeper snapshot NAME" in caught.value.hint
    assert not (tmp_path / "store").exists()


def test_preparing_twice_is_fine(repository: Repository):
    repository.prepare()
    repository.require()
    assert json.loads(repository.store.read("format.json")) == {"format": 1}


def test_a_directory_of_something_else_is_not_taken(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match="is not a cachekeeper store"):
        open_repository(tmp_path).prepare()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("version", [2, 99])
def test_a_later_format_is_refused_with_what_to_do(version: int):
    store = MemoryStore()
    store.create("format.json", json.dumps({"format": version}).encode())
    for function in (Repository(store).require, Repository(store).prepare):
        with pytest.raises(StoreError, match=f"has format {version}; this cachekeeper reads format 1") as caught:
            function()
        assert "pip install -U cachekeeper" in caught.value.hint


@pytest.mark.parametrize("data", [b"", b"{}", b'{"format": "1"}', b"[1]", b'{"format":1}', b"\xff", b"[" * 100_000])
def test_a_damaged_format_mark(data: bytes):
    store = MemoryStore()
    store.create("format.json", data)
    with pytest.raises(DamagedStore, match=r"format\.json") as caught:
        Repository(store).require()
    assert 'write it anew: {"format": 1}, in a line' in caught.value.hint


def test_a_format_mark_that_is_gone(repository: Repository, tmp_path: Path):
    commit(repository)
    without = MemoryStore()
    for key, *_ in repository.store.list("snapshots/"):
        without.create(key, repository.store.read(key))
    with pytest.raises(DamagedStore, match=r"format\.json of .* is gone, and its snapshots are there") as caught:
        Repository(without).require()
    assert 'write it anew: {"format": 1}, in a line' in caught.value.hint
    (tmp_path / "letter").touch()
    with pytest.raises(NotFound, match=r"no snapshots in .*/letter, which is no directory"):
        open_repository(tmp_path / "letter").require()


# Snapshots


def test_a_committed_snapshot_is_there(repository: Repository):
    saved = commit(repository)
    assert repository.header(saved.id) == saved
    assert repository.manifest(saved.id).tables == samples.tables()


def test_a_header_longer_than_the_first_guess_is_read_whole(repository: Repository):
    saved = commit(repository, message=random.Random(1).randbytes(70_000).hex())
    assert repository.store.size(f"snapshots/{saved.id}.json.zst") > 64 << 10
    assert repository.header(saved.id) == saved


def test_snapshots_are_listed_newest_first(repository: Repository):
    days = [commit(repository, created=f"2026-01-{day:02}T00:00:00Z").id for day in (5, 9, 7)]
    assert [found.id for found in repository.snapshots().snapshots] == [days[1], days[2], days[0]]


def test_of_the_same_second_the_one_written_later_is_newer(repository: Repository):
    written = [commit(repository, message=str(number)).id for number in range(6)]
    assert [found.id for found in repository.snapshots().snapshots] == written[::-1]


def test_what_cannot_be_read_is_told_and_hides_nothing_else(repository: Repository):
    saved = commit(repository)
    repository.store.create(f"snapshots/{ONE}.json.zst", b"garbage")
    repository.store.create(f"snapshots/{TWO}.json.zst", b"")
    repository.store.create("snapshots/README", b"no snapshot")
    listing = repository.snapshots()
    assert listing.snapshots == [saved]
    assert [line.partition(":")[0] for line in listing.unreadable] == ["11111111", "22222222"]


def test_a_reader_holds_a_lease_in_a_store_and_none_in_a_bucket(repository: Repository):
    with repository.reading():
        assert [lease.kind for lease in leases.listed(repository.store)] == [leases.Kind.READ]
    assert not leases.listed(repository.store)
    repository.store.far = True
    with repository.reading():
        assert not leases.listed(repository.store)


# References


def test_resolving_an_id_and_its_beginning(repository: Repository):
    saved = commit(repository)
    for length in (64, 12, 8, 4):
        assert repository.resolve(saved.id[:length]) == saved.id


def test_three_digits_are_no_id(repository: Repository):
    saved = commit(repository)
    with pytest.raises(NotFound):
        repository.resolve(saved.id[:3])


def test_an_ambiguous_beginning_is_refused_with_the_ids(repository: Repository):
    for identifier in ("abcd" + "0" * 60, "abcd" + "1" * 60):
        repository.store.create(f"snapshots/{identifier}.json.zst", b"x")
    with pytest.raises(UsageError, match="abcd is the beginning of 2 ids") as caught:
        repository.resolve("abcd")
    assert caught.value.facts == ("abcd00000000", "abcd11111111")
    assert repository.resolve("abcd1") == "abcd" + "1" * 60


def test_resolving_a_name_and_its_history(repository: Repository):
    for identifier in (ONE, TWO, THREE):
        repository.move_name("drafter", identifier)
    assert repository.resolve("drafter") == repository.resolve("drafter@{0}") == THREE
    assert repository.resolve("drafter@{1}") == TWO
    assert repository.resolve("drafter@{2}") == ONE
    with pytest.raises(NotFound, match="only 3 entries in its history"):
        repository.resolve("drafter@{3}")


@pytest.mark.parametrize("reference", ["drafted", "draftr", "Drafter", "drafter/"])
def test_what_was_perhaps_meant(repository: Repository, reference: str):
    repository.move_name("drafter", ONE)
    repository.move_name("team/llama8b", TWO)
    with pytest.raises(NotFound, match=f"no snapshot '{reference}'") as caught:
        repository.resolve(reference)
    assert caught.value.hint == "did you mean `drafter`?"


@pytest.mark.parametrize("reference", ["zzzzzz", "", "../../etc/passwd", "@{1}", "a b", "\x00", "deadbeef", "x" * 5000])
def test_nothing_alike(repository: Repository, reference: str):
    repository.move_name("drafter", ONE)
    with pytest.raises(NotFound) as caught:
        repository.resolve(reference)
    assert "cachekeeper ls" in caught.value.hint


# Names


@pytest.mark.parametrize(
    "name",
    [
        "drafter",
        "team/llama8b",
        "a",
        "n" * 240,
        "/".join(["n" * 240] * 3),
        "größe",
        "模型/一",
        "with space",
        "v1.2_x-y+z",
        "100%",
        "beef cake",
        "Deadbeef",
        "team/2026/x",
        "hid.den",
        "team/20260131/x",
        "a~b",
    ],
)
def test_names_that_can_be(repository: Repository, name: str):
    assert check_name(name) == name
    repository.move_name(name, ONE)
    assert repository.names() == {name: ONE}
    assert repository.resolve(name) == ONE
    assert [move.snapshot for move in repository.history(name)] == [ONE]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "a/",
        "/a",
        "a//b",
        ".",
        "..",
        "a/../b",
        "./a",
        ".hidden",
        "team/.hidden",
        "n" * 241,
        "模" * 81,
        " a",
        "a ",
        "a/ b",
        "-x",
        "a/-x",
        "a\nb",
        "a\x00b",
        "a\x1b[31m",
        "a\udcff",
        "a@{1}",
        "a@b",
        "a{b",
        "a\\b",
        "a:b",
        "latest",
        "dead",
        "deadbeef",
        "0" * 64,
        "1234",
        "team/12",
    ],
)
def test_names_that_cannot(repository: Repository, name: str):
    with pytest.raises(UsageError):
        check_name(name)
    with pytest.raises(UsageError):
        repository.move_name(name, ONE)
    assert repository.names() == {}


def test_a_name_below_another(repository: Repository):
    repository.move_name("team", ONE)
    repository.move_name("team/drafter", TWO)
    repository.move_name("team", THREE)
    assert repository.names() == {"team": THREE, "team/drafter": TWO}
    assert [move.snapshot for move in repository.history("team")] == [ONE, THREE]


def test_a_name_below_another_that_looks_like_its_history(repository: Repository):
    """names/team/00000001 is an object of the one and would be a directory of the other."""
    repository.move_name("team", ONE)
    with pytest.raises(UsageError):
        repository.move_name("team/00000001/x", TWO)


def test_names_keep_their_own_history(repository: Repository):
    repository.move_name("a", ONE)
    repository.move_name("ab", TWO)
    repository.move_name("a%62", THREE)
    assert repository.names() == {"a": ONE, "ab": TWO, "a%62": THREE}
    assert len(repository.history("a")) == 1


def test_a_move_says_who_and_when(repository: Repository):
    move = repository.move_name("drafter", ONE)
    assert repository.history("drafter") == [move]
    assert move.number == 1 and "@" in move.who and move.when.endswith("Z")


def test_a_moves_object_is_as_the_format_says(repository: Repository):
    repository.move_name("größe/x", ONE)
    document = json.loads(repository.store.read(f"names/{quote('größe')}/x/00000001"))
    assert sorted(document) == ["sha256", "snapshot", "when", "who"]


def test_the_tenth_move_comes_after_the_ninth(repository: Repository):
    for number in range(12):
        repository.move_name("drafter", f"{number:064x}")
    assert repository.resolve("drafter") == f"{11:064x}"
    assert repository.resolve("drafter@{9}") == f"{2:064x}"


def test_concurrent_moves_are_all_history(repository: Repository):
    identifiers = [f"{number:064x}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda identifier: repository.move_name("drafter", identifier), identifiers))
    history = repository.history("drafter")
    assert [move.number for move in history] == list(range(1, 41))
    assert sorted(move.snapshot for move in history) == identifiers


def test_a_damaged_move_is_not_followed(repository: Repository):
    repository.move_name("drafter", ONE)
    data = repository.store.read("names/drafter/00000001")
    repository.store.create("names/drafter/00000002", data.replace(b"1111", b"2222"))
    assert repository.names() == {"drafter": ""}
    with pytest.raises(DamagedStore, match="what drafter points to is damaged") as caught:
        repository.resolve("drafter")
    assert caught.value.facts == ("names/drafter/00000002",)
    assert repository.resolve("drafter@{1}") == ONE


# Contents


def add_pack(repository: Repository, sha256: str) -> str:
    done: list[list[bytes]] = []
    writer = PackWriter(lambda number, parts, frames: done.append(parts))
    writer.add([(compress(b"data"), 4)], [Content(sha256, 4, 0, 0, "ab/x", 0o644)])
    writer.close()
    name = pack_id(done[0])
    repository.store.create(pack_key(name), *done[0])
    return name


def test_contents_are_found_in_every_pack(repository: Repository):
    names = {sha256: add_pack(repository, sha256) for sha256 in (ONE, TWO)}
    found = locations(repository.store)
    assert {sha256: location.pack for sha256, location in found.items()} == names
    assert pack_sizes(repository.store) == {name: repository.store.size(pack_key(name)) for name in names.values()}


def test_nothing_builds_on_a_damaged_pack(repository: Repository):
    good = add_pack(repository, ONE)
    bad = repository.store.read(pack_key(add_pack(repository, TWO)))
    repository.store.delete(pack_key(pack_id([bad])))
    repository.store.create(pack_key(pack_id([bad])), bad[:-20])
    assert [name for name, _ in pack_indexes(repository.store)] == [good]
    assert locations(repository.store).keys() == {ONE}


def test_a_header_says_who_its_parent_is(repository: Repository):
    first = commit(repository)
    second = repository.commit(replace(samples.header(), parent=first.id), samples.tables())
    assert repository.header(second.id).header.parent == first.id


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda data: data[:300], "the manifest of {} is cut"),
        (lambda data: b"", "a manifest does not decompress: "),
        (lambda data: data + b"x", "the manifest of {} goes on after its end"),
    ],
)
def test_a_damaged_manifest_says_which_object_and_what_to_do(repository: Repository, harm, message: str):
    identifier = commit(repository).id
    key, known = f"snapshots/{identifier}.json.zst", identifier[:8]
    data = repository.store.read(key)
    repository.store.delete(key)
    repository.store.create(key, harm(data))
    with pytest.raises(DamagedStore) as caught:
        repository.manifest(identifier)
    assert caught.value.message.startswith(message.format(known)) and known in caught.value.message
    assert caught.value.facts == (f"object  {key}", f"store   {repository.store.url}")
    assert f"`cachekeeper copy OTHER_STORE {repository.store.url} {known}`" in caught.value.hint
    assert "`cachekeeper verify --all`" in caught.value.hint and "`cachekeeper ls`" in caught.value.hint
