"""The manifest: its id is a root of trust, and what it cannot say is refused."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict, replace
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from cachekeeper import manifest
from cachekeeper.errors import DamagedStore, StoreError
from cachekeeper.manifest import (
    Count,
    Manifest,
    RunSummary,
    TablesInfo,
    decode,
    decode_header,
    decode_telemetry,
    encode,
    encoding,
)
from cachekeeper.manifest.paths import check_path
from cachekeeper.models import Fact, ModelHash
from cachekeeper.packs import compress
from tests import samples

# The id that the header of `samples` has had since the first version.
BEFORE_TAGS = "c3bc4bc446db9b00a6c57f98155e85fe1c41be7adb966165c80d300e006b0a52"


def edited(**changes: Any) -> tuple[str, bytes]:
    """A manifest whose header was changed as JSON, and its id: well-formed, whatever it says."""
    raw = header_json()
    document = {**json.loads(raw), **changes}
    document = {key: value for key, value in document.items() if value is not ...}
    raw = json.dumps(document, sort_keys=True).encode()
    _, data = encode(samples.header(), samples.tables())
    end = decode_header(encode(samples.header(), samples.tables())[0].id, data)[1]
    return hashlib.sha256(raw).hexdigest(), compress(raw) + data[end:]


def header_json() -> bytes:
    _, data = encode(samples.header(), samples.tables())
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


def round_trip(**changes: Any) -> Manifest:
    snapshot, data = encode(samples.header(**changes), samples.tables())
    found = decode(snapshot.id, data)
    assert found.header == snapshot.header
    return found


def test_what_goes_in_comes_out():
    snapshot, data = encode(samples.header(), samples.tables())
    assert decode(snapshot.id, data) == Manifest(snapshot.id, snapshot.header, samples.tables())


def test_every_field_survives():
    model = ModelHash("ab" * 32, "config.json", ("a.py",), ("_name_or_path",))
    found = round_trip(
        parent=samples.ID,
        message="größe \n\t ☃",
        metrics={"tok_s": 21500.5},
        live=("torch is compiling into it",),
        damaged=("triton/0/H: empty file",),
        also={"TRITON_CACHE_DIR": "/root/.triton/cache"},
        fingerprint=replace(samples.fingerprint(threads=Fact(unknown="no answer")), model=model),
        counts={"fxgraph": Count(1, 1, 5), "triton": Count(3, 0, 7)},
        triton_dirs={"triton/0": 3},
        targets=("cuda:90",),
        tags={"dataset": "pile-v2", "größe": "8 = 2 x 4", "empty": ""},
        secrets=("ab/cab.py  a GitHub token, the value of HF_TOKEN",),
    )
    assert found.header.fingerprint.model == model
    assert found.header.fingerprint.must["threads"].unknown == "no answer"
    assert (found.header.files, found.header.bytes, found.header.entries) == (1, 12, 4)
    assert (found.header.entries_of("triton"), found.header.entries_of("native")) == (3, 0)


def test_the_id_is_the_hash_of_the_header_and_the_header_has_that_of_the_tables():
    snapshot, data = encode(samples.header(), samples.tables())
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    raw = decompressor.decompress(data)
    assert hashlib.sha256(raw).hexdigest() == snapshot.id
    raw_tables = zstandard.ZstdDecompressor().decompress(decompressor.unused_data)
    assert json.loads(raw)["tables"] == {"sha256": hashlib.sha256(raw_tables).hexdigest(), "raw": len(raw_tables)}


def test_the_header_is_json_with_sorted_keys_and_no_white_space():
    raw = header_json()
    assert raw == json.dumps(json.loads(raw), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def test_a_header_without_tags_and_secrets_is_as_it_was_before_there_were_any():
    assert b'"tags"' not in header_json() and b'"secrets"' not in header_json()
    assert encode(samples.header(tags={}, secrets=()), samples.tables())[0].id == BEFORE_TAGS
    assert round_trip().header.tags == {} and round_trip().header.secrets == ()


def test_the_most_tags_that_there_can_be():
    tags = {f"{number:03}": "x" * 997 for number in range(100)}
    assert round_trip(tags=tags).header.tags == tags


def test_text_that_is_no_unicode_is_kept_readable():
    """A directory's name, or a message from a terminal, may have bytes that are no UTF-8."""
    found = decode(*id_and_data(cache_dir="/tmp/\udcff", message="\udc80!", also={"x": "/\udcff"}))
    assert (found.header.cache_dir, found.header.message, found.header.also) == ("/tmp/?", "?!", {"x": "/?"})


def id_and_data(**changes: Any) -> tuple[str, bytes]:
    snapshot, data = encode(samples.header(**changes), samples.tables())
    return snapshot.id, data


def test_a_header_is_read_from_the_beginning_alone():
    identifier, data = id_and_data()
    snapshot, end = decode_header(identifier, data)
    assert decode_header(identifier, data[:end]) == (snapshot, end)
    for length in (20, end - 1):
        with pytest.raises(EOFError):
            decode_header(identifier, data[:length])


