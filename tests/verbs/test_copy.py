"""Snapshots from store to store: what the other lacks, checked; names only forward; damage told and left behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import cachekeeper
from cachekeeper.errors import DamagedStore, FromLaterVersion, NotFound, StoreError, Unsigned, UsageError
from cachekeeper.repository import Move, Repository, open_repository, snapshots
from cachekeeper.stores import LocalStore, MemoryStore, Store
from cachekeeper.stores.base import Buffer, ObjectInfo
from cachekeeper.testing import make_cache, make_triton_entry
from cachekeeper.verbs.copy import names, transfer

from .conftest import settle, unplaced

pytestmark = pytest.mark.usefixtures("machine")


class Watched(Store):
    """A store in memory that notes what is written and how it is read."""

    def __init__(self, inner: Store) -> None:
        self.inner, self.url = inner, inner.url
        self.written: list[str] = []
        self.reads: list[tuple[str, int, int | None]] = []

    def create(self, key: str, *parts: Buffer) -> bool:
        created = self.inner.create(key, *parts)
        if created:
            self.written.append(key)
        return created

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self.reads.append((key, start, length))
        return self.inner.read(key, start, length)

    def size(self, key: str) -> int:
        return self.inner.size(key)

    def list(self, prefix: str, **options: Any) -> Iterator[ObjectInfo]:
        return self.inner.list(prefix, **options)

    def delete(self, key: str) -> None:
        self.inner.delete(key)

    def prepare(self) -> None:
        self.inner.prepare()


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A directory that is no store yet."""
    return tmp_path / "other"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every move of a name is a second later than the one before."""
    seconds = iter(range(60))

    def now() -> str:
        return f"2026-01-31T08:15:{next(seconds):02d}Z"

    monkeypatch.setattr(snapshots, "now_utc", now)
    monkeypatch.setattr(names, "now_utc", now)
    yield


def grow(cache: Path, seed: int) -> Path:
    """One more kernel."""
    make_triton_entry(cache / "triton" / "0", seed=seed)
    return settle(cache)


def save(cache: Path, store: Path | Store, name: str | None = "drafter") -> str:
    return cachekeeper.snapshot(name, cache_dir=cache, store=store).snapshot.id


@pytest.fixture
def three(cache: Path, store: Path) -> list[str]:
    """Ids of three snapshots of a growing cache: drafter, drafter again, and one without a name."""
    return [save(cache, store), save(grow(cache, 71), store), save(grow(cache, 72), store, None)]


def objects(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in sorted(store.rglob("*")) if path.is_file()}


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1])


def packs_of(store: Path, identifier: str) -> list[Path]:
    return [store / "packs" / row.id for row in open_repository(store).manifest(identifier).tables.packs]


def own_pack(store: Path, identifier: str, *others: str) -> Path:
    [pack] = set(packs_of(store, identifier)) - {pack for one in others for pack in packs_of(store, one)}
    return pack


def pointer(store: Path | Store, name: str = "drafter") -> str:
    return open_repository(store).names()[name]


def trail(store: Path | Store, name: str = "drafter") -> list[str]:
    return [move.snapshot for move in open_repository(store).history(name)]


def move(store: Path | Store, name: str, identifier: str, when: str, who: str = "a@b") -> None:
    """Record a move that was made at some time."""
    repository = open_repository(store)
    history = repository.history(name)
    number = history[-1].number + 1 if history else 1
    assert repository.append_move(name, Move(number, identifier, when, who))


# Everything


def test_the_whole_store_byte_for_byte(cache: Path, store: Path, other: Path, three: list[str], tmp_path: Path):
    result = cachekeeper.copy(store, other)
    assert result.ok and result.copied == tuple(three) and result.there == ()
    assert (result.source, result.destination) == (store.as_uri(), other.as_uri())
    assert result.names == {"drafter": three[1]} and result.kept == {}
    assert objects(other) == objects(store)
    sizes = {key: len(data) for key, data in objects(other).items()}
    assert result.packs == 3
    assert result.bytes == sum(size for key, size in sizes.items() if key.startswith(("packs/", "snapshots/")))
    assert cachekeeper.verify(every=True, store=other).ok
    cachekeeper.restore(three[2], cache_dir=tmp_path / "back", store=other, verify=True)
    assert unplaced(tmp_path / "back") == unplaced(cache)


def test_again_it_writes_nothing_and_reads_no_manifest(store: Path, three: list[str]):
    source, target = Watched(LocalStore(store)), Watched(MemoryStore("target"))
    cachekeeper.copy(source, target)
    source.reads.clear()
    target.written.clear()
    result = cachekeeper.copy(source, target)
    assert target.written == []
    assert (result.copied, result.packs, result.bytes, result.names) == ((), 0, 0, {})
    assert set(result.there) == set(three)
    assert not [key for key, *_ in source.reads if key.startswith(("snapshots/", "packs/"))]


def test_only_what_is_new(cache: Path, store: Path, three: list[str]):
    target = Watched(MemoryStore("target"))
    cachekeeper.copy(store, target)
    target.written.clear()
    new = save(grow(cache, 73), store)
    result = cachekeeper.copy(store, target)
    assert (result.copied, set(result.there), result.packs) == ((new,), set(three), 1)
    assert [key.partition("/")[0] for key in target.written] == ["leases", "packs", "snapshots", "names"]
    del target.written[0]
    assert target.written[0] == f"packs/{own_pack(store, new, *three).name}"
    assert result.bytes == sum(target.size(key) for key in target.written[:2])


def test_the_order_of_writing(store: Path, three: list[str]):
    """Each manifest after its packs, oldest first; names last."""
    target = Watched(MemoryStore("target"))
    cachekeeper.copy(store, target)
    manifests = [key for key in target.written if key.startswith("snapshots/")]
    assert manifests == [f"snapshots/{identifier}.json.zst" for identifier in three]
    for identifier in three:
        before = target.written[: target.written.index(f"snapshots/{identifier}.json.zst")]
        assert {f"packs/{path.name}" for path in packs_of(store, identifier)} <= set(before)
    assert [key.startswith("names/") for key in target.written] == sorted(
        key.startswith("names/") for key in target.written
    )


def test_a_parent_is_older_whatever_the_clocks_say(
    cache: Path, store: Path, other: Path, monkeypatch: pytest.MonkeyPatch
):
    """A bucket's times are whole seconds, and two machines need not agree on them."""
    times = iter(f"2026-01-31T08:15:{second:02d}Z" for second in (3, 2, 2, 2, 1))
    monkeypatch.setattr(import_module("cachekeeper.verbs.snapshot"), "now_utc", lambda: next(times))
    saved = [save(grow(cache, 80 + number), store) for number in range(5)]
    for path in store.glob("snapshots/*"):
        os.utime(path, (1, 1))
    assert cachekeeper.copy(store, other).copied == tuple(saved)


