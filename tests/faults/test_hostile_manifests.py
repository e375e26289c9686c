"""Manifests that no cachekeeper wrote: each is refused with a clear error before anything is written anywhere.

Every evil manifest has the id that belongs to it, as one has that somebody puts into a shared store on purpose.
"""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import cachekeeper
from cachekeeper import packs
from cachekeeper.errors import CachekeeperError, DamagedStore, StoreError
from cachekeeper.manifest import EntryRow, FileRow, Header, Manifest, PackRow, Tables, decode_header, encode
from cachekeeper.packs import MAGIC, compress, decompress, pack_id
from cachekeeper.repository import open_repository

from . import children
from .scene import Scene, copy_cache, files_in, simple_scene

_MEMORY = 700 << 20


class Stage:
    """A store to put evil manifests into, and a target with a sentinel tree around it."""

    def __init__(self, place: Path) -> None:
        self.scene, identifier = simple_scene(place)
        self.repository = open_repository(self.scene.store)
        self.good: Manifest = self.repository.manifest(identifier)
        self.around = place / "around"
        self.target = self.around / "below" / "target"
        copy_cache(self.scene.cache, self.target)
        next(self.target.glob("fxgraph/*/f*/[a-z]*")).unlink()
        for where in (self.around, self.around / "below"):
            (where / "sentinel").write_bytes(b"untouched")
        self.before = files_in(place)

    def put(self, header: Header, tables: Tables) -> str:
        """Write a manifest; its id."""
        snapshot, data = encode(header, tables)
        self.write(snapshot.id, data)
        return snapshot.id

    def put_json(self, header: dict[str, Any], tables: object) -> str:
        """Write a manifest of any JSON, with sums that are right."""
        raw_tables = tables if isinstance(tables, bytes) else json.dumps(tables).encode()
        sums = {"sha256": hashlib.sha256(raw_tables).hexdigest(), "raw": len(raw_tables)}
        raw = json.dumps({"tables": sums, **header}).encode()
        return self.put_raw(raw, compress(raw_tables))

    def put_raw(self, header: bytes, stored_tables: bytes) -> str:
        """Write a manifest of any bytes for a header."""
        identifier = hashlib.sha256(header).hexdigest()
        self.write(identifier, compress(header) + stored_tables)
        return identifier

    def write(self, identifier: str, data: bytes) -> None:
        assert self.repository.store.create(f"snapshots/{identifier}.json.zst", data)

    def check_refused(self, identifier: str, kind: type[CachekeeperError] = DamagedStore) -> None:
        """A restore raises, and not one file anywhere is other than before; verify says no; `ls` goes on."""
        for options in ({}, {"exact": True}, {"allow_damaged": True}):
            with pytest.raises(kind):
                cachekeeper.restore(identifier, cache_dir=self.target, store=self.scene.store, **options)
            self.check_untouched(identifier)
        with pytest.raises(kind):
            cachekeeper.verify(identifier, store=self.scene.store)
        assert not cachekeeper.verify(every=True, store=self.scene.store).ok
        assert cachekeeper.ls(store=self.scene.store).rows
        cachekeeper.restore(self.good.id, cache_dir=self.around / "new", store=self.scene.store)
        shutil.rmtree(self.around / "new")

    def check_untouched(self, identifier: str) -> None:
        now = files_in(self.around.parent)
        now.pop(f"store/snapshots/{identifier}.json.zst")
        assert now == self.before


@pytest.fixture
def stage(place: Path) -> Stage:
    return Stage(place)


_EVIL_PATHS = [
    "/etc/evil",
    "../evil",
    "a/../../evil",
    "..",
    ".",
    "",
    "a//b",
    "a/./b",
    "a/",
    "/",
    "a\x00b",
    "a\\b",
    "..\\evil",
    "new\nline",
    "\x1b[31m",
    ".cachekeeper/restored.json",
    ".cachekeeper/aside/x",
    ".cachekeeper",
    "n" * 256,
    "ü" * 128,
    "d/" * 2000 + "x",
    "also/unknown/x",
    "\ud800",
    "a/\u0000",
]


def test_a_manifest_put_together_here_is_taken(stage: Stage) -> None:
    """Else none of the refusals below would say anything."""
    for identifier in (_put_tables(stage), _put_header(stage, message="good")):
        result = cachekeeper.restore(identifier, cache_dir=stage.target, store=stage.scene.store)
        assert result.new + result.same == len(stage.scene.now)


