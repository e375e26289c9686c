"""Mega-Cache bytes and torch itself: what it saves we read, what we write it loads and hits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import cachekeeper
from cachekeeper import megacache
from cachekeeper.errors import DamagedCache

from .running import REPOSITORY

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("torch")]

# job.py PART... with load=FILE, save=FILE; parts are `train` (forward and backward) and `infer`.
JOB = """
import hashlib, json, sys
from pathlib import Path
import torch
from torch._dynamo.utils import counters

def train():
    x = torch.linspace(-2, 2, 64 * 33).reshape(64, 33).requires_grad_()
    y = torch.compile(lambda x: torch.relu(x * 3.1417236328125).sin().sum())(x)
    y.backward()
    return [y, x.grad]

def infer():
    with torch.no_grad():
        return [torch.compile(lambda x: x.cos() * 2.5 + 1)(torch.linspace(-1, 1, 555))]

def keys(info):
    return None if info is None else {kind: sorted(found) for kind, found in info.artifacts.items()}

sha, result = hashlib.sha256(), {"saved": {}, "loaded": {}, "outputs": {}}
for step in sys.argv[1:]:
    name, _, file = step.partition("=")
    if name == "load":
        result["loaded"][file] = keys(torch.compiler.load_cache_artifacts(Path(file).read_bytes()))
    elif name == "save":
        data, info = torch.compiler.save_cache_artifacts()
        Path(file).write_bytes(data)
        result["saved"][file] = keys(info)
    else:
        sha = hashlib.sha256()
        for tensor in globals()[name]():
            sha.update(tensor.detach().numpy().tobytes())
        result["outputs"][name] = sha.hexdigest()