def test_packs_are_read_in_pieces(store: Path, three: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transfer, "_PIECE", 1000)
    source = Watched(LocalStore(store))
    target = MemoryStore("target")
    cachekeeper.copy(source, target)
    lengths = [length for key, _, length in source.reads if key.startswith("packs/")]
    assert len(lengths) > 10 and all(length is not None and length <= 1000 for length in lengths)
    assert cachekeeper.verify(every=True, store=target).ok


def test_few_packs_are_in_memory_and_several_move_at_once(cache: Path, store: Path):
    for seed in range(12):
        save(grow(cache, 80 + seed), store, None)
    inside, most, together = 0, 0, threading.Barrier(4)
    lock = threading.Lock()

    class Slow(Watched):
        def create(self, key: str, *parts: Buffer) -> bool:
            nonlocal inside, most
            if not key.startswith("packs/"):
                return super().create(key, *parts)
            with lock:
                inside += 1
                most = max(most, inside)
            together.wait(20)
            created = super().create(key, *parts)
            with lock:
                inside -= 1
            return created

    assert cachekeeper.copy(store, Slow(MemoryStore("slow"))).packs == 12
    assert most == 4


def test_progress(store: Path, other: Path, three: list[str]):
    told: list[tuple[str, int, int]] = []
    result = cachekeeper.copy(store, other, progress=lambda *step: told.append(step))
    assert {(stage, total) for stage, _, total in told} == {("Copying", result.bytes)}
    done = [done for _, done, _ in told]
    assert done == sorted(done) and (done[0], done[-1]) == (0, result.bytes)
    told.clear()
    cachekeeper.copy(store, other, progress=lambda *step: told.append(step))
    assert told == []