def test_a_manifest_cut_anywhere_is_refused():
    identifier, data = id_and_data()
    for length in range(len(data)):
        with pytest.raises(DamagedStore):
            decode(identifier, data[:length])


def test_a_flipped_bit_anywhere_is_refused():
    identifier, data = id_and_data()
    for position in range(len(data)):
        changed = data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :]
        with contextlib.suppress(DamagedStore):  # or it is a bit of zstd's that says nothing
            assert decode(identifier, changed) == decode(identifier, data)


def test_more_after_its_end_is_refused():
    identifier, data = id_and_data()
    with pytest.raises(DamagedStore, match="goes on after its end"):
        decode(identifier, data + b"x")


def test_another_ids_manifest_is_refused():
    _, data = id_and_data()
    with pytest.raises(DamagedStore, match="not what its id says"):
        decode(samples.ID, data)


# Telemetry

LINES = b'{"kind":"process"}\n' * 20
RUN = RunSummary("20260131-081500-7c1e04", ("python", "x"), "2026-01-31T08:15:00Z", 41.5, 8.25, 5, 1, 2, 0, 1, 2, 0)


def told(**changes: Any) -> tuple[str, bytes]:
    snapshot, data = encode(samples.header(run=RUN, **changes), samples.tables(), LINES)
    return snapshot.id, data


def test_telemetry_is_a_third_frame_that_the_header_names():
    identifier, data = told()
    header = decode(identifier, data).header
    assert header.run == RUN and header.telemetry is not None
    assert (header.telemetry.sha256, header.telemetry.raw) == (hashlib.sha256(LINES).hexdigest(), len(LINES))
    assert decode_telemetry(identifier, data) == LINES
    whole = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()
    assert whole.endswith(b"]" + LINES)


def test_a_header_without_it_says_nothing_of_it():
    """Byte for byte what it was before there was any."""
    assert not {"telemetry", "run"} & json.loads(header_json()).keys()
    assert decode_telemetry(*id_and_data()) == b""
    assert decode(*id_and_data(run=RUN)).header.run == RUN
    # What a header of another snapshot said of its telemetry is not carried over.
    assert decode(*id_and_data(telemetry=TablesInfo("ab" * 32, 5))).header.telemetry is None


def test_damaged_telemetry_is_noticed_and_nothing_else_needs_it():
    identifier, data = told()
    good = decode(identifier, data)
    begin = len(data) - len(compress(LINES))
    damaged = [data[:end] for end in range(begin, len(data))]
    damaged += [data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :] for at in range(begin, len(data))]
    damaged += [data + b"x", data + compress(LINES), data[:begin] + compress(LINES + b"x"), data[:begin] + LINES]
    refused = 0
    for other in damaged:
        assert decode(identifier, other) == good
        try:
            assert decode_telemetry(identifier, other) == LINES
        except DamagedStore:
            refused += 1
    assert refused > len(damaged) - 5  # a bit of zstd's may say nothing
    for end in range(begin):
        for read in (decode, decode_telemetry):
            with pytest.raises(DamagedStore):
                read(identifier, data[:end])


@pytest.mark.parametrize(
    "changes",
    [
        {"telemetry": {"sha256": "x", "raw": 5}},
        {"telemetry": {"sha256": "ab" * 32 + "\n", "raw": 5}},
        {"telemetry": {"sha256": "ab" * 32, "raw": -1}},
        {"telemetry": {"sha256": "ab" * 32, "raw": 1 << 40}},
        {"telemetry": {"sha256": "ab" * 32}},
        {"telemetry": 5},
        {"run": {}},
        {"run": {**asdict(RUN), "began": "yesterday"}},
        {"run": {**asdict(RUN), "hits": -1}},
        {"run": {**asdict(RUN), "hits": 1 << 70}},
        {"run": {**asdict(RUN), "seconds": float("inf")}},
        {"run": {**asdict(RUN), "compiling": float("nan")}},
        {"run": {**asdict(RUN), "command": "python x"}},
    ],
    ids=repr,
)
def test_a_run_or_telemetry_that_there_never_was(changes: dict[str, Any]):
    with pytest.raises(DamagedStore):
        decode(*edited(**changes))


# Versions


@pytest.mark.parametrize("version", [2, 99])
def test_a_later_format_is_refused_with_what_to_do(version: int):
    with pytest.raises(StoreError, match=f"format {version}; this cachekeeper reads up to 1") as caught:
        decode(*edited(format=version))
    assert "pip install -U cachekeeper" in caught.value.hint
    assert caught.value.exit_code == 6


def test_a_later_format_may_have_any_form():
    raw = b'{"format":2,"all":"else is new"}'
    with pytest.raises(StoreError, match="format 2"):
        decode(hashlib.sha256(raw).hexdigest(), compress(raw))


@pytest.mark.parametrize("version", [0, -1, "1", None, 1.5, []])
def test_a_format_that_there_never_was(version: object):
    with pytest.raises(DamagedStore):
        decode(*edited(format=version))


def test_a_header_with_more_keys_is_read_without_them():
    """A later cachekeeper may add what this one need not know; what it must know changes the format's number."""
    identifier, data = edited(colour="green", signature={"key": 1})
    found = decode(identifier, data)
    assert found.id == identifier
    assert replace(found.header, tables=samples.header().tables) == samples.header()