@pytest.mark.parametrize("path", _EVIL_PATHS)
def test_paths_of_files(stage: Stage, path: str) -> None:
    rows = [list(row) for row in stage.good.tables.files]
    rows[0][0] = path
    stage.check_refused(_put_tables(stage, files=rows))


@pytest.mark.parametrize("path", [path for path in _EVIL_PATHS if not path.startswith("also/")])
def test_paths_of_entries(stage: Stage, path: str) -> None:
    rows = [list(row) for row in stage.good.tables.entries]
    rows[0][1] = path
    stage.check_refused(_put_tables(stage, entries=rows))


def _lists(tables: Tables) -> dict[str, list[list[Any]]]:
    return {name: [list(row) for row in rows] for name, rows in vars(tables).items()}


def _put_tables(stage: Stage, **changed: object) -> str:
    lists: dict[str, object] = {**_lists(stage.good.tables), **changed}
    header = asdict(stage.good.header)
    del header["tables"]
    return stage.put_json(header, [lists[name] for name in ("packs", "frames", "entries", "files")])


def _with_cell(table: str, row: int, column: int, value: object) -> Callable[[Stage], str]:
    def put(stage: Stage) -> str:
        rows = _lists(stage.good.tables)[table]
        rows[row][column] = value
        return _put_tables(stage, **{table: rows})

    return put


_BIG = 1 << 70
_EVIL_CELLS = {
    "pack id with slashes": ("packs", 0, 0, "../../../etc/passwd"),
    "pack id in capitals": ("packs", 0, 0, "A" * 64),
    "pack id with a newline": ("packs", 0, 0, "a" * 64 + "\n"),
    "negative pack size": ("packs", 0, 1, -1),
    "frame of no pack": ("frames", 0, 0, 1),
    "frame of a negative pack": ("frames", 0, 0, -1),
    "negative frame offset": ("frames", 0, 1, -1),
    "negative stored length": ("frames", 0, 2, -1),
    "frame beyond its pack": ("frames", 0, 2, 1 << 40),
    "frame of gigabytes": ("frames", 0, 3, 1 << 34),
    "negative raw length": ("frames", 0, 3, -5),
    "mode with setuid": ("files", 0, 1, 0o4777),
    "negative mode": ("files", 0, 1, -1),
    "mode of another type of file": ("files", 0, 1, 0o120777),
    "negative size": ("files", 0, 2, -1),
    "giant size": ("files", 0, 2, _BIG),
    "giant mode": ("files", 0, 1, _BIG),
    "sha256 that is none": ("files", 0, 3, "xyz"),
    "sha256 with a newline": ("files", 0, 3, "0" * 64 + "\n"),
    "frame out of range": ("files", 0, 4, 99),
    "negative frame": ("files", 0, 4, -1),
    "giant frame": ("files", 0, 4, _BIG),
    "negative offset": ("files", 0, 5, -1),
    "offset beyond the frame": ("files", 0, 5, 1 << 30),
    "entry out of range": ("files", 0, 6, 999),
    "negative entry": ("files", 0, 6, -1),
    "unknown kind": ("entries", 0, 0, "evil"),
    "number as text": ("files", 0, 2, "12"),
    "number with a fraction": ("files", 0, 2, 1.5),
    "text as a number": ("files", 0, 0, 12),
    "null": ("files", 0, 3, None),
    "a list": ("files", 0, 0, ["x"]),
    "true": ("files", 0, 1, True),
}


@pytest.mark.parametrize("what", _EVIL_CELLS)
def test_impossible_rows(stage: Stage, what: str) -> None:
    stage.check_refused(_with_cell(*_EVIL_CELLS[what])(stage))


def test_sizes_that_add_up_to_too_much(stage: Stage) -> None:
    files = [list(row) for row in stage.good.tables.files]
    for row in files[:3]:
        row[2] = 1 << 43
    stage.check_refused(_put_tables(stage, files=files))


def test_a_file_twice(stage: Stage) -> None:
    files = _lists(stage.good.tables)["files"]
    stage.check_refused(_put_tables(stage, files=[*files, files[0]]))


@pytest.mark.parametrize("suffix", ["/inside", "/deep/inside"])
def test_a_file_that_is_also_a_directory(stage: Stage, suffix: str) -> None:
    files = _lists(stage.good.tables)["files"]
    stage.check_refused(_put_tables(stage, files=[*files, [files[0][0] + suffix, *files[0][1:]]]))