def test_a_dry_run_says_what_a_copy_does_and_writes_nothing(store: Path, other: Path, three: list[str]):
    said = cachekeeper.copy(store, other, dry_run=True)
    assert said.dry_run and not other.exists()
    done = cachekeeper.copy(store, other)
    assert vars(said) == {**vars(done), "dry_run": True}
    assert vars(cachekeeper.copy(store, other, dry_run=True)) == {
        **vars(cachekeeper.copy(store, other)),
        "dry_run": True,
    }


def test_every_pair_of_stores(cache: Path, tmp_path: Path):
    first, second, third = tmp_path / "first", MemoryStore("second"), LocalStore(tmp_path / "third")
    saved = save(cache, first)
    assert cachekeeper.copy(str(first), second).copied == (saved,)
    assert cachekeeper.copy(second, third).copied == (saved,)
    assert cachekeeper.copy(third, (tmp_path / "fourth").as_uri()).copied == (saved,)
    assert objects(tmp_path / "first") == objects(tmp_path / "fourth")


def test_a_hole_in_the_destination_is_filled(store: Path, other: Path, three: list[str]):
    cachekeeper.copy(store, other)
    own_pack(other, three[1], three[0]).unlink()
    result = cachekeeper.copy(store, other)
    assert (result.copied, set(result.there), result.packs, result.names) == ((), set(three), 1, {})
    assert objects(other) == objects(store)


# References


def test_one_name(store: Path, other: Path, three: list[str]):
    result = cachekeeper.copy(store, other, ["drafter"])
    assert result.copied == (three[1],) and result.names == {"drafter": three[1]} and result.packs == 2
    assert trail(other) == [three[1]]
    again = cachekeeper.copy(store, other, ["drafter"])
    assert (again.copied, again.there, again.names, again.bytes) == ((), (three[1],), {}, 0)


@pytest.mark.parametrize("reference", ["drafter@{1}", "id", "short"])
def test_a_snapshot_without_its_name(store: Path, other: Path, three: list[str], reference: str):
    spelled = {"id": three[0], "short": three[0][:10]}.get(reference, reference)
    result = cachekeeper.copy(store, other, [spelled])
    assert result.copied == (three[0],) and result.names == {} and not (other / "names").exists()


def test_several_references(store: Path, other: Path, three: list[str]):
    result = cachekeeper.copy(store, other, [three[2], "drafter@{1}", three[0], "drafter@{1}"])
    assert result.copied == (three[0], three[2])


def test_a_single_string_is_one_reference(store: Path, other: Path, three: list[str]):
    assert cachekeeper.copy(store, other, "drafter").copied == (three[1],)


@pytest.mark.parametrize("reference", ["draftr", "drafter@{7}", "12345678", "ab" * 32])
def test_an_unknown_reference_stops_before_anything_is_written(
    store: Path, other: Path, three: list[str], reference: str
):
    with pytest.raises(NotFound) as caught:
        cachekeeper.copy(store, other, ["drafter", reference])
    assert not other.exists()
    if reference == "draftr":
        assert caught.value.hint == "did you mean `drafter`?"


