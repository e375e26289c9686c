"""Archives: what is taken, what is refused, and that the same files give the same bytes."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
import zstandard

from cachekeeper.archives import Member, Unpacked, recognise, unpack, unpacking, write_tar
from cachekeeper.disk import open_directory
from cachekeeper.errors import DamagedCache, LocalDiskError, UsageError
from cachekeeper.inductor.roots import cache_roots
from cachekeeper.testing import make_cache

FILES = {"fxgraph/ab/fkey/x": b"graph" * 999, "ab/x.main.so": b"\x7fELF" + bytes(5000), "empty": b""}
COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "tar": bytes,
    "tar.gz": gzip.compress,
    "tar.bz2": bz2.compress,
    "tar.xz": lzma.compress,
    "tar.zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


class Item(NamedTuple):
    """A member to be put into a tar file as it is."""

    name: str
    data: bytes = b"x"
    type: bytes = tarfile.REGTYPE
    link: str = ""
    mode: int = 0o644
    size: int | None = None


def tar(items: Iterable[Item], end: bool = True) -> bytes:
    """A tar file of members that say what they are told to."""
    out = b""
    for item in items:
        info = tarfile.TarInfo(item.name)
        info.type, info.linkname, info.mode = item.type, item.link, item.mode
        regular = item.type in (tarfile.REGTYPE, *unpacking._EXTENSIONS)
        info.size = item.size if item.size is not None else len(item.data) if regular else 0
        out += info.tobuf(tarfile.GNU_FORMAT)
        if regular:
            out += item.data + bytes(-len(item.data) % 512)
    return out + bytes(1024 if end else 0)


def unpacked(data: bytes, into: Path) -> Unpacked:
    into.mkdir(exist_ok=True)
    with open_directory(into) as descriptor:
        return unpack(io.BytesIO(data), recognise(data[:512]), descriptor)


def tree(directory: Path) -> dict[str, bytes]:
    return {p.relative_to(directory).as_posix(): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def plain(files: dict[str, bytes] = FILES) -> bytes:
    return tar([Item(name, data) for name, data in files.items()])


@pytest.mark.parametrize("kind", COMPRESSED)
def test_every_kind_is_recognised_and_unpacked(kind: str, tmp_path: Path):
    data = COMPRESSED[kind](plain())
    assert recognise(data[:512]) == kind
    found = unpacked(data, tmp_path / "x")
    assert tree(tmp_path / "x") == FILES
    assert sorted(found.files) == sorted(FILES) and found.bytes == sum(map(len, FILES.values()))
    assert (found.scratch, found.headers) == (0, False)


@pytest.mark.parametrize(
    "head", [b"", b"PK\x03\x04" + bytes(600), b"hello" * 200, b"\x7fELF" + bytes(600), b"BM" + bytes(600)]
)
def test_other_files_are_not_recognised(head: bytes):
    assert recognise(head[:512]) == ""


def test_what_the_tools_write_is_read(tmp_path: Path):
    make_cache(tmp_path / "cache")
    for flags in ([], ["--format=pax"], ["--format=ustar"], ["--sort=name", "-z"]):
        made = subprocess.run(
            ["tar", "-C", tmp_path / "cache", *flags, "-cf", "-", "."], capture_output=True, check=True
        )
        into = tmp_path / "-".join(["to", *flags])
        found = unpacked(made.stdout, into)
        expected = {path for path in tree(tmp_path / "cache") if not path.startswith("locks/") and ".tmp" not in path}
        assert tree(into).keys() == expected == set(found.files), flags
        assert found.scratch == 5 and cache_roots(found.files) == {"": len(expected)}


def test_the_oldest_format_has_no_magic(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"old")
    made = subprocess.run(["tar", "-C", tmp_path, "--format=v7", "-cf", "-", "file"], capture_output=True, check=True)
    assert b"ustar" not in made.stdout
    unpacked(made.stdout, tmp_path / "x")
    assert tree(tmp_path / "x") == {"file": b"old"}


def test_long_names_of_each_format(tmp_path: Path):
    name = "fxgraph/ab/" + "k" * 180 + "/" + "v" * 120
    for number, form in enumerate((tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=form) as made:
            made.addfile(info := tarfile.TarInfo(name), None)
            assert info.size == 0
        assert unpacked(out.getvalue(), tmp_path / str(number)).files == (name,)


def test_several_zstd_frames_one_after_the_other(tmp_path: Path):
    whole, compress = plain(), COMPRESSED["tar.zst"]
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
    data = skippable + compress(whole[:700]) + compress(whole[700:])
    assert recognise(data[:512]) == "tar.zst"
    unpacked(data, tmp_path / "x")
    assert tree(tmp_path / "x") == FILES


def test_modes_times_and_owners(tmp_path: Path):
    data = tar([Item("a", mode=0o6755), Item("b", mode=0o000), Item("c", mode=0o1777), Item("d/e")])
    before = os.umask(0o077)
    try:
        unpacked(data, tmp_path / "x")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o7777 for path in (tmp_path / "x").iterdir() if path.is_file()}
    assert modes == {"a": 0o755, "b": 0o600, "c": 0o777}
    assert all(path.stat().st_mtime == 1e9 for path in [tmp_path / "x", *(tmp_path / "x").rglob("*")])


def test_scratch_and_headers_are_passed_over(tmp_path: Path):
    names = ["ab/x.py", "locks/y.lock", "fxgraph/aa/fk/.1.2.tmp", "ab/z_CxxBuild/q.o", ".cachekeeper/restored.json"]
    data = tar([*map(Item, names), Item("precompiled_headers/ab/p.h.gch"), Item("locks/link", type=tarfile.SYMTYPE)])
    found = unpacked(data, tmp_path / "x")
    assert found.files == ("ab/x.py",) and found.scratch == 6 and found.headers


# Hostile


@pytest.mark.parametrize("item", [
    Item("../x"), Item("a/../../x"), Item("/tmp/x"), Item("a/.."), Item("//x"),
    Item("link", type=tarfile.SYMTYPE, link="/etc"), Item("link", type=tarfile.LNKTYPE, link="good"),
    Item("dev", type=tarfile.CHRTYPE), Item("dev", type=tarfile.BLKTYPE), Item("pipe", type=tarfile.FIFOTYPE),
    Item("sparse", type=tarfile.GNUTYPE_SPARSE), Item("odd", type=b"Z", data=b""),
    Item("good"), Item("good/below"), Item("a\\b"), Item("a\nb"), Item("a\x7fb"), Item("\udcff"), Item("x" * 256),
    Item("../locks/x.lock"),
], ids=lambda item: f"{item.name[:9]!r}-{item.type.decode()}")  # fmt: skip
@pytest.mark.parametrize("kind", ["tar", "tar.zst"])
def test_what_no_cache_holds_is_refused_and_nothing_is_written_outside(item: Item, kind: str, tmp_path: Path):
    data = COMPRESSED[kind](tar([Item("good"), item]))
    with pytest.raises(UsageError, match="no archive of a cache does") as caught:
        unpacked(data, tmp_path / "x")
    assert caught.value.facts[0].startswith("path")
    assert tree(tmp_path) == {"x/good": b"x"}


def test_a_link_is_not_followed_by_a_later_member(tmp_path: Path):
    (tmp_path / "outside").mkdir()
    data = tar([Item("d", type=tarfile.SYMTYPE, link=str(tmp_path / "outside")), Item("d/x")])
    with pytest.raises(UsageError):
        unpacked(data, tmp_path / "x")
    assert list((tmp_path / "outside").iterdir()) == []


@pytest.mark.parametrize("size", [1 << 60, 1 << 40, -1, -(1 << 60)])
def test_a_declared_size_that_cannot_be_is_refused_before_it_is_written(size: int, tmp_path: Path):
    data = tar([Item("good"), Item("huge", size=size)])
    with pytest.raises((LocalDiskError, DamagedCache)):
        unpacked(data, tmp_path / "x")
    assert tree(tmp_path) == {"x/good": b"x"}


@pytest.mark.parametrize("type", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_huge_extended_header_is_not_read(type: bytes, tmp_path: Path):
    data = tar([Item("good"), Item("h", b"x" * 600, type=type, size=1 << 40)])
    with pytest.raises(DamagedCache, match="cut or damaged"):
        unpacked(data, tmp_path / "x")


def test_a_full_disk_is_foreseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unpacking, "_MARGIN", 1 << 62)
    with pytest.raises(LocalDiskError, match="not enough space") as caught:
        unpacked(plain(), tmp_path / "x")
    assert "TMPDIR" in caught.value.hint and tree(tmp_path) == {}


def test_a_bomb_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unpacking, "_BOMB_BYTES", 1 << 20)
    data = COMPRESSED["tar.zst"](tar([Item("zeros", bytes(20 << 20))]))
    with pytest.raises(UsageError, match="200 times its size"):
        unpacked(data, tmp_path / "x")
    assert (tmp_path / "x/zeros").stat().st_size <= 3 << 20


def test_a_bomb_behind_the_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unpacking, "_BOMB_BYTES", 1 << 20)
    with pytest.raises(UsageError, match="200 times its size"):
        unpacked(COMPRESSED["tar.zst"](plain() + bytes(20 << 20)), tmp_path / "x")


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unpacking, "_MOST_FILES", 2)
    with pytest.raises(UsageError, match="more than 2 files"):
        unpacked(plain(), tmp_path / "x")


# Damage


@pytest.mark.parametrize("kind", COMPRESSED)
def test_every_cut_is_noticed(kind: str, tmp_path: Path):
    data = COMPRESSED[kind](plain())
    # Of a plain tar, what is cut off its padding alone does not matter.
    lengths = [512, 700, len(data) // 2, len(data) - 1100] if kind == "tar" else [20, len(data) // 2, len(data) - 1]
    for number, length in enumerate(lengths):
        with pytest.raises(DamagedCache, match="cut or damaged") as caught:
            unpacked(data[:length], tmp_path / f"{number}")
        assert caught.value.exit_code == 3 and caught.value.facts[0].startswith("reason")


@pytest.mark.parametrize("kind", ["tar.gz", "tar.bz2", "tar.xz", "tar.zst"])
def test_a_changed_byte_of_a_compressed_archive_is_noticed_or_harmless(kind: str, tmp_path: Path):
    content = os.urandom(300)
    data = COMPRESSED[kind](plain({"a": content}))
    harmless = 0  # as the time in the header of gzip, and codes that are not used
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x40
        if recognise(bytes(changed[:512])) != kind:
            continue
        try:
            unpacked(bytes(changed), tmp_path / f"{at}")
        except DamagedCache:
            continue
        harmless += 1
        assert tree(tmp_path / f"{at}") == {"a": content}
    assert harmless < len(data) / 10


def test_a_damaged_header_is_not_the_end(tmp_path: Path):
    """tarfile would pass over all that follows, without a word."""
    data = bytearray(plain())
    at = data.index(b"ab/x.main.so")
    data[at] ^= 1
    with tarfile.open(fileobj=io.BytesIO(bytes(data))) as found:
        assert found.getnames() == ["fxgraph/ab/fkey/x"]
    with pytest.raises(DamagedCache) as caught:
        unpacked(bytes(data), tmp_path / "x")
    assert "header is damaged" in caught.value.facts[0]


def test_an_archive_without_its_end_mark_is_cut(tmp_path: Path):
    with pytest.raises(DamagedCache) as caught:
        unpacked(tar([Item("good")], end=False), tmp_path / "x")
    assert "no end mark" in caught.value.facts[0]


@pytest.mark.parametrize("kind", ["tar.gz", "tar.zst"])
def test_compressed_bytes_that_are_no_tar(kind: str, tmp_path: Path):
    with pytest.raises(DamagedCache, match="cut or damaged"):
        unpacked(COMPRESSED[kind](b"hello" * 1000), tmp_path / "x")


# Writing


def written(kind: str, files: dict[str, bytes] = FILES) -> bytes:
    out = io.BytesIO()
    members = [Member(name, 0o640, len(files[name])) for name in sorted(files)]
    write_tar(out, kind, members, lambda member: io.BytesIO(files[member.path]))
    return out.getvalue()


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.zst"])
def test_what_is_written_is_read_and_is_the_same_each_time(kind: str, tmp_path: Path):
    files = {**FILES, "deep/" + "n" * 200: b"long", "ü/é": b"not ascii"}
    data = written(kind, files)
    assert data == written(kind, dict(reversed(files.items())))
    assert recognise(data[:512]) == kind
    unpacked(data, tmp_path / "x")
    assert tree(tmp_path / "x") == files


def test_what_is_written_has_no_time_and_no_owner():
    with tarfile.open(fileobj=io.BytesIO(written("tar"))) as found:
        members = found.getmembers()
    assert [member.name for member in members] == sorted(FILES)
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode) for m in members} == {(0, 0, 0, "", "", 0o640)}


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.zst"])
def test_the_tools_read_what_is_written(kind: str, tmp_path: Path):
    (tmp_path / "x").write_bytes(written("tar" if kind == "tar.zst" else kind))
    found = subprocess.run(["tar", "-tf", tmp_path / "x"], capture_output=True, check=True, text=True)
    assert found.stdout.split() == sorted(FILES)
