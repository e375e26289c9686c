"""The format, byte for byte, and what is refused of it. tests/torch_cpu/test_megacache.py asks torch itself."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import zlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekeeper.errors import DamagedCache, EmptyCache, UsageError
from cachekeeper.inductor import classify
from cachekeeper.manifest import storable
from cachekeeper.megacache import Artifact, build, files_of, looks_like_one, parse, path_of, type_and_key

GRAPH = "f" + "ab2" * 17
AUTOGRAD = "a" + "cd3" * 17
HEX = "0123456789abcdef" * 4
ALL = (
    Artifact("aot_autograd", AUTOGRAD, b"aot"),
    Artifact("autotune", f"6s/{HEX}.best_config", b"{}"),
    Artifact("inductor", GRAPH, b"graph"),
    Artifact("pgo", "job:0:", b"profile"),
    Artifact("precompile", HEX, b"package"),
)


def u64(value: int) -> bytes:
    return value.to_bytes(8, "big")


def raw(data: bytes) -> bytes:
    return u64(len(data)) + data


def text(value: str) -> bytes:
    return raw(base64.b64encode(value.encode()))


def chunk(kind: str, members: Sequence[tuple[str, bytes]], number: int | None = None) -> bytes:
    inner = b"".join(text(key) + raw(content) for key, content in members)
    return text(kind) + u64(len(members) if number is None else number) + inner


def sealed(*chunks: bytes, version: int = 1) -> bytes:
    """With a checksum that is right, whatever it is a checksum of."""
    body = u64(version) + b"".join(chunks)
    return zlib.crc32(body).to_bytes(4, "big") + body


def one(kind: str, key: str) -> bytes:
    return sealed(chunk(kind, [(key, b"x")]))


def test_what_is_built_is_these_bytes():
    assert build([Artifact("inductor", GRAPH, b"graph")]) == sealed(chunk("inductor", [(GRAPH, b"graph")]))
    two = [Artifact("inductor", GRAPH, b"b"), Artifact("pgo", "k", b"p"), Artifact("inductor", GRAPH, b"a")]
    expected = sealed(chunk("inductor", [(GRAPH, b"a"), (GRAPH, b"b")]), chunk("pgo", [("k", b"p")]))
    assert build(two) == build(reversed(two)) == expected


def test_what_is_built_is_read_again():
    found = parse(build(ALL))
    assert found.artifacts == ALL and found.lost_by_torch == 0 and found.unknown_types == {}
    assert found.types == dict.fromkeys(("aot_autograd", "autotune", "inductor", "pgo", "precompile"), 1)


@given(st.lists(st.tuples(st.text(min_size=1, max_size=9), st.text(min_size=1, max_size=300), st.binary(max_size=99))))
def test_artifacts_of_any_type_come_back(items: list[tuple[str, str, bytes]]):
    artifacts = []
    for kind, key, content in items:
        artifact = Artifact(f"x{kind}", key, content)
        try:
            path = path_of(artifact)
        except UsageError:
            continue
        place = classify(path)
        assert storable(path) and place and place.kind == "other"
        assert type_and_key(path) == (artifact.type, artifact.key)
        artifacts.append(artifact)
    if artifacts:
        assert parse(build(artifacts)).artifacts == tuple(sorted(artifacts))


@pytest.mark.parametrize(("artifact", "path"), [
    (ALL[0], f"aotautograd/{AUTOGRAD}/"),
    (ALL[1], f"6s/{HEX}.best_config"),
    (ALL[2], f"fxgraph/ab/{GRAPH}/"),
    (ALL[3], "dynamo/code_state_job_0_.pkl"),
    (ALL[4], f"dynamo/{HEX}/entry"),
    (Artifact("new/kind", "a/b.lock", b""), "mega-cache/new%2Fkind.artifacts/a%2Fb%2Elock.bin"),
    (Artifact("new", "k" * 300, b""), f"mega-cache/new.artifacts/{'k' * 200}.part/{'k' * 100}.bin"),
])  # fmt: skip
def test_places(artifact: Artifact, path: str):
    if path.endswith("/"):
        path += base64.b32encode(hashlib.sha256(artifact.content).digest()).decode().lower()[:51]
    assert path_of(artifact) == path
    found = type_and_key(path)
    assert found == (artifact.type, "job_0_" if artifact.type == "pgo" else artifact.key)


def test_files_that_a_mega_cache_does_not_carry():
    for path in (
        "ab/cxyz.py",
        "ab/cxyz.main.so",
        f"cache/{HEX}",
        "triton/0/HASH/kernel.cubin",
        "dynamo/other/entry",
        f"also/X/fxgraph/ab/{GRAPH}/x",
        "mega-cache/readme",
        "mega-cache/inductor.artifacts/x.bin",
        "mega-cache/new.artifacts/a.b.bin",
        f"{HEX}.best_config",
    ):
        assert type_and_key(path) is None, path


def test_the_older_name_of_an_autograd_entry_is_taken():
    assert type_and_key(f"aotautograd/{AUTOGRAD}/entry") == ("aot_autograd", AUTOGRAD)


def test_every_chunk_of_a_type_is_read():
    first = [("f" + "a" * 51, b"1"), ("f" + "b" * 51, b"2")]
    data = sealed(chunk("inductor", first), chunk("pgo", [("k", b"old")]), chunk("inductor", [(GRAPH, b"3")]))
    found = parse(data)
    assert [artifact.content for artifact in found.artifacts] == [b"1", b"2", b"old", b"3"]
    assert found.lost_by_torch == 2
    assert len(files_of(found)) == 4


def test_of_artifacts_for_one_path_the_last_counts():
    found = parse(sealed(chunk("pgo", [("k", b"old")]), chunk("pgo", [("k", b"new")])))
    assert files_of(found) == {"dynamo/code_state_k.pkl": b"new"}


def test_unknown_types_are_kept():
    found = parse(sealed(chunk("inductor", [(GRAPH, b"x")]), chunk("later", [("k", b"y"), ("l", b"z")])))
    assert found.unknown_types == {"later": 2}
    assert files_of(found)["mega-cache/later.artifacts/l.bin"] == b"z"


def test_recognised_by_its_bytes():
    assert looks_like_one(build(ALL)[:12])
    assert looks_like_one(sealed(version=7))
    for other in (b"", b"short", b"PK\x03\x04" + bytes(20), bytes(512), b"\x1f\x8b" + bytes(range(30))):
        assert not looks_like_one(other)


# Damage


@pytest.mark.parametrize("at", [0, 3, 12, 20, 40, -1])
def test_a_changed_byte_is_noticed(at: int):
    data = bytearray(build(ALL))
    data[at] ^= 0x10
    with pytest.raises(DamagedCache, match="checksum does not match") as caught:
        parse(bytes(data))
    assert caught.value.exit_code == 3 and "CRC-32" in caught.value.facts[0]


@pytest.mark.parametrize("length", [1, 11, 12, 19, 30, 200, -1])
def test_a_cut_is_noticed(length: int):
    with pytest.raises(DamagedCache):
        parse(build(ALL)[:length])


def test_a_cut_is_called_one():
    with pytest.raises(DamagedCache) as caught:
        parse(build(ALL)[:-1])
    assert "cut" in caught.value.facts[1]


@pytest.mark.parametrize("data", [
    sealed(chunk("inductor", [], number=1 << 60)),
    sealed(chunk("inductor", [(GRAPH, b"x")], number=(1 << 64) - 1)),
    sealed(chunk("inductor", [(GRAPH, b"x")], number=2)),
    sealed(text("inductor") + u64(1) + text(GRAPH) + u64(1 << 60)),
    sealed(text("inductor") + u64(1) + text(GRAPH) + u64(3) + b"12"),
    sealed(u64(1 << 63)),
    sealed(b"\0\0\0"),
    sealed(raw(b"not base64!") + u64(0)),
    sealed(raw(base64.b64encode(b"\xff\xfe")) + u64(0)),
    sealed(text("inductor")),
], ids=range(10))  # fmt: skip
def test_what_was_never_sane_is_damage_although_its_checksum_is_right(data: bytes):
    with pytest.raises(DamagedCache) as caught:
        parse(data)
    assert caught.value.facts


def test_a_number_that_cannot_be_is_told_before_anything_is_read():
    with pytest.raises(DamagedCache) as caught:
        parse(sealed(chunk("inductor", [(GRAPH, b"x")], number=1 << 60)))
    assert caught.value.facts == (f"{1 << 60:,} artifacts of type 'inductor' in {len(text(GRAPH) + raw(b'x'))} bytes",)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes):
    for candidate in (data, sealed(data)):
        with contextlib.suppress(DamagedCache, EmptyCache, UsageError):
            parse(candidate)


@pytest.mark.parametrize("data", [sealed(), sealed(chunk("inductor", []), chunk("pgo", []))], ids=["none", "empty"])
def test_nothing_in_it_is_a_failure(data: bytes):
    with pytest.raises(EmptyCache) as caught:
        parse(data)
    assert caught.value.exit_code == 5


def test_another_version_is_refused():
    with pytest.raises(UsageError, match="version 2; this cachekeeper reads version 1"):
        parse(sealed(chunk("inductor", [(GRAPH, b"x")]), version=2))


# Keys


@pytest.mark.parametrize("kind", ["inductor", "aot_autograd", "autotune", "pgo", "precompile", "later"])
@pytest.mark.parametrize("key", [
    "../../x", "/etc/passwd", "a/../../b", "..", ".", "a\\..\\b", "a\0b", "a\nb", "", "./x", "x" * 2001, "\u202ex",
], ids=repr)  # fmt: skip
def test_a_hostile_key_is_refused(kind: str, key: str):
    with pytest.raises(UsageError, match="a key that torch does not write"):
        parse(one(kind, key))


@pytest.mark.parametrize(("kind", "key"), [
    ("inductor", "f" + "a" * 50), ("inductor", "a" * 52), ("inductor", "f" + "A" * 51), ("inductor", "f" + "1" * 51),
    ("aot_autograd", GRAPH), ("autotune", f"{HEX}.best_config"), ("autotune", f"abc/{HEX}.best_config"),
    ("autotune", f"ab/{HEX}.py"), ("autotune", f"ab/c/{HEX}.best_config"), ("autotune", f"../{HEX}.best_config"),
    ("precompile", "entry"), ("precompile", HEX + "0"), ("pgo", "k" * 201), ("", "key"), ("later\n", "key"),
    ("t" * 101, "key"),
])  # fmt: skip
def test_a_key_of_another_form_is_refused(kind: str, key: str):
    with pytest.raises(UsageError):
        parse(one(kind, key))
    with pytest.raises(UsageError):
        build([Artifact(kind, key, b"x")])


def test_a_key_that_names_directories_does_not_lead_into_one():
    assert path_of(Artifact("pgo", "a/b:c|d", b"")) == "dynamo/code_state_a_b_c_d.pkl"
    assert path_of(Artifact("later", "x/y", b"")) == "mega-cache/later.artifacts/x%2Fy.bin"