def test_a_name_that_was_asked_for_moves_whatever_it_was(cache: Path, store: Path, other: Path, three: list[str]):
    theirs = save(grow(cache, 75), other)
    assert cachekeeper.copy(store, other, ["drafter"]).names == {"drafter": three[1]}
    assert trail(other) == [theirs, three[1]]


# Histories


@pytest.mark.usefixtures("clock")
def test_a_history_goes_on(cache: Path, store: Path, other: Path, three: list[str]):
    cachekeeper.copy(store, other)
    new = [save(grow(cache, 76), store), save(grow(cache, 77), store)]
    assert cachekeeper.copy(store, other).names == {"drafter": new[1]}
    assert open_repository(other).history("drafter") == open_repository(store).history("drafter")


@pytest.mark.usefixtures("clock")
def test_two_sources_take_turns_and_no_older_state_comes_back(tmp_path: Path, cache: Path, other: Path):
    one, two = tmp_path / "one", tmp_path / "two"
    first = save(cache, one)
    cachekeeper.copy(one, other)
    second = save(grow(cache, 71), two)
    cachekeeper.copy(two, other)
    again = cachekeeper.copy(one, other)
    assert again.names == {} and again.kept == {"drafter": second} and trail(other) == [first, second]
    third = save(grow(cache, 72), one)
    assert cachekeeper.copy(one, other).names == {"drafter": third}
    assert cachekeeper.copy(two, other).kept == {"drafter": third}
    assert trail(other) == [first, second, third]


@pytest.mark.usefixtures("clock")
def test_what_was_made_earlier_does_not_take_over_a_name(tmp_path: Path, cache: Path, other: Path):
    """Its snapshot is copied all the same."""
    early = save(cache, tmp_path / "early")
    late = save(grow(cache, 71), other)
    result = cachekeeper.copy(tmp_path / "early", other)
    assert result.copied == (early,) and result.names == {} and result.kept == {"drafter": late}
    assert trail(other) == [late]


@pytest.mark.parametrize("asked_for_first", [True, False])
def test_within_one_second_no_older_state_comes_back(store: Path, other: Path, three: list[str], asked_for_first: bool):
    """Ours moved from three[0] to three[1]; theirs has the second alone."""
    if asked_for_first:
        cachekeeper.copy(store, other, ["drafter"])
    else:
        moved = open_repository(store).history("drafter")[1]
        cachekeeper.copy(store, other, [three[1]])
        move(other, "drafter", *moved[1:])
    cachekeeper.copy(store, other)
    assert pointer(other) == three[1]
    number = len(trail(other))
    cachekeeper.copy(store, other)
    assert len(trail(other)) == number


def test_back_and_forth_within_one_second(store: Path, other: Path, three: list[str]):
    for identifier in (three[2], three[0], three[2], three[0]):
        move(store, "x", identifier, "2026-01-31T08:15:00Z")
    cachekeeper.copy(store, other)
    assert trail(other, "x") == [three[2], three[0], three[2], three[0]]
    move(store, "x", three[2], "2026-01-31T08:15:00Z")
    cachekeeper.copy(store, other)
    assert trail(other, "x") == trail(store, "x")


def test_names_of_every_kind(cache: Path, store: Path, other: Path):
    saved = save(cache, store, "team/llama 8b größe")
    assert cachekeeper.copy(store, other).names == {"team/llama 8b größe": saved}
    assert objects(other) == objects(store)


def test_somebody_moves_the_name_meanwhile(store: Path, three: list[str]):
    """Decided anew: what they did later stands, and no number is taken twice."""
    target = MemoryStore("target")
    cachekeeper.copy(store, target, [three[0]])

    class Raced(Watched):
        def create(self, key: str, *parts: Buffer) -> bool:
            if key == "names/drafter/00000001" and not target._objects.keys() & {key}:
                move(target, "drafter", three[0], "2999-01-01T00:00:00Z")
            return super().create(key, *parts)

    result = cachekeeper.copy(store, Raced(target))
    assert result.names == {} and result.kept == {"drafter": three[0]} and trail(target) == [three[0]]