@pytest.mark.parametrize("path", ["also/evil", "also/../x", "also/", "also/good/../../x", "also/-x/y", "also/é/y"])
def test_directories_beside(stage: Stage, path: str) -> None:
    files = _lists(stage.good.tables)["files"]
    label = path.split("/")[1]
    header = asdict(stage.good.header) | {"also": {label: "/"}}
    del header["tables"]
    lists = _lists(stage.good.tables) | {"files": [[path, *files[0][1:]], *files[1:]]}
    identifier = stage.put_json(header, [lists[name] for name in ("packs", "frames", "entries", "files")])
    if path == "also/evil":  # only a file of that name: harmless
        cachekeeper.restore(identifier, cache_dir=stage.target, store=stage.scene.store)
    else:
        stage.check_refused(identifier)


@pytest.mark.parametrize("label", ["../x", "a/b", "", "..", "x" * 101, "new\nline", "x\n", "-dash", "a b"])
def test_labels(stage: Stage, label: str) -> None:
    stage.check_refused(_put_header(stage, also={label: "/tmp"}))


def _put_header(stage: Stage, **changed: object) -> str:
    header = asdict(stage.good.header) | changed
    header = {key: value for key, value in header.items() if value is not ... and key != "tables"}
    lists = _lists(stage.good.tables)
    return stage.put_json(header, [lists[name] for name in ("packs", "frames", "entries", "files")])


_EVIL_HEADERS: dict[str, dict[str, Any]] = {
    "format 2": {"format": 2},
    "format 0": {"format": 0},
    "format -1": {"format": -1},
    "format as text": {"format": "1"},
    "format 2 as text": {"format": "2"},
    "format 1.5": {"format": 1.5},
    "no format": {"format": ...},
    "format null": {"format": None},
    "no fingerprint": {"fingerprint": ...},
    "fingerprint of another type": {"fingerprint": []},
    "counts of another type": {"counts": {"triton": 3}},
    "negative counts": {"counts": {"triton": {"entries": -1, "files": 1, "bytes": 1}}},
    "counts beyond all measure": {"counts": {"triton": {"entries": 1, "files": 1, "bytes": 10**400}}},
    "counts of an unknown kind": {"counts": {"\x1b[31m": {"entries": 1, "files": 1, "bytes": 1}}},
    "stored beyond all measure": {"stored": 10**400},
    "stored negative": {"stored": -1},
    "a time that is none": {"created": "yesterday"},
    "a time with more": {"created": "2026-01-31T08:15:00Z\nevil"},
    "NaN": {"metrics": {"x": float("nan")}},
    "infinity": {"metrics": {"x": float("inf")}},
    "metrics of another type": {"metrics": [1]},
    "name of another type": {"name": 5},
    "triton_dirs that leave": {"triton_dirs": {"../../evil": 9}},
    "triton_dirs that are absolute": {"triton_dirs": {"/evil": 9}},
    "parent that is no id": {"parent": "../../x"},
    "live of another type": {"live": "yes"},
}


@pytest.mark.parametrize("what", _EVIL_HEADERS)
def test_impossible_headers(stage: Stage, what: str) -> None:
    kind = StoreError if what.startswith("format 2") else DamagedStore
    stage.check_refused(_put_header(stage, **_EVIL_HEADERS[what]), CachekeeperError if "2" in what else kind)


def test_a_later_format_says_so(stage: Stage) -> None:
    with pytest.raises(StoreError, match="upgrade"):
        cachekeeper.restore(_put_header(stage, format=2), cache_dir=stage.target, store=stage.scene.store)


def test_text_for_people_is_shown_harmlessly(stage: Stage, capfd: pytest.CaptureFixture[str]) -> None:
    from cachekeeper.cli import main

    evil = "\x1b]0;evil\x07\x1b[2J\nerror: all is lost\r"
    identifier = _put_header(stage, name=evil, message=evil, live=[evil], damaged=[evil], cache_dir=evil)
    restore = ["restore", identifier, "--cache-dir", str(stage.target)]
    for arguments in (["ls"], ["show", identifier], ["verify", identifier], restore):
        main([*arguments, "--store", str(stage.scene.store)])
    shown = "".join(capfd.readouterr())
    assert "\x1b" not in shown and "\x07" not in shown and "\r" not in shown


_DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "raw",
    [_DEEP, b'{"a":' * 100_000 + b"1" + b"}" * 100_000, b"null", b"[]", b"1", b'""', b"{", b"\xff", b"{}", b"NaN"],
)
def test_headers_that_are_no_object(stage: Stage, raw: bytes) -> None:
    stage.check_refused(stage.put_raw(raw, compress(b"[]")))


