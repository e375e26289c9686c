"""Which file is what: every row of what Inductor and Triton write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachekeeper.inductor import KINDS, PUBLISH_ORDER, classify, is_telling, triton_device
from cachekeeper.inductor.layout import cache_of, is_keyed, is_scratch_directory, is_scratch_file, may_be_at_top
from cachekeeper.testing import make_cache

KEY = "clxxrd6kridy7h3nzozvsrwzmyimi5fmkci6dql5xera2nami6qt"
GRAPH = "f" + KEY[1:]
HASH = "A2B3" * 13
HEX = "0123456789abcdef" * 4
TRITON = f"triton/0/{HASH}"


@pytest.mark.parametrize(
    ("path", "kind", "entry"),
    [
        (f"fxgraph/lx/{GRAPH}/{KEY}", "fxgraph", f"fxgraph/lx/{GRAPH}"),
        (f"aotautograd/a{KEY[1:]}/{KEY}", "aotautograd", f"aotautograd/a{KEY[1:]}"),
        (f"aotautograd/a{KEY[1:]}/entry", "aotautograd", f"aotautograd/a{KEY[1:]}"),  # torch 2.6
        (f"lx/{KEY}.py", "module", f"lx/{KEY}"),
        (f"lx/{HEX}.best_config", "autotune", f"lx/{HEX}.best_config"),
        (f"lx/{KEY}.main.cpp", "native", f"lx/{KEY}"),
        (f"lx/{KEY}.main.so", "native", f"lx/{KEY}"),
        (f"lx/{KEY}.cpp", "native", f"lx/{KEY}"),
        (f"lx/{KEY}.so", "native", f"lx/{KEY}"),
        (f"lx/{KEY}.h", "native", f"lx/{KEY}"),
        (f"{TRITON}/k.cubin", "triton", TRITON),
        (f"{TRITON}/__grp__k.json", "triton", TRITON),
        (f"triton/0/{HEX}/k.hsaco", "triton", f"triton/0/{HEX}"),
        (f"triton/7/{HASH}/cuda_utils.cpython-311-x86_64-linux-gnu.so", "triton", f"triton/7/{HASH}"),
        ("triton/shared/whatever/k.json", "triton", "triton/shared/whatever"),
        (f"{HASH}/k.cubin", "triton", HASH),  # TRITON_CACHE_DIR itself
        (f"cache/{HEX}", "autotune", f"cache/{HEX}"),
        ("autoheuristic/x/y.txt", "autotune", "autoheuristic/x/y.txt"),
        ("dynamo/code_state_job_0_tag.pkl", "precompile", "dynamo/code_state_job_0_tag.pkl"),
        ("dynamo/key/entry", "precompile", "dynamo/key"),
        ("precompiled_headers/h.gch", "headers", "precompiled_headers/h.gch"),
        ("cutedsl_compile_cache/x.o", "other", "cutedsl_compile_cache/x.o"),
        ("flydsl_compile_cache/a/b", "other", "flydsl_compile_cache/a/b"),
        ("quack/x", "other", "quack/x"),
        ("memoizer_cache.json", "other", "memoizer_cache.json"),
        ("aoti_eager/a/b.json", "other", "aoti_eager/a/b.json"),
        ("torch_cutlass/x.cu", "other", "torch_cutlass/x.cu"),
        ("unhashed_kernel_inputs/x", "other", "unhashed_kernel_inputs/x"),
    ],
)
def test_places(path: str, kind: str, entry: str):
    assert classify(path) == (kind, entry)


@pytest.mark.parametrize(
    "path",
    [
        f"locks/{KEY}.lock",
        f"lx/{KEY}.lock",
        f"{TRITON}/lock",
        f"fxgraph/lx/{GRAPH}/.123.140123456.tmp",
        "lx/.123.140123456.tmp",
        f"{TRITON}/k.cubin.tmp.pid_15735_304289",
        f"{TRITON}/tmp.pid_15735_304289/k.cubin",
        "triton/0/tmp.pid_15735_304289/k.cubin",
        f"{TRITON}/tmp.0a1b2c3d-0a1b-2c3d-4e5f-0a1b2c3d4e5f/k.cubin",
        f"{TRITON}/tmp.0a1b2c3d0a1b2c3d4e5f0a1b2c3d4e5f/k.cubin",
        f"lx/{KEY}_CxxBuild/x.o",
        "lx/__pycache__/x.pyc",
        ".cachekeeper/restored.json",
        ".cachekeeper-export.json",
        ".cachekeeper/aside/20260101T000000Z-abcdef/lx/x.so",
        "lx/.nfs0000000000000001",
        f"also/label/locks/{KEY}.lock",
    ],
)
def test_scratch_is_nothing(path: str):
    assert classify(path) is None


@pytest.mark.parametrize("name", ["tmp.txt", "tmp.pid", "mylocks", "lock.py", "x.tmp", "a.locks", "tmp.kernel.json"])
def test_what_only_looks_like_scratch_is_kept(name: str):
    assert not is_scratch_file(name)
    assert not is_scratch_directory(name)


def test_a_library_and_its_source_are_one_entry():
    assert classify(f"lx/{KEY}.main.so") == classify(f"lx/{KEY}.main.cpp")


@given(st.text(st.sampled_from("aZ2_.-/"), min_size=1, max_size=60))
def test_an_entry_is_the_file_or_above_it(path: str):
    place = classify(path)
    if place is not None:
        assert place.kind in KINDS
        assert path == place.entry or path.startswith((place.entry + "/", place.entry + "."))


def test_a_made_cache_has_every_common_kind(tmp_path):
    root = make_cache(tmp_path)
    places = [classify(path.relative_to(root).as_posix()) for path in root.rglob("*") if path.is_file()]
    assert {place.kind for place in places if place} == {
        "fxgraph",
        "aotautograd",
        "triton",
        "module",
        "native",
        "autotune",
    }
    assert places.count(None) == 5  # four locks and a temporary file


def test_what_refers_to_others_is_published_after_them():
    assert sorted(KINDS, key=lambda kind: PUBLISH_ORDER.get(kind, 0))[-3:] == ["triton", "fxgraph", "aotautograd"]


@pytest.mark.parametrize(
    ("entry", "device"),
    [
        (TRITON, "triton/0"),
        ("triton/shared/whatever", "triton/shared"),
        (f"also/TRITON_CACHE_DIR/{HASH}", "also/TRITON_CACHE_DIR"),
        (HASH, ""),
        ("also/deep_gemm/kernel.x", None),
    ],
)
def test_the_directory_that_triton_would_be_told(entry: str, device: str | None):
    assert triton_device(entry) == device


@pytest.mark.parametrize(
    ("path", "telling"),
    [
        ("fxgraph/nb/fnb3/e3m7", True),
        ("triton/0/x/k.cubin", True),
        ("6j/c6jixdogrcazg7datqa3a44lm6zfmkhzjscbqfcl5vjopz3z6cv2.py", True),
        ("gi/76871ed2590e4f2d312f1c091433e7f0ef713719f5fd057cea3cbb3d9816a48e.best_config", True),
        ("de/index.py", False),
        ("fr/lib.so", False),
        ("passwd", False),
        ("cache/index", False),
    ],
)
def test_what_only_a_compile_cache_has(path: str, telling: bool):
    place = classify(path)
    assert place is not None and is_telling(place.kind, path) == telling


@pytest.mark.parametrize(
    "name",
    [
        *("fxgraph", "aotautograd", "triton", "locks", "also", ".cachekeeper", "cache", "dynamo"),
        *("precompiled_headers", "lx", "2a", KEY, HASH, HEX, "x.lock", "tmpab12cd_3.py", "memoizer_cache.json"),
    ],
)
def test_what_is_at_the_top_of_a_cache(name: str):
    assert may_be_at_top(name)


@pytest.mark.parametrize(
    "name",
    [".git", "src", "README.md", "setup.py", "torchinductor_root", "packs", "format.json", "Lx", "ab.txt", "a", ""],
)
def test_what_is_at_the_top_of_something_else(name: str):
    assert not may_be_at_top(name)


def test_the_top_of_a_made_cache(tmp_path):
    assert all(may_be_at_top(path.name) for path in make_cache(tmp_path / "cache").iterdir())


@pytest.mark.parametrize(
    ("path", "keyed"),
    [
        (f"fxgraph/lx/{GRAPH}/{KEY}", True),
        (f"aotautograd/a{KEY[1:]}/entry", True),
        (f"{TRITON}/kernel.cubin", True),
        (f"{HASH}/kernel.cubin", True),
        (f"lx/{KEY}.py", True),
        (f"lx/{HEX}.best_config", True),
        ("triton/python/triton/language/core.py", False),  # a checkout of Triton
        ("dynamo/lib/llm/src/lib.rs", False),
        ("fxgraph/notes/todo/today.txt", False),
        ("py/module.py", False),
    ],
)
def test_names_that_only_a_key_gives(path: str, keyed: bool):
    place = classify(path)
    assert place is not None
    assert is_keyed(place.kind, path) == keyed


@pytest.mark.parametrize("above", ["", ".inductor_cache", "sub", "a/b", "ck"])
@pytest.mark.parametrize(
    "path",
    [
        f"fxgraph/lx/{GRAPH}/{KEY}",
        f"aotautograd/a{KEY[1:]}/entry",
        f"triton/0/{HASH}/kernel.cubin",
        f"{HASH}/kernel.cubin",
        f"lx/{KEY}.py",
        f"lx/{HEX}.best_config",
    ],
)
def test_the_directory_whose_cache_a_file_is_of(above: str, path: str):
    assert cache_of(f"{above}/{path}".lstrip("/")) == above


@pytest.mark.parametrize("path", ["train.py", f"{KEY}.py", "triton/python/triton/core.py", f"src/{KEY}.py"])
def test_a_file_of_no_cache(path: str):
    assert cache_of(path) is None