# Damage


def test_a_damaged_pack_holds_back_its_snapshots_alone(cache: Path, store: Path, other: Path, three: list[str]):
    clean = save(settle(make_cache(cache.parent / "clean", seed=9)), store, "clean")
    bad = own_pack(store, three[1], three[0])
    spoil(bad)
    result = cachekeeper.copy(store, other)
    assert not result.ok and result.copied == (three[0], clean)
    reason = f"pack {bad.name[:8]} is damaged in {store.as_uri()}: its bytes do not match its name"
    assert result.damaged == {f"snapshot {identifier[:8]}": reason for identifier in three[1:]}
    assert pointer(other) == three[0] and pointer(other, "clean") == clean
    assert not (other / "packs" / bad.name).exists()
    assert cachekeeper.verify(every=True, store=other).ok
    spoil(bad)  # mended
    result = cachekeeper.copy(store, other)
    assert result.ok and result.copied == tuple(three[1:])
    assert pointer(other) == three[1] and trail(other) == three[:2]


@pytest.mark.parametrize("how", ["cut", "gone"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_lost_pack(store: Path, other: Path, three: list[str], how: str, dry_run: bool):
    bad = own_pack(store, three[2], *three[:2])
    size = bad.stat().st_size
    cut(bad) if how == "cut" else bad.unlink()
    result = cachekeeper.copy(store, other, dry_run=dry_run)
    said = {"cut": f"is damaged in {store.as_uri()}: {size - 1:,} bytes instead of {size:,}"}
    assert result.damaged == {
        f"snapshot {three[2][:8]}": f"pack {bad.name[:8]} {said.get(how, f'is missing from {store.as_uri()}')}"
    }
    assert result.copied == tuple(three[:2])


@pytest.mark.parametrize("how", [spoil, cut])
def test_a_damaged_manifest(store: Path, other: Path, three: list[str], how: object):
    how(store / "snapshots" / f"{three[1]}.json.zst")  # type: ignore[operator]
    result = cachekeeper.copy(store, other)
    assert list(result.damaged) == [f"snapshot {three[1][:8]}"] and result.copied == (three[0], three[2])
    assert pointer(other) == three[0]


def test_a_snapshot_of_a_later_format_is_left_out(store: Path, other: Path, three: list[str], monkeypatch):
    real = snapshots.decode

    def decode(identifier: str, data: bytes) -> object:
        if identifier == three[0]:
            raise FromLaterVersion("this snapshot has format 2")
        return real(identifier, data)

    monkeypatch.setattr(snapshots, "decode", decode)
    result = cachekeeper.copy(store, other)
    assert result.damaged == {f"snapshot {three[0][:8]}": "this snapshot has format 2"}
    assert result.copied == tuple(three[1:])


def test_a_manifest_that_is_damaged_between_two_reads(store: Path, other: Path, three: list[str]):
    class Rotting(Watched):
        def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
            if key.startswith("packs/"):
                for path in store.glob("snapshots/*"):
                    cut(path)
            return super().read(key, start, length)

    result = cachekeeper.copy(Rotting(LocalStore(store)), other)
    assert len(result.damaged) == 3 and result.copied == () and result.names == {}
    assert not (other / "snapshots").exists() and not (other / "names").exists()


def test_a_read_that_is_right_the_second_time_is_no_damage(store: Path, other: Path, three: list[str]):
    class Flaky(Watched):
        def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
            first = key not in {seen for seen, *_ in self.reads}
            data = super().read(key, start, length)
            return bytes(len(data)) if first and key.startswith(("packs/", "snapshots/")) else data

    assert cachekeeper.copy(Flaky(LocalStore(store)), other).ok
    assert objects(other) == objects(store)


def test_everything_damaged_makes_no_destination(cache: Path, store: Path, other: Path):
    spoil(store / "snapshots" / f"{save(cache, store)}.json.zst")
    result = cachekeeper.copy(store, other)
    assert len(result.damaged) == 1 and not other.exists()


def test_a_damaged_move(store: Path, other: Path, three: list[str]):
    spoil(store / "names/drafter/00000001")
    result = cachekeeper.copy(store, other)
    assert result.damaged == {"name drafter (1)": "its bytes do not match its checksum"}
    assert trail(other) == [three[1]]
    spoil(store / "names/drafter/00000002")
    with pytest.raises(DamagedStore, match="what drafter points to is damaged"):
        cachekeeper.copy(store, other, ["drafter"])


def test_a_name_that_points_nowhere(store: Path, other: Path, three: list[str]):
    (store / "snapshots" / f"{three[1]}.json.zst").unlink()
    for references in ([], ["drafter"]):
        result = cachekeeper.copy(store, other, references)
        assert not result.ok
    assert cachekeeper.copy(store, other).damaged == {
        "name drafter (2)": f"points to {three[1][:8]}, which is not there"
    }
    assert trail(other) == [three[0]]


def test_an_earlier_move_to_a_snapshot_that_is_gone_is_passed_over(store: Path, other: Path, three: list[str]):
    (store / "snapshots" / f"{three[0]}.json.zst").unlink()
    assert cachekeeper.copy(store, other).ok
    assert trail(other) == [three[1]]


def test_a_move_that_is_damaged_there_is_made_again(store: Path, other: Path, three: list[str]):
    cachekeeper.copy(store, other)
    spoil(other / "names/drafter/00000002")
    assert cachekeeper.copy(store, other).names == {"drafter": three[1]}
    assert pointer(other) == three[1] and cachekeeper.copy(store, other).names == {}


def test_a_short_pack_in_the_destination_is_not_built_on(store: Path, other: Path, three: list[str]):
    """Packs never change, so it cannot be replaced either."""
    pack = own_pack(store, three[1], three[0])
    cachekeeper.copy(store, other, [three[0]])
    (other / "packs" / pack.name).write_bytes(b"short")
    for references in ([], [three[1], three[2], three[0]]):
        result = cachekeeper.copy(store, other, references)
        size = pack.stat().st_size
        reason = f"pack {pack.name[:8]} is damaged in {other.as_uri()}: 5 bytes instead of {size:,}"
        assert result.damaged == {f"snapshot {identifier[:8]}": reason for identifier in three[1:]}
        assert result.there == (three[0],) and result.copied == ()
    assert (other / "packs" / pack.name).read_bytes() == b"short"


def test_a_pack_that_is_cut_there_after_it_was_copied(store: Path, other: Path, three: list[str]):
    cachekeeper.copy(store, other)
    cut(own_pack(other, three[2], *three[:2]))
    result = cachekeeper.copy(store, other)
    assert list(result.damaged) == [f"snapshot {three[2][:8]}"] and set(result.there) == set(three[:2])


def test_a_short_pack_that_somebody_writes_meanwhile(store: Path, three: list[str]):
    class Raced(Watched):
        def create(self, key: str, *parts: Buffer) -> bool:
            if key.startswith("packs/"):
                self.inner.create(key, b"short")
            return super().create(key, *parts)

    result = cachekeeper.copy(store, Raced(MemoryStore("raced")))
    assert len(result.damaged) == 3 and (result.copied, result.packs, result.names) == ((), 0, {})


def test_a_manifest_that_is_cut_there(store: Path, other: Path, three: list[str]):
    cachekeeper.copy(store, other)
    cut(other / "snapshots" / f"{three[1]}.json.zst")
    [(what, reason)] = cachekeeper.copy(store, other).damaged.items()
    assert what == f"snapshot {three[1][:8]}" and f"its manifest in {other.as_uri()} is damaged" in reason


def test_a_store_that_fails_stops_and_what_was_copied_stays(store: Path, three: list[str]):
    class Failing(Watched):
        def create(self, key: str, *parts: Buffer) -> bool:
            if key.startswith("snapshots/") and sum(name.startswith("snapshots/") for name in self.written):
                raise StoreError("no more")
            return super().create(key, *parts)

    target = MemoryStore("target")
    with pytest.raises(StoreError, match="no more"):
        cachekeeper.copy(store, Failing(target))
    assert cachekeeper.verify(every=True, store=target).snapshots == (three[0],)
    assert open_repository(target).names() == {}
    assert cachekeeper.copy(store, target).copied == tuple(three[1:])


# Nonsense


def test_the_same_store(cache: Path, store: Path, tmp_path: Path):
    save(cache, store)
    (tmp_path / "link").symlink_to(store)
    for target in (store, f"{store}/", store.as_uri(), tmp_path / "link", f"{store}/../store"):
        with pytest.raises(UsageError, match="the same"):
            cachekeeper.copy(store, target)
    memory = MemoryStore("x")
    with pytest.raises(UsageError, match="the same"):
        cachekeeper.copy(memory, memory)


@pytest.mark.parametrize("target", ["store/packs", "store/backup", "."])
def test_a_store_in_the_other(cache: Path, store: Path, tmp_path: Path, target: str):
    save(cache, store)
    with pytest.raises(UsageError, match="inside the other"):
        cachekeeper.copy(store, tmp_path / target)


def test_no_source(store: Path, other: Path, three: list[str], tmp_path: Path):
    with pytest.raises(NotFound, match="no snapshots in") as caught:
        cachekeeper.copy(tmp_path / "none", other)
    assert caught.value.hint == "give a store that holds snapshots first: `cachekeeper copy SRC DST`"
    with pytest.raises(NotFound) as caught:
        cachekeeper.copy(other, store)
    assert caught.value.hint == f"the source comes first, and it is {store.as_uri()} that holds snapshots"
    assert not other.exists() and not (tmp_path / "none").exists()


def test_a_source_without_a_snapshot(store: Path, other: Path):
    Repository(LocalStore(store)).prepare()
    with pytest.raises(NotFound, match="no snapshot in"):
        cachekeeper.copy(store, other)
    assert not other.exists()


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_destination_that_is_something_else(store: Path, other: Path, three: list[str], dry_run: bool):
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not a cachekeeper store"):
        cachekeeper.copy(store, other, dry_run=dry_run)
    assert os.listdir(other) == ["notes.txt"]


@pytest.mark.parametrize("which", [0, 1])
def test_a_later_store_format(store: Path, other: Path, three: list[str], which: int):
    places = [store, other]
    cachekeeper.copy(store, other, [three[0]])
    mark = places[which] / "format.json"
    mark.chmod(0o644)
    mark.write_text('{"format": 2}\n')
    before = objects(other)
    with pytest.raises(StoreError, match="has format 2"):
        cachekeeper.copy(store, other)
    assert objects(other) == before


@pytest.mark.parametrize("places", [("", "x"), ("x", "")])
def test_an_empty_place_is_not_the_default_store(places: tuple[str, str]):
    with pytest.raises(UsageError, match="is empty"):
        cachekeeper.copy(*places)


def test_a_destination_that_must_not_be_written(store: Path, other: Path, three: list[str], monkeypatch):
    monkeypatch.setenv("CACHEKEEPER_READ_ONLY", "1")
    with pytest.raises(StoreError, match="read-only"):
        cachekeeper.copy(store, other)
    assert not other.exists()
    assert cachekeeper.copy(store, other, dry_run=True).copied == tuple(three)


# Signatures


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return cachekeeper.keygen(tmp_path / "key").file


def signed(store: Path) -> list[str]:
    return [key for key in objects(store) if key.startswith("signatures/")]


def test_signatures_come_along(store: Path, other: Path, three: list[str], key: Path, tmp_path: Path):
    cachekeeper.sign(["drafter", "drafter@{1}", three[2]], key=key, store=store)
    cachekeeper.sign("drafter", key=cachekeeper.keygen(tmp_path / "another").file, store=store)
    assert cachekeeper.copy(store, other, dry_run=True).signatures == 4  # not yet those of three moves
    result = cachekeeper.copy(store, other)
    assert result.ok and result.signatures == 7 and result.notes == ()
    assert objects(other) == objects(store)
    assert cachekeeper.copy(store, other).signatures == 0
    options = {"cache_dir": tmp_path / "back", "store": other, "require_signature": f"{key}.pub"}
    for reference in ("drafter", "drafter@{1}", "latest", three[2]):
        assert cachekeeper.restore(reference, **options).signed_by


def test_signatures_made_later_come_with_the_next_copy(store: Path, other: Path, three: list[str], key: Path):
    cachekeeper.copy(store, other)
    cachekeeper.sign(["drafter", three[2]], key=key, store=store)
    assert cachekeeper.copy(store, other, dry_run=True).signatures == 3
    assert signed(other) == []
    assert cachekeeper.copy(store, other).signatures == 3 and signed(other) == signed(store)


def test_only_those_of_what_was_asked_for(store: Path, other: Path, three: list[str], key: Path):
    cachekeeper.sign(["drafter", "drafter@{1}", three[2]], key=key, store=store)
    assert cachekeeper.copy(store, other, [three[2]]).signatures == 1
    assert [name.split("/")[1] for name in signed(other)] == [three[2]]


def test_a_move_of_another_number_is_signed_anew(store: Path, other: Path, three: list[str], key: Path, tmp_path: Path):
    cachekeeper.sign(["drafter", three[2]], key=key, store=store)
    result = cachekeeper.copy(store, other, ["drafter"])
    assert result.ok and result.signatures == 1 and trail(other) == [three[1]]
    [note] = result.notes
    assert note.endswith(f"`cachekeeper sign drafter --store {other.as_uri()}`")
    options = {"cache_dir": tmp_path / "back", "store": other, "require_signature": f"{key}.pub"}
    with pytest.raises(Unsigned):
        cachekeeper.restore("drafter", **options)
    cachekeeper.sign("drafter", key=key, store=other)
    assert cachekeeper.restore("drafter", **options).snapshot.id == three[1]
    assert cachekeeper.copy(store, other).signatures == 1


def test_a_damaged_signature_is_not_carried(store: Path, other: Path, three: list[str], key: Path):
    cachekeeper.sign("drafter", key=key, store=store)
    of_move, of_snapshot = (store / name for name in sorted(signed(store), reverse=True))
    spoil(of_snapshot)
    (of_move.with_name("00" * 32)).write_bytes(b"x" * 100_000)
    (of_move.with_name("11" * 32)).write_bytes(b"")
    result = cachekeeper.copy(store, other)
    assert result.signatures == 1 and not result.ok and result.copied == tuple(three)
    what = f"signature of move 2 of drafter to snapshot {three[1][:8]} by "
    assert result.damaged[what + "0" * 16] == "it has 100,000 bytes"
    assert what + "1" * 16 in result.damaged and len(result.damaged) == 3
    assert [name.split("/")[1] for name in signed(other)] == ["names"]


def test_a_signature_of_something_else_is_not_carried(store: Path, other: Path, three: list[str], key: Path):
    cachekeeper.sign(three[2], key=key, store=store)
    [data] = (store / "signatures" / three[2]).iterdir()
    (store / "signatures" / three[0]).mkdir()
    (store / "signatures" / three[0] / data.name).write_bytes(data.read_bytes())
    result = cachekeeper.copy(store, other)
    assert list(result.damaged.values()) == [f"it is of snapshot {three[2][:8]}"] and result.signatures == 1