@pytest.mark.parametrize(
    "raw", [_DEEP, b"null", b"[]", b"{}", b"[[],[],[]]", b"[1,2,3,4]", b"\xff", b"[[[]],[],[],[]]", b"[NaN,[],[],[]]"]
)
def test_tables_that_are_none(stage: Stage, raw: bytes) -> None:
    header = asdict(stage.good.header)
    del header["tables"]
    stage.check_refused(stage.put_json(header, raw))


def test_an_empty_snapshot_is_no_success(stage: Stage) -> None:
    """Nothing restored is not "ok, restored"."""
    identifier = stage.put(replace(stage.good.header, counts={}), Tables((), (), (), ()))
    with pytest.raises(CachekeeperError):
        cachekeeper.restore(identifier, cache_dir=stage.around / "new", store=stage.scene.store)


def test_sums_that_are_wrong(stage: Stage) -> None:
    header = asdict(stage.good.header)
    lists = _lists(stage.good.tables)
    raw = json.dumps([lists[name] for name in ("packs", "frames", "entries", "files")]).encode()
    header["tables"] = {"sha256": "0" * 64, "raw": len(raw)}
    stage.check_refused(stage.put_raw(json.dumps(header).encode(), compress(raw)))


def test_an_id_that_is_wrong(stage: Stage) -> None:
    _, data = encode(stage.good.header, stage.good.tables)
    stage.write("f" * 64, data)
    stage.check_refused("f" * 64)


@pytest.mark.parametrize("data", [b"", b"\x28\xb5\x2f\xfd", b"PK", b"\x50\x2a\x4d\x18\xff\xff\xff\xff", bytes(100)])
def test_manifests_that_are_none(stage: Stage, data: bytes) -> None:
    stage.write("f" * 64, data)
    stage.check_refused("f" * 64)


def test_a_manifest_that_is_cut_anywhere(stage: Stage) -> None:
    _, data = encode(replace(stage.good.header, message="cut"), stage.good.tables)
    identifier = encode(replace(stage.good.header, message="cut"), stage.good.tables)[0].id
    key = f"snapshots/{identifier}.json.zst"
    for length in range(0, len(data), 97):
        stage.write(identifier, data[:length])
        with pytest.raises(DamagedStore):
            stage.repository.manifest(identifier)
        assert not cachekeeper.verify(every=True, store=stage.scene.store).ok
        stage.repository.store.delete(key)


def test_a_manifest_with_more_after_its_end(stage: Stage) -> None:
    snapshot, data = encode(replace(stage.good.header, message="more"), stage.good.tables)
    stage.write(snapshot.id, data + b"more")
    stage.check_refused(snapshot.id)


# Telemetry: whatever it is, a restore goes on without, and whoever wants it is told


def _put_told(stage: Stage, frame: bytes, raw: int, sha256: str = "0" * 64) -> str:
    """A good snapshot with a third frame of any bytes."""
    _, data = encode(stage.good.header, stage.good.tables)
    header = asdict(stage.good.header) | {"telemetry": {"sha256": sha256, "raw": raw}}
    tables = data[decode_header(stage.good.id, data)[1] :]
    return stage.put_raw(json.dumps(header).encode(), tables + frame)


def _check_told(stage: Stage, identifier: str) -> None:
    with pytest.raises(DamagedStore):
        stage.repository.telemetry(identifier)
    result = cachekeeper.verify(identifier, store=stage.scene.store)
    assert list(result.damaged) == [f"telemetry of {identifier[:8]}"]
    cachekeeper.restore(identifier, cache_dir=stage.target, store=stage.scene.store, verify=True)


_EVIL_LINES = [
    b"x",
    b"\n" * 1000,
    b'{"kind":"note"}\n',
    _DEEP + b"\n",
    b'{"kind":"process","pid":"x"}\n',
    b"\xff\x00\n",
]


@pytest.mark.parametrize("lines", _EVIL_LINES, ids=range(len(_EVIL_LINES)))
def test_telemetry_that_is_none(stage: Stage, lines: bytes) -> None:
    _check_told(stage, _put_told(stage, compress(lines), len(lines), hashlib.sha256(lines).hexdigest()))


