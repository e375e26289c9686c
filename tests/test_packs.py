"""Packs: what goes in comes out, from the pack alone; what is no pack is refused."""

from __future__ import annotations

import hashlib
import random
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekeeper import packs
from cachekeeper.errors import DamagedStore
from cachekeeper.packs import Content, Frame, PackIndex, PackWriter, compress, decompress, frame_runs, read_index


def write(*batches: list[bytes]) -> list[bytes]:
    """The packs that hold some batches of files, each batch in one frame."""
    done: list[bytes] = []
    writer = PackWriter(lambda number, parts, frames: done.append(b"".join(parts)))
    for batch in batches:
        writer.add([frame(b"".join(batch))], contents(batch))
    writer.close()
    return done


def frame(raw: bytes) -> tuple[bytes, int]:
    return compress(raw), len(raw)


def contents(files: list[bytes]) -> list[Content]:
    offsets = accumulate(map(len, files), initial=0)
    return [
        Content(hashlib.sha256(data).hexdigest(), len(data), 0, offset, f"ab/{number}", 0o644)
        for number, (data, offset) in enumerate(zip(files, offsets, strict=False))
    ]


def index_of(pack: bytes) -> PackIndex:
    return read_index(lambda start, length: pack[start : start + length], len(pack))


def rebuilt(pack: bytes) -> dict[str, bytes]:
    """SHA-256 -> bytes of every content, from nothing but the pack."""
    index = index_of(pack)
    raws = [decompress(pack[at.offset : at.offset + at.stored], at.raw) for at in index.frames]
    found = {}
    for content, number in frame_runs(index):
        run = b"".join(raws[content.frame : content.frame + number])
        found[content.sha256] = run[content.offset : content.offset + content.size]
    return found


@given(st.lists(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=5), min_size=1, max_size=5))
def test_every_file_comes_back_from_the_pack_alone(batches: list[list[bytes]]):
    [pack] = write(*batches)
    found = rebuilt(pack)
    assert set(found.values()) == {data for batch in batches for data in batch}
    assert all(hashlib.sha256(data).hexdigest() == digest for digest, data in found.items())


def test_a_file_over_several_frames_comes_back():
    data = random.Random(1).randbytes(25_000)
    done: list[bytes] = []
    writer = PackWriter(lambda number, parts, frames: done.append(b"".join(parts)))
    writer.add([frame(b"before")], contents([b"before"]))
    digest = hashlib.sha256(data).hexdigest()
    pieces = [data[start : start + 10_000] for start in (0, 10_000, 20_000)]
    placed = writer.add([frame(piece) for piece in pieces], [Content(digest, len(data), 0, 0, "x", 0o644)])
    writer.close()
    assert placed == (0, 1)
    assert rebuilt(done[0])[digest] == data
    assert [number for content, number in frame_runs(index_of(done[0])) if content.sha256 == digest] == [3]


def test_the_index_says_path_and_mode():
    [pack] = write([b"data"])
    [content] = index_of(pack).contents
    assert (content.path, content.mode) == ("ab/0", 0o644)


def test_a_pack_begins_and_ends_as_the_format_says():
    [pack] = write([b"data"])
    magic = bytes.fromhex("434b5041434b0001")
    assert pack[:8] == pack[-8:] == magic
    length = int.from_bytes(pack[-48:-40], "big")
    assert hashlib.sha256(pack[-48 - length : -48]).digest() == pack[-40:-8]
    assert index_of(pack).frames[0].offset == 24


def test_the_same_files_make_another_pack_every_time():
    [one], [other] = write([b"data"]), write([b"data"])
    assert packs.pack_id([one]) != packs.pack_id([other])


def test_a_packs_name_does_not_depend_on_how_it_is_cut():
    assert packs.pack_id([b"ab", b"c"]) == packs.pack_id([b"abc"]) == hashlib.sha256(b"abc").hexdigest()


def test_a_full_pack_is_handed_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packs, "PACK_BYTES", 3000)
    noise = random.Random(1).randbytes
    done = write(*([noise(1000)] for _ in range(7)))
    assert [len(index_of(pack).frames) for pack in done] == [3, 3, 1]


def test_nothing_makes_no_pack():
    assert write() == []


def test_a_pack_cut_anywhere_is_refused():
    [pack] = write([b"data" * 100], [b"more"])
    for length in range(len(pack)):
        with pytest.raises(DamagedStore):
            index_of(pack[:length])


def test_a_flipped_bit_in_the_index_is_noticed():
    [pack] = write([b"data"])
    start = len(pack) - 48 - int.from_bytes(pack[-48:-40], "big")
    for position in range(start, len(pack)):
        with pytest.raises(DamagedStore):
            index_of(pack[:position] + bytes([pack[position] ^ 1]) + pack[position + 1 :])


def test_an_index_longer_than_the_first_guess_is_read_whole():
    noise = random.Random(1).randbytes
    [pack] = write([noise(20) for _ in range(3000)])
    assert int.from_bytes(pack[-48:-40], "big") > 1 << 16
    assert len(index_of(pack).contents) == 3000


@pytest.mark.parametrize(
    ("frames", "contents"),
    [
        ([Frame(24, 10_000, 4)], []),
        ([Frame(-1, 10, 4)], []),
        ([Frame(24, 10, 1 << 40)], []),
        ([Frame(24, 10, 4)], [Content("0" * 64, 5, 0, 0, "x", 0o644)]),
        ([Frame(24, 10, 4)], [Content("0" * 64, 4, 0, 1, "x", 0o644)]),
        ([Frame(24, 10, 4)], [Content("0" * 64, 4, 1, 0, "x", 0o644)]),
        ([Frame(24, 10, 4)], [Content("0" * 64, -4, 0, 4, "x", 0o644)]),
    ],
)
def test_an_index_that_no_pack_has_is_refused(frames: list[Frame], contents: list[Content]):
    done: list[bytes] = []
    writer = PackWriter(lambda number, parts, _: done.append(b"".join(parts)))
    writer._frames, writer._contents = frames, contents
    writer.close()
    with pytest.raises(DamagedStore):
        index_of(done[0])


def test_a_frame_of_another_length_is_refused():
    stored = compress(b"x" * 1000)
    assert decompress(stored, 1000) == b"x" * 1000
    for raw in (0, 999, 1001, 1 << 40):
        with pytest.raises(DamagedStore, match="not of the length"):
            decompress(stored, raw)


@pytest.mark.parametrize("stored", [b"", b"x", b"nonsense" * 10, compress(b"x" * 1000)[:-3]])
def test_a_frame_that_does_not_decompress(stored: bytes):
    with pytest.raises(DamagedStore):
        decompress(stored, 1000)