# `encode` fills the first in; the others came after the first stores of this format.
LATER = ("tables", "origin", "proof", "telemetry", "run", "tags", "secrets")


@pytest.mark.parametrize("key", [key for key in asdict(samples.header()) if key not in LATER])
def test_a_header_without_a_key_is_refused(key: str):
    with pytest.raises(DamagedStore):
        decode(*edited(**{key: ...}))


@pytest.mark.parametrize(
    "changes",
    [
        {"created": "yesterday"},
        {"parent": "xyz"},
        {"also": {"../x": "/"}},
        {"also": {"": "/"}},
        {"triton_dirs": {"../triton": 1}},
        {"counts": {"nonsense": {"entries": 1, "files": 1, "bytes": 1}}},
        {"counts": {"fxgraph": {"entries": -1, "files": 1, "bytes": 1}}},
        {"counts": {"fxgraph": {"entries": 1, "files": 2, "bytes": 1}}},
        {"stored": -1},
        {"stored": "much"},
        {"metrics": {"x": "fast"}},
        {"secrets": "ab/cab.py  a GitHub token"},
        {"secrets": [["ab/cab.py", "a GitHub token"]]},
        {"tags": {"batch": 8}},
        {"tags": ["x"]},
        {"tags": None},
        {"tags": {"": "x"}},
        {"tags": {"a=b": "x"}},
        {"tags": {" a": "x"}},
        {"tags": {"a": "x" * 1000}},
        {"tags": {str(number): "" for number in range(101)}},
        {"live": "yes"},
        {"fingerprint": None},
        {"name": None},
    ],
    ids=str,
)
def test_a_header_that_no_snapshot_has(changes: dict[str, Any]):
    with pytest.raises(DamagedStore):
        decode(*edited(**changes))


# Paths


@pytest.mark.parametrize("path", ["a", "ab/c.py", "größe/x y", "x/.hidden", "a/" + "n" * 255, "😀", "...", "a/..b"])
def test_paths_that_are_kept(path: str):
    assert manifest.storable(path)
    snapshot, data = encode(samples.header(), samples.tables(path="x/" + path))
    assert decode(snapshot.id, data).tables.files[0].path == "x/" + path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/etc/passwd",
        "..",
        "../x",
        "a/../x",
        "a/..",
        ".",
        "./a",
        "a/./b",
        "a//b",
        "a/",
        "a\\b",
        "a\nb",
        "a\x00b",
        "a\x7f",
        "\udcff",
        "ü\x01",
        ".cachekeeper",
        ".cachekeeper/x",
        "n" * 256,
        "ü" * 128,
        "a/" * 2001 + "b",
    ],
)
def test_paths_that_are_not(path: str):
    assert not manifest.storable(path)
    with pytest.raises(DamagedStore):
        check_path(path)


@given(st.text(max_size=30))
def test_a_storable_path_stays_below_its_root(path: str):
    if manifest.storable(path):
        assert not path.startswith("/")
        assert not {"", ".", ".."} & set(path.split("/"))
        path.encode()


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("also/TRITON_CACHE_DIR/H/k.json", "TRITON_CACHE_DIR"),
        ("also/a-b.c_2/x", "a-b.c_2"),
        ("also/x", ""),
        ("also//x", ""),
        ("also/.hidden/x", ""),
        ("also/" + "x" * 101 + "/y", ""),
        ("fxgraph/also/x/y", ""),
    ],
)
def test_labels_of_directories_beside_the_cache(path: str, label: str):
    assert manifest.also_label(path) == label


SECRETS = {
    "run": RunSummary("20260131-081500-7c1e04", ("t.py", "--token", "X"), "2026-01-31T08:15:00Z", 1.0, *([0] * 8)),
    "tags": {"api_key": "X", "batch": "8"},
    "fingerprint": replace(samples.fingerprint(), recorded={"command": Fact(["t.py", "--url", "https://me:X@h"])}),
}


def without_secrets_in(found: Manifest) -> None:
    assert found.header.run and found.header.run.command == ("t.py", "--token", "***")
    assert found.header.tags == {"api_key": "***", "batch": "8"}
    assert found.header.fingerprint.recorded["command"].value == ["t.py", "--url", "https://***@h"]


def test_no_secret_is_written():
    assert b"X" not in json.dumps(asdict(encode(samples.header(**SECRETS), samples.tables())[0])).encode()
    without_secrets_in(round_trip(**SECRETS))


def test_no_secret_that_an_earlier_version_kept_is_read(monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(encoding, "_without_secrets", lambda header: header)
        snapshot, data = encode(samples.header(**SECRETS), samples.tables())
        assert decode(snapshot.id, data).header.tags["api_key"] == "X"
    without_secrets_in(decode(snapshot.id, data))


def test_keys_that_an_earlier_version_took_are_read():
    assert round_trip(tags={"a b": "x\n"}, metrics={"a b=5": 1.0}).header.tags == {"a b": "x\n"}