@pytest.mark.parametrize("frame", [b"", b"more", compress(b"x") * 2, bytes(50)], ids=range(4))
def test_telemetry_of_other_bytes(stage: Stage, frame: bytes) -> None:
    identifier = _put_told(stage, frame, 1, hashlib.sha256(b"x").hexdigest())
    _check_told(stage, identifier)
    copied = cachekeeper.copy(stage.scene.store, stage.around / "copy", [identifier])
    assert not copied.ok and "telemetry" in str(copied.damaged)


# Bombs


@pytest.mark.parametrize("claimed", [1 << 20, 3 << 30])
def test_telemetry_that_is_a_bomb(stage: Stage, claimed: int) -> None:
    identifier = _put_told(stage, _bomb(claimed, 3 << 30), 1 << 20)
    _refused_in_little_memory(lambda: stage.repository.telemetry(identifier))
    cachekeeper.restore(identifier, cache_dir=stage.target, store=stage.scene.store)


def _bomb(claimed: int, real: int) -> bytes:
    """A zstd frame that claims one length and expands to another: 4 bytes a 128 KiB."""
    head = struct.pack("<IBBQ", 0xFD2FB528, 0b11000000, 0x58, claimed)
    block = 128 << 10
    blocks = [struct.pack("<I", block << 3 | 1 << 1)[:3] + b"["] * (real // block)
    return head + b"".join(blocks) + struct.pack("<I", 0 << 3 | 1)[:3]


def _refused_in_little_memory(work: Callable[[], object]) -> None:
    """`work` raises a CachekeeperError in a process that cannot get much memory."""

    def limited() -> None:
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + _MEMORY, now + _MEMORY))
        with pytest.raises(CachekeeperError):
            work()

    assert children.run(limited) == 0


@pytest.mark.parametrize("claimed", [1 << 20, 3 << 30])
def test_a_header_that_is_a_bomb(stage: Stage, claimed: int) -> None:
    stage.write("f" * 64, _bomb(claimed, 3 << 30) + compress(b"[]"))
    _refused_in_little_memory(lambda: cachekeeper.restore("f" * 64, cache_dir=stage.target, store=stage.scene.store))
    _refused_in_little_memory(lambda: _raise_if_damaged(stage.scene))
    stage.check_untouched("f" * 64)


def _raise_if_damaged(scene: Scene) -> None:
    if not cachekeeper.verify(every=True, store=scene.store).ok:
        raise DamagedStore("as expected")


@pytest.mark.parametrize("claimed", [1 << 20, 1000 << 20, 3 << 30])
def test_tables_that_are_a_bomb(stage: Stage, claimed: int) -> None:
    header = asdict(stage.good.header)
    header["tables"] = {"sha256": "0" * 64, "raw": claimed}
    identifier = stage.put_raw(json.dumps(header).encode(), _bomb(claimed, min(claimed, 1 << 30) or 3 << 30))
    _refused_in_little_memory(lambda: cachekeeper.restore(identifier, cache_dir=stage.target, store=stage.scene.store))
    stage.check_untouched(identifier)


@pytest.fixture
def bombs(stage: Stage) -> Iterator[Callable[[bytes, int], str]]:
    """Puts a snapshot of one missing file whose frame is the bytes given and is said to be of a length."""

    def put(frame: bytes, raw: int) -> str:
        parts = [MAGIC + bytes(16), frame]
        name = pack_id(parts)
        stage.repository.store.create(f"packs/{name}", *parts)
        size = sum(map(len, parts))
        row = FileRow("cache/bomb", 0o644, min(raw, 100), "0" * 64, 0, 0, 0)
        tables = Tables((PackRow(name, size),), (), (EntryRow("autotune", "cache/bomb"),), (row,))
        return stage.put(stage.good.header, replace(tables, frames=((0, 24, len(frame), raw),)))  # type: ignore[arg-type]

    yield put


@pytest.mark.parametrize("claimed", [100, 1 << 20, 3 << 30])
@pytest.mark.parametrize("said", [100, 1 << 20, 16 << 20])
def test_a_frame_that_is_a_bomb(
    stage: Stage, bombs: Callable[[bytes, int], str], place: Path, claimed: int, said: int
) -> None:
    identifier = bombs(_bomb(claimed, 3 << 30), said)
    before = files_in(stage.target)
    _refused_in_little_memory(lambda: cachekeeper.restore(identifier, cache_dir=stage.target, store=stage.scene.store))
    assert files_in(stage.target) == before


