"""FORMAT.md against stores and cache directories that the product itself wrote, in both directions.

tests/test_docs.py holds the header's example, the rows of the tables and the kinds; tests/test_telemetry.py the events.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

import cachekeeper
from cachekeeper import (
    condemned,
    evidence,
    exported,
    leases,
    manifest,
    megacache,
    packs,
    restored,
    signatures,
    signing,
    telemetry,
)
from cachekeeper.inductor import Place
from cachekeeper.manifest import RunSummary, checking, encode, paths, tags
from cachekeeper.repository import mark, names
from cachekeeper.runs import merging
from cachekeeper.stores import MemoryStore, racing, s3
from cachekeeper.stores.base import Buffer
from cachekeeper.testing import make_cache
from cachekeeper.version import STORE_FORMAT
from tests import samples
from tests.verbs.conftest import settle

FORMAT = (Path(cachekeeper.__file__).parent / "FORMAT.md").read_text()
TEXT = " ".join(FORMAT.split())
BLOCKS = re.findall(r"^```\w*\n(.*?)^```", FORMAT, re.DOTALL | re.MULTILINE)


class Recording(MemoryStore):
    """A store that keeps what was ever written to it, also what went away again."""

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, bytes] = {}

    def create(self, key: str, *parts: Buffer) -> bool:
        won = super().create(key, *parts)
        if won:
            self.written[key] = b"".join(parts)
        return won


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """All that a life of two snapshots writes: saved, signed, pinned, removed, brought back, removed and swept."""
    directory = tmp_path_factory.mktemp("format")
    store, cache = Recording(), settle(make_cache(directory / "cache"))
    key = directory / "key"
    cachekeeper.keygen(key)
    first = cachekeeper.snapshot("team/drafter", cache_dir=cache, store=store, wait=0).snapshot.id
    settle(make_cache(cache, kernels=7))
    cachekeeper.snapshot("team/drafter", cache_dir=cache, store=store, wait=0)
    cachekeeper.sign("team/drafter", key=key, store=store)
    cachekeeper.pin(first, reason="release", store=store)
    cachekeeper.unpin(first, store=store)
    cachekeeper.rm("team/drafter", reason="wrong", store=store)
    cachekeeper.undo(store=store)
    cachekeeper.rm("team/drafter", grace=0, store=store)
    cachekeeper.restore(first, cache_dir=directory / "other", store=store, allow_mismatch=True)
    for _ in range(2):
        cachekeeper.sweep(apply=True, grace=0, empty_trash=True, store=store)
    assert racing.one_wins(store.create, store.read, 2, 1)
    return store.written


# Keys

PLACES = {
    r"<sha256>": "[0-9a-f]{64}",
    r"<id>": "[0-9a-f]{64}",
    r"<key>": "[0-9a-f]{64}",
    r"<random>": "[0-9a-f]{32}",
    r"<name>": ".+",
    r"<number>": "[0-9]{8}",
    r"<generation>": "[0-9]{8}",
}


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    """Each key of the document, and what it looks like."""
    described = BLOCKS[0]
    assert described.startswith("format.json")
    keys = [line.split()[0] for line in described.splitlines()] + re.findall(r"signatures/names/\S+", described)
    for key in keys:
        pattern = re.escape(key)
        for place, form in PLACES.items():
            pattern = pattern.replace(re.escape(place), form)
        yield key, re.compile(pattern)


def test_each_key_that_is_written_is_described(written: dict[str, bytes]):
    assert [key for key in written if not any(pattern.fullmatch(key) for _, pattern in patterns())] == []


def test_each_key_that_is_described_is_written(written: dict[str, bytes]):
    assert [key for key, pattern in patterns() if not any(map(pattern.fullmatch, written))] == []


def test_a_key_that_nobody_described_would_be_noticed():
    assert not any(pattern.fullmatch("locks/" + "0" * 32) for _, pattern in patterns())


# Records: the keys of each line of JSON


def keys_of_a_record(key: str, data: bytes) -> set[str]:
    document = json.loads(data.splitlines()[0])
    assert data.splitlines()[0].decode() == json.dumps(document, sort_keys=True), key
    return set(document)


def described_as_json(section: str) -> set[str]:
    """The keys of the first JSON object in a section."""
    [text] = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", FORMAT, re.DOTALL | re.MULTILINE)
    return set(json.loads(re.findall(r"`(\{.*?\})`", " ".join(text.split()))[0]))


def described_as_words(key: str) -> set[str]:
    """The keys in the row of a table of words; all of these have a checksum too."""
    [row] = [line for block in BLOCKS for line in block.splitlines() if line.startswith(key)]
    return {*row.removeprefix(key).strip().split("  ")[0].split(), "sha256"}


@pytest.mark.parametrize(
    ("key", "described"),
    [
        ("names/", described_as_json("Names")),
        ("pins/", described_as_json("Pins")),
        ("signatures/[0-9a-f]{64}/", described_as_json("Signatures")),
        ("signatures/names/", described_as_json("Signatures") | {"name", "number"}),
        ("leases/", described_as_words("leases/<32 hex>")),
        ("gc/", described_as_words("gc/<8 digits>")),
        (r"trash/[0-9a-f]{64}/(?!gone)", described_as_words("trash/<id>/<32 hex>")),
        (r"trash/[0-9a-f]{64}/gone", described_as_words("trash/<id>/<32 hex>")),
    ],
)
def test_the_keys_of_a_record(written: dict[str, bytes], key: str, described: set[str]):
    found = [keys_of_a_record(name, data) for name, data in written.items() if re.match(key, name)]
    assert found and all(keys == described for keys in found)


def test_what_follows_a_removal(written: dict[str, bytes]):
    for key, data in written.items():
        if key.startswith("trash/"):
            line, _, rest = data.partition(b"\n")
            identifier = json.loads(line)["snapshot"]
            assert rest == (b"" if key.endswith("/gone") else written[f"snapshots/{identifier}.json.zst"])


def test_kinds_of_leases(written: dict[str, bytes]):
    kinds = {json.loads(data)["kind"] for key, data in written.items() if key.startswith("leases/")}
    [listed] = re.findall(r"`kind` is (.*?)\. ", TEXT)
    assert kinds <= set(re.findall(r"`(\w+)`", listed)) == {"write", "read", "exclusive", "sweep"}
    assert {"write", "sweep"} <= kinds


# Headers


def test_a_header_with_everything_has_no_key_that_is_not_described():
    full = samples.header(
        run=RunSummary("20260131-081500-7c1e04", ("python",), "2026-01-31T08:15:00Z", 1.0, 1.0, 1, 1, 1, 1, 1, 1, 0),
        tags={"dataset": "pile-v2"},
        secrets=("a  an OpenAI key",),
        proof=samples.proof(),
        origin="imported",
    )
    document = header_of(full, telemetry=b"{}\n")
    [example] = [json.loads(block) for block in BLOCKS if block.startswith('{\n  "format"')]
    more = [json.loads("{" + block.replace('}\n"', '},\n"') + "}") for block in BLOCKS if re.match(r'"\w+": ', block)]
    described = {key: value for part in (example, *more) for key, value in part.items()}
    assert document.keys() == described.keys()
    for key in ("run", "telemetry", "tables", "proof"):
        assert document[key].keys() == described[key].keys()
    assert header_of(replace(full, run=None, tags={}, secrets=())).keys() == example.keys()


def header_of(header: manifest.Header, telemetry: bytes = b"") -> dict[str, Any]:
    """A header as it is stored."""
    data = encode(header, samples.tables(), telemetry)[1]
    document = json.loads(zstandard.ZstdDecompressor().decompressobj().decompress(data))
    assert isinstance(document, dict)
    return document


# In an export and in a cache directory


def test_what_an_export_says_is_as_described():
    document = json.loads(exported.encode(manifest.Snapshot(samples.ID, samples.header())))
    [(schema, keys)] = re.findall(r"Its schema is `(.*?)`: `(.*?)`", TEXT)
    assert (document["schema"], set(document)) == (schema, set(keys.split()))


def test_the_marker_is_as_described():
    full = restored.Restored(
        samples.ID, "file:///s", 1.0, ("triton",), (Place("triton", "triton/0/A"),), True, ("a" * 64,)
    )
    document = json.loads(restored.encode(full))
    [row] = re.findall(r"restored\.json +what was restored last: (.*?)<cache>", TEXT)
    assert set(document) == {key for key in re.findall(r"\w+", row) if key in document}
    assert all(f'"{key}"' in row for key in document["left_out"][0])
    assert set(json.loads(restored.encode(replace(full, only=(), left_out=(), saved=False, older=())))) == {
        "snapshot",
        "store",
        "when",
    }


def test_the_evidence_is_as_described(tmp_path: Path):
    cache, store = settle(make_cache(tmp_path / "cache")), tmp_path / "store"
    cachekeeper.snapshot("x", cache_dir=cache, store=store, wait=0)
    next(cache.glob("??/*.so")).write_bytes(b"")
    cachekeeper.verify("x", live=cache, store=store, repair=True)
    [path] = cache.glob(".cachekeeper/quarantine/*/evidence.json")
    document = json.loads(path.read_text())
    [schema, keys, of_a_file] = re.findall(
        r"`evidence\.json` has the schema `(.*?)`: `(.*?)`, each file with `(.*?)`", TEXT
    )[0]
    assert (document.pop("schema"), set(document)) == (schema, set(keys.split())) and schema == evidence._SCHEMA
    assert {key for file in document["files"] for key in file} == set(of_a_file.split())


def test_places_in_a_cache_directory(tmp_path: Path):
    cache, store = settle(make_cache(tmp_path / "cache")), tmp_path / "store"
    cachekeeper.snapshot("x", cache_dir=cache, store=store, wait=0)
    (cache / "helion").mkdir()
    (cache / "helion" / "more").write_text("x")
    next(cache.glob("??/*.so")).write_bytes(b"")
    cachekeeper.restore("x", cache_dir=cache, store=store, exact=True, allow_mismatch=True)
    (cache / "ab").mkdir(exist_ok=True)
    next(cache.glob("??/*.so")).write_bytes(b"")
    cachekeeper.verify("x", live=cache, store=store, repair=True)
    [described] = [block for block in BLOCKS if block.startswith("<cache>/.cachekeeper")]
    inside = set(re.findall(r"<cache>/\.cachekeeper/(\w+(?:\.json)?)", described))
    assert inside == {"restored.json", "aside", "quarantine", "cleared"}
    assert {path.name for path in (cache / ".cachekeeper").iterdir()} == inside - {"cleared"}
    cachekeeper.clear(cache)
    [trash] = [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert f"<parent>/{trash.name.replace(cache.name, '<name>')}/" in described
    [old] = trash.iterdir()
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-f]+", old.name)


# Numbers

HOUR = 3600
NUMBERS: list[tuple[str, Any, Any]] = [
    ("# Store format, version 1", STORE_FORMAT, 1),
    ('format.json {"format": 1}', json.loads(mark._MARK), {"format": 1}),
    ('magic: "CKPACK", 0, version 1', packs.MAGIC, b"CKPACK\0\1"),
    ("16 bytes nonce", packs._NONCE_BYTES, 16),
    ("8 bytes length of the index, big endian 32 bytes SHA-256 of the index", packs._TAIL.size, 8 + 32 + 8),
    ("a zstd frame: about 1 MiB of small files", packs.FRAME_BYTES, 1 << 20),
    ("an object of frames, about 32 MiB", packs.PACK_BYTES, 32 << 20),
    ("(below 256 KiB)", packs.LARGE_FILE, 256 << 10),
    ("of up to 8 MiB raw", packs.SEGMENT_BYTES, 8 << 20),
    ("of at most 16 MiB (a writer", checking.TELEMETRY_LIMIT, 16 << 20),
    ("(a writer keeps it below 4 MiB)", merging.LIMIT, 4 << 20),
    ("at most 100 keys without `=`", tags._MOST_TAGS, 100),
    ("its value at most 1,000 characters", tags._TAG_LIMIT, 1000),
    ("longer than 4,000 bytes", paths._PATH_LIMIT, 4000),
    ("longer than 255 bytes", paths._PART_LIMIT, 255),
    ("more than a million files or 16 TiB", (checking._FILE_LIMIT, checking._BYTES_LIMIT), (1_000_000, 16 << 40)),
    ("a long key in pieces of 200", megacache._PIECE, 200),
    ("the number with eight digits", names._DIGITS, 8),
    ("gc/<8 digits>", condemned._DIGITS, 8),
    ("the 32 bytes of an Ed25519 public key", signing._RAW_BYTES, 32),
    ("of at most 16 KiB", signatures._LARGEST, 16 << 10),
    ("than the 64 bytes of the signature", signatures._SIGNATURE_BYTES, 64),
    ("a lease counts for six hours", leases._LONGEST_LIFE, 6 * HOUR),
    ("that of a sweep for half an hour", leases._LIFE["sweep"], HOUR / 2),
    ("give up before (five hours, ten minutes)", (leases.WORK_SECONDS, leases.SWEEP_SECONDS), (5 * HOUR, 10 * 60)),
    ("or was held for five hours", leases.WORK_SECONDS, 5 * HOUR),
    ("Only packs larger than 64 MiB go up in parts", s3.ONE_REQUEST_BYTES, 64 << 20),
    ("is longer than 16 MiB or is no regular file as damaged", exported._LONGEST, 16 << 20),
    ("is longer than 4 MiB or is no regular file", restored._LONGEST, 4 << 20),
]


@pytest.mark.parametrize(("said", "real", "meant"), NUMBERS)
def test_a_number_is_the_codes(said: str, real: Any, meant: Any):
    assert said in TEXT and real == meant


def test_no_number_is_left_out():
    """Each size and time that the document names is in NUMBERS."""
    plain = " ".join(re.sub(r"^```.*?^```", "", FORMAT, flags=re.DOTALL | re.MULTILINE).split())
    named = re.findall(r"[\d,.]+ (?:[KMGT]iB|bytes|characters)\b|(?:six|five|half an) hours?|ten minutes", plain)
    told = " ".join(said for said, *_ in NUMBERS)
    assert [number for number in named if number not in told] == []


def test_the_lines_of_the_telemetry_are_limited_as_the_frame():
    assert telemetry._LINE_LIMIT == checking.TELEMETRY_LIMIT