inductor, autograd = counters["inductor"], counters["aot_autograd"]
result["fx"] = [inductor["fxgraph_cache_hit"], inductor["fxgraph_cache_miss"] + inductor["fxgraph_cache_bypass"]]
result["aot"] = [autograd["autograd_cache_hit"], autograd["autograd_cache_miss"] + autograd["autograd_cache_bypass"]]
print(json.dumps(result))
"""


@dataclass(frozen=True)
class Run:
    """What a job printed; fx, aot: (hits, misses); loaded, saved: file -> type -> keys, or None where torch gave up."""

    errors: str
    outputs: Mapping[str, str]
    fx: list[int]
    aot: list[int]
    loaded: Mapping[str, dict[str, list[str]] | None] = field(default_factory=dict)
    saved: Mapping[str, dict[str, list[str]]] = field(default_factory=dict)


def run(cache: Path, *steps: str, environment: Mapping[str, str] | None = None) -> Run:
    # Without precompiled headers, which take longer than all the rest; the switch is part of the keys.
    own = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}
    result = subprocess.run(
        [sys.executable, "-c", JOB, *steps],
        env={**os.environ, **own, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return Run(result.stderr, **json.loads(result.stdout.splitlines()[-1]))


@dataclass(frozen=True)
class Made:
    """A cache made by `train` and `infer`, with what torch saved after the first and again after the second."""

    cache: Path
    store: Path
    once: Path
    twice: Path
    cold: Run


@pytest.fixture(scope="module")
def made(clean_environment: None, compilers: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    work = tmp_path_factory.mktemp("mega")
    once, twice = work / "once.mega", work / "twice.mega"
    cold = run(work / "inductor", "train", f"save={once}", "infer", f"save={twice}")
    assert (cold.fx, cold.aot) == ([0, 3], [0, 2])
    cachekeeper.snapshot("made", cache_dir=work / "inductor", store=work / "store", wait=0)
    return Made(work / "inductor", work / "store", once, twice, cold)


def restored(store: Path, name: str, cache: Path) -> dict[str, str]:
    result = cachekeeper.restore(name, cache_dir=cache, store=store, verify=True)
    assert result.environment
    return result.environment


def with_libraries(made: Made, cache: Path) -> Path:
    """A cache with the libraries alone: a Mega-Cache carries none, and to build them takes longer than all the rest."""
    cachekeeper.restore("made", cache_dir=cache, store=made.store, only=["native"])
    assert not (cache / "fxgraph").exists()
    return cache


def test_what_torch_saved_is_imported_and_hit(made: Made, tmp_path: Path):
    result = cachekeeper.import_cache(made.once, "once", store=tmp_path / "store")
    assert result.format == "mega-cache" and result.artifacts == {"inductor": 2, "aot_autograd": 1}
    assert result.saved and result.saved.snapshot.header.origin == "imported from once.mega (mega-cache)"
    assert result.saved.snapshot.header.live == ()
    environment = restored(tmp_path / "store", "once", with_libraries(made, tmp_path / "cache"))
    there = {path.relative_to(made.cache) for path in made.cache.glob("fxgraph/*/*/*")}
    ours = {path.relative_to(tmp_path / "cache") for path in (tmp_path / "cache").glob("fxgraph/*/*/*")}
    assert len(ours) == 2 and ours < there  # the same place, under the same name
    warm = run(tmp_path / "cache", "train", environment=environment)
    assert (warm.fx, warm.aot) == ([2, 0], [1, 0])
    assert warm.outputs["train"] == made.cold.outputs["train"]


def test_what_is_exported_torch_loads_and_hits(made: Made, tmp_path: Path):
    mega = tmp_path / "made.mega"
    result = cachekeeper.export("made", mega, store=made.store)
    assert result.artifacts == {"inductor": 3, "aot_autograd": 2}
    libraries = len(list(made.cache.rglob("*.so")))
    assert libraries >= 3 and result.lacks == (f"{libraries} C++ libraries",)
    warm = run(tmp_path / "cache", f"load={mega}", "train", "infer")
    assert warm.loaded[str(mega)] == made.cold.saved[str(made.twice)]
    assert (warm.fx, warm.aot) == ([3, 0], [2, 0])
    assert warm.outputs == made.cold.outputs


def test_of_what_was_saved_twice_torch_loses_a_part_and_we_do_not(made: Made, tmp_path: Path):
    lossy = run(with_libraries(made, tmp_path / "torch"), f"load={made.twice}", "train")
    loaded = lossy.loaded[str(made.twice)]
    assert loaded is not None
    assert {kind: len(keys) for kind, keys in loaded.items()} == {"inductor": 1, "aot_autograd": 1}
    assert (lossy.fx, lossy.aot) == ([0, 2], [0, 1])
    result = cachekeeper.import_cache(made.twice, "twice", store=tmp_path / "store")
    assert result.artifacts == {"inductor": 3, "aot_autograd": 2}
    assert any("would lose 3 of 5 artifacts" in note for note in result.notes)
    environment = restored(tmp_path / "store", "twice", with_libraries(made, tmp_path / "ours"))
    warm = run(tmp_path / "ours", "train", "infer", environment=environment)
    assert (warm.fx, warm.aot) == ([3, 0], [2, 0])
    # And what is exported of it holds one chunk of each type, all of which torch takes.
    cachekeeper.export("twice", tmp_path / "again.mega", store=tmp_path / "store")
    assert megacache.parse((tmp_path / "again.mega").read_bytes()).lost_by_torch == 0


def test_damaged_bytes_are_refused_where_torch_goes_on_cold(made: Made, tmp_path: Path):
    whole = made.once.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    files = {"flipped": bytes(flipped), "cut": whole[:-100], "half": whole[: len(whole) // 2]}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    ignored = run(tmp_path / "torch", *(f"load={tmp_path / name}" for name in files))
    assert ignored.loaded == {str(tmp_path / name): None for name in files}
    assert "checksum does not match" in ignored.errors
    for name in files:
        command = [
            sys.executable,
            "-m",
            "cachekeeper",
            "import",
            str(tmp_path / name),
            "--store",
            str(tmp_path / "store"),
        ]
        said = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        assert said.returncode == DamagedCache.exit_code == 3
        assert said.stdout == "" and "error[damaged-cache]" in said.stderr and "CRC-32" in said.stderr
    assert not (tmp_path / "store").exists()


def test_an_unknown_type_makes_torch_refuse_all_so_it_is_left_out(made: Made, tmp_path: Path):
    artifacts = [*megacache.parse(made.once.read_bytes()).artifacts, megacache.Artifact("future", "k/1", b"later")]
    (tmp_path / "future.mega").write_bytes(megacache.build(artifacts))
    cachekeeper.import_cache(tmp_path / "future.mega", "future", store=tmp_path / "store")
    plain = cachekeeper.export("future", tmp_path / "plain.mega", store=tmp_path / "store")
    assert plain.lacks == ("1 artifact of type future, which torch does not know (--with-unknown)",)
    cachekeeper.export("future", tmp_path / "all.mega", store=tmp_path / "store", with_unknown=True)
    assert megacache.parse((tmp_path / "all.mega").read_bytes()).unknown_types == {"future": 1}
    told = run(tmp_path / "cache", f"load={tmp_path / 'all.mega'}", f"load={tmp_path / 'plain.mega'}")
    assert told.loaded[str(tmp_path / "all.mega")] is None
    assert told.loaded[str(tmp_path / "plain.mega")] == made.cold.saved[str(made.once)]


def test_through_a_tar_file_and_another_store(made: Made, tmp_path: Path):
    cachekeeper.export("made", tmp_path / "made.tar.zst", store=made.store)
    result = cachekeeper.import_cache(tmp_path / "made.tar.zst", "back", store=tmp_path / "store")
    assert result.saved
    environment = restored(tmp_path / "store", "back", tmp_path / "cache")
    libraries = {path.relative_to(tmp_path / "cache") for path in (tmp_path / "cache").rglob("*.so")}
    assert len(libraries) >= 3 and libraries == {path.relative_to(made.cache) for path in made.cache.rglob("*.so")}
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.so")}
    warm = run(tmp_path / "cache", "train", "infer", environment=environment)
    assert (warm.fx, warm.aot) == ([3, 0], [2, 0]) and warm.outputs == made.cold.outputs
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.so")} == times