def test_frames_of_wrong_lengths() -> None:
    good = compress(b"x" * 1000)
    for raw in (0, 1, 999, 1001, 1 << 24):
        with pytest.raises(DamagedStore):
            decompress(good, raw)
    for cut in range(len(good)):
        with pytest.raises(DamagedStore):
            decompress(good[:cut], 1000)


# What else a store says


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"null",
        b"[]",
        b"1",
        _DEEP,
        b'{"snapshot": 5, "when": "x", "who": "y"}',
        b'{"snapshot": "../../../etc/passwd", "when": "x", "who": "y"}',
        b'{"snapshot": "' + b"f" * 64 + b'\\n", "when": "x", "who": "y"}',
        b'{"snapshot": "' + b"f" * 64 + b'"}',
        b'{"snapshot": "' + b"f" * 64 + b'", "when": [1], "who": {}}',
    ],
)
def test_names_that_are_none(stage: Stage, document: bytes) -> None:
    stage.repository.store.create("names/evil/00000001", document)
    with pytest.raises(CachekeeperError):
        cachekeeper.restore("evil", cache_dir=stage.target, store=stage.scene.store)
    result = cachekeeper.verify(every=True, store=stage.scene.store)
    assert any("evil" in key for key in result.damaged)
    assert cachekeeper.ls(store=stage.scene.store).rows


@pytest.mark.parametrize(
    "document", [b"", b"null", b"[]", b"{}", _DEEP, b'{"format": "1"}', b'{"format": [1]}', b"\xff"]
)
def test_format_marks_that_are_none(stage: Stage, document: bytes) -> None:
    path = stage.scene.store / "format.json"
    path.unlink()
    path.write_bytes(document)
    for call in (_ls, _verify, _restore, _snapshot):
        with pytest.raises(CachekeeperError):
            call(stage)


def _ls(stage: Stage) -> None:
    cachekeeper.ls(store=stage.scene.store)


def _verify(stage: Stage) -> None:
    cachekeeper.verify(every=True, store=stage.scene.store)


def _restore(stage: Stage) -> None:
    cachekeeper.restore("drafter", cache_dir=stage.target, store=stage.scene.store)


def _snapshot(stage: Stage) -> None:
    cachekeeper.snapshot("drafter", cache_dir=stage.target, store=stage.scene.store, wait=0)


@pytest.mark.parametrize(
    "where",
    [
        "snapshots/readme.txt",
        "snapshots/a b",
        "names/a b/00000001",
        "names/x/notes.txt",
        "packs/notes",
        "packs/a b",
        "x",
    ],
)
def test_files_that_do_not_belong_in_a_store(stage: Stage, where: str) -> None:
    """Somebody's notes may be named as odd; everything else goes on."""
    (stage.scene.store / where).parent.mkdir(parents=True, exist_ok=True)
    (stage.scene.store / where).write_bytes(b"notes")
    assert cachekeeper.ls(store=stage.scene.store).rows
    cachekeeper.verify(every=True, store=stage.scene.store)
    _restore(stage)
    _snapshot(stage)


def _index(frames: object, contents: object) -> bytes:
    index = compress(json.dumps([frames, contents]).encode())
    return index + packs._TAIL.pack(len(index), hashlib.sha256(index).digest(), MAGIC)


@pytest.mark.parametrize(
    "row",
    [[5, 0], [-1, 0], [0, -5], [0, 1 << 40], [1 << 70, 0], [0, 1 << 70]],
    ids=["frame", "negative frame", "negative offset", "offset", "giant frame", "giant offset"],
)
def test_pack_indexes_that_are_wrong(stage: Stage, place: Path, row: list[int]) -> None:
    """An index of nonsense is left out; a snapshot never builds on it."""
    sha256 = stage.good.tables.files[0].sha256
    cache = copy_of_one(stage, place)
    shutil.rmtree(stage.scene.store / "packs")
    shutil.rmtree(stage.scene.store / "snapshots")
    shutil.rmtree(stage.scene.store / "names")
    frame = compress(b"nonsense")
    parts = [MAGIC + bytes(16), frame, _index([[24, len(frame), 8]], [[sha256, 8, *row, "x", 420]])]
    stage.repository.store.create(f"packs/{pack_id(parts)}", *parts)
    saved = cachekeeper.snapshot("new", cache_dir=cache, store=stage.scene.store, wait=0)
    assert cachekeeper.verify(saved.snapshot.id, store=stage.scene.store).ok


def copy_of_one(stage: Stage, place: Path) -> Path:
    copy_cache(stage.scene.cache, place / "copy")
    return place / "copy"
